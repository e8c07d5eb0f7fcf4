"""Two processes write the same operations, jobs and events in shuffled order: no deadlock, nothing lost, nothing twice."""

import multiprocessing
import random
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from ledger import tables
from ledger.engine import Engines, open_engines
from ledger.leases import defer, renew
from ledger.petition import petition
from ledger.settle import settle
from ledger.sweep import sweep
from ledger.vault import Vault
from schemas.commands import Claimed, Defer, Intent, Petition, Renew, Sweep
from schemas.delivery import Delivery
from schemas.evidence import CancelAsked, CancelTaken, Evidence, JobKnown, RefreshAsked
from schemas.operation import SECOND
from schemas.states import Errand, Reading
from tests.conformance.conftest import MASTER, Database
from tests.conformance.house import NOW, Record, delivery, intent, reading

OPERATIONS = 40
ROUNDS = 20
EVENTS = 600


def work(url: str, name: str, seed: int, answers: "multiprocessing.Queue[dict[str, Any]]") -> None:
    """Do everything that a process does to the record, in batches over the same rows as the other process."""
    chance = random.Random(seed)
    engines = open_engines(url)
    record = Record(engines=engines, vault=Vault(MASTER), patience=5)
    acknowledged: set[str] = set()
    known: set[str] = set()
    errors: list[str] = []
    try:
        for step in range(ROUNDS):
            numbers = chance.sample(range(OPERATIONS), OPERATIONS)
            record.now = NOW + step * 20 * SECOND
            registered = record.register(*(mine(number, seed, step) for number in numbers[:20]))
            known.update({answer.operation.id for answer in registered if answer.operation is not None})
            events = chance.sample(range(EVENTS), 60)
            acknowledged.update(answer.delivery_id for answer in record.ingest(*(event(number, seed, step) for number in events)))
            items = list(record.claim(name, limit=20))
            chance.shuffle(items)
            if items:
                record.tx(settle, *(record.settlement(item, _evidence(item)) for item in items))
            asks = [
                Petition(operation_id=identity, owner="acme", actor=name, evidence=evidence, now=record.now, chance=0.5)
                for identity in chance.sample(sorted(known), 10)
                for evidence in (RefreshAsked(by=name), *((CancelAsked(by=name),) if identity.endswith("7") else ()))
            ]
            record.tx(petition, *asks)
            record.tx(sweep, Sweep(now=record.now + 100 * SECOND, limit=50, chance=0.5))
    except Exception as error:  # noqa: BLE001 - the other process must be told of anything
        errors.append(f"{type(error).__name__}: {str(error)[:300]}")
    answers.put({"acknowledged": sorted(acknowledged), "errors": errors})
    engines.close()


def mine(number: int, seed: int, step: int) -> Intent:
    """Return this process's intent for the key that both use; whoever commits first makes the operation."""
    own = intent(seed * 1_000_000 + step * 1_000 + number)
    return replace(own, idempotency_key=f"key-{number}", request_fingerprint=f"sha256:{number}", reference=f"job-{number}")


def event(number: int, seed: int, step: int) -> Delivery:
    """Return this process's delivery of an event that both receive."""
    own = seed * 1_000_000 + step * 1_000 + number
    return delivery(own, f"job-{number % OPERATIONS}", key=f"id:{number}", content=f"{number:064d}")


def _evidence(item: Claimed) -> Evidence:
    if item.errand is Errand.CREATE:
        return JobKnown(remote_job_id=item.operation.reference or "", source="create")
    return CancelTaken() if item.errand is Errand.CANCEL else reading(Reading.RUNNING)


@pytest.mark.timeout(110)
def test_two_processes_on_overlapping_operations(database: Database, engines: Engines, vault: Vault) -> None:
    """ARCHITECTURE, The writer: one lock order everywhere, so zero deadlocks; every acknowledged delivery is stored once."""
    context = multiprocessing.get_context("spawn")
    answers: multiprocessing.Queue[dict[str, Any]] = context.Queue()
    processes = [context.Process(target=work, args=(database.url, f"w{seed}", seed, answers)) for seed in (1, 2)]
    for process in processes:
        process.start()
    told = [answers.get(timeout=100) for _ in processes]
    for process in processes:
        process.join(timeout=20)
    assert [each["errors"] for each in told] == [[], []]
    with engines.read.begin() as connection:
        stored = set(connection.execute(sa.select(tables.deliveries.c.id)).scalars())
        keys = connection.execute(sa.select(tables.deliveries.c.dedup_key)).scalars().all()
        jobs = connection.execute(sa.select(tables.operations.c.remote_job_id)).scalars().all()
        orphans = connection.execute(
            sa.select(sa.func.count())
            .select_from(tables.deliveries.join(tables.remote_jobs, sa.and_(
                tables.remote_jobs.c.provider == tables.deliveries.c.provider,
                tables.remote_jobs.c.remote_job_id == tables.deliveries.c.remote_job_id)))
            .where(tables.deliveries.c.status == "orphan", tables.remote_jobs.c.operation.is_not(None))
        ).scalar_one()  # fmt: skip
    assert {identity for each in told for identity in each["acknowledged"]} <= stored
    assert len(keys) == len(set(keys))
    named = [job for job in jobs if job is not None]
    assert len(named) == len(set(named))
    assert orphans == 0
    record = Record(engines=engines, vault=vault)
    assert record.faults() == []


def test_a_worker_of_the_same_name_is_another_one(engines: Engines, vault: Vault) -> None:
    """C1, B125: host and process number may come again; what counts is the fence: the former's renewal and deferral hit nothing."""
    record = Record(engines=engines, vault=vault)
    record.register(intent(1))
    (former,) = record.claim("host:7")
    with engines.begin() as connection:  # its lease is over
        connection.execute(sa.update(tables.operations).values(lease_until=0, due_at=0))
    (successor,) = record.claim("host:7", after=SECOND)
    assert successor.fence == former.fence + 1
    name, now = former.operation.id, record.now + SECOND
    assert record.tx(renew, Renew(operation_id=name, fence=former.fence, lease=60 * SECOND, now=now)) == [False]
    assert record.tx(defer, Defer(operation_id=name, fence=former.fence, due_at=now, now=now)) == [False]
    settled = record.settle(former, JobKnown(remote_job_id="job-1", source="create"), after=SECOND)
    assert settled.stale  # true evidence counts; the successor keeps its lease
    assert (settled.operation.lease_owner, settled.operation.lease_fence) == ("host:7", successor.fence)
    assert record.tx(renew, Renew(operation_id=name, fence=successor.fence, lease=60 * SECOND, now=now)) == [True]

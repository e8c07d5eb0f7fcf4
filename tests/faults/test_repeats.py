"""A command whose commit happened and whose answer was lost is submitted again: the record has it once (B055, B124)."""

from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from ledger import tables
from ledger.engine import open_engines
from ledger.ingest import ingest
from ledger.settle import settle
from ledger.vault import Vault
from schemas.commands import Ingest
from schemas.evidence import CreateAmbiguous, Evidence, JobKnown
from schemas.http import Exchange
from schemas.operation import SECOND
from schemas.states import Errand, Reading, State
from tests.conformance.conftest import Database
from tests.conformance.house import NOW, Record, delivery, intent, reading


@pytest.fixture
def record(database: Database, vault: Vault) -> Any:
    engines = open_engines(database.url)
    yield Record(engines, vault)
    engines.close()


def _count(record: Record, table: sa.Table) -> int:
    with record.engines.read.begin() as connection:
        return int(connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one())


def test_a_delivery_stored_before_is_answered_as_before(record: Record) -> None:
    """B124: the second submission says what the first one would have said, whatever became of the delivery, and writes nothing."""
    record.accept(1, "job-1")
    matched, unmatched, dead = delivery(1, "job-1"), delivery(2, "job-2"), delivery(3, readable=False, problem="not JSON")
    commands = [Ingest(delivery=item, now=NOW) for item in (matched, unmatched, dead)]
    first, again = record.tx(ingest, *commands), record.tx(ingest, *commands)
    assert [answer.status for answer in first] == ["accepted", "unmatched", "ignored"]
    assert [(answer.status, answer.delivery_id) for answer in again] == [(answer.status, answer.delivery_id) for answer in first]
    assert _count(record, tables.deliveries) == 3
    with record.engines.read.begin() as connection:
        assert connection.execute(sa.select(tables.operations.c.hints)).scalar_one() == 1
    assert not record.faults()


def _exchange(number: int) -> Exchange:
    return Exchange(id=f"exc_{number}", errand="create", method="POST", url="u", started_at=NOW, finished_at=NOW, outcome="answered")


@pytest.mark.parametrize(
    "evidence",
    [JobKnown(remote_job_id="job-1", source="create"), CreateAmbiguous(error="timeout")],
    ids=["job_known", "ambiguous"],
)
def test_an_errand_settled_before_is_not_judged_again(record: Record, evidence: Evidence) -> None:
    """B124: neither the operation nor its history changes by the second submission, even when a successor has been at work."""
    record.register(intent(1))
    item = record.claim()[0]
    command = replace(record.settlement(item, evidence), exchange=_exchange(1))
    first = record.tx(settle, command)[0]
    again = record.tx(settle, command)[0]
    assert again.operation == first.operation

    successor = record.claim("w2", after=3_600 * SECOND)[0]
    late = record.tx(settle, command)[0]
    assert late.stale
    assert late.operation.open_attempt == successor.attempt_id
    assert late.operation.history_seq == successor.operation.history_seq
    assert _count(record, tables.exchanges) == 1
    assert not record.faults()


def test_a_reading_settled_before_is_counted_once(record: Record) -> None:
    """C4: one observation, seen once."""
    record.accept(1, "job-1")
    item = record.claim(after=60 * SECOND)[0]
    assert item.errand is Errand.READ
    command = replace(record.settlement(item, reading(Reading.RUNNING)), exchange=_exchange(2))
    record.tx(settle, command)
    assert record.tx(settle, command)[0].operation.state is State.OBSERVING
    with record.engines.read.begin() as connection:
        assert connection.execute(sa.select(tables.observations.c.count)).scalars().all() == [1]

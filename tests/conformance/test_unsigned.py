"""Deliveries that nobody signed: hints within a budget, on both databases (B8)."""

import contextlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from ledger import bounds, inbox, tables
from ledger.engine import Engines
from ledger.transaction import View
from ledger.vault import Vault
from lifecycle.rules_other import BUDGET_SECONDS
from schemas.contract import EventMap
from schemas.delivery import Delivery
from schemas.operation import SECOND
from schemas.states import Reading
from tests.conformance.house import NOW, REPORTS, Record, delivery, reading

UNSIGNED = replace(REPORTS, event=EventMap(body_signed=False))


@pytest.fixture
def record(engines: Engines, vault: Vault) -> Record:
    """Give a record whose provider signs nothing."""
    return Record(engines, vault, contracts={"reports": UNSIGNED, "other": REPORTS})


def test_a_flood_of_forged_deliveries_costs_bounded_reads_and_bounded_history(record: Record) -> None:
    """B8, B10: ten forged deliveries in each of 60 seconds earn at most one read in five seconds and 20 rows of history."""
    record.accept(1, "job-1")
    reads, number = 0, 0
    for second in range(60):
        record.now = NOW + second * SECOND
        record.ingest(*(delivery(number + index, "job-1", claimed_state="succeeded") for index in range(5)))
        for item in record.claim():
            # Others come while the read is under way: they must not buy another one at once.
            record.ingest(*(delivery(number + index, "job-1") for index in range(5, 10)))
            settled = record.settle(item, reading(Reading.RUNNING))
            assert str(settled.operation.state) == "observing"
            reads += 1
        number += 10
    assert 60 // BUDGET_SECONDS - 1 <= reads <= 60 // BUDGET_SECONDS + 2
    with record.engines.read.begin() as connection:
        rows = connection.execute(sa.select(sa.func.count()).where(tables.history.c.cause == "delivery")).scalar_one()
    assert rows <= 20


def test_an_unsigned_delivery_hastens_a_read_and_never_puts_it_off(record: Record) -> None:
    """B8: the read that was due sooner stays due; one that was due later comes when the budget allows it."""
    record.accept(1, "job-1")
    first = record.claim(after=20 * SECOND)[0]
    settled = record.settle(first, reading(Reading.RUNNING), after=20 * SECOND)
    due = settled.operation.due_at
    assert due is not None
    record.now = NOW + 21 * SECOND
    record.ingest(delivery(1, "job-1"))
    assert _due(record) == min(due, NOW + (20 + BUDGET_SECONDS) * SECOND)
    record.contracts["reports"] = REPORTS
    record.ingest(delivery(2, "job-1"))
    assert _due(record) == record.now
    record.contracts["reports"] = UNSIGNED
    record.ingest(delivery(3, "job-1"))
    assert _due(record) == record.now


def test_a_parked_operation_grants_one_read_however_many_come(record: Record) -> None:
    """B8, B5: while a person is asked, a flood of forged deliveries earns one read, and it changes no state."""
    record.accept(1, "job-1")
    record.now = NOW + 3_700 * SECOND
    parked = record.settle(record.claim()[0], reading(Reading.RUNNING)).operation
    assert (str(parked.state), parked.due_at) == ("result_timed_out", None)
    reads = 0
    for second in range(60):
        record.now += SECOND
        record.ingest(*(delivery(second * 10 + index, "job-1", claimed_state="succeeded") for index in range(10)))
        for item in record.claim():
            assert str(record.settle(item, reading(Reading.RUNNING)).operation.state) == "result_timed_out"
            reads += 1
    assert reads == 1


def test_a_signed_delivery_is_read_at_once(record: Record) -> None:
    """B5: the budget is only for what nobody signed."""
    record.contracts["reports"] = REPORTS
    record.accept(1, "job-1")
    record.settle(record.claim(after=20 * SECOND)[0], reading(Reading.RUNNING), after=20 * SECOND)
    record.now = NOW + 21 * SECOND
    record.ingest(delivery(1, "job-1"))
    assert _due(record) == NOW + 21 * SECOND


def unsigned(number: int, job: str, **changes: Any) -> Delivery:
    """Return a delivery that no secret has signed."""
    made = delivery(number, job, **changes)
    return replace(made, secret_id="", scheme_id="refetch", received_at=NOW + number)


def test_an_unsigned_flood_is_kept_in_bounded_rows(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    """B8, B10: of what nobody signed the newest stay, of the account and of each operation; what a secret signed is never touched."""
    monkeypatch.setattr(bounds, "UNMATCHED_KEPT", 20)
    monkeypatch.setattr(bounds, "MATCHED_KEPT", 5)
    record.accept(1, "job-1")
    record.ingest(*(delivery(900_000 + number, f"signed-{number}") for number in range(30)))
    record.ingest(delivery(800_000, "job-1"))
    for start in range(0, 300, 60):
        record.ingest(*(unsigned(start + number, f"forged-{start + number}") for number in range(60)))
        record.ingest(*(unsigned(10_000 + start + number, "job-1") for number in range(60)))
        record.ingest(unsigned(20_000 + start, "", provider="other", readable=False, problem="not JSON"))
        counted = _count(record, tables.deliveries.c.secret_id == "", tables.deliveries.c.provider == "reports")
        assert counted <= 20 + 5
    assert _count(record, tables.deliveries.c.secret_id == "s1") == 31
    with record.engines.read.begin() as connection:
        kept = connection.execute(
            sa.select(tables.deliveries.c.remote_job_id)
            .where(tables.deliveries.c.secret_id == "", tables.deliveries.c.remote_job_id.like("forged-%"))
            .order_by(tables.deliveries.c.received_at)
        ).scalars()
        assert list(kept) == [f"forged-{number}" for number in range(280, 300)]
        jobs = set(connection.execute(sa.select(tables.remote_jobs.c.remote_job_id)).scalars())
    assert len([job for job in jobs if job.startswith("forged-")]) == 20
    assert len([job for job in jobs if job.startswith("signed-")]) == 30
    assert "job-1" in jobs
    assert record.faults() == []


def test_making_room_waits_for_nobody(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    """B115: a row that another transaction holds is left to it; the next delivery makes the room (PostgreSQL; SQLite has one writer)."""
    monkeypatch.setattr(bounds, "UNMATCHED_KEPT", 2)
    record.ingest(unsigned(1, "job-1"), unsigned(2, "job-2"))
    with contextlib.ExitStack() as held:
        if record.engines.postgres:
            other = held.enter_context(record.engines.write.begin())
            row = sa.select(tables.deliveries.c.id).where(tables.deliveries.c.remote_job_id == "job-1").with_for_update()
            other.execute(row)
            other.execute(sa.select(tables.remote_jobs).where(tables.remote_jobs.c.remote_job_id == "job-2").with_for_update())
        with ThreadPoolExecutor(1) as other_thread:  # a wait for the lock ends with the database's own timeout, as an error
            stored = other_thread.submit(record.ingest, unsigned(3, "job-3"), unsigned(4, "job-4")).result(60)
        assert [item.status for item in stored] == ["unmatched", "unmatched"]
    record.ingest(unsigned(5, "job-5"))
    assert _count(record, tables.deliveries.c.secret_id == "") == 2


def test_a_job_that_was_forgotten_is_known_again_by_its_name(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    """B6, B10: after a flood has pushed out the mention of a job, its early delivery attaches like any other."""
    monkeypatch.setattr(bounds, "UNMATCHED_KEPT", 1)
    record.ingest(unsigned(1, "job-1"), unsigned(2, "job-2"), unsigned(3, "job-3"))
    assert _count(record, tables.deliveries.c.remote_job_id == "job-1") == 0
    record.ingest(unsigned(4, "job-1"))
    record.accept(1, "job-1")
    with record.engines.read.begin() as connection:
        row = connection.execute(sa.select(tables.deliveries).where(tables.deliveries.c.remote_job_id == "job-1")).one()
    assert row.status == "applied"


def test_an_element_is_shown_without_its_body_once_the_whole_is_gone(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    """B10: an array that nobody signed may lose its first element before its last: nothing raises."""
    monkeypatch.setattr(bounds, "UNMATCHED_KEPT", 1)
    first = unsigned(1, "job-1")
    record.ingest(first, replace(unsigned(2, "job-2"), parent=first.id, body=b""))
    with record.engines.read.begin() as connection:
        shown = inbox.stored(View(connection, record.vault), unsigned(2, "").id, None)
    assert shown is not None
    assert shown["body"] is None


def _count(record: Record, *conditions: Any) -> int:
    with record.engines.read.begin() as connection:
        return int(connection.execute(sa.select(sa.func.count()).select_from(tables.deliveries).where(*conditions)).scalar_one())


def _due(record: Record) -> int:
    with record.engines.read.begin() as connection:
        return int(connection.execute(sa.select(tables.operations.c.due_at)).scalar_one())

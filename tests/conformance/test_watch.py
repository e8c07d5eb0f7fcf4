"""Ends that a provider may reverse: read on until the watch period is over; a reversal is an incident, the state stays (D1)."""

from dataclasses import replace

import pytest
import sqlalchemy as sa

from ledger import tables
from ledger.engine import Engines
from ledger.petition import petition
from ledger.rows import from_row
from ledger.vault import Vault
from schemas.commands import Petition
from schemas.contract import StatusRule
from schemas.evidence import Answered, ReadFailed
from schemas.operation import SECOND, Micros, Operation
from schemas.states import Answer, Errand, Question, Reading, State
from tests.conformance.house import NOW, REPORTS, Record, delivery, intent, reading

SLOW = 600
WATCH = 3_600
WATCHED = replace(
    REPORTS, status=StatusRule(watch_seconds=WATCH, max_poll_seconds=SLOW, reversible=(Reading.SUCCEEDED, Reading.FAILED)), result=None
)
DONE = reading(Reading.FAILED, "failed", has_result=False)
REVERSED = reading(Reading.SUCCEEDED, "succeeded")


@pytest.fixture
def record(engines: Engines, vault: Vault) -> Record:
    return Record(engines=engines, vault=vault, contracts={"reports": WATCHED})


def stored(record: Record) -> Operation:
    with record.engines.read.begin() as connection:
        return from_row(connection.execute(sa.select(tables.operations)).one(), record.vault)


def codes(record: Record) -> list[str]:
    with record.engines.read.begin() as connection:
        return list(connection.execute(sa.select(tables.history.c.code).order_by(tables.history.c.seq)).scalars())


def ended(record: Record) -> None:
    record.accept(1, "job-1")
    record.settle(record.claim(after=60 * SECOND)[0], DONE, after=60 * SECOND)


def expire(record: Record) -> None:
    """Let the lease run out by both databases' clocks."""
    with record.engines.write.begin() as connection:
        connection.execute(sa.update(tables.operations).values(lease_until=0))


def look(record: Record, evidence: object, after: Micros) -> None:
    (item,) = record.claim(after=after)
    assert item.errand is Errand.READ
    record.settle(item, evidence, after=after)  # type: ignore[arg-type] # evidence of a read


def test_a_reversible_end_is_read_on_until_the_watch_is_over(record: Record) -> None:
    """D1, C2: final and still due, slowly; the last read comes after the period's end, and then nothing is owed any more."""
    ended(record)
    op = stored(record)
    start = NOW + 60 * SECOND
    assert (op.state, op.watch_until, op.due_at) == (State.FAILED, start + WATCH * SECOND, start + SLOW * SECOND)
    at, reads = 60 * SECOND, 0
    while (due := stored(record).due_at) is not None:
        assert record.claim(after=due - NOW - 1) == ()
        at, reads = due - NOW, reads + 1
        look(record, DONE, at)
    op = stored(record)
    assert (op.state, op.due_at, op.watch_until, op.incident_id) == (State.FAILED, None, None, None)
    assert at == (60 + WATCH) * SECOND
    assert reads == WATCH // SLOW
    assert record.faults() == []


def test_a_reversal_opens_one_incident_and_the_state_stays(record: Record) -> None:
    """D1: final states never change; a person is told once, and the watch goes on to its end."""
    ended(record)
    look(record, REVERSED, 1_000 * SECOND)
    op = stored(record)
    assert (op.state, op.question_kind, op.due_at) == (State.FAILED, Question.INCIDENT, NOW + (1_000 + SLOW) * SECOND)
    assert op.incident_id is not None
    look(record, REVERSED, 2_000 * SECOND)
    assert codes(record).count("incident") == 1
    answer = Answered(
        by="boss", question_id=op.question_id or "", question=Question.INCIDENT, answer=Answer.ACKNOWLEDGE, reason="paid by hand"
    )
    record.tx(petition, Petition(operation_id=op.id, owner="acme", actor="boss", evidence=answer, now=NOW + 2_100 * SECOND, chance=0.5))
    look(record, REVERSED, 3_000 * SECOND)
    op = stored(record)
    assert (op.state, op.incident_id, op.question_id) == (State.FAILED, None, None)  # the same words are not told twice
    assert op.watch_until is not None
    assert record.faults() == []
    assert record.audit() == dict.fromkeys(record.audit(), 0)


def test_a_reversal_of_the_reversal_is_told_again(record: Record) -> None:
    """D1: each change of what the provider says stands in the history while the incident is open."""
    ended(record)
    look(record, REVERSED, 1_000 * SECOND)
    look(record, DONE, 2_000 * SECOND)
    look(record, reading(Reading.CANCELLED, "charged_back", has_result=False), 3_000 * SECOND)
    assert codes(record)[-2:] == ["incident", "incident_goes_on"]
    assert stored(record).state is State.FAILED


@pytest.mark.parametrize(
    "evidence",
    [ReadFailed(layer="transport", error="read_timeout"), reading(Reading.ABSENT), reading(Reading.RUNNING), reading(Reading.UNKNOWN)],
    ids=["failed", "absent", "running", "unknown"],
)
def test_silence_and_other_words_are_no_reversal(record: Record, evidence: object) -> None:
    """C4, D1: only another end contradicts an end; the watch goes on."""
    ended(record)
    look(record, evidence, 1_000 * SECOND)
    op = stored(record)
    assert (op.state, op.incident_id, op.due_at) == (State.FAILED, None, NOW + (1_000 + SLOW) * SECOND)


def test_a_delivery_hastens_the_watch(record: Record) -> None:
    """B5, B7: it may tell of a reversal, so a read is due at once; without a watch it is history alone."""
    ended(record)
    record.now = NOW + 100 * SECOND
    record.ingest(delivery(1, job="job-1"))
    assert stored(record).due_at == record.now
    look(record, REVERSED, 0)
    assert stored(record).incident_id is not None


def test_a_delivery_during_a_watch_read_earns_another_look(record: Record) -> None:
    """C2: no wake-up is lost, as for an operation that is not final."""
    ended(record)
    (item,) = record.claim(after=1_000 * SECOND)
    record.now = NOW + 1_001 * SECOND
    record.ingest(delivery(1, job="job-1"))
    record.settle(replace(item), DONE, after=-SECOND // 2)
    assert stored(record).due_at == record.now


def test_an_end_that_is_not_reversible_is_not_read_on(record: Record) -> None:
    """C2: only the ends that the contract names."""
    record.accept(1, "job-1")
    record.settle(record.claim(after=60 * SECOND)[0], reading(Reading.CANCELLED, "cancelled", has_result=False), after=60 * SECOND)
    op = stored(record)
    assert (op.state, op.due_at, op.watch_until) == (State.CANCELLED, None, None)


def test_a_worker_that_dies_in_a_watch_read_leaves_it_to_the_next(record: Record) -> None:
    """C1: the lease runs out like any other."""
    ended(record)
    assert len(record.claim(after=1_000 * SECOND)) == 1
    assert record.claim(after=1_001 * SECOND) == ()
    expire(record)
    (item,) = record.claim("w2", after=1_100 * SECOND)
    assert item.errand is Errand.READ
    record.settle(item, DONE, after=1_100 * SECOND)
    assert stored(record).state is State.FAILED
    assert record.claim(after=1_101 * SECOND) == ()
    assert intent(1).id == stored(record).id

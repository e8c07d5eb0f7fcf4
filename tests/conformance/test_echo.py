"""A delivery that carries our own reference finds the job of a create whose answer was lost (A6, A7, B6), on both databases."""

from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from ledger import tables
from ledger.engine import Engines
from ledger.petition import petition
from ledger.rows import from_row
from ledger.sweep import ORPHAN_SECONDS, sweep
from ledger.vault import Vault
from schemas.commands import Claimed, Petition, Sweep
from schemas.contract import EventMap, RecoveryRule
from schemas.evidence import CancelAsked, CreateAmbiguous, JobKnown, Read, StatusFacts
from schemas.operation import SECOND, Operation
from schemas.states import Errand, Mode, Reading, State
from tests.conformance.house import NOW, REPORTS, Record, delivery, intent, reading

ECHO_ONLY = replace(REPORTS, recovery=RecoveryRule())
UNSIGNED = replace(ECHO_ONLY, event=EventMap(body_signed=False))
ID, TOKEN = intent(1).id, intent(1).idempotency_token


@pytest.fixture
def record(engines: Engines, vault: Vault) -> Record:
    return Record(engines=engines, vault=vault, contracts={"reports": ECHO_ONLY, "other": ECHO_ONLY})


def stored(record: Record, number: int = 1) -> Operation:
    with record.engines.read.begin() as connection:
        row = connection.execute(sa.select(tables.operations).where(tables.operations.c.id == intent(number).id)).one()
        return from_row(row, record.vault)


def lost(record: Record, number: int = 1, **changes: Any) -> Claimed:
    """Register and send an operation whose answer is lost."""
    record.register(intent(number, **changes))
    mine = next(item for item in record.claim() if item.operation.id == intent(number).id)
    record.settle(mine, CreateAmbiguous(error="read_timeout"))
    return mine


@pytest.mark.parametrize("reference", [ID, TOKEN], ids=["operation", "token"])
def test_a_signed_delivery_with_our_reference_finds_the_job_of_an_unknown_create(record: Record, reference: str) -> None:
    """A6, A7: without any recovery a person is asked, until the provider's own word names the job; then it is read like any other."""
    lost(record)
    assert stored(record).state is State.CREATE_UNRESOLVED
    answer = record.ingest(delivery(1, job="job-1", client_reference=reference))[0]
    assert (answer.status, answer.operation_id) == ("accepted", ID)
    op = stored(record)
    assert (op.state, op.remote_job_id, op.question_id, op.due_at) == (State.ACCEPTED, "job-1", None, NOW)
    (read,) = record.claim()
    assert read.errand is Errand.READ
    record.settle(read, Read(facts=StatusFacts(reading=Reading.RUNNING, remote_state="running"), digest="r"))
    assert stored(record).state is State.OBSERVING
    assert record.faults() == []


def test_the_named_job_belongs_to_the_operation_from_then_on(record: Record) -> None:
    """A8, A11: nobody else can adopt it; deliveries that know only the job's id attach, also an earlier one and those of the batch."""
    record.ingest(delivery(1, job="job-1"))
    lost(record)
    record.ingest(delivery(2, job="job-1"), delivery(3, job="job-1", client_reference=ID), delivery(4, job="job-1"))
    assert stored(record).remote_job_id == "job-1"
    with record.engines.read.begin() as connection:
        rows = connection.execute(sa.select(tables.deliveries.c.operation, tables.deliveries.c.status)).all()
        (owner,) = connection.execute(sa.select(tables.remote_jobs.c.operation)).scalars()
    assert set(rows) == {(ID, "applied")}
    assert owner == ID
    taken = record.register(intent(9, owner="other", mode=Mode.ADOPT, remote_job_id="job-1", idempotency_key=None, request=None))[0]
    assert taken.outcome == "job_taken"
    assert record.ingest(delivery(5, job="job-1"))[0].operation_id == ID


def test_a_delivery_before_the_create_answer_is_believed_and_the_answer_is_an_echo(record: Record) -> None:
    """B6: the callback overtakes the answer; what the answer remembers beside the job is kept all the same."""
    record.register(intent(1))
    (sending,) = record.claim()
    record.ingest(delivery(1, job="job-1", client_reference=ID))
    assert stored(record).state is State.ACCEPTED
    record.settle(sending, JobKnown(remote_job_id="job-1", source="create", remembered={"status_url": "https://api.example/j/1"}))
    op = stored(record)
    assert (op.state, op.remote_job_id, op.remembered) == (State.ACCEPTED, "job-1", {"status_url": "https://api.example/j/1"})
    assert op.open_attempt is None


def test_a_delivery_before_an_ambiguous_answer_leaves_nothing_in_doubt(record: Record) -> None:
    """A6: the lost answer comes after its time."""
    record.register(intent(1))
    (sending,) = record.claim()
    record.ingest(delivery(1, job="job-1", client_reference=ID))
    record.settle(sending, CreateAmbiguous(error="read_timeout"))
    assert stored(record).state is State.ACCEPTED


def test_another_job_in_the_answer_than_in_the_delivery_is_a_contradiction(record: Record) -> None:
    """A8: two jobs carry one token; both are kept, and a person decides."""
    record.register(intent(1))
    (sending,) = record.claim()
    record.ingest(delivery(1, job="job-1", client_reference=ID))
    record.settle(sending, JobKnown(remote_job_id="job-2", source="create"))
    assert (stored(record).state, stored(record).error_code) == (State.QUARANTINED, "second_job_id")


def test_nothing_is_believed_about_a_create_that_was_never_sent(record: Record) -> None:
    """A1, B5: before the first byte there is no job, whatever a delivery says."""
    record.register(intent(1))
    record.ingest(delivery(1, job="job-1", client_reference=ID))
    assert (stored(record).state, stored(record).remote_job_id) == (State.CREATE_PENDING, None)


def test_a_delivery_whose_body_nobody_signed_names_no_job(record: Record) -> None:
    """B8: anybody could have written it; the question stays."""
    record.contracts["reports"] = UNSIGNED
    lost(record)
    record.ingest(delivery(1, job="job-1", client_reference=ID))
    assert (stored(record).state, stored(record).remote_job_id) == (State.CREATE_UNRESOLVED, None)


def test_somebody_elses_job_is_not_taken(record: Record) -> None:
    """A11: a job that has an owner stays with it; the delivery is the owner's."""
    record.accept(2, "job-1")
    lost(record)
    assert record.ingest(delivery(1, job="job-1", client_reference=ID))[0].operation_id == intent(2).id
    assert stored(record).remote_job_id is None


def test_another_accounts_delivery_finds_nothing(record: Record) -> None:
    """A11: a reference counts within its provider account."""
    lost(record)
    assert record.ingest(delivery(1, job="job-1", client_reference=ID, provider="other"))[0].status == "unmatched"
    assert stored(record).remote_job_id is None


def test_a_wanted_cancel_is_sent_as_soon_as_the_delivery_names_the_job(record: Record) -> None:
    """E3: the wish waited for the job's id."""
    lost(record)
    record.tx(petition, Petition(operation_id=ID, owner="acme", actor="a", evidence=CancelAsked(by="a"), now=NOW, chance=0.5))
    record.ingest(delivery(1, job="job-1", client_reference=ID))
    assert stored(record).state is State.CANCEL_REQUESTED


def test_a_delivery_that_came_before_its_operation_names_the_job_when_it_is_swept(record: Record) -> None:
    """B6, B036: what the sweep picks up counts as if it had just come."""
    record.ingest(delivery(1, job="job-1", client_reference=ID))
    lost(record)
    record.tx(sweep, Sweep(now=NOW + (ORPHAN_SECONDS + 1) * SECOND, limit=10, chance=0.5))
    op = stored(record)
    assert (op.state, op.remote_job_id) == (State.ACCEPTED, "job-1")
    with record.engines.read.begin() as connection:
        assert connection.execute(sa.select(tables.remote_jobs.c.operation)).scalars().all() == [ID]


def test_the_history_says_that_a_delivery_named_the_job(record: Record) -> None:
    """D1, B5: the cause is the delivery, and it ended nothing."""
    lost(record)
    record.ingest(delivery(1, job="job-1", client_reference=ID, event_type="job.started"))
    with record.engines.read.begin() as connection:
        last = connection.execute(sa.select(tables.history).order_by(tables.history.c.seq.desc())).first()
    assert last is not None
    assert (last.to_state, last.cause, last.code, last.cause_id) == ("accepted", "delivery", "named_by_delivery", delivery(1).id)
    record.settle(record.claim()[0], reading(Reading.FAILED, has_result=False))
    assert stored(record).verdict_cause == "reading"
    assert record.audit() == dict.fromkeys(record.audit(), 0)

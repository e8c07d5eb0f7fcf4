"""Cancels that race, hang or come early, second jobs, and reports of services: in the record, on both databases (A8, A11, E1-E5)."""

import threading
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from ledger import queries
from ledger.engine import Engines
from ledger.petition import petition
from ledger.rows import from_row
from ledger.settle import settle
from ledger.tables import exchanges, operations, remote_jobs
from ledger.transaction import View
from ledger.vault import Vault
from schemas.commands import Claimed, Petition, Petitioned
from schemas.contract import RecoveryRule
from schemas.evidence import (
    Answered,
    CancelAmbiguous,
    CancelAsked,
    CancelTaken,
    CreateAmbiguous,
    Evidence,
    JobKnown,
    JobNotFound,
    Lapsed,
    Reported,
)
from schemas.http import Exchange
from schemas.operation import SECOND, Operation
from schemas.states import FINAL, Answer, CancelOutcome, Errand, Mode, Question, Reading, State
from tests.conformance.house import REPORTS, Record, intent, reading

LOOKUP = replace(REPORTS, recovery=RecoveryRule(strategies=("lookup",), visibility_seconds=30, path="/jobs", match="reference"))


@pytest.fixture
def record(engines: Engines, vault: Vault) -> Record:
    return Record(engines=engines, vault=vault)


def get(record: Record, number: int) -> Operation:
    with record.engines.read.begin() as connection:
        row = connection.execute(sa.select(operations).where(operations.c.id == intent(number).id)).one()
        return from_row(row, record.vault)


def rows(record: Record, number: int) -> list[Any]:
    with record.engines.read.begin() as connection:
        return list(queries.history(View(connection, record.vault), intent(number).id, limit=500))


def ask(record: Record, number: int, evidence: Evidence, after: int = 0) -> Petitioned:
    command = Petition(
        operation_id=intent(number).id, owner="acme", actor="boss", evidence=evidence, now=record.now + after, chance=0.5
    )  # fmt: skip
    return record.tx(petition, command)[0]


def decide(record: Record, number: int, answer: Answer, question: Question, **more: Any) -> Petitioned:
    open_question = get(record, number).question_id
    assert open_question is not None
    return ask(record, number, Answered(by="boss", question_id=open_question, question=question, answer=answer, **more))


def with_exchange(record: Record, claimed: Claimed, evidence: Evidence, name: str) -> None:
    exchange = Exchange(
        id=name, errand="create", method="POST", url="https://api.example/jobs", started_at=record.now, finished_at=record.now,
        outcome="answered", status=201, response_body=name.encode(),
    )  # fmt: skip
    record.tx(settle, replace(record.settlement(claimed, evidence), exchange=exchange))


def test_a_cancel_and_the_end_in_the_same_instant_leave_one_end(record: Record) -> None:
    """B078, E2: whichever commits first, the reading says the end; one final row, and the wish is never lost."""
    record.patience = 20
    later = 60 * SECOND
    outcomes = set()
    for number in range(1, 31):
        record.accept(number, f"job-{number}")
        (read,) = [item for item in record.claim(after=later) if item.operation.id == intent(number).id]
        ended = reading(Reading.FAILED if number % 2 else Reading.CANCELLED, has_result=False)
        barrier = threading.Barrier(2)
        faults: list[Exception] = []

        def end(item: Claimed = read, gate: threading.Barrier = barrier, told: Evidence = ended, failed: list[Exception] = faults) -> None:
            gate.wait(20)
            try:
                record.settle(item, told, after=later)
            except Exception as error:  # noqa: BLE001 - told to the test
                failed.append(error)

        thread = threading.Thread(target=end)
        thread.start()
        barrier.wait(20)
        asked = ask(record, number, CancelAsked(by="agent", reason="enough"))
        thread.join(30)
        assert faults == []
        op = get(record, number)
        assert op.state in {State.FAILED, State.CANCELLED}
        assert [row["to_state"] for row in rows(record, number) if row["to_state"] in FINAL] == [op.state]
        if asked.outcome == "applied":
            assert op.cancel_outcome in {CancelOutcome.CONFIRMED, CancelOutcome.LOST_RACE}
        else:
            assert (asked.code, op.cancel_requested_at) == ("already_final", None)
        outcomes.add(asked.outcome)
    assert record.faults() == []


def test_a_cancel_that_is_never_confirmed_parks_reads_on_and_believes_the_late_truth(record: Record) -> None:
    """B082, E4: the cancel clock is its own; nothing is claimed; slow reads go on until the result deadline; then the truth counts."""
    record.accept(1, "job-1")
    ask(record, 1, CancelAsked(by="agent"))
    (cancel,) = record.claim()
    record.settle(cancel, CancelTaken())
    over = 301 * SECOND
    (read,) = record.claim(after=over)
    parked = record.settle(read, reading(Reading.RUNNING, "cancelling"), after=over).operation
    assert (parked.state, parked.cancel_outcome, parked.unverified) == (State.CANCELLATION_UNCONFIRMED, CancelOutcome.UNCONFIRMED, False)
    assert parked.question_kind is Question.CANCELLATION_UNCONFIRMED
    assert parked.watch_until is not None
    watch = 1_200 * SECOND
    (read,) = record.claim(after=watch)
    assert read.errand is Errand.READ
    record.settle(read, reading(Reading.RUNNING, "cancelling"), after=watch)
    late = 2_400 * SECOND
    (read,) = record.claim(after=late)
    ended = record.settle(read, reading(Reading.CANCELLED, has_result=False), after=late).operation
    assert (ended.state, ended.cancel_outcome, ended.question_id) == (State.CANCELLED, CancelOutcome.CONFIRMED, None)
    assert record.faults() == []


def test_an_ambiguous_cancel_is_read_before_it_is_sent_again(record: Record) -> None:
    """E4, B080: no second cancel without a read that saw the job alive after the first one."""
    record.accept(1, "job-1")
    ask(record, 1, CancelAsked(by="agent"))
    (cancel,) = record.claim()
    record.settle(cancel, CancelAmbiguous(error="read_timeout"))
    (read,) = record.claim(after=90 * SECOND)
    assert read.errand is Errand.READ
    record.settle(read, reading(Reading.RUNNING), after=90 * SECOND)
    (again,) = record.claim(after=110 * SECOND)
    assert (again.errand, again.attempt_id is not None) == (Errand.CANCEL, True)


def test_a_cancel_during_a_create_is_sent_once_when_the_job_is_known(record: Record) -> None:
    """B084, E3: remembered while the create is in flight; owed as soon as its answer names the job; nothing is created again."""
    record.register(intent(1))
    (create,) = record.claim()
    asked = ask(record, 1, CancelAsked(by="agent", reason="enough"))
    assert (asked.outcome, get(record, 1).state) == ("applied", State.CREATE_PENDING)
    record.settle(create, JobKnown(remote_job_id="job-1", source="create"))
    (cancel,) = record.claim()
    assert cancel.errand is Errand.CANCEL
    record.settle(cancel, CancelTaken())
    (read,) = record.claim(after=60 * SECOND)
    ended = record.settle(read, reading(Reading.CANCELLED, has_result=False), after=60 * SECOND).operation
    assert (ended.state, ended.sends, ended.cancel_outcome) == (State.CANCELLED, 1, CancelOutcome.CONFIRMED)


def test_a_cancel_of_a_create_that_proves_absent_withdraws_and_creates_nothing(record: Record) -> None:
    """B084, E3: an ambiguous create is looked up first; proven absent, nothing is sent any more."""
    record.contracts["reports"] = LOOKUP
    record.register(intent(1))
    (create,) = record.claim()
    record.settle(create, CreateAmbiguous(error="read_timeout"))
    ask(record, 1, CancelAsked(by="agent"))
    for minutes in (10, 20):
        (lookup,) = record.claim(after=minutes * 60 * SECOND)
        assert lookup.errand is Errand.RECOVER
        record.settle(lookup, JobNotFound(), after=minutes * 60 * SECOND)
    op = get(record, 1)
    assert (op.state, op.cancel_outcome, op.sends) == (State.WITHDRAWN, CancelOutcome.WITHDRAWN, 1)
    assert record.claim(after=86_400 * SECOND) == ()


def test_two_job_ids_keep_both_answers_and_a_person_chooses(record: Record) -> None:
    """A8: nothing is overwritten; automation stops; the chosen job is read from then on, and neither is anybody else's."""
    record.register(intent(1))
    (create,) = record.claim()
    with_exchange(record, create, JobKnown(remote_job_id="job-1", source="create"), "exc_first")
    with_exchange(record, create, JobKnown(remote_job_id="job-2", source="create"), "exc_second")
    op = get(record, 1)
    assert (op.state, op.remote_job_id, op.error_code) == (State.QUARANTINED, "job-1", "second_job_id")
    assert "job-1 and job-2" in rows(record, 1)[-1]["text"]
    with record.engines.read.begin() as connection:
        assert set(connection.execute(sa.select(exchanges.c.id)).scalars()) == {"exc_first", "exc_second"}
    assert record.claim(after=3_600 * SECOND) == ()
    record.register(intent(2, mode=Mode.ADOPT, remote_job_id="job-3"))
    assert decide(record, 1, Answer.ADOPT, Question.QUARANTINED, remote_job_id="job-3").code == "job_taken"
    assert decide(record, 1, Answer.ADOPT, Question.QUARANTINED, remote_job_id="job-2", reason="the newer one").outcome == "applied"
    assert (get(record, 1).state, get(record, 1).remote_job_id) == (State.ACCEPTED, "job-2")
    with record.engines.read.begin() as connection:
        bound = dict(tuple(row) for row in connection.execute(sa.select(remote_jobs.c.remote_job_id, remote_jobs.c.operation)))
    assert (bound["job-1"], bound["job-2"]) == (intent(1).id, intent(1).id)
    assert record.register(intent(4, owner="globex", mode=Mode.ADOPT, remote_job_id="job-1"))[0].outcome == "job_taken"
    assert record.faults() == []


def external(record: Record, number: int = 1) -> None:
    record.register(intent(number, mode=Mode.EXTERNAL))


def test_a_service_that_never_reports_is_looked_up_and_then_a_person_is_asked(record: Record) -> None:
    """A11: after the create deadline only lookups run; nothing is ever sent for it; without one a person is asked."""
    external(record)
    assert record.claim() == ()
    over = 901 * SECOND
    (lapse,) = record.claim(after=over)
    assert lapse.errand is Errand.LAPSE
    assert record.settle(lapse, Lapsed(), after=over).operation.state is State.CREATE_UNRESOLVED
    assert decide(record, 1, Answer.RESEND, Question.CREATE_UNRESOLVED, accept_duplicate_risk=True, reason="x").code == "unknown_answer"
    record.contracts["reports"] = LOOKUP
    external(record, 2)
    (lapse,) = record.claim(after=over)
    record.settle(lapse, Lapsed(), after=over)
    (lookup,) = record.claim(after=over)
    assert (lookup.operation.id, lookup.errand) == (intent(2).id, Errand.RECOVER)
    found = record.settle(lookup, JobKnown(remote_job_id="job-2", source="recovery"), after=over).operation
    assert (found.state, found.sends) == (State.ACCEPTED, 0)


@pytest.mark.parametrize(
    ("outcome", "job", "state", "code"),
    [
        ("accepted", "job-1", State.ACCEPTED, None),
        ("rejected", None, State.FAILED, "reported_rejected"),
        ("not_sent", None, State.FAILED, "not_created"),
        ("unknown", None, State.CREATE_UNRESOLVED, "create_deadline"),
    ],
)
def test_a_report_that_comes_late_still_counts_and_its_echo_is_none(
    record: Record, outcome: Any, job: str | None, state: State, code: str | None
) -> None:
    """A11: after the question was opened the service's own word settles it; repeated, it is an echo; another one is refused."""
    external(record)
    over = 901 * SECOND
    (lapse,) = record.claim(after=over)
    record.settle(lapse, Lapsed(), after=over)
    report = Reported(by="svc", outcome=outcome, remote_job_id=job, message="late")
    assert ask(record, 1, report, after=over).outcome == "applied"
    op = get(record, 1)
    assert (op.state, op.error_code) == (state, code)
    assert ask(record, 1, report, after=over).outcome == "applied"
    assert get(record, 1).history_seq == op.history_seq
    if outcome != "unknown":
        other = Reported(by="svc", outcome="accepted", remote_job_id="job-9")
        assert ask(record, 1, other, after=over).code == "already_reported"
    assert record.faults() == []


def test_a_report_of_not_sent_while_lookups_go_on_withdraws(record: Record) -> None:
    """A11, E3: who says that nothing was sent ends it, and a remembered cancel with it."""
    record.contracts["reports"] = LOOKUP
    external(record)
    ask(record, 1, CancelAsked(by="agent"))
    ask(record, 1, Reported(by="svc", outcome="unknown"))
    assert get(record, 1).state is State.CREATE_UNKNOWN
    ask(record, 1, Reported(by="svc", outcome="not_sent", message="it never left"))
    op = get(record, 1)
    assert (op.state, op.cancel_outcome) == (State.WITHDRAWN, CancelOutcome.WITHDRAWN)
    assert rows(record, 1)[-1]["text"] == "it never left"


def test_partial_effects_are_kept_with_the_end(record: Record) -> None:
    """E5: what the provider says was done stands in the record and its history, whatever the end is called."""
    record.accept(1, "job-1")
    (read,) = record.claim(after=60 * SECOND)
    told = reading(Reading.CANCELLED, has_result=False, effects=(("rows", "120"), ("charged", "3.2")))
    op = record.settle(read, told, after=60 * SECOND).operation
    assert (op.state, op.effects) == (State.CANCELLED, '{"rows":"120","charged":"3.2"}')
    assert rows(record, 1)[-1]["changes"]["effects"] == op.effects
    assert record.faults() == []

"""What a lost create answer leads to, by the class of the provider's idempotency (A6, A7, B055), and when a read is worth making."""

from dataclasses import replace
from typing import Any

import pytest

from lifecycle import recovery
from lifecycle.errands import next_errand
from lifecycle.judge import decide
from schemas.contract import Contract, CreateRule, RecoveryRule, StatusRule, TokenRule
from schemas.decision import Decision, DueAt
from schemas.evidence import Answered, CreateAmbiguous, Evidence, JobKnown, JobNotFound, NotSent, StatusFacts
from schemas.operation import SECOND, Operation
from schemas.states import Answer, Errand, Question, Reading, State
from tests.lifecycle.cases import CONTRACT, JOB, NOW, answer, operation, read


def contract(*strategies: Any, window: int = 86_400, **rule: Any) -> Contract:
    token = TokenRule(place="header", name="K", window_seconds=window)
    found = RecoveryRule(strategies=strategies, path="/jobs", match="echo", visibility_seconds=30, **rule)
    return replace(CONTRACT, create=CreateRule(token=token), recovery=found)


def after(op: Operation, evidence: Evidence, rules: Contract, *, now: int = NOW) -> tuple[Operation, Decision]:
    """Return the operation as it is after the evidence, and the decision."""
    decision = decide(op, evidence, rules, now=now, chance=0.5)
    op = replace(op, **decision.working)
    for step in decision.steps:
        op = replace(op, state=step.to, **step.changes)
    return op, decision


def due(decision: Decision) -> int:
    (found,) = [effect.at for effect in decision.effects if isinstance(effect, DueAt)]
    return found


STORED = CreateAmbiguous(error="replayed_http_500", spent=True)


def test_a_stored_error_is_not_asked_for_again() -> None:
    """B055: the provider gives it to every send of the token; a lookup decides, and without one a person."""
    op, _ = after(operation(State.CREATE_UNKNOWN, sends=2), STORED, contract("resend", "lookup"))
    assert (op.state, op.token_spent) == (State.CREATE_UNKNOWN, "replayed_http_500")
    assert next_errand(op, contract("resend", "lookup"), NOW) is Errand.RECOVER
    alone, _ = after(operation(State.CREATE_UNKNOWN, sends=2), STORED, contract("resend"))
    assert (alone.state, alone.error_code) == (State.CREATE_UNRESOLVED, "no_safe_recovery")


def test_absence_is_believed_once_and_then_a_person_looks() -> None:
    """A6, A7: a provider that never shows our jobs would be paid once a round; a worker's own word that nothing was sent counts always."""
    rules = contract("list", confirmations=1)
    op, _ = after(operation(State.CREATE_UNKNOWN, unsure_creates=1), JobNotFound(), rules)
    assert (op.state, op.recreates) == (State.CREATE_PENDING, 1)
    again, _ = after(replace(op, state=State.CREATE_UNKNOWN, unsure_creates=1), JobNotFound(), rules)
    assert (again.state, again.error_code, again.recreates) == (State.CREATE_UNRESOLVED, "absent_again", 1)
    unsent = NotSent(errand=Errand.CREATE, error="refused", was_lost=True)
    late, _ = after(replace(op, state=State.CREATE_UNKNOWN, unsure_creates=1), unsent, rules)
    assert (late.state, late.recreates) == (State.CREATE_PENDING, 1)


def test_a_stored_error_and_no_job_is_the_end_of_this_token() -> None:
    """B055, A4: nothing was created, and a second token would be a second intent: it has failed, and is not sent for ever."""
    rules = contract("resend", "lookup", confirmations=1)
    op, _ = after(operation(State.CREATE_UNKNOWN, token_spent="replayed_http_500"), JobNotFound(), rules)
    assert (op.state, op.error_code) == (State.FAILED, "not_created")
    found, _ = after(
        operation(State.CREATE_UNKNOWN, token_spent="replayed_http_500"), JobKnown(remote_job_id=JOB, source="recovery"), rules
    )
    assert found.state is State.ACCEPTED


def test_a_failure_that_is_not_stored_is_sent_again_only_when_nothing_is_there() -> None:
    """A6: it may have had an effect; proven absent, the token is as good as new."""
    rules = contract("resend", "lookup", confirmations=1)
    op, _ = after(operation(State.CREATE_UNKNOWN), CreateAmbiguous(error="http_502", spent=True), rules)
    assert next_errand(op, rules, NOW) is Errand.RECOVER
    op, _ = after(replace(op, sent_before=NOW - 300 * SECOND), JobNotFound(), rules)
    assert (op.state, op.token_spent) == (State.CREATE_PENDING, None)


def test_an_answer_in_doubt_that_spends_nothing_is_sent_again() -> None:
    """A6: a lost answer inside the window."""
    op, _ = after(operation(State.CREATE_UNKNOWN), CreateAmbiguous(error="read_timeout"), contract("resend", "lookup"))
    assert next_errand(op, contract("resend", "lookup"), NOW) is Errand.CREATE


def test_a_window_of_a_minute_is_over_before_it_is_sure() -> None:
    """A6: the lookup goes first, whatever the order says."""
    rules = contract("resend", "list", window=60)
    assert recovery.plan(operation(State.CREATE_UNKNOWN, first_sent_at=NOW - SECOND), rules, NOW) == "list"


def test_a_person_who_sends_a_spent_token_again_is_told_of_the_risk() -> None:
    """A7: the promise of the provider does not hold any more."""
    op = operation(State.CREATE_UNRESOLVED, token_spent="http_502", unsure_creates=1)
    plain = answer(Question.CREATE_UNRESOLVED, Answer.RESEND)
    assert decide(op, plain, contract("resend"), now=NOW, chance=0.5).refused == "duplicate_risk"
    at_risk: Answered = replace(plain, accept_duplicate_risk=True)
    assert after(op, at_risk, contract("resend"))[0].state is State.CREATE_PENDING


def test_what_cannot_be_proven_absent_is_looked_for_until_the_deadline() -> None:
    """A6, A7: a search index, or only the latest job: never sent again, never failed, slower and slower; then a person is asked."""
    rules = contract("lookup", proves_absence=False, confirmations=1)
    op, waits = operation(State.CREATE_UNKNOWN), []
    for _ in range(6):
        op, decision = after(op, JobNotFound(), rules)
        assert op.state is State.CREATE_UNKNOWN
        waits.append(due(decision) - NOW)
    assert waits == sorted(waits)
    assert waits[-1] > 8 * waits[0]
    assert next_errand(op, rules, NOW) is Errand.RECOVER
    late, _ = after(replace(op, create_deadline=NOW - SECOND), JobNotFound(), rules)
    assert (late.state, late.error_code, late.unverified) == (State.CREATE_UNRESOLVED, "create_deadline", False)


def test_a_cancel_wish_is_no_proof_either() -> None:
    """E3, A6: where absence is never proven, a wanted cancel withdraws nothing."""
    rules = contract("lookup", proves_absence=False, confirmations=1)
    op = operation(State.CREATE_UNKNOWN, cancel_requested_at=NOW - SECOND, cancel_outcome="requested")
    assert after(op, JobNotFound(), rules)[0].state is State.CREATE_UNKNOWN


# --- when to look again


PATIENT = replace(CONTRACT, status=StatusRule(poll_seconds=1, max_poll_seconds=10, stale_seconds=120))


@pytest.mark.parametrize(("wish", "wait"), [(30, 30), (500, 120)])
def test_the_next_read_waits_as_the_answer_wished(wish: int, wait: int) -> None:
    """C3, B067: never earlier than it is worth, and never silent past the contract's longest silence."""
    running = replace(read(Reading.RUNNING), next_after=NOW + wish * SECOND)
    assert due(decide(operation(State.OBSERVING), running, PATIENT, now=NOW, chance=0.5)) == NOW + wait * SECOND
    known = JobKnown(remote_job_id=JOB, source="create", next_after=NOW + wish * SECOND)
    assert due(decide(operation(State.CREATE_PENDING), known, PATIENT, now=NOW, chance=0.5)) == NOW + wait * SECOND


def test_a_wish_does_not_put_off_a_deadline() -> None:
    """C6: the read at the deadline is owed."""
    running = replace(read(Reading.RUNNING), next_after=NOW + 100 * SECOND)
    op = operation(State.OBSERVING, result_deadline=NOW + 20 * SECOND)
    assert due(decide(op, running, PATIENT, now=NOW, chance=0.5)) == NOW + 20 * SECOND


def test_a_short_wish_does_not_hasten_a_read() -> None:
    """C2: our own back-off is the least."""
    running = replace(read(Reading.RUNNING), next_after=NOW + 1)
    assert due(decide(operation(State.OBSERVING), running, PATIENT, now=NOW, chance=0.5)) > NOW + SECOND // 2


def test_progress_goes_on_and_never_back_on_display() -> None:
    """C5: a step back is kept in the observation, and what is shown stays; no number says nothing."""
    op = operation(State.OBSERVING)
    shown = []
    for said in (0.2, 0.6, 0.4, None, 0.6, 0.9, 0.0):
        op, _ = after(op, read(Reading.RUNNING, f"at {said}", progress=said), CONTRACT)
        shown.append(op.progress)
    assert shown == [0.2, 0.6, 0.6, 0.6, 0.6, 0.9, 0.9]


def test_a_create_answer_that_says_running_keeps_what_it_remembers() -> None:
    """A5: the addresses of the job are known from its first answer on."""
    known = JobKnown(remote_job_id=JOB, source="create", status=StatusFacts(reading=Reading.RUNNING), remembered={"status_url": "/j/1"})
    assert after(operation(State.CREATE_PENDING), known, CONTRACT)[0].remembered == {"status_url": "/j/1"}
    assert after(operation(State.OBSERVING, remembered={"a": "b"}), known, CONTRACT)[0].remembered == {"a": "b"}


@pytest.mark.parametrize(("job", "kept"), [("job_2", {}), (JOB, {"status_url": "/j/1"})])
def test_another_job_is_not_read_at_the_former_ones_address(job: str, kept: dict[str, str]) -> None:
    """A8: when a person adopts another job, what the first answer named speaks of the first one."""
    op = operation(State.QUARANTINED, remembered={"status_url": "/j/1"})
    adopted, _ = after(op, answer(Question.QUARANTINED, Answer.ADOPT, remote_job_id=job), CONTRACT)
    assert (adopted.state, adopted.remembered) == (State.ACCEPTED, kept)

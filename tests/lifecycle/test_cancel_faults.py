"""Answers to a cancel, against what the next read says; wishes that come to nothing; destructive cancels (E1-E5)."""

from dataclasses import replace

import pytest

from lifecycle.errands import FRESH_READ_SECONDS, next_errand
from lifecycle.judge import decide
from lifecycle.public import message
from providers import interpret
from schemas.contract import CancelRule, StatusRule
from schemas.evidence import CancelAsked, CreateRejected, Read
from schemas.http import AnsweredOutcome, MaybeOutcome, NotSentOutcome, Outcome
from schemas.operation import SECOND, Operation
from schemas.states import FINAL, Answer, CancelOutcome, Errand, Question, Reading, State
from tests.lifecycle.cases import CONTRACT, NO_CANCEL, NOW, answer, operation, read

DESTRUCTIVE = replace(CONTRACT, cancel=CancelRule(method="DELETE", path="/{remote_job_id}", destructive=True, absent_after_cancel=True))
ANSWERS: dict[str, Outcome] = {
    "taken": AnsweredOutcome(status=202),
    "conflict": AnsweredOutcome(status=409, body=b'{"error": "job is terminal"}'),
    "server error that says terminal": AnsweredOutcome(status=500, body=b'{"error": "already terminal"}'),
    "method": AnsweredOutcome(status=405),
    "bad request": AnsweredOutcome(status=400),
    "not found": AnsweredOutcome(status=404),
    "timeout": MaybeOutcome(error="read_timeout"),
    "refused connection": NotSentOutcome(error="connect_refused"),
}
READS = {
    Reading.RUNNING: None,
    Reading.SUCCEEDED: State.RESULT_COLLECTING,
    Reading.FAILED: State.FAILED,
    Reading.CANCELLED: State.CANCELLED,
}


def after(op: Operation, evidence: object) -> Operation:
    decision = decide(op, evidence, CONTRACT, now=NOW, chance=0.5)  # type: ignore[arg-type] # each kind of evidence comes through here
    for step in decision.steps:
        op = replace(op, state=step.to, **step.changes)
    return replace(op, **decision.working)


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("said", READS)
def test_no_answer_to_a_cancel_ends_an_operation_only_the_read_does(name: str, said: Reading) -> None:
    """B080: 409, 405, 400, a 500 that says "terminal": none is an end; the read says which end, or that it still runs."""
    op = operation(State.CANCEL_REQUESTED)
    between = after(op, interpret.cancel(ANSWERS[name], op, CONTRACT, NOW))
    assert between.state not in FINAL
    assert next_errand(between, CONTRACT, NOW) in {Errand.READ, Errand.CANCEL}
    ended = after(between, read(said, has_result=said is Reading.SUCCEEDED))
    assert ended.state is (READS[said] or between.state)


@pytest.mark.parametrize("state", sorted(FINAL))
def test_a_finished_operation_is_not_cancelled(state: State) -> None:
    """B079: refused with its state, without a history row and without an errand."""
    decision = decide(operation(state), CancelAsked(by="agent"), CONTRACT, now=NOW, chance=0.5)
    assert (decision.refused, decision.steps, str(state) in decision.detail) == ("already_final", (), True)
    assert next_errand(operation(state), CONTRACT, NOW) is None


def test_a_destructive_cancel_is_sent_only_right_after_a_read_that_saw_the_job_alive() -> None:
    """E4: a DELETE that would destroy a finished result waits for a fresh read, also when a person has it sent again."""
    asked = operation(State.CANCEL_REQUESTED, verified_at=NOW - 60 * SECOND, last_read_at=NOW - 60 * SECOND)
    assert next_errand(asked, DESTRUCTIVE, NOW) is Errand.READ
    fresh = replace(asked, last_read_at=NOW)
    assert next_errand(fresh, DESTRUCTIVE, NOW) is Errand.CANCEL
    assert next_errand(fresh, DESTRUCTIVE, NOW + (FRESH_READ_SECONDS + 1) * SECOND) is Errand.READ
    assert next_errand(replace(fresh, read_failures=1), DESTRUCTIVE, NOW) is Errand.READ
    done = decide(fresh, read(Reading.SUCCEEDED), DESTRUCTIVE, now=NOW, chance=0.5)
    assert done.steps[0].to is State.RESULT_COLLECTING
    assert next_errand(operation(State.RESULT_COLLECTING), DESTRUCTIVE, NOW) is Errand.COLLECT
    parked = operation(State.CANCELLATION_UNCONFIRMED, last_read_at=NOW - 60 * SECOND, verified_at=NOW)
    again = after(parked, answer(Question.CANCELLATION_UNCONFIRMED, Answer.RESEND))
    assert next_errand(again, DESTRUCTIVE, NOW) is Errand.READ
    sent = operation(State.CANCELLING, cancel_sent_at=NOW - 900 * SECOND, last_read_at=NOW)
    assert next_errand(sent, DESTRUCTIVE, NOW) is Errand.READ  # never a second one by itself


def test_a_provider_without_a_cancel_says_so_and_the_job_is_watched_on() -> None:
    """E4: the wish is recorded, refused at once, and nothing is sent."""
    decision = decide(operation(State.OBSERVING), CancelAsked(by="agent", reason="enough"), NO_CANCEL, now=NOW, chance=0.5)
    assert [step.code for step in decision.steps] == ["cancel_asked", "cancel_unsupported"]
    assert {step.to for step in decision.steps} == {State.OBSERVING}
    assert decision.steps[-1].changes["cancel_outcome"] == CancelOutcome.REFUSED


def test_a_wish_that_nothing_will_come_of_is_not_shown_as_pending_for_ever() -> None:
    """E1: a create that is refused, or an operation that is given up, says what became of the wish."""
    wish = operation(State.CREATE_PENDING, cancel_requested_at=NOW, cancel_outcome=CancelOutcome.REQUESTED)
    refused = after(wish, CreateRejected(code="http_422", status=422))
    assert (refused.state, refused.cancel_outcome) == (State.FAILED, CancelOutcome.WITHDRAWN)
    parked = operation(State.QUARANTINED, cancel_requested_at=NOW, cancel_outcome=CancelOutcome.REQUESTED)
    given_up = after(parked, answer(Question.QUARANTINED, Answer.ABANDON))
    assert (given_up.state, given_up.cancel_outcome) == (State.ABANDONED, CancelOutcome.UNCONFIRMED)


def test_partial_effects_come_from_declared_places_and_are_told_with_the_end() -> None:
    """E5: numbers and words of the final answer, whatever their type; nothing of an answer that is no end."""
    places = {"rows": "body:done", "charged": "body:cost", "sent": "body:mailed", "odd": "body:list", "note": "body:note"}
    contract = replace(CONTRACT, status=StatusRule(readings={"stopped": Reading.CANCELLED, "on": Reading.RUNNING}, effects=places))
    body = b'{"status": "stopped", "done": 120, "cost": 3.2, "mailed": true, "list": [1], "note": "half\\nway"}'
    op = operation(State.CANCELLING, cancel_outcome=CancelOutcome.TAKEN)
    headers = (("content-type", "application/json"),)
    found = interpret.status(AnsweredOutcome(status=200, headers=headers, body=body), op, contract, NOW)
    assert isinstance(found, Read)
    assert found.facts.effects == (("rows", "120"), ("charged", "3.2"), ("sent", "yes"), ("note", "halfway"))
    running = interpret.status(AnsweredOutcome(status=200, headers=headers, body=body.replace(b"stopped", b"on")), op, contract, NOW)
    assert isinstance(running, Read)
    assert running.facts.effects == ()
    ended = after(op, replace(found, facts=replace(found.facts, has_result=False)))
    assert ended.state is State.CANCELLED
    assert "rows 120, charged 3.2" in message(ended)
    assert "no promise" in message(ended)

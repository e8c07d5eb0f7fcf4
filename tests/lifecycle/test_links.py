"""Successors: what they wait for, when they are sent, and when a person is asked (A3, D1)."""

from typing import Any

import pytest

from lifecycle.errands import Sleep, next_errand
from lifecycle.judge import decide
from lifecycle.public import message, public_status, stage
from lifecycle.rules_links import ASK_SECONDS, LOOK_SECONDS
from schemas.decision import Decision
from schemas.evidence import PredecessorSeen
from schemas.operation import SECOND, Operation
from schemas.states import ACTIVE, FINAL, PARKED, WAITING, Answer, Errand, PublicStatus, Question, State
from tests.lifecycle.cases import CONTRACT, NOW, answer, operation

ENDED = FINAL - {State.SUCCEEDED}
ASKING = PARKED | {State.SUCCEEDED}


def held(state: State = State.CREATE_PENDING, **changes: Any) -> Operation:
    return operation(state, waits_for="op_0", **{"create_deadline": None, "result_deadline": None, **changes})


def seen(op: Operation, state: State) -> Decision:
    return decide(op, PredecessorSeen(operation="op_0", state=state), CONTRACT, now=NOW, chance=0.5)


@pytest.mark.parametrize("state", list(State))
def test_what_the_predecessors_state_means_to_its_successor(state: State) -> None:
    """A3: final other than succeeded sends it, succeeded or parked asks a person, everything else waits on, unsent."""
    decision = seen(held(), state)
    if state in ENDED:
        (step,) = decision.steps
        assert (step.to, step.code, step.changes["waits_for"]) == (State.CREATE_PENDING, "predecessor_ended", None)
        assert step.changes["create_deadline"] == NOW + 900 * SECOND
        return
    if state in ASKING:
        (step,) = decision.steps
        assert (step.to, step.changes["question_kind"]) == (State.AWAITING_APPROVAL, Question.APPROVAL)
        assert step.changes["question_until"] == NOW + ASK_SECONDS * SECOND
        assert "waits_for" not in step.changes
        return
    assert state in ACTIVE | WAITING
    assert decision.steps == ()


@pytest.mark.parametrize("op", [held(), held(State.AWAITING_APPROVAL, approval_deadline=None)])
def test_nothing_is_owed_while_the_predecessor_has_not_ended(op: Operation) -> None:
    """A3: no create errand exists for an operation that waits; it looks again soon."""
    assert next_errand(op, CONTRACT, NOW) == Sleep(until=NOW + LOOK_SECONDS * SECOND)
    assert next_errand(operation(State.CREATE_PENDING), CONTRACT, NOW) is Errand.CREATE


def test_what_a_person_decides_about_the_predecessor_moves_the_successor() -> None:
    """A3: a parked predecessor that is resumed is waited for again; one that is abandoned lets the successor go."""
    asking = held(State.AWAITING_APPROVAL, approval_deadline=None)
    (back,) = seen(asking, State.OBSERVING).steps
    assert (back.to, back.code, back.changes["question_id"]) == (State.CREATE_PENDING, "predecessor_goes_on", None)
    (sent,) = seen(asking, State.ABANDONED).steps
    assert (sent.to, sent.code, sent.changes["waits_for"]) == (State.CREATE_PENDING, "predecessor_ended", None)
    assert seen(asking, State.SUCCEEDED).steps == ()


def test_an_approval_of_the_callers_own_is_not_answered_by_the_predecessors_end() -> None:
    """G7, A3: the caller's approval stands; approved while the predecessor lives, it still waits for that end."""
    asking = held(State.AWAITING_APPROVAL)
    (noted,) = seen(asking, State.FAILED).steps
    assert (noted.to, noted.changes) == (State.AWAITING_APPROVAL, {"waits_for": None})
    assert seen(asking, State.SUCCEEDED).steps == ()
    (approved,) = decide(asking, answer(Question.APPROVAL, Answer.APPROVE), CONTRACT, now=NOW, chance=0.5).steps
    assert approved.to is State.CREATE_PENDING
    assert not {"waits_for", "create_deadline"} & approved.changes.keys()


def test_approving_a_successor_of_what_succeeded_sends_it() -> None:
    """A3: the person who was asked about the predecessor answers for sending all the same; the clocks start then."""
    asking = held(State.AWAITING_APPROVAL, approval_deadline=None)
    (approved,) = decide(asking, answer(Question.APPROVAL, Answer.APPROVE), CONTRACT, now=NOW, chance=0.5).steps
    assert (approved.changes["waits_for"], approved.changes["create_deadline"]) == (None, NOW + 900 * SECOND)
    (denied,) = decide(asking, answer(Question.APPROVAL, Answer.DENY), CONTRACT, now=NOW, chance=0.5).steps
    assert denied.to is State.WITHDRAWN


def test_a_caller_is_told_what_is_waited_for() -> None:
    """G2: a successor that waits is shown as queued, and says for what; one that asks says why."""
    assert public_status(held()) is PublicStatus.QUEUED
    assert "op_0" in message(held())
    assert "supersedes" in stage(held())
    assert "op_0" in message(held(State.AWAITING_APPROVAL, approval_deadline=None))


def test_news_of_another_operation_is_ignored() -> None:
    """A look that was overtaken by a decision changes nothing."""
    evidence = PredecessorSeen(operation="op_9", state=State.CANCELLED)
    assert decide(held(), evidence, CONTRACT, now=NOW, chance=0.5) == Decision()

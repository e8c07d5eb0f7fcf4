"""Every arrow of the architecture works, and no other one is ever taken."""

import itertools
from dataclasses import replace
from typing import Any

import pytest

from lifecycle.arrows import ARROWS
from lifecycle.case import Case, Draft, IllegalArrowError
from lifecycle.judge import decide
from lifecycle.questions import ANSWERS, ASKS
from schemas.evidence import AttemptLost, Evidence, JobKnown, NotSent, PredecessorSeen
from schemas.operation import SECOND, Operation
from schemas.states import Answer, Cause, Errand, Question, Reading, State
from tests.lifecycle.cases import (
    CONTRACT,
    EVIDENCE,
    JOB,
    LOOKUP,
    NO_CANCEL,
    NO_RECOVERY,
    NOW,
    ONE_SHOT,
    answer,
    operation,
    read,
)

S = State
SPECIFIED = """
awaiting_approval -> create_pending withdrawn
create_pending -> accepted observing result_collecting create_unknown failed withdrawn quarantined awaiting_approval
awaiting_outcome -> accepted failed create_unknown withdrawn quarantined
create_unknown -> accepted observing result_collecting create_pending failed withdrawn create_unresolved quarantined
accepted -> observing cancel_requested result_collecting failed cancelled result_timed_out quarantined
observing -> cancel_requested result_collecting failed cancelled result_timed_out quarantined
cancel_requested -> cancelling observing result_collecting failed cancelled cancellation_unconfirmed quarantined
cancelling -> observing result_collecting failed cancelled cancellation_unconfirmed quarantined
result_collecting -> succeeded failed cancelled result_unavailable result_validation_failed quarantined
create_unresolved -> create_pending accepted failed abandoned quarantined
quarantined -> accepted observing abandoned result_collecting failed cancelled
result_timed_out -> observing cancel_requested abandoned result_collecting failed cancelled quarantined
cancellation_unconfirmed -> cancel_requested cancelling observing abandoned result_collecting failed cancelled quarantined
result_unavailable -> result_collecting abandoned quarantined
result_validation_failed -> succeeded result_collecting failed abandoned quarantined
succeeded ->
failed ->
cancelled ->
withdrawn ->
abandoned ->
"""
"""The arrows of the architecture, written by hand a second time."""


def specified() -> dict[State, frozenset[State]]:
    arrows = {}
    for line in SPECIFIED.strip().splitlines():
        state, _, targets = line.partition("->")
        arrows[State(state.strip())] = frozenset(State(word) for word in targets.split())
    return arrows


def variants(state: State) -> list[Operation]:
    """Return operations in `state` whose clocks, wishes and doubts differ."""
    base = operation(state)
    long_ago = NOW - 3_600 * SECOND
    over: dict[str, Any] = {
        "create_deadline": long_ago,
        "result_deadline": long_ago,
        "cancel_deadline": long_ago,
        "collect_deadline": long_ago,
    }
    none: dict[str, Any] = {}
    found = [base, replace(base, **over), replace(base, absences=5)]
    if state is State.AWAITING_APPROVAL:
        found.append(replace(base, question_until=long_ago))
        found.append(replace(base, waits_for="op_0", approval_deadline=None))
    if state in {State.CREATE_PENDING, State.CREATE_UNKNOWN}:
        found.append(replace(base, waits_for="op_0"))
        wish = replace(base, cancel_requested_at=NOW - SECOND, cancel_outcome="requested")
        found += [
            wish,
            replace(wish, absences=5),
            replace(base, **over, absences=5),
            replace(base, unsure_creates=1, create_deadline=long_ago),
        ]
    if state is State.RESULT_COLLECTING:
        found += [
            replace(base, ending=ending, **more) for ending in (Reading.CANCELLED, Reading.FAILED, Reading.EXPIRED) for more in (none, over)
        ]
    if state is State.QUARANTINED:
        found.append(replace(base, error_code="job_vanished"))
    return found


def pieces(state: State) -> list[Evidence]:
    found = list(EVIDENCE.values())
    found += [read(Reading.CANCELLED), read(Reading.EXPIRED)]
    found += [PredecessorSeen(operation="op_0", state=seen) for seen in State]
    found += [NotSent(errand=Errand.CREATE, error="x", was_lost=True), NotSent(errand=Errand.COLLECT, error="x")]
    found.append(AttemptLost(attempt_id="att", errand=Errand.COLLECT, sent_before=NOW))
    found.append(JobKnown(remote_job_id=JOB, source="recovery"))
    if state in ASKS:
        question = ASKS[state]
        found += [answer(question, given, remote_job_id=JOB, accept_duplicate_risk=True) for given in ANSWERS[question]]
    return found


def taken(state: State) -> set[tuple[State, State]]:
    """Return every arrow that any evidence takes from `state` on."""
    arrows = set()
    contracts = (CONTRACT, LOOKUP, NO_RECOVERY, NO_CANCEL, ONE_SHOT)
    for op, evidence, contract in itertools.product(variants(state), pieces(state), contracts):
        here = state
        for step in decide(op, evidence, contract, now=NOW, chance=0.5).steps:
            if step.to is not here:
                arrows.add((here, step.to))
            here = step.to
    return arrows


def test_the_arrows_are_the_specified_ones() -> None:
    """lifecycle/arrows.py says what the architecture says."""
    assert specified() == ARROWS


def test_every_arrow_is_taken_by_some_evidence_and_no_other() -> None:
    """Every arrow works; every other pair is never taken (D1)."""
    found: set[tuple[State, State]] = set()
    for state in State:
        found |= taken(state)
    assert found == {(state, target) for state, targets in ARROWS.items() for target in targets}


@pytest.mark.parametrize(("here", "there"), [(a, b) for a in State for b in State if b not in ARROWS[a] and a is not b])
def test_every_other_pair_is_refused(here: State, there: State) -> None:
    """A rule that tried an arrow outside the table would be stopped (D1)."""
    case = Case(operation=operation(here), evidence=EVIDENCE["lapsed"], contract=CONTRACT, now=NOW, started_at=NOW, chance=0.5)
    with pytest.raises(IllegalArrowError):
        Draft(case).go(there, Cause.REQUEST, "tried")


@pytest.mark.parametrize(("question", "given"), [(q, a) for q in Question for a in Answer if a not in ANSWERS[q]])
def test_an_answer_that_the_question_does_not_take_is_refused(question: Question, given: Answer) -> None:
    """Only the answers of the question table are taken."""
    state = next((state for state, asked in ASKS.items() if asked is question), State.SUCCEEDED)
    op = operation(state, question_id="q_1", question_kind=question)
    assert decide(op, answer(question, given), CONTRACT, now=NOW, chance=0.5).refused == "unknown_answer"


@pytest.mark.parametrize("state", sorted(ASKS))
def test_an_answer_to_yesterdays_question_is_refused(state: State) -> None:
    """The first answer counts; a stale question id changes nothing."""
    given = answer(ASKS[state], ANSWERS[ASKS[state]][0], question_id="q_0")
    assert decide(operation(state), given, CONTRACT, now=NOW, chance=0.5).refused == "question_changed"

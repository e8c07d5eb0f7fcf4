"""What a quarantined operation may still ask the provider."""

from dataclasses import replace

import pytest

from lifecycle.judge import decide
from schemas.decision import Decision, DueAt
from schemas.evidence import RefreshAsked
from schemas.operation import SECOND, Operation
from schemas.states import FINAL, Reading, State
from tests.lifecycle.cases import CONTRACT, EVIDENCE, LOOKUP, NOW, operation, read


def judged(op: Operation, name: str) -> Decision:
    return decide(op, EVIDENCE[name], LOOKUP, now=NOW, chance=0.5)


def test_no_lookup_is_under_way_while_a_person_chooses_one_of_several_jobs() -> None:
    """A8: what several jobs were found is known; a late second answer would undo the person's choice."""
    op = replace(operation(State.QUARANTINED), remote_job_id=None, hinted_at=None, last_read_at=NOW - 3_600 * SECOND)
    hinted = judged(op, "hinted")
    assert [step.code for step in hinted.steps] == ["delivery"]
    assert not [effect for effect in hinted.effects if isinstance(effect, DueAt)]
    assert decide(op, RefreshAsked(by="pat"), LOOKUP, now=NOW, chance=0.5).refused == "nothing_to_read"


def test_a_hint_earns_one_lookup_where_it_may_answer_the_question() -> None:
    """B8: an unresolved create is looked up once more when a delivery speaks of it."""
    op = replace(operation(State.CREATE_UNRESOLVED), remote_job_id=None, hinted_at=None)
    assert [effect for effect in judged(op, "hinted").effects if isinstance(effect, DueAt)]


@pytest.mark.parametrize("reading", [Reading.SUCCEEDED, Reading.FAILED, Reading.RUNNING])
def test_a_read_that_began_before_an_adoption_does_not_judge_the_adopted_job(reading: Reading) -> None:
    """A8: a granted read of the former job, answered after a person has named another one, moves nothing."""
    op = replace(operation(State.ACCEPTED), accepted_at=NOW - SECOND)
    before = decide(op, read(reading), CONTRACT, now=NOW, chance=0.5, started_at=NOW - 2 * SECOND)
    assert [(step.to, step.code, dict(step.changes)) for step in before.steps] == [(State.ACCEPTED, "read_of_former_job", {})]
    after = decide(op, read(reading), CONTRACT, now=NOW, chance=0.5, started_at=NOW - SECOND)
    assert after.steps[0].to is not State.ACCEPTED


@pytest.mark.parametrize("state", sorted(FINAL - {State.WITHDRAWN, State.ABANDONED}))
def test_a_read_of_the_former_job_is_no_contradiction_of_the_end(state: State) -> None:
    """D1: only a read of the operation's own job can open an incident."""
    op = replace(operation(state), accepted_at=NOW - SECOND)
    other = Reading.FAILED if state is State.SUCCEEDED else Reading.SUCCEEDED
    assert not decide(op, read(other), CONTRACT, now=NOW, chance=0.5, started_at=NOW - 2 * SECOND).steps
    assert decide(op, read(other), CONTRACT, now=NOW, chance=0.5, started_at=NOW).steps

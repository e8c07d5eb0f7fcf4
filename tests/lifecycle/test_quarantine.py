"""What a quarantined operation may still ask the provider."""

from dataclasses import replace

from lifecycle.judge import decide
from schemas.decision import Decision, DueAt
from schemas.evidence import RefreshAsked
from schemas.operation import SECOND, Operation
from schemas.states import State
from tests.lifecycle.cases import EVIDENCE, LOOKUP, NOW, operation


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

"""The grid, written a second time: what each evidence does in each state, beside the table in lifecycle/table.py.

A cell that is not named here is *late*: one history row that says so, no other effect (MISSION B7, D1).
Read a row as: in this state, `outcome` is what these pieces of evidence lead to. `a > b` are arrows taken in one fold.
"""

import pytest

from lifecycle.arrows import ARROWS
from lifecycle.judge import decide
from lifecycle.table import TABLE
from schemas.decision import Decision
from schemas.evidence import Kind
from schemas.states import FINAL, State
from tests.lifecycle.cases import CONTRACT, EVIDENCE, NOW, operation

GRID: dict[State, dict[str, str]] = {
    State.AWAITING_APPROVAL: {
        "withdrawn": "cancel asked",
        "refused nothing_to_read": "refresh asked",
        "refused not_external": "reported accepted, reported rejected, reported unknown, reported not sent",
        "superseded": "superseded",
        "resumed_by_another": "resumed",
        "delivery": "hinted, job named",
        "nothing": "predecessor over, lapsed",
    },
    State.CREATE_PENDING: {
        "withdrawn": "cancel asked",
        "nothing": "predecessor over, refresh asked, lapsed",
        "refused not_external": "reported accepted, reported rejected, reported unknown, reported not sent",
        "superseded": "superseded",
        "resumed_by_another": "resumed",
        "delivery": "hinted, job named",
        "create_unknown": "create lost, create ambiguous",
        "create_not_sent": "create not sent",
        "failed": "create rejected",
        "accepted": "job known, other job known",
        "observing": "job running",
        "result_collecting > succeeded": "job done at once",
        "quarantined": "jobs conflict",
    },
    State.AWAITING_OUTCOME: {
        "superseded": "superseded",
        "resumed_by_another": "resumed",
        "cancel_asked": "cancel asked",
        "nothing": "predecessor over, refresh asked, lapsed",
        "accepted": "job named, reported accepted",
        "failed": "reported rejected",
        "create_unknown": "reported unknown",
        "withdrawn": "reported not sent",
        "delivery": "hinted",
        "quarantined": "jobs conflict",
    },
    State.CREATE_UNKNOWN: {
        "cancel_asked": "cancel asked",
        "nothing": "predecessor over, refresh asked, lapsed, job not found, read failed",
        "refused not_external": "reported accepted, reported rejected, reported unknown, reported not sent",
        "superseded": "superseded",
        "resumed_by_another": "resumed",
        "delivery": "hinted",
        "attempt_lost": "create lost",
        "create_not_sent": "create not sent",
        "create_ambiguous": "create ambiguous",
        "failed": "create rejected",
        "accepted": "job named, job known, other job known",
        "observing": "job running",
        "result_collecting > succeeded": "job done at once",
        "quarantined": "jobs conflict",
    },
    State.ACCEPTED: {
        "cancel_requested": "cancel asked",
        "nothing": "predecessor over, refresh asked, lapsed, job known, job running, job done at once, read failed",
        "refused not_external": "reported accepted, reported rejected, reported unknown, reported not sent",
        "superseded": "superseded",
        "resumed_by_another": "resumed",
        "delivery": "hinted, job named",
        "quarantined": "other job known, jobs conflict",
        "observing": "queued, running",
        "result_collecting": "succeeded",
        "failed": "failed, expired",
        "cancelled": "cancelled",
        "absent": "absent",
        "unknown_word": "unknown word",
    },
    State.OBSERVING: {
        "cancel_requested": "cancel asked",
        "nothing": "predecessor over, refresh asked, lapsed, job known, job running, job done at once, read failed",
        "refused not_external": "reported accepted, reported rejected, reported unknown, reported not sent",
        "superseded": "superseded",
        "resumed_by_another": "resumed",
        "delivery": "hinted, job named",
        "quarantined": "other job known, jobs conflict",
        "seen_queued": "queued",
        "seen_running": "running",
        "result_collecting": "succeeded",
        "failed": "failed, expired",
        "cancelled": "cancelled",
        "absent": "absent",
        "unknown_word": "unknown word",
    },
    State.CANCEL_REQUESTED: {
        "nothing": "predecessor over, cancel asked, refresh asked, lapsed, job known, job running, job done at once, read failed",
        "refused not_external": "reported accepted, reported rejected, reported unknown, reported not sent",
        "superseded": "superseded",
        "resumed_by_another": "resumed",
        "delivery": "hinted, job named",
        "cancelling": "cancel lost, cancel taken, cancel ambiguous",
        "cancel_not_sent": "cancel not sent",
        "quarantined": "other job known, jobs conflict",
        "seen_queued": "queued",
        "seen_running": "running",
        "result_collecting": "succeeded",
        "failed": "failed, expired",
        "cancelled": "cancelled",
        "absent": "absent",
        "unknown_word": "unknown word",
        "observing": "cancel refused",
    },
    State.CANCELLING: {
        "nothing": "predecessor over, cancel asked, refresh asked, lapsed, job known, job running, job done at once, read failed",
        "refused not_external": "reported accepted, reported rejected, reported unknown, reported not sent",
        "superseded": "superseded",
        "resumed_by_another": "resumed",
        "delivery": "hinted, job named",
        "attempt_lost": "cancel lost",
        "quarantined": "other job known, jobs conflict",
        "seen_queued": "queued",
        "seen_running": "running",
        "result_collecting": "succeeded",
        "failed": "failed, expired",
        "cancelled": "cancelled",
        "absent": "absent",
        "unknown_word": "unknown word",
        "cancel_taken": "cancel taken",
        "observing": "cancel refused",
        "cancel_ambiguous": "cancel ambiguous",
    },
    State.RESULT_COLLECTING: {
        "cancel_too_late": "cancel asked",
        "nothing": "predecessor over, "
        "refresh asked, lapsed, job known, job running, job done at once, succeeded, read failed, collect failed",
        "refused not_external": "reported accepted, reported rejected, reported unknown, reported not sent",
        "superseded": "superseded",
        "resumed_by_another": "resumed",
        "delivery": "hinted, job named",
        "quarantined": "other job known, jobs conflict, failed, cancelled, expired",
        "stale_reading": "queued, running, absent, unknown word",
        "succeeded": "collected",
        "result_validation_failed": "result invalid",
        "result_unavailable": "result gone",
    },
    State.SUCCEEDED: {
        "refused already_final": "cancel asked, refresh asked",
        "refused not_external": "reported accepted, reported rejected, reported unknown, reported not sent",
        "superseded": "superseded",
        "resumed_by_another": "resumed",
        "late_delivery": "hinted, job named",
        "nothing": "predecessor over, "
        "lapsed, job known, job running, job done at once, queued, running, succeeded, absent, unknown word, read failed",
        "incident": "other job known, jobs conflict, failed, cancelled, expired",
    },
    State.FAILED: {
        "refused already_final": "cancel asked, refresh asked",
        "refused not_external": "reported accepted, reported rejected, reported unknown, reported not sent",
        "superseded": "superseded",
        "resumed_by_another": "resumed",
        "late_delivery": "hinted, job named",
        "nothing": "predecessor over, "
        "lapsed, job known, job running, job done at once, queued, running, failed, expired, absent, unknown word, read failed",
        "incident": "other job known, jobs conflict, succeeded, cancelled",
    },
    State.CANCELLED: {
        "refused already_final": "cancel asked, refresh asked",
        "refused not_external": "reported accepted, reported rejected, reported unknown, reported not sent",
        "superseded": "superseded",
        "resumed_by_another": "resumed",
        "late_delivery": "hinted, job named",
        "nothing": "predecessor over, "
        "lapsed, job known, job running, job done at once, queued, running, cancelled, absent, unknown word, read failed",
        "incident": "other job known, jobs conflict, succeeded, failed, expired",
    },
    State.WITHDRAWN: {
        "refused already_final": "cancel asked, refresh asked",
        "refused not_external": "reported accepted, reported rejected, reported unknown, reported not sent",
        "superseded": "superseded",
        "resumed_by_another": "resumed",
        "late_delivery": "hinted, job named",
        "nothing": "predecessor over, lapsed, queued, running, succeeded, failed, cancelled, expired, absent, unknown word, read failed",
        "incident": "job known, other job known, job running, job done at once, jobs conflict",
    },
    State.ABANDONED: {
        "refused already_final": "cancel asked, refresh asked",
        "refused not_external": "reported accepted, reported rejected, reported unknown, reported not sent",
        "superseded": "superseded",
        "resumed_by_another": "resumed",
        "late_delivery": "hinted, job named",
        "nothing": "predecessor over, lapsed, job known, other job known, job running, job done at once, jobs conflict, queued, "
        "running, succeeded, failed, cancelled, expired, absent, unknown word, read failed",
    },
    State.CREATE_UNRESOLVED: {
        "cancel_asked": "cancel asked",
        "refused nothing_to_read": "refresh asked",
        "refused not_external": "reported accepted, reported rejected, reported unknown, reported not sent",
        "superseded": "superseded",
        "resumed_by_another": "resumed",
        "delivery": "hinted",
        "nothing": "predecessor over, lapsed, job not found, read failed",
        "accepted": "job named, job known, other job known, job running, job done at once",
        "quarantined": "jobs conflict",
    },
    State.QUARANTINED: {
        "cancel_asked": "cancel asked",
        "nothing": "predecessor over, refresh asked, lapsed, read failed",
        "refused not_external": "reported accepted, reported rejected, reported unknown, reported not sent",
        "superseded": "superseded",
        "resumed_by_another": "resumed",
        "delivery": "hinted, job named",
        "seen_queued": "queued",
        "seen_running": "running",
        "read_while_quarantined": "succeeded, failed, cancelled, expired",
        "absent": "absent",
        "unknown_word": "unknown word",
    },
    State.RESULT_TIMED_OUT: {
        "cancel_requested": "cancel asked",
        "nothing": "predecessor over, refresh asked, lapsed, job known, job running, job done at once, read failed",
        "refused not_external": "reported accepted, reported rejected, reported unknown, reported not sent",
        "superseded": "superseded",
        "resumed_by_another": "resumed",
        "delivery": "hinted, job named",
        "quarantined": "other job known, jobs conflict",
        "seen_queued": "queued",
        "seen_running": "running",
        "result_collecting": "succeeded",
        "failed": "failed, expired",
        "cancelled": "cancelled",
        "absent": "absent",
        "unknown_word": "unknown word",
    },
    State.CANCELLATION_UNCONFIRMED: {
        "refused needs_decision": "cancel asked",
        "nothing": "predecessor over, refresh asked, lapsed, job known, job running, job done at once, read failed",
        "refused not_external": "reported accepted, reported rejected, reported unknown, reported not sent",
        "superseded": "superseded",
        "resumed_by_another": "resumed",
        "delivery": "hinted, job named",
        "quarantined": "other job known, jobs conflict",
        "seen_queued": "queued",
        "seen_running": "running",
        "result_collecting": "succeeded",
        "failed": "failed, expired",
        "cancelled": "cancelled",
        "absent": "absent",
        "unknown_word": "unknown word",
    },
    State.RESULT_UNAVAILABLE: {
        "cancel_too_late": "cancel asked",
        "result_collecting > succeeded": "collected",
        "nothing": "predecessor over, refresh asked, lapsed, job known, job running, job done at once, succeeded, read failed",
        "refused not_external": "reported accepted, reported rejected, reported unknown, reported not sent",
        "superseded": "superseded",
        "resumed_by_another": "resumed",
        "delivery": "hinted, job named",
        "quarantined": "other job known, jobs conflict, failed, cancelled, expired",
        "stale_reading": "queued, running, absent, unknown word",
    },
    State.RESULT_VALIDATION_FAILED: {
        "cancel_too_late": "cancel asked",
        "nothing": "predecessor over, refresh asked, lapsed, job known, job running, job done at once, succeeded, read failed",
        "refused not_external": "reported accepted, reported rejected, reported unknown, reported not sent",
        "superseded": "superseded",
        "resumed_by_another": "resumed",
        "delivery": "hinted, job named",
        "quarantined": "other job known, jobs conflict, failed, cancelled, expired",
        "stale_reading": "queued, running, absent, unknown word",
    },
}


def outcome(state: State, decision: Decision) -> str:
    """Say in the grid's words what was decided."""
    if decision.refused is not None:
        return f"refused {decision.refused}"
    here, moved = str(state), []
    for step in decision.steps:
        if step.to != here:
            moved.append(str(step.to))
        here = str(step.to)
    if moved:
        return " > ".join(moved)
    return decision.steps[-1].code if decision.steps else "nothing"


def expected(state: State, name: str) -> str:
    for words, names in GRID[state].items():
        if name in names.split(", "):
            return words
    return f"late_{EVIDENCE[name].kind}"


@pytest.mark.parametrize("state", list(State))
def test_every_cell_of_the_grid(state: State) -> None:
    """Each evidence in each state leads where the hand-written grid says (D1)."""
    found = {name: outcome(state, decide(operation(state), evidence, CONTRACT, now=NOW, chance=0.5)) for name, evidence in EVIDENCE.items()}
    assert found == {name: expected(state, name) for name in EVIDENCE}


def test_the_grid_names_only_known_evidence() -> None:
    """No cell of the grid is a misspelling."""
    names = {name for row in GRID.values() for cell in row.values() for name in cell.split(", ")}
    assert names <= EVIDENCE.keys()
    assert set(GRID) == set(State)


def test_the_evidence_covers_every_kind() -> None:
    """The grid looks at every kind of evidence except answers, which test_answers.py covers."""
    assert {evidence.kind for evidence in EVIDENCE.values()} | {Kind.ANSWERED} == set(Kind)


def test_the_table_is_total() -> None:
    """Every state has a row for every kind of evidence."""
    assert TABLE.keys() == set(State)
    assert all(row.keys() == set(Kind) for row in TABLE.values())


@pytest.mark.parametrize("state", sorted(FINAL))
def test_final_states_never_change(state: State) -> None:
    """No evidence at all moves a final state (D1, invariant 7)."""
    assert ARROWS[state] == frozenset()
    for evidence in EVIDENCE.values():
        steps = decide(operation(state), evidence, CONTRACT, now=NOW, chance=0.5).steps
        assert {step.to for step in steps} <= {state}

"""Rules for linked operations: what a successor does to its predecessor, and how long it waits for its end (MISSION A3, D1).

A successor is recorded at once and sent only when its predecessor is final. It waits in `create_pending`, unsent, where
`waits_for` names the predecessor. A predecessor that succeeded, or that waits for a person itself, makes the successor
ask one: `awaiting_approval`. Every look at the predecessor is level-triggered: a look that was missed is made again.
"""

from typing import Any, Final

from lifecycle.case import Case, Draft
from schemas.decision import Decision
from schemas.evidence import PredecessorSeen, SucceededBy
from schemas.operation import SECOND, Micros, Operation
from schemas.states import FINAL, PARKED, Cause, State

LOOK_SECONDS: Final = 15
"""The longest pause between two looks at the predecessor. Its end wakes the successor sooner."""
ASK_SECONDS: Final = 604_800
"""How long a person may take to say whether a successor is sent: a week, then it is withdrawn unsent."""


def succeeded_by(case: Case) -> Decision:
    """A successor was registered: both histories say so. One that supersedes is named in the record, for ever."""
    evidence, draft = case.evidence, Draft(case)
    assert isinstance(evidence, SucceededBy)
    if evidence.how == "supersedes":
        assert draft.op.superseded_by is None, "a second successor is refused before it comes here"
        draft.note(Cause.LINK, "superseded", cause_id=evidence.operation, text=f"by {evidence.by}", superseded_by=evidence.operation)
    else:
        draft.note(Cause.LINK, "resumed_by_another", cause_id=evidence.operation, text=f"by {evidence.by}")
    return draft.done()


def predecessor_seen(case: Case) -> Decision:
    """The ledger has looked at the predecessor: go on, ask a person, or wait on."""
    op, evidence, draft = case.operation, case.evidence, Draft(case)
    assert isinstance(evidence, PredecessorSeen)
    if op.waits_for != evidence.operation:
        return Decision()
    if evidence.state in FINAL and evidence.state is not State.SUCCEEDED:
        _released(draft, evidence)
    elif not approval_owed(op):
        _waits(draft, evidence)
    return draft.done()


def approval_owed(op: Operation) -> bool:
    """Return whether a person must approve for the caller's own wish; the question about a predecessor has no such clock."""
    return op.state is State.AWAITING_APPROVAL and op.approval_deadline is not None


def clocks(op: Operation, now: Micros) -> dict[str, Any]:
    """Return the clocks of create and result, started: waiting for people or predecessors costs nothing of them."""
    return {"create_deadline": now + op.create_seconds * SECOND, "result_deadline": now + op.result_seconds * SECOND}


def _released(draft: Draft, evidence: PredecessorSeen) -> None:
    text, now = f"{evidence.operation} is {evidence.state}", draft.case.now
    if approval_owed(draft.op):
        draft.note(Cause.LINK, "predecessor_ended", cause_id=evidence.operation, text=text, waits_for=None)
        return
    changes = {"waits_for": None, **clocks(draft.op, now)}
    if draft.op.state is State.AWAITING_APPROVAL:
        draft.go(State.CREATE_PENDING, Cause.LINK, "predecessor_ended", cause_id=evidence.operation, text=text, **changes)
    else:
        draft.note(Cause.LINK, "predecessor_ended", cause_id=evidence.operation, text=text, **changes)
    draft.due(now)


def _waits(draft: Draft, evidence: PredecessorSeen) -> None:
    """A predecessor that ended well, or that a person must decide about, is a question; one that is at work is waited for."""
    text, now = f"{evidence.operation} is {evidence.state}", draft.case.now
    asks = evidence.state is State.SUCCEEDED or evidence.state in PARKED
    if asks and draft.op.state is State.CREATE_PENDING:
        code = "predecessor_succeeded" if evidence.state is State.SUCCEEDED else "predecessor_parked"
        until = now + ASK_SECONDS * SECOND
        draft.go(
            State.AWAITING_APPROVAL,
            Cause.LINK,
            code,
            cause_id=evidence.operation,
            text=text,
            approval_deadline=None,
            question_until=until,
        )
    elif not asks and draft.op.state is State.AWAITING_APPROVAL:
        draft.go(State.CREATE_PENDING, Cause.LINK, "predecessor_goes_on", cause_id=evidence.operation, text=text)
    draft.due(now + LOOK_SECONDS * SECOND)

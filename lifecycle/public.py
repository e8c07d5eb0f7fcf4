"""What callers see: the small status vocabulary and what it means for them (MISSION G2)."""

import json
from typing import Final

from schemas.operation import Operation
from schemas.states import FINAL, PARKED, CancelOutcome, Mode, Reading
from schemas.states import PublicStatus as P
from schemas.states import State as S

_FIXED: Final[dict[S, P]] = {
    S.AWAITING_APPROVAL: P.AWAITING_APPROVAL,
    S.AWAITING_OUTCOME: P.UNCONFIRMED,
    S.CREATE_UNKNOWN: P.UNCONFIRMED,
    S.CANCEL_REQUESTED: P.CANCELLING,
    S.CANCELLING: P.CANCELLING,
    S.RESULT_COLLECTING: P.RUNNING,
    S.SUCCEEDED: P.SUCCEEDED,
    S.FAILED: P.FAILED,
    S.CANCELLED: P.CANCELLED,
    S.WITHDRAWN: P.CANCELLED,
    S.ABANDONED: P.ABANDONED,
    **dict.fromkeys(PARKED, P.ATTENTION),
}


def public_status(op: Operation) -> P:
    """Return f(state, reading, cancel intent)."""
    wanted = op.cancel_requested_at is not None and op.cancel_outcome == CancelOutcome.REQUESTED
    if wanted and op.state in {S.CREATE_PENDING, S.CREATE_UNKNOWN, S.AWAITING_OUTCOME}:
        return P.CANCELLING
    fixed = _FIXED.get(op.state)
    if fixed is not None:
        return fixed
    if op.state is S.CREATE_PENDING:
        return P.QUEUED if op.unsure_creates == 0 else P.UNCONFIRMED
    return P.QUEUED if op.reading is Reading.QUEUED else P.RUNNING


def settled(op: Operation) -> bool:
    """Return whether polling may stop: final or parked."""
    return op.state in FINAL or op.state in PARKED


_STAGES: Final[dict[S, str]] = {
    S.AWAITING_APPROVAL: "waiting for a person's approval",
    S.CREATE_PENDING: "recorded; not sent yet",
    S.AWAITING_OUTCOME: "recorded; the service sends it itself",
    S.CREATE_UNKNOWN: "sent or not: being found out",
    S.ACCEPTED: "accepted by the provider; not observed yet",
    S.OBSERVING: "seen alive at the provider",
    S.CANCEL_REQUESTED: "cancel recorded; not taken by the provider yet",
    S.CANCELLING: "cancel sent; waiting for the provider's word",
    S.RESULT_COLLECTING: "ended at the provider; result being fetched",
    S.SUCCEEDED: "result stored and validated",
    S.FAILED: "ended as failed",
    S.CANCELLED: "the provider confirms the cancellation",
    S.WITHDRAWN: "ended before anything ran at the provider",
    S.ABANDONED: "given up by a person; the remote job may still run",
    S.CREATE_UNRESOLVED: "whether a job exists is unknown",
    S.QUARANTINED: "the provider contradicts itself",
    S.RESULT_TIMED_OUT: "the agreed time is over; the job may still run",
    S.CANCELLATION_UNCONFIRMED: "cancel sent; not confirmed in time",
    S.RESULT_UNAVAILABLE: "succeeded, but the result cannot be obtained",
    S.RESULT_VALIDATION_FAILED: "succeeded, but the result does not meet the agreement",
}

_ADVICE: Final[dict[P, str]] = {
    P.AWAITING_APPROVAL: "Nothing has been sent. Wait for the approval, or cancel.",
    P.QUEUED: "Recorded and on its way. Keep polling; do not send it again.",
    P.UNCONFIRMED: "It may have started. Do not send it again; keep polling.",
    P.RUNNING: "Keep polling.",
    P.CANCELLING: "Stopping was asked for; it may still complete. Keep polling.",
    P.ATTENTION: "Stop polling: a person must answer the open question. Do not send it again.",
    P.SUCCEEDED: "Stop polling: the result can be downloaded.",
    P.FAILED: "Stop polling. A changed request is a new operation with a new key.",
    P.CANCELLED: "Stop polling. This is no promise that partial effects were undone.",
    P.ABANDONED: "Stop polling. The remote job may still run.",
}


def stage(op: Operation) -> str:
    """Return a short phrase of verified fact."""
    if op.waits_for is not None and op.state is S.CREATE_PENDING:
        return "recorded; waits for the end of the operation that it supersedes"
    return _STAGES[op.state]


def message(op: Operation) -> str:
    """Return what a person or an agent may do now."""
    advice = _ADVICE[public_status(op)]
    if op.state is S.AWAITING_OUTCOME and op.mode is Mode.EXTERNAL:
        return "Report the outcome of your own create call. " + advice
    if op.waits_for is not None and op.state is S.AWAITING_APPROVAL and op.approval_deadline is None:
        return f"{op.waits_for}, which it supersedes, succeeded or waits for a person: approve to send this one all the same. " + advice
    if op.waits_for is not None and op.state is S.CREATE_PENDING:
        return f"It is sent when {op.waits_for} has ended. Keep polling; do not send it again."
    if op.incident_id is not None:
        advice += " The provider contradicted this end later: the incident is a question for a person; the state stays."
    if op.effects and op.state in FINAL and op.state is not S.SUCCEEDED:
        said = ", ".join(f"{name} {value}" for name, value in json.loads(op.effects).items())
        return f"{advice} Known partial effects: {said}."
    if op.unverified and op.state in PARKED:
        return advice + " The provider did not answer the last read: unverified."
    if op.cancel_outcome == CancelOutcome.REFUSED and not settled(op):
        return "The provider refused to cancel. " + advice
    return advice


assert _STAGES.keys() == set(S)
assert _ADVICE.keys() == set(P)

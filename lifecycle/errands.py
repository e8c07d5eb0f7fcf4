"""What an operation owes next: state + contract + now -> the one errand, or sleep until a time."""

from dataclasses import dataclass

from lifecycle import recovery
from lifecycle.rules_links import LOOK_SECONDS
from schemas.contract import Contract
from schemas.operation import SECOND, Micros, Operation
from schemas.states import ACTING, CancelOutcome, Errand, State

FRESH_READ_SECONDS = 5
"""A destructive cancel is sent only this soon after a read that saw the job alive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sleep:
    """Nothing is owed before `until`."""

    until: Micros


def next_errand(op: Operation, contract: Contract, now: Micros) -> Errand | Sleep | None:
    """Return the errand that is owed now, or how long to sleep; None: nothing is owed any more (final, and not watched)."""
    match op.state:
        case State.AWAITING_APPROVAL:
            return _when(op.question_until, now, op)
        case State.AWAITING_OUTCOME:
            return _when(op.create_deadline, now, op)
        case State.CREATE_PENDING if op.waits_for is not None:
            return Sleep(until=now + LOOK_SECONDS * SECOND)  # its predecessor has not ended: nothing is sent (A3)
        case State.CREATE_PENDING:
            over = op.create_deadline is not None and now >= op.create_deadline
            return Errand.LAPSE if over or op.cancel_requested_at is not None else Errand.CREATE
        case State.CREATE_UNKNOWN:
            return _recovering(op, contract, now)
        case State.ACCEPTED | State.OBSERVING:
            return Errand.READ
        case State.CANCEL_REQUESTED:
            return _cancel_owed(op, contract, now)
        case State.CANCELLING:
            return _cancel_awaited(op, contract, now)
        case State.RESULT_COLLECTING:
            return Errand.COLLECT
        case State.SUCCEEDED | State.FAILED | State.CANCELLED | State.WITHDRAWN | State.ABANDONED:
            if op.watch_until is None or op.remote_job_id is None:
                return None
            return Errand.READ if op.due_at is None or op.due_at <= now else Sleep(until=op.due_at)
        case _:
            return _parked(op, contract, now)


def acts(errand: Errand, contract: Contract, op: Operation) -> bool:
    """Return whether the errand changes something at the provider, so that an attempt is committed before its bytes.

    After a lost attempt at a result that can be read once, collecting only looks into our own store (F4).
    """
    one_shot = contract.result is not None and contract.result.one_shot and op.consumed_by is None
    return errand in ACTING or (errand is Errand.COLLECT and one_shot)


def _when(deadline: Micros | None, now: Micros, op: Operation) -> Errand | Sleep:
    if deadline is None or now >= deadline:
        return Errand.LAPSE
    return Sleep(until=deadline if op.waits_for is None else min(deadline, now + LOOK_SECONDS * SECOND))


def _recovering(op: Operation, contract: Contract, now: Micros) -> Errand:
    match recovery.plan(op, contract, now):
        case "resend":
            return Errand.CREATE
        case "lookup" | "list":
            return Errand.RECOVER
        case None:
            return Errand.LAPSE


def _cancel_owed(op: Operation, contract: Contract, now: Micros) -> Errand:
    if op.cancel_deadline is not None and now >= op.cancel_deadline:
        return Errand.READ
    if contract.cancel is not None and contract.cancel.destructive:
        seen = op.last_read_at if op.verified_at is not None and op.read_failures == 0 else None
        asked = op.cancel_requested_at or 0
        if seen is None or seen < asked or now - seen > FRESH_READ_SECONDS * SECOND:
            return Errand.READ
    return Errand.CANCEL


def _cancel_awaited(op: Operation, contract: Contract, now: Micros) -> Errand:
    """An unanswered cancel is sent again, but only after a read that saw the job alive (E4)."""
    sent = op.cancel_sent_at
    if (
        contract.cancel is None
        or contract.cancel.destructive
        or sent is None
        or op.cancel_outcome != CancelOutcome.REQUESTED
        or now < sent + contract.cancel.resend_seconds * SECOND
        or (op.cancel_deadline is not None and now >= op.cancel_deadline)
    ):
        return Errand.READ
    answered_since = op.read_failures == 0 and op.last_read_at is not None and op.last_read_at > sent
    return Errand.CANCEL if answered_since else Errand.READ


def _parked(op: Operation, contract: Contract, now: Micros) -> Errand | Sleep | None:
    if op.granted_reads == 0 and op.watch_until is None:
        return None
    if op.due_at is not None and op.due_at > now:
        return Sleep(until=op.due_at)
    if op.remote_job_id is not None:
        return Errand.READ
    if any(strategy != "resend" for strategy in contract.recovery.strategies):
        return Errand.RECOVER
    return Errand.LAPSE

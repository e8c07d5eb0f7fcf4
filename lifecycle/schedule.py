"""When the next errand is due. Capped exponential back-off with jitter, deadlines, `Retry-After` (MISSION C2, C3)."""

from schemas.contract import Contract
from schemas.operation import SECOND, Micros, Operation
from schemas.states import State

RETRY_SECONDS = 1.0  # first pause after a failure
MAX_RETRY_SECONDS = 600.0
FLOOR = 0.1  # of the ceiling: full jitter, but never at once
_MAX_DOUBLINGS = 16


def pause(base: float, doublings: int, cap: float, chance: float) -> Micros:
    """Return a jittered pause below `base * 2^doublings` seconds, capped, in microseconds."""
    ceiling = min(cap, base * 2 ** min(max(doublings, 0), _MAX_DOUBLINGS))
    return max(1, int(ceiling * (FLOOR + (1 - FLOOR) * chance) * SECOND))


def deadline(op: Operation) -> Micros | None:
    """Return the clock that runs in this state; the cancel clock replaces the result clock (ARCHITECTURE, Time)."""
    match op.state:
        case State.AWAITING_APPROVAL:
            return op.question_until
        case State.CREATE_PENDING | State.AWAITING_OUTCOME | State.CREATE_UNKNOWN:
            return op.create_deadline
        case State.ACCEPTED | State.OBSERVING:
            return op.result_deadline
        case State.CANCEL_REQUESTED | State.CANCELLING:
            return op.cancel_deadline
        case State.RESULT_COLLECTING:
            return op.collect_deadline
        case _:
            return None


def overdue(op: Operation, at: Micros) -> bool:
    """Return whether this state's clock had run out at `at`."""
    limit = deadline(op)
    return limit is not None and at >= limit


def window_over(op: Operation, contract: Contract, now: Micros) -> bool:
    """Return whether the final read window is over too: no answer came, and none is waited for any longer."""
    limit = deadline(op)
    return limit is not None and now >= limit + contract.deadlines.final_read_seconds * SECOND


def after_success(op: Operation, contract: Contract, now: Micros, chance: float, *, wish: Micros | None = None) -> Micros:
    """Return the next read after an answered one: slower while nothing changes, never silent past `stale_seconds`.

    `wish`: before this time the provider has nothing new to say.
    """
    status = contract.status
    if status is None:
        return clamp(op, contract, now, now + pause(RETRY_SECONDS, op.steady_reads, MAX_RETRY_SECONDS, chance))
    cap = min(status.max_poll_seconds, status.stale_seconds)
    due = now + pause(status.poll_seconds, op.steady_reads, cap, chance)
    if wish is not None and wish > due:
        due = min(wish, now + status.stale_seconds * SECOND)
    return clamp(op, contract, now, due)


def after_failure(
    op: Operation, contract: Contract, now: Micros, chance: float, *, failures: int, retry_after: Micros | None = None
) -> Micros:
    """Return the next try after a failed one. The provider's own wish is never undercut (B067)."""
    due = now + pause(RETRY_SECONDS, failures, MAX_RETRY_SECONDS, chance)
    if retry_after is not None and retry_after > due:
        # Spread a little past the wish, so that not all operations return in the same instant.
        return retry_after + int(chance * SECOND)
    return clamp(op, contract, now, due)


def clamp(op: Operation, contract: Contract, now: Micros, due: Micros) -> Micros:
    """Return `due`, but not past the running clock: a read follows a deadline at once, and again inside its window."""
    limit = deadline(op)
    if limit is None:
        return due
    if limit > now:
        return min(due, limit)
    step = max(SECOND // 10, contract.deadlines.final_read_seconds * SECOND // 4)
    return min(due, now + step)

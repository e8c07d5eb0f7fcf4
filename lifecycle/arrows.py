"""The arrows: from which state an operation may go where. Everything else is refused, visibly (MISSION D1).

Every state has a row, final ones an empty row. A history row that stays in its state is a recorded fact, not an arrow.
`python -m lifecycle.diagram` prints the same table as the diagram in docs/states.md.
"""

from typing import Final

from schemas.states import State as S

ARROWS: Final[dict[S, frozenset[S]]] = {
    S.AWAITING_APPROVAL: frozenset({S.CREATE_PENDING, S.WITHDRAWN}),
    S.CREATE_PENDING: frozenset(
        {
            S.ACCEPTED,
            S.OBSERVING,
            S.RESULT_COLLECTING,
            S.CREATE_UNKNOWN,
            S.FAILED,
            S.WITHDRAWN,
            S.QUARANTINED,
            S.AWAITING_APPROVAL,  # unsent: its predecessor succeeded, or waits for a person (A3)
        }
    ),
    S.AWAITING_OUTCOME: frozenset({S.ACCEPTED, S.FAILED, S.CREATE_UNKNOWN, S.WITHDRAWN, S.QUARANTINED}),
    S.CREATE_UNKNOWN: frozenset(
        {
            S.ACCEPTED,
            S.OBSERVING,
            S.RESULT_COLLECTING,
            S.CREATE_PENDING,
            S.FAILED,
            S.WITHDRAWN,
            S.CREATE_UNRESOLVED,
            S.QUARANTINED,
        }
    ),
    S.ACCEPTED: frozenset({S.OBSERVING, S.CANCEL_REQUESTED, S.RESULT_COLLECTING, S.FAILED, S.CANCELLED, S.RESULT_TIMED_OUT, S.QUARANTINED}),
    S.OBSERVING: frozenset({S.CANCEL_REQUESTED, S.RESULT_COLLECTING, S.FAILED, S.CANCELLED, S.RESULT_TIMED_OUT, S.QUARANTINED}),
    S.CANCEL_REQUESTED: frozenset(
        {S.CANCELLING, S.OBSERVING, S.RESULT_COLLECTING, S.FAILED, S.CANCELLED, S.CANCELLATION_UNCONFIRMED, S.QUARANTINED}
    ),
    S.CANCELLING: frozenset({S.OBSERVING, S.RESULT_COLLECTING, S.FAILED, S.CANCELLED, S.CANCELLATION_UNCONFIRMED, S.QUARANTINED}),
    S.RESULT_COLLECTING: frozenset({S.SUCCEEDED, S.FAILED, S.CANCELLED, S.RESULT_UNAVAILABLE, S.RESULT_VALIDATION_FAILED, S.QUARANTINED}),
    S.SUCCEEDED: frozenset(),
    S.FAILED: frozenset(),
    S.CANCELLED: frozenset(),
    S.WITHDRAWN: frozenset(),
    S.ABANDONED: frozenset(),
    S.CREATE_UNRESOLVED: frozenset({S.CREATE_PENDING, S.ACCEPTED, S.FAILED, S.ABANDONED, S.QUARANTINED}),
    S.QUARANTINED: frozenset({S.ACCEPTED, S.OBSERVING, S.ABANDONED, S.RESULT_COLLECTING, S.FAILED, S.CANCELLED}),
    S.RESULT_TIMED_OUT: frozenset(
        {S.OBSERVING, S.CANCEL_REQUESTED, S.ABANDONED, S.RESULT_COLLECTING, S.FAILED, S.CANCELLED, S.QUARANTINED}
    ),
    S.CANCELLATION_UNCONFIRMED: frozenset(
        {
            S.CANCEL_REQUESTED,
            S.CANCELLING,
            S.OBSERVING,
            S.ABANDONED,
            S.RESULT_COLLECTING,
            S.FAILED,
            S.CANCELLED,
            S.QUARANTINED,
        }
    ),
    S.RESULT_UNAVAILABLE: frozenset({S.RESULT_COLLECTING, S.ABANDONED, S.QUARANTINED}),
    S.RESULT_VALIDATION_FAILED: frozenset({S.SUCCEEDED, S.RESULT_COLLECTING, S.FAILED, S.ABANDONED, S.QUARANTINED}),
}

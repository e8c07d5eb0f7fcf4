"""Which question takes which answers (docs/states.md, Questions)."""

from typing import Final

from schemas.states import Answer as A
from schemas.states import Question as Q
from schemas.states import State

ANSWERS: Final[dict[Q, tuple[A, ...]]] = {
    Q.APPROVAL: (A.APPROVE, A.DENY),
    Q.CREATE_UNRESOLVED: (A.RESEND, A.ADOPT, A.NOT_CREATED, A.ABANDON),
    Q.QUARANTINED: (A.ADOPT, A.RESUME, A.ABANDON),
    Q.RESULT_TIMED_OUT: (A.RESUME, A.CANCEL, A.ABANDON),
    Q.CANCELLATION_UNCONFIRMED: (A.RESEND, A.WAIT, A.RESUME, A.ABANDON),
    Q.RESULT_UNAVAILABLE: (A.RETRY, A.ABANDON),
    Q.RESULT_VALIDATION_FAILED: (A.ACCEPT_RESULT, A.RETRY, A.REJECT, A.ABANDON),
    Q.INCIDENT: (A.ACKNOWLEDGE,),
}

ASKS: Final[dict[State, Q]] = {
    State.AWAITING_APPROVAL: Q.APPROVAL,
    State.CREATE_UNRESOLVED: Q.CREATE_UNRESOLVED,
    State.QUARANTINED: Q.QUARANTINED,
    State.RESULT_TIMED_OUT: Q.RESULT_TIMED_OUT,
    State.CANCELLATION_UNCONFIRMED: Q.CANCELLATION_UNCONFIRMED,
    State.RESULT_UNAVAILABLE: Q.RESULT_UNAVAILABLE,
    State.RESULT_VALIDATION_FAILED: Q.RESULT_VALIDATION_FAILED,
}
"""State -> the question that entering it opens and leaving it closes."""


def answers_for(question: Q) -> tuple[A, ...]:
    """Return the answers that `question` takes, the helpful ones first."""
    return ANSWERS[question]

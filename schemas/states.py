"""The closed vocabularies of the house: states, readings, errands, causes, questions, public status."""

from enum import StrEnum


class State(StrEnum):
    """Where an operation stands. docs/states.md, What each state means."""

    AWAITING_APPROVAL = "awaiting_approval"
    CREATE_PENDING = "create_pending"
    AWAITING_OUTCOME = "awaiting_outcome"
    CREATE_UNKNOWN = "create_unknown"
    ACCEPTED = "accepted"
    OBSERVING = "observing"
    CANCEL_REQUESTED = "cancel_requested"
    CANCELLING = "cancelling"
    RESULT_COLLECTING = "result_collecting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    WITHDRAWN = "withdrawn"
    ABANDONED = "abandoned"
    CREATE_UNRESOLVED = "create_unresolved"
    QUARANTINED = "quarantined"
    RESULT_TIMED_OUT = "result_timed_out"
    CANCELLATION_UNCONFIRMED = "cancellation_unconfirmed"
    RESULT_UNAVAILABLE = "result_unavailable"
    RESULT_VALIDATION_FAILED = "result_validation_failed"


WAITING = frozenset({State.AWAITING_APPROVAL})
ACTIVE = frozenset(
    {
        State.CREATE_PENDING,
        State.AWAITING_OUTCOME,
        State.CREATE_UNKNOWN,
        State.ACCEPTED,
        State.OBSERVING,
        State.CANCEL_REQUESTED,
        State.CANCELLING,
        State.RESULT_COLLECTING,
    }
)
FINAL = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED, State.WITHDRAWN, State.ABANDONED})
PARKED = frozenset(
    {
        State.CREATE_UNRESOLVED,
        State.QUARANTINED,
        State.RESULT_TIMED_OUT,
        State.CANCELLATION_UNCONFIRMED,
        State.RESULT_UNAVAILABLE,
        State.RESULT_VALIDATION_FAILED,
    }
)


class Reading(StrEnum):
    """What the provider's own word means, by the contract's table."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    ABSENT = "absent"
    UNKNOWN = "unknown"


ALIVE_READINGS = frozenset({Reading.QUEUED, Reading.RUNNING})
ENDED_READINGS = frozenset({Reading.SUCCEEDED, Reading.FAILED, Reading.CANCELLED, Reading.EXPIRED})


class Mode(StrEnum):
    """Who makes the create call."""

    SEND = "send"
    EXTERNAL = "external"
    ADOPT = "adopt"


class Errand(StrEnum):
    """The one thing an operation owes next. LAPSE makes no call: a clock has run out and no read can precede it."""

    CREATE = "create"
    RECOVER = "recover"
    READ = "read"
    CANCEL = "cancel"
    COLLECT = "collect"
    LAPSE = "lapse"


ACTING = frozenset({Errand.CREATE, Errand.CANCEL})
"""Errands that change something at the provider; a one-shot collection does too (lifecycle/errands.py, acts)."""


class Cause(StrEnum):
    """Why a history row exists. Only some kinds may end an operation (ADMISSIBLE)."""

    REQUEST = "request"  # a caller asked: register, cancel, refresh
    DECISION = "decision"  # a named person answered a question
    REPORT = "report"  # a caller reported the outcome of its own create
    CREATE_ANSWER = "create_answer"  # the provider's answer to our create
    ABSENCE = "absence"  # proven: nothing was created
    READING = "reading"  # an authoritative status read
    DELIVERY = "delivery"  # a provider's callback
    DEADLINE = "deadline"  # a clock ran out
    ATTEMPT = "attempt"  # the fate of an attempt: not sent, ambiguous, found open
    CANCEL_ANSWER = "cancel_answer"  # the provider's answer to our cancel
    COLLECTION = "collection"  # what happened while the result was fetched
    LINK = "link"  # an operation that it supersedes, resumes or is succeeded by was registered or has ended


ADMISSIBLE: dict[State, frozenset[Cause]] = {
    State.SUCCEEDED: frozenset({Cause.READING, Cause.CREATE_ANSWER, Cause.DECISION}),
    State.FAILED: frozenset({Cause.READING, Cause.CREATE_ANSWER, Cause.ABSENCE, Cause.REPORT, Cause.DECISION}),
    State.CANCELLED: frozenset({Cause.READING, Cause.CREATE_ANSWER}),
    State.WITHDRAWN: frozenset({Cause.REQUEST, Cause.DECISION, Cause.DEADLINE, Cause.ABSENCE, Cause.REPORT}),
    State.ABANDONED: frozenset({Cause.DECISION}),
}
"""Final state -> causes that may carry it (MISSION D2). A delivery never is one; a deadline ends only an unanswered approval."""


class Question(StrEnum):
    """What a person is asked. Each parked state asks the question of its own name."""

    APPROVAL = "approval"
    CREATE_UNRESOLVED = "create_unresolved"
    QUARANTINED = "quarantined"
    RESULT_TIMED_OUT = "result_timed_out"
    CANCELLATION_UNCONFIRMED = "cancellation_unconfirmed"
    RESULT_UNAVAILABLE = "result_unavailable"
    RESULT_VALIDATION_FAILED = "result_validation_failed"
    INCIDENT = "incident"


class Answer(StrEnum):
    """The answers that people may give. lifecycle/questions.py says which question takes which."""

    APPROVE = "approve"
    DENY = "deny"
    RESEND = "resend"
    ADOPT = "adopt"
    NOT_CREATED = "not_created"
    ABANDON = "abandon"
    RESUME = "resume"
    CANCEL = "cancel"
    WAIT = "wait"
    RETRY = "retry"
    ACCEPT_RESULT = "accept_result"
    REJECT = "reject"
    ACKNOWLEDGE = "acknowledge"


class CancelOutcome(StrEnum):
    """What became of a cancel request; shown to the caller as `cancel.outcome`."""

    REQUESTED = "requested"  # remembered; not taken by the provider yet
    TAKEN = "taken"  # the provider took it (or may have); reads go on
    REFUSED = "refused"  # the provider refuses or the contract has no cancel
    TOO_LATE = "too_late"  # the job had ended before
    CONFIRMED = "confirmed"  # an authoritative read says cancelled
    LOST_RACE = "lost_race"  # the job ended by itself after the request
    UNCONFIRMED = "unconfirmed"  # the cancel clock ran out
    WITHDRAWN = "withdrawn"  # nothing had been sent: ended without a remote job


class PublicStatus(StrEnum):
    """The small vocabulary that callers act on (MISSION G2)."""

    AWAITING_APPROVAL = "awaiting_approval"
    QUEUED = "queued"
    UNCONFIRMED = "unconfirmed"
    RUNNING = "running"
    CANCELLING = "cancelling"
    ATTENTION = "attention"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    ABANDONED = "abandoned"

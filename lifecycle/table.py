"""The judgement as data: a total table, state x kind of evidence -> rule (MISSION D1).

Read a row as: "in this state, evidence of this kind is judged by that rule". A rule takes only arrows of
`lifecycle/arrows.py`; `late` records what comes after its time; `silence` changes nothing. To add a state: a row here,
a row in arrows.py, a word in schemas/states.py. `tests/lifecycle/test_grid.py` writes the outcomes a second time by hand.
"""

from collections.abc import Callable
from typing import Final

from lifecycle import rules_cancel as cancel
from lifecycle import rules_create as create
from lifecycle import rules_links as links
from lifecycle import rules_other as other
from lifecycle import rules_people as people
from lifecycle import rules_read as reads
from lifecycle import rules_result as results
from lifecycle.case import Case
from schemas.decision import Decision
from schemas.evidence import Kind as K
from schemas.states import State as S

Rule = Callable[[Case], Decision]
Row = dict[K, Rule]

_LATE: Final[Row] = {**dict.fromkeys(K, create.late), K.SUCCEEDED_BY: links.succeeded_by, K.PREDECESSOR_SEEN: other.silence}
_ANSWERABLE: Final[Row] = {K.ANSWERED: people.answered, K.HINTED: other.hinted, K.LAPSED: other.lapsed}
_LATE_CREATE: Final[Row] = {K.NOT_SENT: other.not_sent, K.ATTEMPT_LOST: other.attempt_lost}

_WAITING: Final[Row] = {
    **_LATE,
    **_ANSWERABLE,
    K.CANCEL_ASKED: other.withdraw_unapproved,
    K.REFRESH_ASKED: other.nothing_to_read,
    K.PREDECESSOR_SEEN: links.predecessor_seen,
    K.REPORTED: people.reported_again,
}
_CREATING: Final[Row] = {
    **_LATE,
    **_LATE_CREATE,
    K.ANSWERED: other.no_question,
    K.HINTED: other.hinted,
    K.LAPSED: other.lapsed,
    K.REFRESH_ASKED: people.refresh,
    K.REPORTED: people.reported_again,
    K.CREATE_AMBIGUOUS: create.ambiguous,
    K.CREATE_REJECTED: create.rejected,
    K.JOB_KNOWN: create.job_known,
    K.JOBS_CONFLICT: create.conflict,
}
_RUNNING: Final[Row] = {
    **_LATE,
    **_LATE_CREATE,
    K.ANSWERED: other.no_question,
    K.HINTED: other.hinted,
    K.LAPSED: other.lapsed,
    K.REFRESH_ASKED: people.refresh,
    K.REPORTED: people.reported_again,
    K.JOB_KNOWN: create.job_known_again,
    K.JOBS_CONFLICT: create.conflict,
    K.READ: reads.read,
    K.READ_FAILED: reads.read_failed,
}
_PARKED: Final[Row] = {
    **_LATE,
    **_ANSWERABLE,
    **_LATE_CREATE,
    K.REFRESH_ASKED: people.refresh,
    K.REPORTED: people.reported_again,
    K.JOB_KNOWN: create.job_known_again,
    K.JOBS_CONFLICT: create.conflict,
    K.READ: reads.read,
    K.READ_FAILED: reads.read_failed,
}
_FINAL: Final[Row] = {
    **_LATE,
    K.CANCEL_ASKED: other.already_final,
    K.REFRESH_ASKED: other.already_final,
    K.REPORTED: people.reported_again,
    K.ANSWERED: people.answered,
    K.HINTED: other.hinted,
    K.LAPSED: other.silence,
    K.READ: other.final_read,
    K.READ_FAILED: other.final_read_failed,
    K.JOB_KNOWN: other.final_job,
    K.JOBS_CONFLICT: other.final_job,
}

TABLE: Final[dict[S, Row]] = {
    S.AWAITING_APPROVAL: _WAITING,
    S.CREATE_PENDING: {**_CREATING, K.CANCEL_ASKED: cancel.asked_before_send, K.PREDECESSOR_SEEN: links.predecessor_seen},
    S.AWAITING_OUTCOME: {
        **_CREATING,
        K.CANCEL_ASKED: cancel.asked_unknown,
        K.REPORTED: people.reported,
        K.CREATE_AMBIGUOUS: create.late,
        K.CREATE_REJECTED: create.late,
        K.NOT_SENT: create.late,
        K.ATTEMPT_LOST: create.late,
        K.JOB_KNOWN: create.late,
    },
    S.CREATE_UNKNOWN: {
        **_CREATING,
        K.CANCEL_ASKED: cancel.asked_unknown,
        K.REPORTED: people.reported,
        K.JOB_NOT_FOUND: create.not_found,
        K.READ_FAILED: reads.read_failed,
    },
    S.ACCEPTED: {**_RUNNING, K.CANCEL_ASKED: cancel.asked_running},
    S.OBSERVING: {**_RUNNING, K.CANCEL_ASKED: cancel.asked_running},
    S.CANCEL_REQUESTED: {
        **_RUNNING,
        K.CANCEL_ASKED: cancel.asked_again,
        K.CANCEL_TAKEN: cancel.taken,
        K.CANCEL_REFUSED: cancel.refused,
        K.CANCEL_AMBIGUOUS: cancel.ambiguous,
    },
    S.CANCELLING: {
        **_RUNNING,
        K.CANCEL_ASKED: cancel.asked_again,
        K.CANCEL_TAKEN: cancel.taken,
        K.CANCEL_REFUSED: cancel.refused,
        K.CANCEL_AMBIGUOUS: cancel.ambiguous,
    },
    S.RESULT_COLLECTING: {
        **_RUNNING,
        K.CANCEL_ASKED: cancel.asked_too_late,
        K.COLLECTED: results.collected,
        K.RESULT_INVALID: results.invalid,
        K.RESULT_GONE: results.gone,
        K.COLLECT_FAILED: results.failed,
    },
    S.SUCCEEDED: _FINAL,
    S.FAILED: _FINAL,
    S.CANCELLED: _FINAL,
    S.WITHDRAWN: _FINAL,
    S.ABANDONED: _FINAL,
    S.CREATE_UNRESOLVED: {
        **_PARKED,
        K.CANCEL_ASKED: other.remember_cancel,
        K.REPORTED: people.reported,
        K.JOB_KNOWN: create.job_known,
        K.JOB_NOT_FOUND: reads.parked_not_found,
        K.READ: create.late,
    },
    S.QUARANTINED: {
        **_PARKED,
        K.CANCEL_ASKED: other.remember_cancel,
        K.JOB_KNOWN: create.late,
        K.JOBS_CONFLICT: create.late,
    },
    S.RESULT_TIMED_OUT: {**_PARKED, K.CANCEL_ASKED: other.cancel_timed_out},
    S.CANCELLATION_UNCONFIRMED: {**_PARKED, K.CANCEL_ASKED: cancel.asked_unconfirmed},
    S.RESULT_UNAVAILABLE: {**_PARKED, K.CANCEL_ASKED: cancel.asked_too_late, K.COLLECTED: results.collected_late},
    S.RESULT_VALIDATION_FAILED: {**_PARKED, K.CANCEL_ASKED: cancel.asked_too_late},
}

assert TABLE.keys() == set(S)
assert all(row.keys() == set(K) for row in TABLE.values())

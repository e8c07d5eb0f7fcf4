"""Rules for people: answers to questions, reports of external creates, refreshes (MISSION A11, G7, G8)."""

from collections.abc import Callable
from typing import Any, Final

from lifecycle import recovery
from lifecycle.case import Case, Draft, refuse
from lifecycle.errands import next_errand
from lifecycle.questions import ANSWERS
from lifecycle.rules_cancel import start_cancel
from lifecycle.rules_links import approval_owed, clocks
from schemas.decision import Decision
from schemas.evidence import Answered, Reported
from schemas.operation import SECOND, Operation
from schemas.states import PARKED, CancelOutcome, Cause, Errand, Mode, State
from schemas.states import Answer as A
from schemas.states import Question as Q

REFRESH_SECONDS: Final = 5
"""One asked-for read in this time: the rate budget of a single operation (G8)."""


def answered(case: Case) -> Decision:
    """A person answers the open question; the first answer counts."""
    op, evidence = case.operation, case.evidence
    assert isinstance(evidence, Answered)
    if op.question_id is None or evidence.question_id != op.question_id or op.question_kind is not evidence.question:
        return refuse("question_changed", "the question has changed or been answered")
    if evidence.answer not in ANSWERS[evidence.question]:
        return refuse("unknown_answer", "this question takes: " + ", ".join(ANSWERS[evidence.question]))
    if evidence.seconds is not None and evidence.seconds < 1:
        return refuse("unknown_answer", "seconds must be at least 1")
    return _ANSWER_RULES[evidence.question, evidence.answer](case, Draft(case), evidence)


def reported(case: Case) -> Decision:
    """The service that makes its create itself says what came of it."""
    op, evidence, draft = case.operation, case.evidence, Draft(case)
    assert isinstance(evidence, Reported)
    if op.mode is not Mode.EXTERNAL:
        return refuse("not_external", "this operation's create is sent by the gateway")
    match evidence.outcome:
        case "accepted" if evidence.remote_job_id:
            draft.work(accepted_at=case.now, unsure_creates=0, absences=0)
            draft.go(State.ACCEPTED, Cause.REPORT, "reported_accepted", remote_job_id=evidence.remote_job_id, error_code=None)
            draft.due(case.now)
            if draft.op.cancel_requested_at is not None:
                start_cancel(draft, "cancel_remembered")
        case "accepted":
            return refuse("remote_job_id_required", "an accepted outcome names the remote job")
        case "rejected":
            draft.work(error_message=evidence.message[:500])
            draft.go(State.FAILED, Cause.REPORT, "reported_rejected", text=evidence.message, error_code="reported_rejected")
        case "unknown" if op.state is State.AWAITING_OUTCOME:
            draft.work(unsure_creates=1, sent_before=case.now)
            draft.go(State.CREATE_UNKNOWN, Cause.REPORT, "reported_unknown", text=evidence.message)
            draft.due(case.now)
        case "not_sent" if op.state is State.CREATE_UNRESOLVED:
            draft.work(error_message=evidence.message[:500])
            draft.go(State.FAILED, Cause.REPORT, "reported_not_sent", text=evidence.message, error_code="not_created")
        case "not_sent":  # also late, while lookups go on: nobody knows better than who did not send it
            draft.go(State.WITHDRAWN, Cause.REPORT, "reported_not_sent", text=evidence.message)
        case "unknown":
            return Decision()  # known to be unknown: the same report again, or one that says no more than the clock did
    return draft.done()


def reported_again(case: Case) -> Decision:
    """The outcome is known: the same report is an echo, another one is refused."""
    op, evidence = case.operation, case.evidence
    assert isinstance(evidence, Reported)
    if op.mode is not Mode.EXTERNAL:
        return refuse("not_external", "this operation's create is sent by the gateway")
    if _echo(op, evidence):
        return Decision()
    return refuse("already_reported", f"the outcome is recorded already; the state is {op.state}")


def _echo(op: Operation, evidence: Reported) -> bool:
    """Return whether a report says what is on record: a service may repeat it when its answer was lost."""
    by_report = op.verdict_cause is Cause.REPORT
    match evidence.outcome:
        case "accepted":
            return evidence.remote_job_id == op.remote_job_id
        case "rejected":
            return by_report and op.error_code == "reported_rejected"
        case "not_sent":
            return by_report and (op.state is State.WITHDRAWN or op.error_code == "not_created")
        case "unknown":
            return False


def refresh(case: Case) -> Decision:
    """A read now, within the budget; on a parked operation one granted read."""
    op, draft = case.operation, Draft(case)
    wait = (op.last_read_at or 0) + REFRESH_SECONDS * SECOND - case.now
    if wait > 0 or (op.state in PARKED and op.granted_reads > 0):
        return refuse("budget", str(max(1, -(-wait // SECOND))))
    if op.state in PARKED:
        if op.remote_job_id is None and not recovery.lookup_helps(op, case.contract):
            return refuse("nothing_to_read", "no job is known and this provider has no lookup")
        draft.work(granted_reads=1)
        draft.due(case.now)
    elif next_errand(op, case.contract, case.now) not in {Errand.READ, Errand.RECOVER, Errand.COLLECT}:
        return Decision()  # what is owed is no read: a refresh never hastens a send past its back-off
    else:
        draft.due(case.now)
    return draft.done()


def _approve(case: Case, draft: Draft, evidence: Answered) -> Decision:
    op = draft.op
    if op.question_until is not None and case.now >= op.question_until:
        return refuse("question_changed", "the approval has expired")
    if op.approval_by and evidence.by not in op.approval_by:
        return refuse("not_approver", "another person must answer this")
    if approval_owed(op) and op.waits_for is not None:  # approved, and sent when the predecessor has ended
        draft.go(State.CREATE_PENDING, Cause.DECISION, "approved", text=evidence.reason)
    else:  # also: sent although the predecessor succeeded or is undecided, which is what this person was asked
        draft.go(State.CREATE_PENDING, Cause.DECISION, "approved", text=evidence.reason, waits_for=None, **clocks(op, case.now))
    draft.due(case.now)
    return draft.done()


def _deny(case: Case, draft: Draft, evidence: Answered) -> Decision:
    del case
    if draft.op.approval_by and evidence.by not in draft.op.approval_by:
        return refuse("not_approver", "another person must answer this")
    draft.go(State.WITHDRAWN, Cause.DECISION, "denied", text=evidence.reason)
    return draft.done()


def _resend_create(case: Case, draft: Draft, evidence: Answered) -> Decision:
    if draft.op.mode is not Mode.SEND:
        return refuse("unknown_answer", "this create is not ours to send")
    extended = case.now + draft.op.create_seconds * SECOND
    draft.work(absences=0)
    allowed = recovery.window_open(draft.op, case.contract, case.now)
    if not allowed and not (evidence.accept_duplicate_risk and evidence.reason.strip()):
        return refuse("duplicate_risk", "set accept_duplicate_risk and give a reason: the job may exist already")
    code = "resend" if allowed else "resend_at_risk"
    draft.go(State.CREATE_PENDING, Cause.DECISION, code, text=evidence.reason, create_deadline=extended, error_code=None)
    draft.due(case.now)
    return draft.done()


def _adopt(case: Case, draft: Draft, evidence: Answered) -> Decision:
    if not evidence.remote_job_id:
        return refuse("remote_job_id_required", "name the job to adopt")
    draft.work(accepted_at=case.now, unsure_creates=0, absences=0, observation_digest=None)
    if evidence.remote_job_id != draft.op.remote_job_id:
        draft.work(remembered={})  # the addresses that a provider named are the former job's
    draft.go(
        State.ACCEPTED,
        Cause.DECISION,
        "adopted",
        text=evidence.reason,
        remote_job_id=evidence.remote_job_id,
        result_deadline=_later(case, draft.op.result_deadline, draft.op.result_seconds),
        error_code=None,
    )
    draft.due(case.now)
    if draft.op.cancel_requested_at is not None and draft.op.cancel_outcome == CancelOutcome.REQUESTED:
        start_cancel(draft, "cancel_remembered")
    return draft.done()


def _not_created(case: Case, draft: Draft, evidence: Answered) -> Decision:
    del case
    draft.work(error_message="A person vouches that nothing was created.")
    draft.go(State.FAILED, Cause.DECISION, "not_created", text=evidence.reason, error_code="not_created")
    return draft.done()


def _abandon(case: Case, draft: Draft, evidence: Answered) -> Decision:
    del case
    draft.go(State.ABANDONED, Cause.DECISION, "abandoned", text=evidence.reason)
    return draft.done()


def _resume(case: Case, draft: Draft, evidence: Answered) -> Decision:
    if draft.op.remote_job_id is None:
        return refuse("remote_job_id_required", "no job is known: adopt one instead")
    seconds = evidence.seconds or draft.op.result_seconds
    deadline = case.now + seconds * SECOND
    draft.work(absences=0, steady_reads=0, observation_digest=None)
    draft.go(State.OBSERVING, Cause.DECISION, "resumed", text=evidence.reason, result_deadline=deadline, error_code=None)
    draft.due(case.now)
    return draft.done()


def _cancel(case: Case, draft: Draft, evidence: Answered) -> Decision:
    if case.contract.cancel is None:
        return refuse("not_supported", "this provider has no cancel")
    first: dict[str, Any] = (
        {"cancel_requested_at": case.now, "cancel_by": evidence.by[:200]} if draft.op.cancel_requested_at is None else {}
    )
    draft.go(
        State.CANCEL_REQUESTED,
        Cause.DECISION,
        "cancel_decided",
        text=evidence.reason,
        cancel_outcome=CancelOutcome.REQUESTED,
        error_code=None,
        **first,
    )
    draft.due(case.now)
    return draft.done()


def _wait(case: Case, draft: Draft, evidence: Answered) -> Decision:
    seconds = evidence.seconds or draft.op.cancel_seconds
    draft.go(
        State.CANCELLING,
        Cause.DECISION,
        "wait_longer",
        text=evidence.reason,
        cancel_deadline=case.now + seconds * SECOND,
        cancel_outcome=CancelOutcome.TAKEN,
        error_code=None,
    )
    draft.due(case.now)
    return draft.done()


def _retry(case: Case, draft: Draft, evidence: Answered) -> Decision:
    seconds = evidence.seconds or draft.op.collect_seconds
    draft.work(collect_tries=0, consumed_by=None)  # where reading consumes the result, a person has decided to read again
    draft.go(
        State.RESULT_COLLECTING,
        Cause.DECISION,
        "retry_collection",
        text=evidence.reason,
        collect_deadline=case.now + seconds * SECOND,
        error_code=None,
    )
    draft.due(case.now)
    return draft.done()


def _accept_result(case: Case, draft: Draft, evidence: Answered) -> Decision:
    del case
    if draft.op.result_artifact is None:
        return refuse("nothing_kept", "no result was kept: retry the collection")
    draft.go(
        State.SUCCEEDED,
        Cause.DECISION,
        "result_accepted",
        text=evidence.reason,
        accepted_by=evidence.by[:200],
        result_complete=not ((draft.op.result_facts or {}).get("items") or {}).get("missing"),
        error_code=None,
    )
    return draft.done()


def _reject(case: Case, draft: Draft, evidence: Answered) -> Decision:
    del case
    draft.go(State.FAILED, Cause.DECISION, "result_rejected", text=evidence.reason, error_code="result_rejected")
    return draft.done()


def _acknowledge(case: Case, draft: Draft, evidence: Answered) -> Decision:
    del case
    if not evidence.reason.strip():
        return refuse("reason_required", "an incident is closed with a reason")
    draft.note(
        Cause.DECISION,
        "incident_acknowledged",
        text=evidence.reason,
        incident_id=None,
        question_id=None,
        question_kind=None,
        question_until=None,
    )
    return draft.done()


def _later(case: Case, deadline: int | None, seconds: int) -> int:
    """Return the running deadline, or a fresh one when it is over."""
    return deadline if deadline is not None and deadline > case.now else case.now + seconds * SECOND


_ANSWER_RULES: Final[dict[tuple[Q, A], Callable[[Case, Draft, Answered], Decision]]] = {
    (Q.APPROVAL, A.APPROVE): _approve,
    (Q.APPROVAL, A.DENY): _deny,
    (Q.CREATE_UNRESOLVED, A.RESEND): _resend_create,
    (Q.CREATE_UNRESOLVED, A.ADOPT): _adopt,
    (Q.CREATE_UNRESOLVED, A.NOT_CREATED): _not_created,
    (Q.CREATE_UNRESOLVED, A.ABANDON): _abandon,
    (Q.QUARANTINED, A.ADOPT): _adopt,
    (Q.QUARANTINED, A.RESUME): _resume,
    (Q.QUARANTINED, A.ABANDON): _abandon,
    (Q.RESULT_TIMED_OUT, A.RESUME): _resume,
    (Q.RESULT_TIMED_OUT, A.CANCEL): _cancel,
    (Q.RESULT_TIMED_OUT, A.ABANDON): _abandon,
    (Q.CANCELLATION_UNCONFIRMED, A.RESEND): _cancel,
    (Q.CANCELLATION_UNCONFIRMED, A.WAIT): _wait,
    (Q.CANCELLATION_UNCONFIRMED, A.RESUME): _resume,
    (Q.CANCELLATION_UNCONFIRMED, A.ABANDON): _abandon,
    (Q.RESULT_UNAVAILABLE, A.RETRY): _retry,
    (Q.RESULT_UNAVAILABLE, A.ABANDON): _abandon,
    (Q.RESULT_VALIDATION_FAILED, A.ACCEPT_RESULT): _accept_result,
    (Q.RESULT_VALIDATION_FAILED, A.RETRY): _retry,
    (Q.RESULT_VALIDATION_FAILED, A.REJECT): _reject,
    (Q.RESULT_VALIDATION_FAILED, A.ABANDON): _abandon,
    (Q.INCIDENT, A.ACKNOWLEDGE): _acknowledge,
}
assert set(_ANSWER_RULES) == {(question, answer) for question, answers in ANSWERS.items() for answer in answers}

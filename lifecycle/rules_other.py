"""Rules for hints, clocks without a read, attempts of both kinds, and contradictions of final states."""

from lifecycle import rules_cancel, rules_create, rules_result
from lifecycle.case import WATCHED, Case, Draft, refuse
from lifecycle.recovery import lookup_helps
from lifecycle.rules_create import conclude_pending, lapsed_unknown, late
from lifecycle.rules_read import watch_on
from schemas.decision import Decision
from schemas.evidence import AttemptLost, Hinted, JobKnown, JobsConflict, NotSent, Read, ReadFailed
from schemas.operation import SECOND, Operation
from schemas.states import ACTIVE, ENDED_READINGS, FINAL, PARKED, Cause, Errand, Question, Reading, State

_ROWS_IN_FULL = 20
_COALESCE_SECONDS = 60
BUDGET_SECONDS = 5
"""Least pause from a read to the next one that an unsigned delivery earns."""


def hinted(case: Case) -> Decision:
    """A verified delivery: a read is due, nothing else (B5). A flood is counted, not written row by row.

    One that nobody signed (B8) earns its read within a budget. It hastens the next read and never puts it off.
    """
    evidence, draft = case.evidence, Draft(case)
    assert isinstance(evidence, Hinted)
    op = draft.op
    fresh = evidence.replayed or op.hinted_at is None or case.now - op.hinted_at >= _COALESCE_SECONDS * SECOND
    if evidence.conflict or fresh or op.hints < _ROWS_IN_FULL:
        code = "delivery_conflict" if evidence.conflict else "delivery"
        if op.state in FINAL:
            code = "late_" + code
        draft.note(Cause.DELIVERY, code, text=_said(evidence))
    if evidence.names_job and _in_doubt(op):
        draft.work(hints=op.hints + 1, hinted_at=case.now)
        _take(draft, evidence)
        return draft.done()
    first_while_parked = op.state in PARKED and op.hinted_at is None
    at = case.now
    if evidence.unsigned:
        # Under a lease a read is being made now, and nobody has written down yet when it began.
        last = case.now if op.lease_until is not None else op.last_read_at or 0
        at = max(case.now, last + BUDGET_SECONDS * SECOND)
    draft.work(hints=op.hints + 1, hinted_at=at)  # the time from which on another look is owed
    if op.state in ACTIVE and op.state not in {State.CREATE_PENDING, State.AWAITING_OUTCOME}:
        draft.due(at if op.due_at is None else min(at, max(op.due_at, case.now)))
    elif first_while_parked and (op.remote_job_id is not None or lookup_helps(op, case.contract)):
        draft.work(granted_reads=max(1, op.granted_reads))  # one budgeted read while parked, however many come
        draft.due(at)
    elif op.state in FINAL and op.watch_until is not None:  # it may tell of a reversal
        draft.due(at if op.due_at is None else min(at, max(op.due_at, case.now)))
    return draft.done()


def _said(evidence: Hinted) -> str:
    return " ".join(part for part in (evidence.event_type, evidence.claimed_state, evidence.note) if part)


def _in_doubt(op: Operation) -> bool:
    """Return whether a create may have been executed whose job is not known: then a delivery with our own reference may name it."""
    if op.state is State.CREATE_PENDING:
        return op.open_attempt is not None or op.unsure_creates > 0
    return op.state in {State.CREATE_UNKNOWN, State.CREATE_UNRESOLVED, State.AWAITING_OUTCOME}


def _take(draft: Draft, evidence: Hinted) -> None:
    """Take the job that a signed delivery names beside our own reference. What it is like is still for reads to say (B5, A6)."""
    draft.work(accepted_at=draft.case.now, absences=0, read_failures=0, last_read_error=None, unsure_creates=0, steady_reads=0)
    job = evidence.names_job
    draft.go(State.ACCEPTED, Cause.DELIVERY, "named_by_delivery", text=_said(evidence), remote_job_id=job, error_code=None)
    draft.due(draft.case.now)
    if draft.op.cancel_requested_at is not None:
        rules_cancel.start_cancel(draft, "cancel_remembered")


def lapsed(case: Case) -> Decision:
    """Time has passed where no read can tell more."""
    op, now, draft = case.operation, case.now, Draft(case)
    match op.state:
        case State.AWAITING_APPROVAL if op.question_until is not None and now >= op.question_until:
            draft.go(State.WITHDRAWN, Cause.DEADLINE, "approval_expired", error_code="approval_expired")
        case State.AWAITING_OUTCOME if op.create_deadline is not None and now >= op.create_deadline:
            draft.work(unsure_creates=1, sent_before=now)
            draft.go(State.CREATE_UNKNOWN, Cause.DEADLINE, "report_overdue")
            lapsed_unknown(draft)
        case State.CREATE_PENDING if op.cancel_requested_at is not None or (op.create_deadline is not None and now >= op.create_deadline):
            conclude_pending(draft)
        case State.CREATE_UNKNOWN:
            lapsed_unknown(draft)
        case _ if op.state in PARKED:
            draft.work(granted_reads=0, watch_until=None)
        case _:
            draft.due(now + SECOND)
    return draft.done()


def attempt_lost(case: Case) -> Decision:
    """An open attempt that is not our own."""
    evidence = case.evidence
    assert isinstance(evidence, AttemptLost)
    match evidence.errand:
        case Errand.CREATE if case.operation.state in {State.CREATE_PENDING, State.CREATE_UNKNOWN}:
            return rules_create.lost(case)
        case Errand.CANCEL if case.operation.state in {State.CANCEL_REQUESTED, State.CANCELLING}:
            return rules_cancel.lost(case)
        case Errand.COLLECT if case.operation.state is State.RESULT_COLLECTING:
            return rules_result.lost(case)
        case _:
            return late(case)


def not_sent(case: Case) -> Decision:
    """An attempt that surely did not execute."""
    evidence = case.evidence
    assert isinstance(evidence, NotSent)
    match evidence.errand:
        case Errand.CREATE if case.operation.state in {State.CREATE_PENDING, State.CREATE_UNKNOWN}:
            return rules_create.not_sent(case)
        case Errand.CANCEL if case.operation.state is State.CANCEL_REQUESTED:
            return rules_cancel.not_sent(case)
        case Errand.COLLECT if case.operation.state is State.RESULT_COLLECTING:
            return rules_result.not_sent(case)
        case _:
            return late(case)


def already_final(case: Case) -> Decision:
    """Nothing can be asked of a final operation."""
    return refuse("already_final", f"the operation is {case.operation.state}")


def no_question(case: Case) -> Decision:
    """There is no open question here."""
    del case
    return refuse("question_changed", "the question has changed or been answered")


def nothing_to_read(case: Case) -> Decision:
    """Nothing was sent yet, so there is nothing to read."""
    del case
    return refuse("nothing_to_read", "nothing has been sent to the provider yet")


def withdraw_unapproved(case: Case) -> Decision:
    """Cancelled while waiting for an approval."""
    return rules_cancel.asked_before_send(case)


def remember_cancel(case: Case) -> Decision:
    """A cancel wish while a person's answer is awaited: remembered, and the question stays."""
    return rules_cancel.asked_unknown(case)


def silence(case: Case) -> Decision:
    """Evidence that changes nothing and explains nothing."""
    del case
    return Decision()


def final_read(case: Case) -> Decision:
    """A reading of a finished job: an echo, or a contradiction that a person must see. The state stays (D1)."""
    op, evidence, draft = case.operation, case.evidence, Draft(case)
    assert isinstance(evidence, Read)
    reading = evidence.facts.reading
    if op.accepted_at is not None and case.started_at < op.accepted_at:
        return Decision()  # it may speak of a job that a person has replaced
    if op.watch_until is not None:
        draft.work(verified_at=case.now, read_failures=0, last_read_error=None)
    against = reading in ENDED_READINGS and op.state in WATCHED and not _agrees(op.state, reading)
    if against and (not evidence.digest or evidence.digest != op.observation_digest):
        _incident(draft, f"{op.state} on record, the provider now says {evidence.facts.remote_state or reading}")
    if against or op.watch_until is not None:
        draft.work(observation_digest=evidence.digest or None, last_read_at=case.started_at)
    watch_on(draft)
    return draft.done()


def final_read_failed(case: Case) -> Decision:
    """A watch read without a usable answer: the watch goes on."""
    op, evidence, draft = case.operation, case.evidence, Draft(case)
    assert isinstance(evidence, ReadFailed)
    if op.watch_until is not None:
        error = f"{evidence.layer}: {evidence.error}"[:200]
        draft.work(read_failures=op.read_failures + 1, last_read_error=error, last_read_at=case.started_at)
        watch_on(draft)
    return draft.done()


def final_job(case: Case) -> Decision:
    """A job turns up where none should be, or a second one: an incident."""
    op, evidence = case.operation, case.evidence
    if op.state is State.ABANDONED:
        return Decision()  # a person gave it up knowing that a job may run
    draft = Draft(case)
    match evidence:
        case JobKnown(remote_job_id=job) if job == op.remote_job_id:
            pass
        case JobKnown(remote_job_id=job):
            _incident(draft, f"{op.state} on record, the provider names the job {job}")
        case JobsConflict(remote_job_ids=jobs):
            _incident(draft, f"{op.state} on record, the provider names the jobs {', '.join(jobs)}")
            watch_on(draft)
        case _:
            raise AssertionError(evidence)
    return draft.done()


def _agrees(state: State, reading: Reading) -> bool:
    match state:
        case State.SUCCEEDED:
            return reading is Reading.SUCCEEDED
        case State.CANCELLED:
            return reading is Reading.CANCELLED
        case _:
            return reading in {Reading.FAILED, Reading.EXPIRED}


def _incident(draft: Draft, text: str) -> None:
    """Open an incident; while one is open, a further contradiction is a history row of its own."""
    op, evidence = draft.op, draft.case.evidence
    cause = Cause.CREATE_ANSWER if isinstance(evidence, JobKnown) and evidence.source == "create" else Cause.READING
    if op.incident_id is not None:
        draft.note(cause, "incident_goes_on", text=text)
        return
    seq = op.history_seq + 1
    tail = f"{op.id.removeprefix('op_')}_{seq}"
    draft.note(
        cause,
        "incident",
        text=text,
        incident_id=f"inc_{tail}",
        question_id=f"q_{tail}",
        question_kind=Question.INCIDENT,
        question_until=None,
    )


def cancel_timed_out(case: Case) -> Decision:
    """A cancel wish on a timed-out operation: the job may still run, so the cancel is owed."""
    if case.contract.cancel is None:
        return refuse("not_supported", "this provider has no cancel")
    return rules_cancel.asked_running(case)

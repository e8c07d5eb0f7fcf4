"""Rules for the create: what its answers, its silence and its recovery mean (MISSION A4-A8, A10)."""

from lifecycle import recovery, schedule
from lifecycle.case import Case, Draft
from lifecycle.rules_cancel import start_cancel
from lifecycle.rules_read import apply_facts, declare
from schemas.decision import Decision
from schemas.evidence import AttemptLost, CreateAmbiguous, CreateRejected, JobKnown, JobsConflict, NotSent
from schemas.operation import SECOND
from schemas.states import ENDED_READINGS, CancelOutcome, Cause, Errand, Mode, Reading, State

RECREATES = 1
"""Creates that are sent once more because looking proved that there was nothing."""
_OURS_TO_MEND = frozenset({401, 403, 404, 405})
"""Refusals that speak of our credential or address: they say nothing about an earlier try."""


def not_sent(case: Case) -> Decision:
    """The create surely did not execute: try again, or conclude that nothing was created."""
    evidence, draft = case.evidence, Draft(case)
    assert isinstance(evidence, NotSent)
    if evidence.errand is not Errand.CREATE:
        return late(case)
    if evidence.was_lost:
        draft.work(unsure_creates=max(0, draft.op.unsure_creates - 1))
    draft.work(last_read_error=evidence.error[:200])
    draft.note(Cause.ATTEMPT, "create_not_sent", text=evidence.error)
    _after_try(draft, retry_after=evidence.retry_after)
    return draft.done()


def lost(case: Case) -> Decision:
    """Somebody else's open create attempt: it may have been sent; never a second blind send."""
    evidence, draft = case.evidence, Draft(case)
    assert isinstance(evidence, AttemptLost)
    if evidence.errand is not Errand.CREATE:
        return late(case)
    _doubt(draft, "attempt_lost", sent_before=evidence.sent_before)
    draft.due(case.now)
    return draft.done()


def ambiguous(case: Case) -> Decision:
    """The create may have executed."""
    evidence, draft = case.evidence, Draft(case)
    assert isinstance(evidence, CreateAmbiguous)
    # Our end of a broken connection is not the provider's: what was sent may be executed until the attempt's own limit.
    limit = max(case.now, evidence.sent_before or 0)
    _doubt(draft, "create_ambiguous", text=f"{evidence.error} {evidence.message}".strip(), sent_before=limit)
    draft.work(last_read_error=evidence.error[:200])
    if evidence.spent:
        draft.work(token_spent=evidence.error[:200])
    _after_try(draft, retry_after=evidence.retry_after)
    return draft.done()


def rejected(case: Case) -> Decision:
    """The provider refused for good. After an ambiguous try only a replayed answer says so about that try too."""
    evidence, draft = case.evidence, Draft(case)
    assert isinstance(evidence, CreateRejected)
    if evidence.was_lost:
        draft.work(unsure_creates=max(0, draft.op.unsure_creates - 1))
    op = draft.op
    if op.open_attempt is not None:  # another worker's try is under way: its answer decides
        draft.note(Cause.ATTEMPT, "create_refused_meanwhile", text=evidence.message)
        return draft.done()
    definite = op.unsure_creates == 0 or (case.contract.recovery.replay_guaranteed and evidence.status not in _OURS_TO_MEND)
    if not definite:
        if op.state is State.CREATE_PENDING:  # sent again at a person's risk: the doubt about the earlier try remains
            draft.go(State.CREATE_UNKNOWN, Cause.ATTEMPT, "resend_refused", text=evidence.message)
        else:
            draft.note(Cause.ATTEMPT, "resend_refused", text=evidence.message)
        draft.work(last_read_error=evidence.code[:200])
        _after_try(draft)
        return draft.done()
    draft.work(error_message=evidence.message[:500])
    draft.go(State.FAILED, Cause.CREATE_ANSWER, evidence.code, text=evidence.message, error_code=evidence.code)
    return draft.done()


def job_known(case: Case) -> Decision:
    """The provider names our job. A wanted cancel goes on from here (E3)."""
    evidence, draft = case.evidence, Draft(case)
    assert isinstance(evidence, JobKnown)
    cause = Cause.CREATE_ANSWER if evidence.source == "create" else Cause.READING
    code = "accepted" if evidence.source == "create" else "recovered"
    facts = evidence.status if case.operation.state is not State.CREATE_UNRESOLVED else None  # a fresh read will tell
    draft.work(accepted_at=case.now, absences=0, read_failures=0, last_read_error=None, unsure_creates=0, steady_reads=0)
    draft.work(remembered=evidence.remembered or draft.op.remembered)
    known = {"remote_job_id": evidence.remote_job_id}
    if facts is None:
        draft.go(State.ACCEPTED, cause, code, **known)
    elif facts.reading is Reading.SUCCEEDED:
        draft.note(cause, code, **known)  # synchronous success goes on to its collection at once (A5)
    else:
        to = State.OBSERVING if facts.reading is Reading.RUNNING else State.ACCEPTED
        draft.go(to, cause, code, **known, reading=facts.reading, remote_state=facts.remote_state)
    if facts is not None and facts.reading in ENDED_READINGS:
        apply_facts(draft, facts, cause)
        return draft.done()
    draft.due(schedule.after_success(draft.op, case.contract, case.now, case.chance, wish=evidence.next_after))
    if draft.op.cancel_requested_at is not None:
        start_cancel(draft, "cancel_remembered")
    return draft.done()


def job_known_again(case: Case) -> Decision:
    """The job is known already: the same id is an echo, another one a contradiction (A8)."""
    evidence = case.evidence
    assert isinstance(evidence, JobKnown)
    draft = Draft(case)
    if evidence.remote_job_id == case.operation.remote_job_id:
        if evidence.remembered and not case.operation.remembered:  # a delivery was faster: the answer brings what it did not know
            draft.work(remembered=evidence.remembered)
        return draft.done()
    ids = f"{case.operation.remote_job_id} and {evidence.remote_job_id}"
    draft.go(State.QUARANTINED, Cause.CREATE_ANSWER, "second_job_id", text=f"two jobs for one token: {ids}", error_code="second_job_id")
    return draft.done()


def not_found(case: Case) -> Decision:
    """A lookup does not know our create. It is proof only late and repeated (A6)."""
    draft, contract = Draft(case), case.contract
    earliest = recovery.earliest_absence(draft.op, contract)
    draft.work(last_read_at=case.started_at, read_failures=0, last_read_error=None, verified_at=case.now)
    if case.started_at < earliest or draft.op.open_attempt is not None:
        draft.due(max(earliest, case.now))
        return draft.done()
    draft.work(absences=draft.op.absences + 1)
    if not contract.recovery.proves_absence:
        _search_on(draft)
        return draft.done()
    if draft.op.absences < contract.recovery.confirmations:
        draft.due(case.now + schedule.pause(schedule.RETRY_SECONDS, draft.op.absences, 60, case.chance))
        return draft.done()
    draft.work(unsure_creates=0, absences=0)
    conclude_absence(draft, looked=True)
    return draft.done()


def _search_on(draft: Draft) -> None:
    """What is not found may be there all the same: look on until the deadline, and then ask (A7). It is never sent again."""
    case, op = draft.case, draft.op
    if schedule.overdue(op, case.started_at):
        declare(draft, unverified=False)
    else:
        draft.due(schedule.after_failure(op, case.contract, case.now, case.chance, failures=op.absences))


def conflict(case: Case) -> Decision:
    """More than one job for one token, somebody else's, or another origin: automation stops, everything is kept (A8)."""
    evidence, draft = case.evidence, Draft(case)
    assert isinstance(evidence, JobsConflict)
    ids = ", ".join(evidence.remote_job_ids)
    draft.go(State.QUARANTINED, Cause.READING, evidence.code, text=f"{evidence.message} {ids}".strip(), error_code=evidence.code)
    return draft.done()


def late(case: Case) -> Decision:
    """Evidence that comes after its time: recorded, without effect (B7)."""
    draft = Draft(case)
    draft.note(Cause.ATTEMPT, f"late_{case.evidence.kind}")
    return draft.done()


def conclude_absence(draft: Draft, *, looked: bool = False) -> None:
    """Nothing was created, proven: send (again), or end as the clocks and people's wishes say.

    `looked`: proven by what the provider lists. That it shows nothing time after time is more likely our not seeing its jobs
    (an echo that it drops) than bad luck, and each round would be paid: after RECREATES a person looks.
    """
    op, now = draft.op, draft.case.now
    if op.cancel_requested_at is not None:
        draft.go(State.WITHDRAWN, Cause.ABSENCE, "nothing_created", cancel_outcome=CancelOutcome.WITHDRAWN)
    elif (op.token_spent or "").startswith("replayed_") and op.mode is Mode.SEND:
        # Its stored error is what every send of this token brings, and a second token is a second intent (A4, B055).
        draft.work(error_message="Nothing was created, and the provider answers this token with its stored error for ever.")
        draft.go(State.FAILED, Cause.ABSENCE, "not_created", error_code="not_created")
    elif op.mode is not Mode.SEND:
        unresolved(draft, "absent_but_not_ours_to_send")
    elif schedule.overdue(op, now):
        draft.work(error_message="The create deadline passed; it is proven that nothing was created.")
        draft.go(State.FAILED, Cause.ABSENCE, "not_created", error_code="not_created")
    elif looked and op.recreates >= RECREATES:
        unresolved(draft, "absent_again")
    else:
        draft.work(token_spent=None, recreates=op.recreates + looked)
        if op.state is not State.CREATE_PENDING:
            draft.go(State.CREATE_PENDING, Cause.ABSENCE, "absence_proven")
        draft.due(now)


def conclude_pending(draft: Draft) -> None:
    """The send is no longer owed (cancelled, or out of time): nothing was created, unless an earlier try is in doubt."""
    if draft.op.unsure_creates == 0:
        conclude_absence(draft)
        return
    draft.go(State.CREATE_UNKNOWN, Cause.ATTEMPT, "doubt_remains")
    _after_try(draft)


def lapsed_unknown(draft: Draft) -> None:
    """No strategy is safe any more: a person must decide (A7)."""
    plan = recovery.plan(draft.op, draft.case.contract, draft.case.now)
    if plan is None:
        unresolved(draft, "create_deadline" if schedule.overdue(draft.op, draft.case.now) else "no_safe_recovery")
    else:
        draft.due(draft.case.now)


def unresolved(draft: Draft, code: str, *, unverified: bool = False) -> None:
    """Ask a person: nothing safe is left to do (A7)."""
    if draft.op.state is not State.CREATE_UNKNOWN:
        draft.go(State.CREATE_UNKNOWN, Cause.ATTEMPT, code)
    draft.go(State.CREATE_UNRESOLVED, Cause.DEADLINE, code, error_code=code, unverified=unverified)


def _doubt(draft: Draft, code: str, *, sent_before: int, text: str = "") -> None:
    op = draft.op
    latest = max(sent_before, op.sent_before or 0)
    draft.work(unsure_creates=op.unsure_creates + 1, sent_before=latest, absences=0)
    if op.state is State.CREATE_PENDING:
        draft.go(State.CREATE_UNKNOWN, Cause.ATTEMPT, code, text=text)
    else:
        draft.note(Cause.ATTEMPT, code, text=text)


def _after_try(draft: Draft, *, retry_after: int | None = None) -> None:
    """Say what follows a create attempt that brought no job."""
    case, op = draft.case, draft.op
    if op.open_attempt is not None:
        return  # another worker's try is under way: nothing is concluded before its end
    if op.state is State.CREATE_UNKNOWN and op.unsure_creates == 0:
        conclude_absence(draft)
        return
    if op.state is State.CREATE_PENDING and (op.cancel_requested_at is not None or schedule.overdue(op, case.now)):
        conclude_pending(draft)
        return
    if op.state is State.CREATE_UNKNOWN:
        plan = recovery.plan(op, case.contract, case.now)
        if plan is None:
            unresolved(draft, "no_safe_recovery")
            return
        if plan != "resend":
            draft.due(case.now + schedule.pause(schedule.RETRY_SECONDS, 0, SECOND, case.chance))
            return
    draft.due(schedule.after_failure(op, case.contract, case.now, case.chance, failures=op.sends, retry_after=retry_after))

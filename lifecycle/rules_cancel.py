"""Rules for cancelling: a wish is remembered at once, sent once, and confirmed only by reads (MISSION E1-E5)."""

from typing import Any

from lifecycle import schedule
from lifecycle.case import Case, Draft, refuse
from schemas.decision import Decision
from schemas.evidence import AttemptLost, CancelAmbiguous, CancelAsked, CancelRefused, NotSent
from schemas.states import CancelOutcome, Cause, Errand, State


def asked_before_send(case: Case) -> Decision:
    """Nothing can have been sent: withdrawn at once, unless an attempt is open this very moment."""
    draft = Draft(case)
    _remember(draft)
    if draft.op.open_attempt is None and draft.op.unsure_creates == 0:
        intent = {**_intent(case), "cancel_outcome": CancelOutcome.WITHDRAWN}
        draft.go(State.WITHDRAWN, Cause.REQUEST, "cancelled_before_send", text=_words(case), **intent)
    else:
        draft.note(Cause.REQUEST, "cancel_asked", text=_words(case), **_intent(case))
    return draft.done()


def asked_unknown(case: Case) -> Decision:
    """The create is unknown, or somebody else's: the wish is remembered and sent as soon as the job id is known (E3)."""
    draft = Draft(case)
    if draft.op.cancel_requested_at is not None:
        return Decision()
    _remember(draft)
    draft.note(Cause.REQUEST, "cancel_asked", text=_words(case), **_intent(case))
    if draft.op.state is State.CREATE_UNKNOWN:
        draft.due(case.now)
    return draft.done()


def asked_running(case: Case) -> Decision:
    """The job is known: the cancel send is owed from now on."""
    draft = Draft(case)
    _remember(draft)
    draft.note(Cause.REQUEST, "cancel_asked", text=_words(case), **_intent(case))
    start_cancel(draft, "cancel_owed")
    return draft.done()


def asked_again(case: Case) -> Decision:
    """A cancel is under way already: the same answer, no second one."""
    del case
    return Decision()


def asked_too_late(case: Case) -> Decision:
    """The job has ended; only its result is being fetched or judged. Nothing is sent."""
    if case.operation.cancel_requested_at is not None:
        return Decision()
    draft = Draft(case)
    _remember(draft)
    draft.note(Cause.REQUEST, "cancel_too_late", text=_words(case), **{**_intent(case), "cancel_outcome": CancelOutcome.TOO_LATE})
    return draft.done()


def asked_unconfirmed(case: Case) -> Decision:
    """A cancel was sent and could not be confirmed: sending it again is a person's decision."""
    del case
    return refuse("needs_decision", "answer the open question instead")


def start_cancel(draft: Draft, code: str) -> None:
    """Owe the cancel send, or say that this provider has none."""
    if draft.case.contract.cancel is None:
        draft.note(Cause.REQUEST, "cancel_unsupported", cancel_outcome=CancelOutcome.REFUSED)
        if draft.op.due_at is None:
            draft.due(draft.case.now)
        return
    draft.go(State.CANCEL_REQUESTED, Cause.REQUEST, code, cancel_outcome=CancelOutcome.REQUESTED)
    draft.due(draft.case.now)


def taken(case: Case) -> Decision:
    """The provider took the request."""
    draft = Draft(case)
    _sent(draft, "cancel_taken", cancel_outcome=CancelOutcome.TAKEN)
    return draft.done()


def ambiguous(case: Case) -> Decision:
    """The request may have arrived: a read comes before any repetition (E4)."""
    evidence, draft = case.evidence, Draft(case)
    assert isinstance(evidence, CancelAmbiguous)
    _sent(draft, "cancel_ambiguous", text=evidence.error)
    if evidence.retry_after is not None:
        draft.due(max(evidence.retry_after, case.now))
    return draft.done()


def lost(case: Case) -> Decision:
    """Somebody else's open cancel attempt: it may have arrived."""
    evidence, draft = case.evidence, Draft(case)
    assert isinstance(evidence, AttemptLost)
    if evidence.errand is Errand.CANCEL:
        _sent(draft, "attempt_lost")
        draft.due(case.now)
    return draft.done()


def refused(case: Case) -> Decision:
    """The provider will not cancel. The job is observed again and the refusal is shown (E4)."""
    evidence, draft = case.evidence, Draft(case)
    assert isinstance(evidence, CancelRefused)
    draft.go(State.OBSERVING, Cause.CANCEL_ANSWER, "cancel_refused", text=evidence.message, cancel_outcome=CancelOutcome.REFUSED)
    draft.due(case.now)
    return draft.done()


def not_sent(case: Case) -> Decision:
    """The cancel surely did not leave: it is still owed."""
    evidence, draft = case.evidence, Draft(case)
    assert isinstance(evidence, NotSent)
    if evidence.errand is Errand.CANCEL:
        draft.work(read_failures=draft.op.read_failures + 1, last_read_error=evidence.error[:200])
        draft.note(Cause.ATTEMPT, "cancel_not_sent", text=evidence.error)
        draft.due(
            schedule.after_failure(
                draft.op,
                case.contract,
                case.now,
                case.chance,
                failures=draft.op.read_failures,
                retry_after=evidence.retry_after,
            )
        )
    return draft.done()


def _sent(draft: Draft, code: str, *, text: str = "", cancel_outcome: CancelOutcome | None = None) -> None:
    changes = {} if cancel_outcome is None else {"cancel_outcome": cancel_outcome}
    draft.work(cancel_sent_at=draft.case.now, steady_reads=0)
    if draft.op.state is State.CANCEL_REQUESTED:
        draft.go(State.CANCELLING, Cause.CANCEL_ANSWER, code, text=text, **changes)
    else:
        draft.note(Cause.CANCEL_ANSWER, code, text=text, **changes)
    draft.due(schedule.after_success(draft.op, draft.case.contract, draft.case.now, draft.case.chance))


def _remember(draft: Draft) -> None:
    evidence = draft.case.evidence
    if isinstance(evidence, CancelAsked) and draft.op.cancel_requested_at is None:
        draft.work(cancel_reason=evidence.reason[:1000] or None, cancel_effect=evidence.expected_effect[:1000] or None)


def _intent(case: Case) -> dict[str, Any]:
    """Return the folded facts of the wish; the first one stands."""
    op, evidence = case.operation, case.evidence
    assert isinstance(evidence, CancelAsked)
    if op.cancel_requested_at is not None:
        return {"cancel_outcome": CancelOutcome.REQUESTED}
    return {"cancel_requested_at": case.now, "cancel_by": evidence.by[:200], "cancel_outcome": CancelOutcome.REQUESTED}


def _words(case: Case) -> str:
    """Return why and to what end, for the erasable text beside the history row (E1)."""
    evidence = case.evidence
    assert isinstance(evidence, CancelAsked)
    return "; ".join(part for part in (evidence.reason[:1000], evidence.expected_effect[:1000]) if part)

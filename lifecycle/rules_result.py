"""Rules for results: `succeeded` means validated, stored and readable; a partial result never hides its ending (F1, F2)."""

from typing import Any

from lifecycle import schedule
from lifecycle.case import Case, Draft
from schemas.decision import Decision, KeepFiles
from schemas.evidence import AttemptLost, Collected, CollectFailed, Items, NotSent, ResultGone, ResultInvalid, result_facts
from schemas.states import Cause, Reading, State


def collected(case: Case) -> Decision:
    """The result is there."""
    evidence, draft = case.evidence, Draft(case)
    assert isinstance(evidence, Collected)
    apply_collection(draft, evidence)
    return draft.done()


def collected_late(case: Case) -> Decision:
    """A worker that had been given up for lost brings the result after all: it is stored and meets the agreement."""
    evidence, draft = case.evidence, Draft(case)
    assert isinstance(evidence, Collected)
    draft.go(State.RESULT_COLLECTING, Cause.COLLECTION, "collected_late", error_code=None)
    apply_collection(draft, evidence)
    return draft.done()


def invalid(case: Case) -> Decision:
    """The result does not meet the agreement; it is kept for inspection."""
    evidence, draft = case.evidence, Draft(case)
    assert isinstance(evidence, ResultInvalid)
    apply_collection(draft, evidence)
    return draft.done()


def gone(case: Case) -> Decision:
    """There is nothing to fetch any more."""
    evidence, draft = case.evidence, Draft(case)
    assert isinstance(evidence, ResultGone)
    give_up(draft, evidence.code, evidence.message)
    return draft.done()


def failed(case: Case) -> Decision:
    """The transfer failed for now."""
    evidence, draft = case.evidence, Draft(case)
    assert isinstance(evidence, CollectFailed)
    op, result = draft.op, case.contract.result
    draft.work(collect_tries=op.collect_tries + 1, last_read_error=evidence.error[:200], last_read_at=case.started_at)
    if result is not None and result.one_shot and op.consumed_by is None:
        # The reading may have consumed it: a second one would find nothing, or worse, something else (F4).
        give_up(draft, "one_shot_interrupted", evidence.error)
        return draft.done()
    if schedule.overdue(op, case.started_at):
        give_up(draft, "collect_deadline", evidence.error)
        return draft.done()
    draft.due(schedule.after_failure(op, case.contract, case.now, case.chance, failures=op.collect_tries, retry_after=evidence.retry_after))
    return draft.done()


def not_sent(case: Case) -> Decision:
    """A one-shot collection whose request surely did not leave: nothing is consumed, it is tried again."""
    evidence, draft = case.evidence, Draft(case)
    assert isinstance(evidence, NotSent)
    op = draft.op
    draft.work(collect_tries=op.collect_tries + 1, last_read_error=evidence.error[:200])
    if schedule.overdue(op, case.started_at):
        give_up(draft, "collect_deadline", evidence.error)
        return draft.done()
    draft.due(schedule.after_failure(op, case.contract, case.now, case.chance, failures=op.collect_tries, retry_after=evidence.retry_after))
    return draft.done()


def lost(case: Case) -> Decision:
    """Somebody else's open one-shot collection: it may have consumed the result, and may have stored it before it was lost (F4).

    The next collection looks into our own store and asks the provider for nothing.
    """
    evidence, draft = case.evidence, Draft(case)
    assert isinstance(evidence, AttemptLost)
    draft.work(consumed_by=evidence.attempt_id)
    draft.note(Cause.COLLECTION, "attempt_lost", text="A worker was lost while it fetched a result that can be fetched once only.")
    draft.due(case.now)
    return draft.done()


def apply_collection(draft: Draft, outcome: Collected | ResultInvalid) -> None:
    """End, or park, by what was collected."""
    ending = draft.op.ending
    assert ending is not None
    draft.effects.append(KeepFiles(files=outcome.files))
    changes = _facts(outcome)
    draft.work(failed_refs=outcome.items.failed_refs if outcome.items is not None else ())
    match outcome:
        case Collected():
            complete = outcome.complete and ending is Reading.SUCCEEDED and (outcome.items is None or outcome.items.missing == 0)
            finish(draft, ending, "collected", {**changes, "result_complete": complete}, text=_told(outcome.items))
        case ResultInvalid() if ending is Reading.SUCCEEDED:
            draft.work(error_message=outcome.message[:500])
            draft.go(
                State.RESULT_VALIDATION_FAILED,
                Cause.COLLECTION,
                outcome.code,
                text=outcome.message,
                error_code=outcome.code,
                **changes,
            )
        case ResultInvalid():
            finish(draft, ending, outcome.code, {**changes, "result_complete": False}, text=outcome.message)


def give_up(draft: Draft, code: str, message: str) -> None:
    """Nothing can be collected: a success asks a person, another ending ends without its partial result."""
    ending = draft.op.ending
    assert ending is not None
    if ending is Reading.SUCCEEDED:
        draft.work(error_message=message[:500])
        draft.go(State.RESULT_UNAVAILABLE, Cause.COLLECTION, code, text=message, error_code=code)
    else:
        finish(draft, ending, code, {"result_complete": False}, text=message)


def finish(draft: Draft, ending: Reading, code: str, changes: dict[str, Any], *, text: str = "") -> None:
    """End by the reading that the record remembers; the final row cites it."""
    op = draft.op
    cause = op.ending_cause
    assert cause is not None
    draft.go(_final(ending), cause, code, text=text, cause_id=op.ending_cause_id or "", **_error(ending, op.error_code), **changes)


def _told(items: Items | None) -> str:
    """Return the items' outcomes in words, for the history's erasable text: the names are the caller's own."""
    if items is None:
        return ""
    named = f": {', '.join(items.failed_refs)}" if items.failed_refs else ""
    return f"{items.succeeded} succeeded, {items.failed} failed, {items.missing} missing{named}"


def ending_without_result(draft: Draft, reading: Reading, cause: Cause, message: str, changes: dict[str, Any]) -> None:
    """End at once: this ending leaves nothing to fetch."""
    draft.go(_final(reading), cause, f"ended_{reading}", text=message, **{**changes, **_error(reading, changes.get("error_code"))})


def _final(reading: Reading) -> State:
    match reading:
        case Reading.SUCCEEDED:
            return State.SUCCEEDED
        case Reading.CANCELLED:
            return State.CANCELLED
        case _:
            return State.FAILED


def _error(reading: Reading, code: str | None) -> dict[str, Any]:
    match reading:
        case Reading.SUCCEEDED | Reading.CANCELLED:
            return {"error_code": None}
        case Reading.EXPIRED:
            return {"error_code": "provider_expired"}
        case _:
            return {"error_code": code or "provider_failed"}


def _facts(outcome: Collected | ResultInvalid) -> dict[str, Any]:
    files = outcome.files
    main = next((file for file in files if file.role == "output"), files[0] if files else None)
    if main is None:
        return {}
    return {
        "result_facts": result_facts(outcome),
        "result_artifact": main.key,
        "result_media_type": main.media_type,
        "result_bytes": main.bytes,
        "result_sha256": main.sha256,
    }

"""Rules for readings: the only thing that moves an operation to its end (MISSION C4, C6, D2)."""

import json
from typing import Any

from lifecycle import schedule
from lifecycle.case import Case, Draft
from lifecycle.rules_result import apply_collection, ending_without_result, give_up
from schemas.decision import Decision
from schemas.evidence import Read, ReadFailed, StatusFacts
from schemas.operation import SECOND, Micros
from schemas.states import ALIVE_READINGS, ENDED_READINGS, FINAL, PARKED, CancelOutcome, Cause, Reading, State

_ABSENCES_TO_VANISH = 2
_AFTER_THE_END = frozenset({State.RESULT_COLLECTING, State.RESULT_UNAVAILABLE, State.RESULT_VALIDATION_FAILED})
"""States that remember an authoritative ending."""


def read(case: Case) -> Decision:
    """An answered status read on an operation whose job is known."""
    evidence, draft = case.evidence, Draft(case)
    assert isinstance(evidence, Read)
    if draft.op.accepted_at is not None and case.started_at < draft.op.accepted_at:
        # Begun before this job was ours: it may speak of the job that a person has replaced. A fresh read is due.
        draft.note(Cause.READING, "read_of_former_job")
        return draft.done()
    _observe(draft, evidence)
    apply_facts(draft, evidence.facts, Cause.READING, wish=evidence.next_after)
    return draft.done()


def apply_facts(draft: Draft, facts: StatusFacts, cause: Cause, *, wish: Micros | None = None) -> None:
    """Move the draft by what a status answer says; also used where the create answer is one. `wish`: no news before this time."""
    case = draft.case
    if draft.op.state in _AFTER_THE_END and facts.reading not in ENDED_READINGS:
        _unended(draft, facts, cause)
        return
    match facts.reading:
        case Reading.UNKNOWN:
            _say(draft, facts, cause, "unknown_word")
            _go_on(draft, wish)
        case Reading.ABSENT:
            _absent(draft, facts)
        case Reading.QUEUED | Reading.RUNNING:
            _alive(draft, facts, cause, wish)
        case Reading.SUCCEEDED | Reading.FAILED | Reading.CANCELLED | Reading.EXPIRED:
            if draft.op.state in _AFTER_THE_END:
                _ended_again(draft, facts, cause)
            elif draft.op.state is State.QUARANTINED and draft.op.error_code != "job_vanished":
                _say(draft, facts, cause, "read_while_quarantined")
            else:
                ended(draft, facts, cause)
    if draft.op.state in PARKED and draft.op.state is case.operation.state:
        watch_on(draft)


def ended(draft: Draft, facts: StatusFacts, cause: Cause) -> None:
    """An authoritative ending: collect what there is, or end."""
    op, now = draft.op, draft.case.now
    reading = facts.reading
    changes: dict[str, Any] = {"reading": reading, "remote_state": facts.remote_state, "error_code": facts.error_code or None}
    if op.cancel_requested_at is not None and op.cancel_outcome != CancelOutcome.TOO_LATE:
        if reading is Reading.CANCELLED:
            changes["cancel_outcome"] = CancelOutcome.CONFIRMED
        elif op.cancel_outcome != CancelOutcome.REFUSED:  # a refused cancel lost no race: the refusal stays shown (E4)
            changes["cancel_outcome"] = CancelOutcome.LOST_RACE
    if facts.effects:  # kept whatever the ending is: "cancelled" claims no rollback (E5)
        changes["effects"] = json.dumps(dict(facts.effects), ensure_ascii=False, separators=(",", ":"))
    if facts.error_message:
        draft.work(error_message=facts.error_message[:500])
    if not facts.has_result and facts.inline is None and reading is not Reading.SUCCEEDED:
        ending_without_result(draft, reading, cause, facts.error_message, changes)
        return
    result = draft.case.contract.result
    retention = result.retention_seconds if result is not None else op.collect_seconds
    draft.work(collect_tries=0)
    draft.go(
        State.RESULT_COLLECTING,
        cause,
        f"ended_{reading}",
        text=facts.error_message,
        ending=reading,
        ending_cause=cause,
        ending_cause_id=draft.case.cause_id,
        collect_deadline=now + min(op.collect_seconds, retention) * SECOND,
        **changes,
    )
    draft.due(now)
    if facts.inline is not None:
        apply_collection(draft, facts.inline)
    elif not facts.has_result:
        # The provider says success and has nothing to fetch: never success with nothing (B097).
        draft.go(State.RESULT_UNAVAILABLE, Cause.COLLECTION, "no_result", error_code="no_result")


def read_failed(case: Case) -> Decision:
    """A read or lookup without a usable answer: the state stays; a clock may be declared over, unverified (C6)."""
    evidence, draft = case.evidence, Draft(case)
    assert isinstance(evidence, ReadFailed)
    op = draft.op
    draft.work(
        read_failures=op.read_failures + 1,
        last_read_error=f"{evidence.layer}: {evidence.error}"[:200],
        last_read_at=case.started_at,
    )
    if op.state in PARKED:
        watch_on(draft)
        return draft.done()
    if schedule.overdue(op, case.started_at) and schedule.window_over(op, case.contract, case.now):
        declare(draft, unverified=True)
        return draft.done()
    draft.due(
        schedule.after_failure(op, case.contract, case.now, case.chance, failures=draft.op.read_failures, retry_after=evidence.retry_after)
    )
    return draft.done()


def declare(draft: Draft, *, unverified: bool) -> None:
    """A clock has run out and a read was attempted after it: stop regular reads and ask a person (C6, E4)."""
    match draft.op.state:
        case State.ACCEPTED | State.OBSERVING:
            draft.go(
                State.RESULT_TIMED_OUT,
                Cause.DEADLINE,
                "result_deadline",
                error_code="result_deadline",
                unverified=unverified,
            )
        case State.CANCEL_REQUESTED | State.CANCELLING:
            until = draft.op.result_deadline
            draft.go(
                State.CANCELLATION_UNCONFIRMED,
                Cause.DEADLINE,
                "cancel_deadline",
                error_code="cancel_deadline",
                unverified=unverified,
                cancel_outcome=CancelOutcome.UNCONFIRMED,
            )
            if until is not None and until > draft.case.now:
                draft.work(watch_until=until)
                watch_on(draft)
        case State.CREATE_UNKNOWN:
            draft.go(
                State.CREATE_UNRESOLVED,
                Cause.DEADLINE,
                "create_deadline",
                error_code="create_deadline",
                unverified=unverified,
            )
        case State.RESULT_COLLECTING:
            give_up(draft, "collect_deadline", "The result could not be fetched in time.")
        case _:
            raise AssertionError(draft.op.state)


def _observe(draft: Draft, evidence: Read) -> None:
    op, facts = draft.op, evidence.facts
    unchanged = evidence.digest != "" and evidence.digest == op.observation_digest
    draft.work(
        verified_at=draft.case.now,
        last_read_at=draft.case.started_at,
        read_failures=0,
        last_read_error=None,
        observation_digest=evidence.digest or None,
        steady_reads=op.steady_reads + 1 if unchanged else 0,
    )
    if facts.reading is not Reading.ABSENT:
        draft.work(absences=0)
    if facts.progress is not None and facts.progress > (op.progress if op.progress is not None else -1.0):
        draft.work(progress=facts.progress)  # never shown as a step back (C5); the observation keeps what was said
    if facts.provider_time is not None and facts.provider_time > (op.provider_time or 0):
        draft.work(provider_time=facts.provider_time)


def _say(draft: Draft, facts: StatusFacts, cause: Cause, code: str) -> None:
    """Record a changed word without moving."""
    if facts.reading != draft.op.reading or facts.remote_state != draft.op.remote_state:
        draft.note(cause, code, reading=facts.reading, remote_state=facts.remote_state)


def _alive(draft: Draft, facts: StatusFacts, cause: Cause, wish: Micros | None) -> None:
    op = draft.op
    match op.state:
        case State.ACCEPTED:
            draft.go(State.OBSERVING, cause, f"seen_{facts.reading}", reading=facts.reading, remote_state=facts.remote_state)
        case _:
            _say(draft, facts, cause, f"seen_{facts.reading}")
    _go_on(draft, wish)


def _go_on(draft: Draft, wish: Micros | None) -> None:
    """Alive, or unknown: read on, cancel on, or declare the clock that has run out."""
    case, op = draft.case, draft.op
    if op.state in PARKED or op.state in FINAL:
        return
    if schedule.overdue(op, case.started_at):
        declare(draft, unverified=False)
    elif op.state is State.CANCEL_REQUESTED:
        draft.due(case.now)
    else:
        draft.due(schedule.after_success(op, case.contract, case.now, case.chance, wish=wish))


def _unended(draft: Draft, facts: StatusFacts, cause: Cause) -> None:
    """An older copy of the provider's truth, or one that is gone: it never undoes an ending that was read before."""
    case = draft.case
    if draft.op.remote_state != facts.remote_state:
        draft.note(cause, "stale_reading", remote_state=facts.remote_state)
    if draft.op.state in PARKED:
        watch_on(draft)
        return
    draft.work(collect_tries=draft.op.collect_tries + 1)
    if schedule.overdue(draft.op, case.started_at):
        give_up(draft, "collect_deadline", "The provider no longer says how it ended.")
    else:
        draft.due(schedule.after_failure(draft.op, case.contract, case.now, case.chance, failures=draft.op.collect_tries))


def _absent(draft: Draft, facts: StatusFacts) -> None:
    case, op = draft.case, draft.op
    status, cancel = case.contract.status, case.contract.cancel
    if op.state in PARKED:
        _say(draft, facts, Cause.READING, "absent")
        return
    if op.cancel_sent_at is not None and cancel is not None and cancel.absent_after_cancel:
        ended(draft, StatusFacts(reading=Reading.CANCELLED, remote_state=facts.remote_state, has_result=False), Cause.READING)
        return
    grace = (status.not_found_grace_seconds if status is not None else 0) * SECOND
    if case.started_at < (op.accepted_at or op.created_at) + grace:
        draft.due(schedule.after_failure(op, case.contract, case.now, case.chance, failures=op.absences))
        draft.work(absences=op.absences + 1)
        return
    draft.work(absences=op.absences + 1)
    _say(draft, facts, Cause.READING, "absent")
    if draft.op.absences < _ABSENCES_TO_VANISH:
        draft.due(schedule.after_failure(op, case.contract, case.now, case.chance, failures=draft.op.absences))
        return
    draft.work(error_message="The provider no longer knows the job.")
    draft.go(State.QUARANTINED, Cause.READING, "job_vanished", error_code="job_vanished")


def _ended_again(draft: Draft, facts: StatusFacts, cause: Cause) -> None:
    if facts.reading is draft.op.ending:
        if draft.op.state is State.RESULT_COLLECTING:
            if facts.inline is not None:
                apply_collection(draft, facts.inline)
            else:
                draft.due(draft.case.now + schedule.pause(schedule.RETRY_SECONDS, draft.op.collect_tries, 60, draft.case.chance))
        return
    draft.go(
        State.QUARANTINED,
        cause,
        "ends_differ",
        text=f"first {draft.op.ending}, then {facts.reading}",
        error_code="ends_differ",
    )


def watch_on(draft: Draft) -> None:
    """A parked or ended operation was read: one granted read less; a watch goes on slowly until a read after its end."""
    case, op = draft.case, draft.op
    draft.work(granted_reads=max(0, op.granted_reads - 1))
    if op.watch_until is None:
        return
    status = case.contract.status
    slow = (status.max_poll_seconds if status is not None else 600) * SECOND
    if case.started_at < op.watch_until:
        draft.due(min(case.now + slow, max(op.watch_until, case.now)))
    else:
        draft.work(watch_until=None)


assert ALIVE_READINGS | ENDED_READINGS | {Reading.ABSENT, Reading.UNKNOWN} == set(Reading)


def parked_not_found(case: Case) -> Decision:
    """A granted lookup found nothing: the question stays."""
    draft = Draft(case)
    draft.work(verified_at=case.now, last_read_at=case.started_at)
    watch_on(draft)
    return draft.done()

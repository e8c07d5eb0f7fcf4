"""What the codes of history rows and errors mean, in a sentence for somebody who sees one for the first time (D4, D6)."""

from typing import Final

from schemas.states import ENDED_READINGS, Cause, Reading, State

MEANINGS: Final[dict[str, str]] = {
    "abandoned": "A person ended our interest; the remote job may still run.",
    "absence_proven": "The provider was asked often and late enough and knows no such job: the create may be sent.",
    "absent_again": "The provider shows no such job, after a second create too: perhaps it does not show ours. A person is asked.",
    "absent_but_not_ours_to_send": "No job was found, and the create is not ours to send again: a person is asked.",
    "accepted": "The provider answered the create and named the job.",
    "adopted": "A job that exists already was registered; the gateway created nothing.",
    "approval_expired": "Nobody approved in time; nothing was sent.",
    "approved": "A person approved this exact request; it may be sent.",
    "attempt_lost": "The process that had begun this call is gone; whether the call had an effect is found out.",
    "cancel_ambiguous": "The cancel may or may not have reached the provider: the job is read before it is sent again.",
    "cancel_asked": "Somebody asked to stop the work: reason; expected effect.",
    "cancel_deadline": "The provider did not confirm the cancellation in the agreed time: a person is asked, slow reads go on.",
    "cancel_decided": "A person decided to cancel.",
    "cancel_not_sent": "The cancel surely did not reach the provider; it is sent again.",
    "cancel_owed": "The job is known, so the cancel is sent next.",
    "cancel_refused": "The provider refused to cancel: the job is observed again.",
    "cancel_remembered": "Whether a job exists is not known yet; the cancel is sent as soon as it is.",
    "cancel_taken": "The provider took the cancel; only a read can confirm it.",
    "cancel_too_late": "The job had ended already: nothing was sent to the provider.",
    "cancel_unsupported": "This provider cannot cancel: nothing was sent, the job is observed to its end.",
    "cancelled_before_send": "Stopped before anything was sent: reason; expected effect.",
    "collect_deadline": "The result could not be fetched in the agreed time: the last error.",
    "collected": "The result was fetched, validated and stored.",
    "collected_late": "The result of an earlier fetch was found whole in our own store.",
    "create_ambiguous": "The create may have been executed: its answer was lost or is not certain. That is found out first.",
    "create_deadline": "The time for finding out whether a job exists is over: a person is asked.",
    "create_not_sent": "The create surely was not executed; it is sent again later.",
    "create_refused_meanwhile": "A refusal that says nothing about an earlier, uncertain send; that one is still found out.",
    "delivery": "A callback arrived: a read is due. What it claims is shown and not believed.",
    "delivery_conflict": "A callback came under a known event id with other bytes: the first is kept, a read is due.",
    "denied": "A person refused the approval; nothing was sent.",
    "doubt_remains": "An earlier send is still uncertain: it is found out before anything else is sent.",
    "ends_differ": "The provider told two different ends: a person is asked.",
    "incident": "The provider contradicts an end on record. The state stays; a person is asked.",
    "incident_acknowledged": "A person took note of the contradiction.",
    "incident_goes_on": "The provider contradicts the end on record once more.",
    "job_not_ours": "The job carries another operation's mark: a person is asked.",
    "job_vanished": "The provider no longer knows a job that it had accepted: a person is asked.",
    "jobs_conflict": "The provider names a job that belongs elsewhere, or several for one create: a person is asked.",
    "named_by_delivery": "A signed callback named both our reference and the job: the lost job is found.",
    "no_result": "The job succeeded and its answer names no result.",
    "no_safe_recovery": "The contract knows no safe way to find out whether a job exists, so nothing is sent again and a person is asked.",
    "not_created": "It is certain that no job was created.",
    "nothing_created": "It is certain that no job was created, and a cancel was wanted: withdrawn.",
    "one_shot_lost": "The result could be read once, and that read was lost.",
    "predecessor_ended": "The operation that this one supersedes has ended: this one is sent.",
    "predecessor_goes_on": "The operation that this one supersedes could not be ended yet.",
    "predecessor_parked": "The operation that this one supersedes waits for a person: so does this one.",
    "predecessor_succeeded": "The operation that this one supersedes succeeded: a person decides whether to send this one all the same.",
    "provider_expired": "The provider says that the job expired.",
    "provider_failed": "The provider says that the job failed.",
    "read_of_former_job": "An answer about a job that this operation no longer stands for; it counts for nothing.",
    "recovered": "The job whose create answer was lost was found by asking the provider; nothing was sent again.",
    "registered": "Recorded; the gateway sends it.",
    "registered_external": "Recorded; the caller sends it itself and reports what became of it.",
    "report_overdue": "The caller did not report what became of its own create: it is looked for.",
    "reported_accepted": "The caller reports that its create was accepted.",
    "reported_not_sent": "The caller reports that it never sent the create.",
    "reported_rejected": "The caller reports that its create was refused.",
    "reported_unknown": "The caller does not know what became of its create: it is looked for.",
    "resend": "A person decided to send the create again, with the same token.",
    "resend_at_risk": "A person decided to send the create again and accepted that there may be a second job.",
    "resend_refused": "The provider refused to take the same create again: whether the first one was executed is found out otherwise.",
    "result_accepted": "A person accepted a result that does not meet the agreement.",
    "result_deadline": "The agreed time is over; regular reads stop. The remote job may still run: a person is asked.",
    "result_rejected": "A person rejected the result.",
    "resumed": "A person decided to observe the job again.",
    "resumed_by_another": "A new operation goes on with what this one left.",
    "retry_collection": "A person decided to fetch the result again.",
    "second_job_id": "The provider named two jobs for one token: a person is asked.",
    "stale_reading": "An older answer that came late; it changes nothing.",
    "superseded": "A new operation takes the place of this one.",
    "unknown_word": "The provider used a word that the contract does not know; it moves nothing.",
    "wait_longer": "A person decided to wait longer for the cancellation.",
    **{f"seen_{word}": f"A read saw the job {word}." for word in (Reading.QUEUED, Reading.RUNNING)},
    **{f"ended_{word}": f"A read says how the job ended: {word}." for word in sorted(ENDED_READINGS)},
    "absent": "A read says that there is no such job.",
}  # fmt: skip


def meaning(code: str, to: str, cause: str) -> str | None:
    """Return what a history row's code means. A provider's own code, of a refused create, is its word and not ours."""
    if to == State.FAILED and cause == Cause.CREATE_ANSWER:
        return None
    return MEANINGS.get(code.removeprefix("late_"))


def error_words(code: str, message: str | None, state: State) -> str | None:
    """Return an error's own message, or what its code means where that is a code of ours."""
    ours = state is not State.FAILED or code in {"not_created", "provider_failed", "provider_expired"}
    return message or (MEANINGS.get(code) if ours else None)

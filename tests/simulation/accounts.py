"""The contracts of the five simulated providers, varied by the seed within what they promise."""

from random import Random
from typing import Final

from schemas.contract import (
    CancelRule,
    Contract,
    CreateRule,
    Deadlines,
    RecoveryRule,
    ResultFile,
    ResultRule,
    RetryRules,
    StatusRule,
    TokenRule,
)
from schemas.states import Reading

KINDS: Final = ("tokens", "lister", "oneshot", "deleter", "bare")
ORIGIN: Final = "https://provider.test"
_WORDS: Final = {
    "queued": Reading.QUEUED, "running": Reading.RUNNING, "done": Reading.SUCCEEDED,
    "broken": Reading.FAILED, "stopped": Reading.CANCELLED, "expired": Reading.EXPIRED,
}  # fmt: skip
WORD_OF: Final = {reading: word for word, reading in _WORDS.items()}
_ECHO: Final = (("metadata.operation", "{operation}"),)
_TOKEN: Final = "Idempotency-Key"


def contract(kind: str, random: Random, *, confirmations: int = 2, plain: bool = False) -> Contract:
    """Return the contract of one kind of provider."""
    visibility = random.choice((10, 30))
    status = StatusRule(
        path="/jobs/{remote_job_id}",
        state="body:state",
        job_id="body:id",
        readings=_WORDS,
        progress="body:progress",
        not_found_grace_seconds=60,
        poll_seconds=random.choice((5, 20)),
        max_poll_seconds=240,
    )
    create = CreateRule(path="/jobs", add=_ECHO, job_id="body:id", answers_status=random.random() < 0.3)
    cancel: CancelRule | None = CancelRule(path="/jobs/{remote_job_id}/cancel", resend_seconds=20)
    file = ResultFile(path="/jobs/{remote_job_id}/result", sha256="body:sha256", bytes="body:bytes", media_type="text/csv")
    result: ResultRule | None = ResultRule(files=(file,), readings=(Reading.SUCCEEDED, Reading.EXPIRED), retention_seconds=86_400)
    recovery = RecoveryRule()
    match kind:
        case "tokens":
            window = 864_000 if plain else random.choice((300, 86_400))
            create = _with_token(create, window)
            lookup = random.random() < 0.5
            recovery = RecoveryRule(
                strategies=("resend", "lookup") if lookup else ("resend",),
                replay_guaranteed=random.random() < 0.5,
                visibility_seconds=visibility,
                confirmations=confirmations,
                path="/lookup/{operation}",
                items="",
            )
        case "lister":
            recovery = RecoveryRule(
                strategies=("list",),
                visibility_seconds=visibility,
                confirmations=confirmations,
                path="/jobs",
                match="metadata.operation",
                next="body:next",
            )
        case "oneshot":
            create = _with_token(create, 3_600)
            recovery = RecoveryRule(strategies=("resend",), replay_guaranteed=True)
            result = ResultRule(files=(file,), one_shot=True)
        case "deleter":
            cancel = CancelRule(
                method="DELETE",
                path="/jobs/{remote_job_id}",
                absent_after_cancel=True,
                destructive=True,
                resend_seconds=20,
            )
            recovery = RecoveryRule(
                strategies=("lookup",),
                visibility_seconds=visibility,
                confirmations=confirmations,
                path="/lookup/{operation}",
                items="",
            )
        case _:
            cancel, result = None, None
    return Contract(
        name=kind,
        digest=kind,
        origin=ORIGIN,
        create=create,
        recovery=recovery,
        status=status,
        cancel=cancel,
        result=result,
        retry=RetryRules(horizon_seconds=1_800),
        deadlines=Deadlines(final_read_seconds=30),
    )


def _with_token(rule: CreateRule, window: int) -> CreateRule:
    return CreateRule(
        path=rule.path,
        add=rule.add,
        job_id=rule.job_id,
        answers_status=rule.answers_status,
        token=TokenRule(place="header", name=_TOKEN, window_seconds=window),
    )

"""An operation as its owner sees it: always the same fields (INTERFACE, Operation). `schemas.api.OperationView` is the model."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from lifecycle.public import message, public_status, settled, stage
from lifecycle.questions import answers_for
from lifecycle.words import error_words, meaning
from schemas.evidence import StoredFile
from schemas.operation import SECOND, Micros, Operation
from schemas.settings import RetentionSettings
from schemas.states import FINAL, Mode

_MAX_RETRY_AFTER: Final = 60
_FILE: Final = ("role", "media_type", "bytes", "sha256")
_DAY: Final[Micros] = 86_400 * SECOND


def time_text(at: Micros | None) -> str | None:
    """Return RFC 3339 UTC with microseconds, or None."""
    if at is None:
        return None
    seconds, micros = divmod(at, SECOND)
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{micros:06d}Z"


def etag(op: Operation) -> str:
    """Return the entity tag: the version. It changes when something that callers act on does."""
    return f'"{op.version}"'


def retry_after(op: Operation, now: Micros) -> int:
    """Return after how many seconds asking again makes sense; it grows while nothing changes (G3)."""
    doubled = 2 << min(op.steady_reads + op.read_failures, 5)
    quarter_of_age = (now - op.updated_at) // (4 * SECOND)
    return int(max(1, min(_MAX_RETRY_AFTER, max(doubled, quarter_of_age))))


def polling_headers(op: Operation, now: Micros) -> list[tuple[str, str]]:
    """Return ETag, Gateway-Verified-At and, unless settled, Retry-After."""
    headers = [("ETag", etag(op))]
    if op.verified_at is not None:
        headers.append(("Gateway-Verified-At", time_text(op.verified_at) or ""))
    if not settled(op):
        headers.append(("Retry-After", str(retry_after(op, now))))
    return headers


def question(op: Operation) -> dict[str, Any] | None:
    """Return the open question with the answers that it takes."""
    if op.question_id is None or op.question_kind is None:
        return None
    return {
        "id": op.question_id,
        "kind": op.question_kind,
        "answers": list(answers_for(op.question_kind)),
        "until": time_text(op.question_until),
    }


def expires_at(op: Operation, retention: RetentionSettings) -> Micros | None:
    """Return when retention removes the operation; None while it is not over, or a person is still asked."""
    if op.state not in FINAL or op.question_id is not None:
        return None
    return op.updated_at + round(retention.record_days * _DAY)


def result_expires_at(op: Operation, retention: RetentionSettings) -> Micros | None:
    """Return when the stored result is no longer given out; None while the operation is not over, or where there is no result (F6)."""
    if op.state not in FINAL or op.result_artifact is None:
        return None
    return op.updated_at + round(retention.result_days * _DAY)


def files(op: Operation) -> tuple[StoredFile, ...]:
    """Return the files of the stored result, in the contract's order; of one plain file the record has its own fields."""
    if op.result_artifact is None:
        return ()
    if op.result_facts is not None:
        return tuple(StoredFile(**file) for file in op.result_facts["files"])
    kind, size, digest = op.result_media_type or "", op.result_bytes or 0, op.result_sha256 or ""
    return (StoredFile(role="output", key=op.result_artifact, media_type=kind, bytes=size, sha256=digest),)


def operation(op: Operation, retention: RetentionSettings) -> dict[str, Any]:
    """Return the JSON object of an operation."""
    return {
        "id": op.id,
        "provider": op.provider,
        "action": op.action,
        "status": public_status(op),
        "state": op.state,
        "settled": settled(op),
        "final": op.state in FINAL,
        "stage": stage(op),
        "message": message(op),
        "error": None
        if op.error_code is None
        else {"code": op.error_code, "message": error_words(op.error_code, op.error_message, op.state)},
        "remote": {
            "job_id": op.remote_job_id,
            "state": op.remote_state,
            "progress": op.progress,
            "provider_time": time_text(op.provider_time),
            "observed_at": time_text(op.verified_at),
            "failed_reads": op.read_failures,
            "read_error": op.last_read_error if op.read_failures else None,
        },
        "created_at": time_text(op.created_at),
        "updated_at": time_text(op.updated_at),
        "verified_at": time_text(op.verified_at),
        "next_check_at": time_text(op.due_at),
        "deadlines": _deadlines(op),
        "cancel": _cancel(op),
        "result": _result(op, retention),
        "question": question(op),
        "effects": None if op.effects is None else json.loads(op.effects),
        "incident": op.incident_id,
        "reference": op.reference,
        "authorized_by": op.authorized_by,
        "idempotency_key": op.idempotency_key,
        "idempotency_token": op.idempotency_token if op.mode is Mode.EXTERNAL else None,
        "request_fingerprint": op.request_fingerprint,
        "trace_id": op.trace_id,
        "supersedes": op.supersedes,
        "superseded_by": op.superseded_by,
        "resumes": op.resumes,
        "expires_at": time_text(expires_at(op, retention)),
        "metadata": dict(op.metadata),
        "version": op.version,
        "links": _links(op),
    }


def _deadlines(op: Operation) -> dict[str, Any]:
    return {
        "create_seconds": op.create_seconds,
        "result_seconds": op.result_seconds,
        "cancel_seconds": op.cancel_seconds,
        "collect_seconds": op.collect_seconds,
        "create_at": time_text(op.create_deadline),
        "result_at": time_text(op.result_deadline),
        "cancel_at": time_text(op.cancel_deadline),
        "collect_at": time_text(op.collect_deadline),
        "approval_at": time_text(op.approval_deadline),
        "unverified": op.unverified,
    }


def _cancel(op: Operation) -> dict[str, Any] | None:
    if op.cancel_requested_at is None:
        return None
    return {
        "requested_at": time_text(op.cancel_requested_at),
        "by": op.cancel_by,
        "reason": op.cancel_reason,
        "outcome": op.cancel_outcome,
        "effect": op.cancel_effect,
    }


def _result(op: Operation, retention: RetentionSettings) -> dict[str, Any] | None:
    if op.result_artifact is None and op.result_complete is None:
        return None
    facts: Mapping[str, Any] = op.result_facts or {}
    url = f"/v1/operations/{op.id}/result"
    return {
        "media_type": op.result_media_type,
        "bytes": op.result_bytes,
        "sha256": op.result_sha256,
        "complete": op.result_complete,
        "accepted_by": op.accepted_by,
        "records": facts.get("records"),
        "items": None if facts.get("items") is None else {**facts["items"], "failed_refs": list(op.failed_refs)},
        "files": [
            {**{name: getattr(file, name) for name in _FILE}, "url": f"{url}?file={quote(file.role, safe='')}"} for file in files(op)
        ],
        "expires_at": time_text(result_expires_at(op, retention)),
        "url": None if op.result_artifact is None else url,
    }


def _links(op: Operation) -> dict[str, str]:
    here = f"/v1/operations/{op.id}"
    return {"self": here, **{name: f"{here}/{name}" for name in ("history", "refresh", "cancel", "decision", "result", "bundle")}}


def history_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON object of one history row."""
    return {
        "seq": row["seq"],
        "at": time_text(row["at"]),
        "actor": row["actor"],
        "from_state": row["from_state"] or None,
        "to_state": row["to_state"],
        "cause": row["cause"],
        "cause_id": row["cause_id"],
        "code": row["code"],
        "text": row["text"],
        "meaning": meaning(row["code"], row["to_state"], row["cause"]),
        "erased": row["erased"],
        "changes": dict(row["changes"]),
        "hash": row["hash"].hex(),
    }

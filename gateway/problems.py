"""Problem answers: one table of stable codes, and the exception that carries one to the edge (RFC 9457)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

MEDIA_TYPE: Final = b"application/problem+json"
TYPE_BASE: Final = "urn:reconciliation-gateway:problem:"


@dataclass(frozen=True, slots=True)
class Kind:
    """What a code means. `retry`: the same request may be sent again. `new_key`: it may be sent with another key."""

    status: int
    title: str
    retry: bool
    new_key: bool


# `retry` with the same Idempotency-Key never makes a second job. `new_key` is the dangerous one: True only where
# it is certain that this request has started nothing.
PROBLEMS: Final[Mapping[str, Kind]] = {
    # who is asking
    "unauthenticated": Kind(401, "A valid API key is needed", retry=True, new_key=True),
    "missing_scope": Kind(403, "The key lacks a scope", retry=True, new_key=True),
    # what is asked for
    "not_found": Kind(404, "There is no such thing here", retry=True, new_key=False),
    "method_not_allowed": Kind(405, "The address does not take this method", retry=True, new_key=True),
    "unreadable_body": Kind(400, "The body is not strict JSON", retry=True, new_key=True),
    "invalid_request": Kind(400, "The request is not well formed", retry=True, new_key=True),
    "invalid_field": Kind(422, "A field is not acceptable", retry=True, new_key=True),
    "invalid_cursor": Kind(400, "The cursor does not belong to this listing", retry=True, new_key=True),
    "body_too_large": Kind(413, "The body is too large", retry=True, new_key=True),
    "body_too_slow": Kind(408, "The body did not arrive in time", retry=True, new_key=True),
    "unsupported_encoding": Kind(415, "Compressed bodies are not taken", retry=True, new_key=True),
    "unsupported_media_type": Kind(415, "The body must be application/json", retry=True, new_key=True),
    # create
    "idempotency_key_required": Kind(400, "An Idempotency-Key is needed", retry=True, new_key=True),
    "invalid_idempotency_key": Kind(400, "The Idempotency-Key is not well formed", retry=True, new_key=True),
    "idempotency_key_reused": Kind(422, "The key stands for another request", retry=False, new_key=False),
    "idempotency_key_expired": Kind(410, "The record behind this key has expired", retry=False, new_key=False),
    "unknown_provider": Kind(422, "There is no such provider for this owner", retry=True, new_key=True),
    "receive_only": Kind(422, "The provider's contract cannot carry operations", retry=True, new_key=True),
    "not_available": Kind(422, "This part of the interface is not available yet", retry=True, new_key=True),
    "job_taken": Kind(409, "The remote job cannot be registered", retry=False, new_key=False),
    "already_superseded": Kind(409, "The operation has a successor already", retry=False, new_key=True),
    "not_final": Kind(409, "The operation that is to be resumed has not ended", retry=True, new_key=True),
    # petitions
    "already_final": Kind(409, "The operation has ended", retry=False, new_key=False),
    "question_changed": Kind(409, "The question has changed or has been answered", retry=False, new_key=False),
    "not_supported": Kind(409, "The operation or its provider does not support this", retry=False, new_key=False),
    "needs_decision": Kind(409, "The open question must be answered instead", retry=False, new_key=False),
    "already_reported": Kind(409, "Another outcome has been recorded already", retry=False, new_key=False),
    "not_external": Kind(409, "The create of this operation is sent by the gateway", retry=False, new_key=False),
    "nothing_to_read": Kind(409, "There is nothing that could be read", retry=False, new_key=False),
    "nothing_kept": Kind(409, "No result was kept", retry=False, new_key=False),
    "duplicate_risk": Kind(409, "The job may exist already", retry=True, new_key=False),
    "unknown_answer": Kind(422, "The question does not take this answer", retry=True, new_key=False),
    "remote_job_id_required": Kind(422, "The remote job must be named", retry=True, new_key=False),
    "reason_required": Kind(422, "A reason must be given", retry=True, new_key=False),
    "not_approver": Kind(403, "This must be answered by somebody else", retry=False, new_key=False),
    "refused": Kind(409, "The operation does not take this now", retry=False, new_key=False),
    "budget": Kind(429, "The budget for this is used up for now", retry=True, new_key=False),
    "operation_expired": Kind(410, "The operation has ended and its record is no longer kept", retry=False, new_key=False),
    # results
    "not_ready": Kind(409, "The result is not ready", retry=True, new_key=False),
    "no_result": Kind(409, "The operation ended without a result", retry=False, new_key=False),
    "result_expired": Kind(410, "The result is no longer kept", retry=False, new_key=False),
    "unknown_file": Kind(404, "The result has no such file", retry=False, new_key=False),
    "range_not_satisfiable": Kind(416, "The range lies outside the result", retry=True, new_key=False),
    # deliveries
    "unknown_endpoint": Kind(404, "No provider is configured at this address", retry=True, new_key=False),
    "no_usable_secret": Kind(503, "The endpoint has no usable secret now", retry=True, new_key=False),
    "key_unavailable": Kind(503, "A key that the provider publishes is not at hand yet", retry=True, new_key=False),
    "delivery_refused": Kind(401, "The delivery is not accepted as genuine and fresh", retry=True, new_key=False),
    "unreadable_delivery": Kind(400, "The genuine delivery cannot be read; it is kept", retry=True, new_key=False),
    # ourselves
    "busy": Kind(503, "Too much is arriving or waiting to be written", retry=True, new_key=False),
    "unavailable": Kind(503, "The record cannot be reached now", retry=True, new_key=False),
    "internal_error": Kind(500, "Something went wrong here", retry=True, new_key=False),
}


@dataclass(slots=True)
class ProblemError(Exception):
    """Raised by handlers, answered by the edge. `detail` names the cure and never repeats a secret."""

    code: str
    detail: str = ""
    operation: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert self.code in PROBLEMS, self.code

    @property
    def status(self) -> int:
        """Return the HTTP status of the code."""
        return PROBLEMS[self.code].status

    def body(self) -> bytes:
        """Return the problem document: type, title, status, detail, code, operation where there is one, extras."""
        kind = PROBLEMS[self.code]
        document: dict[str, Any] = {
            "type": TYPE_BASE + self.code,
            "title": kind.title,
            "status": kind.status,
            "detail": self.detail or kind.title,
            "code": self.code,
        }
        if self.operation is not None:
            document["operation"] = self.operation
        document.update(self.extra)
        return json.dumps(document, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")


def table() -> str:
    """Return the table of codes as the documentation prints it."""
    lines = ["| code | status | meaning | safe to retry | new key safe |", "|---|---|---|---|---|"]
    lines += [
        f"| `{code}` | {kind.status} | {kind.title} | {'yes' if kind.retry else 'no'} | {'yes' if kind.new_key else 'no'} |"
        for code, kind in PROBLEMS.items()
    ]
    return "\n".join(lines)

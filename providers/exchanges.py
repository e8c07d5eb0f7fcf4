"""Exchanges: the request and answer of a call as they may be kept. No credential, no signed link, a bounded body (D6)."""

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Final, Literal
from urllib.parse import urlsplit

from providers.answers import redact, sanitise
from schemas.http import AnsweredOutcome, Exchange, HttpRequest, MaybeOutcome, NotSentOutcome, Outcome
from schemas.operation import Micros

_REMOVED: Final = b"[removed]"  # safe inside a JSON text
_MIN_SECRET: Final = 8  # characters; a shorter one would be found in innocent words
KEPT_BODY: Final = 16_384  # bytes of an answer that an exchange keeps
_REQUEST_IDS: Final = (
    "request-id", "x-request-id", "x-amzn-requestid", "x-amz-request-id", "x-ms-request-id",
    "x-github-request-id", "x-goog-request-id", "x-correlation-id", "cf-ray",
)  # fmt: skip


def record(request: HttpRequest, outcome: Outcome, *, id: str, errand: str, started_at: Micros, finished_at: Micros) -> Exchange:  # noqa: A002 - the field's own name
    """Return the exchange of one call, fit to be kept: no credential, no URL query, the body's first 16 KiB redacted (D6)."""
    kind: Literal["answered", "not_sent", "maybe"]
    code: int | None = None
    error = provider_request_id = digest = ""
    body = b""
    match outcome:
        case AnsweredOutcome(status=code):
            kind = "answered"
            provider_request_id = next((text for name in _REQUEST_IDS if (text := sanitise(outcome.header(name), 200))), "")
            digest = hashlib.sha256(outcome.body).hexdigest()
            body = _kept(outcome.body)
        case MaybeOutcome(status=code):
            kind, error = "maybe", _spoken(outcome)
        case NotSentOutcome():
            kind, error = "not_sent", _spoken(outcome)
    return Exchange(
        id=id,
        errand=errand,
        method=request.method,
        url=_shown_url(request.url),
        started_at=started_at,
        finished_at=finished_at,
        outcome=kind,
        status=code,
        error=error,
        provider_request_id=provider_request_id,
        response_digest=digest,
        response_body=body,
    )


def without(outcome: Outcome, secrets: Iterable[str]) -> Outcome:
    """Return an outcome whose answer does not repeat a credential that was sent: some providers quote it in their refusals (H4).

    Nothing of what is derived from the answer (error, history, exchange, stored result) can have it then.
    """
    if not isinstance(outcome, AnsweredOutcome):
        return outcome
    for secret in secrets:
        plain = secret.encode("utf-8", "surrogateescape")
        if len(plain) < _MIN_SECRET:
            continue
        if plain in outcome.body:
            outcome = replace(outcome, body=outcome.body.replace(plain, _REMOVED))
        if any(secret in value for _, value in outcome.headers):
            headers = tuple((name, value.replace(secret, _REMOVED.decode())) for name, value in outcome.headers)
            outcome = replace(outcome, headers=headers)
    return outcome


def _spoken(outcome: MaybeOutcome | NotSentOutcome) -> str:
    return sanitise(f"{outcome.error}: {outcome.detail}" if outcome.detail else outcome.error)


def _kept(body: bytes) -> bytes:
    # Redacted before it is cut, with some room, so that no secret is halved at the end and kept.
    text = redact(body[: KEPT_BODY + 4_096].decode("utf-8", "replace"))
    return text.encode("utf-8")[:KEPT_BODY]


def _shown_url(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return sanitise(url.partition("?")[0].partition("#")[0])
    return sanitise(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}", 2_000)

"""The escalation bundle: everything on record about one operation, fit to be handed on (MISSION E4, D6, D7).

No credential, signature or secret stands in the record's own rows; requests and result files are not part of it. It has no
time of its making, so that two bundles of an unchanged record are equal, byte for byte.
"""

from collections.abc import Mapping
from typing import Any, Final

from gateway import view
from gateway.call import Answer, Call
from gateway.operations import identity, not_found
from ledger.bundle import Gathered, gather
from providers.answers import redact
from schemas.settings import RetentionSettings

FORMAT: Final = "gateway-bundle-1"
RESPONSE_START: Final = 2_048  # characters of an answer
HOW: Final = (
    "Take the rows of proof.chain in order of seq; previous of the first one is the hash before it (empty before seq 1).",
    "hash = SHA-256 over these parts: the ASCII text gateway-history-1; previous as raw bytes; operation.id; seq; at;",
    "of the history row with the same seq: actor, from_state (null is the empty text), to_state, cause, cause_id, code;",
    "then changes, and text_sha256 as raw bytes.",
    "Before every part but the first stands its length in bytes as four bytes, big-endian. Numbers are decimal text; text is UTF-8.",
    "Each hash is the next row's previous, and the last one is proof.head. gateway audit verify checks the same in the database.",
)


async def bundle(call: Call) -> Answer:
    """GET …/bundle: the escalation bundle of one of this owner's operations."""
    gathered: Gathered | None = await call.gate.ledger.read(gather, identity(call), call.principal.owner)
    if gathered is None:
        raise not_found()
    name = f'attachment; filename="{gathered.operation.id}.json"'
    return Answer(content=document(gathered, call.gate.settings.retention), headers=(("Content-Disposition", name),))


def document(gathered: Gathered, retention: RetentionSettings) -> dict[str, Any]:
    """Return the bundle as a JSON object (`schemas.api_bundle.BundleView`)."""
    op = gathered.operation
    parts = {
        "history": [view.history_row(row) for row in gathered.history],
        "attempts": [_attempt(row) for row in gathered.attempts],
        "exchanges": [_exchange(row) for row in gathered.exchanges],
        "observations": [_observation(row) for row in gathered.observations],
        "deliveries": [_delivery(row) for row in gathered.deliveries],
        "artifacts": [_artifact(row) for row in gathered.artifacts],
    }
    request_ids = [row["provider_request_id"] for row in gathered.exchanges if row["provider_request_id"]]
    return {
        "format": FORMAT,
        "operation": view.operation(op, retention),
        "account": {
            "provider": op.provider,
            "origin": op.origin,
            "contract_digest": op.contract_digest,
            "action": op.action,
            "mode": op.mode,
            "remote_job_id": op.remote_job_id,
            "idempotency_token": op.idempotency_token,
            "trace_id": op.trace_id,
            "request_ids": list(dict.fromkeys(request_ids)),
        },
        **parts,
        "omitted": {name: left for name, rows in parts.items() if (left := gathered.totals[name] - len(rows)) > 0},
        "proof": {
            "head": op.history_hash.hex(),
            "seq": op.history_seq,
            "how": list(HOW),
            "chain": [_link(row) for row in gathered.history],
        },
    }


def _link(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "seq": row["seq"],
        "at": row["at"],
        "changes": row["changes_text"],
        "text_sha256": row["text_hash"].hex(),
        "previous": row["prev_hash"].hex(),
        "hash": row["hash"].hex(),
    }


def _attempt(row: Mapping[str, Any]) -> dict[str, Any]:
    shown = {name: row[name] for name in ("id", "errand", "number", "worker", "outcome", "error")}
    return {**shown, **{name: view.time_text(row[name]) for name in ("opened_at", "sent_before", "closed_at")}}


def _exchange(row: Mapping[str, Any]) -> dict[str, Any]:
    shown = {name: row[name] for name in ("id", "errand", "attempt", "method", "url", "outcome", "status", "error")}
    body = row["response_body"]
    return {
        **shown,
        "started_at": view.time_text(row["started_at"]),
        "finished_at": view.time_text(row["finished_at"]),
        "request_id": row["provider_request_id"],
        "response_sha256": row["response_digest"],
        "response_start": None if body is None else redact(body.decode("utf-8", "replace"))[:RESPONSE_START],
    }


def _observation(row: Mapping[str, Any]) -> dict[str, Any]:
    shown = {name: row[name] for name in ("number", "reading", "remote_state", "progress", "count")}
    return {**shown, **{name: view.time_text(row[name]) for name in ("provider_time", "first_at", "last_at")}}


def _delivery(row: Mapping[str, Any]) -> dict[str, Any]:
    shown = {name: row[name] for name in ("id", "event_id", "event_type", "claimed_state", "status", "standing", "duplicates")}
    return {**shown, **{name: view.time_text(row[name]) for name in ("received_at", "provider_time")}}


def _artifact(row: Mapping[str, Any]) -> dict[str, Any]:
    shown = {name: row[name] for name in ("id", "role", "media_type", "bytes", "sha256")}
    return {**shown, "created_at": view.time_text(row["created_at"])}

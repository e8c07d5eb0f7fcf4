"""History rows: append-only, hash-chained per operation from the first row (MISSION D4-D6).

A row's hash is SHA-256 over the version, the previous hash and every field in fixed order, each with its length in
front. A person's or provider's words are not in the chain: it holds SHA-256(salt || text), so that the words can be
erased and the chain still verifies.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from ledger.rows import history_text_row
from ledger.vault import Vault
from schemas.decision import Step
from schemas.operation import Micros

_VERSION = b"gateway-history-1"
_ORDER = ("operation", "seq", "at", "actor", "from_state", "to_state", "cause", "cause_id", "code", "changes", "text_hash")
_MAX_TEXT = 4000
MAX_ACTOR = MAX_CAUSE = 200


def link(row: Mapping[str, Any], prev_hash: bytes) -> bytes:
    """Return the hash of `row` (columns of `history`) after `prev_hash`."""
    digest = hashlib.sha256(_VERSION)
    digest.update(len(prev_hash).to_bytes(4, "big"))
    digest.update(prev_hash)
    for name in _ORDER:
        value = row[name]
        data = value if isinstance(value, bytes) else str(value).encode()
        digest.update(len(data).to_bytes(4, "big"))
        digest.update(data)
    return digest.digest()


def text_hash(salt: bytes, text: str) -> bytes:
    """Return what the chain keeps of a text."""
    return hashlib.sha256(salt + text.encode()).digest()


def write_changes(changes: Mapping[str, Any]) -> bytes:
    """Return changed folded fields as compact JSON with sorted keys."""
    plain = {name: str(value) if isinstance(value, StrEnum) else value for name, value in changes.items()}
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def read_changes(data: bytes) -> dict[str, Any]:
    """Return what `write_changes` wrote."""
    value = json.loads(data)
    assert isinstance(value, dict)
    return value


def make_row(
    operation: str, seq: int, step: Step, *, from_state: str, prev_hash: bytes, at: Micros, actor: str, vault: Vault
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return one row of `history`, and one of `history_texts` where the step has a text."""
    row: dict[str, Any] = {
        "operation": operation,
        "seq": seq,
        "at": at,
        "actor": actor[:MAX_ACTOR],
        "from_state": from_state,
        "to_state": str(step.to),
        "cause": str(step.cause),
        "cause_id": step.cause_id[:MAX_CAUSE],
        "code": step.code[:100],
        "changes": write_changes(step.changes),
        "text_hash": b"",
        "prev_hash": prev_hash,
    }
    words = None
    if step.text:
        text = step.text[:_MAX_TEXT]
        salt = os.urandom(16)
        row["text_hash"] = text_hash(salt, text)
        sealed = vault.seal("history_texts", "text", history_text_row(operation, seq), text.encode())
        words = {"operation": operation, "seq": seq, "salt": salt, "text": sealed}
    row["hash"] = link(row, prev_hash)
    return row, words


def fold_rows(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the folded fields that `rows` of one operation, in order, amount to (JSON values)."""
    folded: dict[str, Any] = {}
    for row in rows:
        folded.update(read_changes(row["changes"]))
        folded["state"] = row["to_state"]
    return folded

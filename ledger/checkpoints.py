"""Checkpoints: signed heads of histories, chained among themselves, so that a history cannot be cut off unseen (MISSION D5).

A checkpoint signs (Ed25519) the heads (operation, seq, hash) of what has changed since the one before it. Whoever keeps its
digest, or an export, elsewhere can prove later that a history was shortened, rewritten or removed with its record: the key
that signs is sealed in the record, and a rewriter who holds it cannot change what lies elsewhere.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import sqlalchemy as sa
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from ledger.audit import Fault
from ledger.tables import ENDED, LIVE, history, operations
from ledger.tables_upkeep import checkpoint_heads, checkpoints, signing_keys, upkeep
from ledger.transaction import Transaction, View
from schemas.operation import Micros
from schemas.upkeep import Checkpoint, Checkpointed

MOST: Final = 10_000  # heads of one checkpoint: its transaction stays short, the next one goes on
_VERSION: Final = b"gateway-checkpoint-1"
_PROGRESS: Final = "checkpoint"
_c = checkpoints.c

Head = tuple[str, int, bytes]


def checkpoint(tx: Transaction, commands: Sequence[Checkpoint]) -> list[Checkpointed]:
    """Sign what has changed since the last checkpoint, `MOST` operations that are over and all others."""
    return [_checkpoint(tx, command) for command in commands]


def _checkpoint(tx: Transaction, command: Checkpoint) -> Checkpointed:
    if tx.postgres:
        tx.connection.execute(sa.text("SELECT pg_advisory_xact_lock(hashtextextended('gateway.checkpoint', 0))"))
    identity, key = _signing_key(tx, command.now)
    last = tx.connection.execute(sa.select(checkpoints).order_by(_c.number.desc()).limit(1)).one_or_none()
    heads, more = _changed(tx, command.now)
    number, previous = (1, b"") if last is None else (last.number + 1, last.digest)
    public = key.public_key().public_bytes_raw()
    row: dict[str, Any] = {
        "number": number,
        "at": command.now,
        "operations": len(heads),
        "heads": heads_digest(heads),
        "previous": previous,
        "public": public,
    }
    row["digest"] = digest(row)
    row["signature"] = key.sign(row["digest"])
    if heads or last is None:
        tx.connection.execute(sa.insert(checkpoints), row)
        rows = [{"checkpoint": number, "operation": operation, "seq": seq, "hash": value} for operation, seq, value in heads]
        if rows:
            tx.connection.execute(sa.insert(checkpoint_heads), rows)
    else:
        row = last._asdict()
    assert identity, "a key has an id"
    return Checkpointed(number=row["number"], operations=len(heads), digest=row["digest"], public=row["public"], more=more)


def _signing_key(tx: Transaction, now: Micros) -> tuple[str, Ed25519PrivateKey]:
    """Return the key that signs; the first checkpoint makes it."""
    row = tx.connection.execute(sa.select(signing_keys).order_by(signing_keys.c.created_at.desc()).limit(1)).one_or_none()
    if row is not None:
        private = tx.vault.unseal("signing_keys", "private", row.id, row.private)
        return row.id, Ed25519PrivateKey.from_private_bytes(private)
    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes_raw()
    identity = f"sig_{public.hex()[:32]}"
    sealed = tx.vault.seal("signing_keys", "private", identity, key.private_bytes_raw())
    tx.connection.execute(sa.insert(signing_keys), {"id": identity, "public": public, "private": sealed, "created_at": now})
    return identity, key


def _changed(tx: Transaction, now: Micros) -> tuple[list[Head], bool]:
    """Return the heads of operations that ended behind the cursor, or, where those are done, of all that live and have moved."""
    o, h = operations.c, checkpoint_heads.c
    at, after = tx.connection.execute(
        sa.select(upkeep.c.cursor_at, upkeep.c.cursor_id).where(upkeep.c.name == _PROGRESS)
    ).one_or_none() or (0, "")
    query = sa.select(o.id, o.history_seq, o.history_hash, o.updated_at).where(
        sa.text(ENDED), sa.tuple_(o.updated_at, o.id) > sa.tuple_(sa.literal(at), sa.literal(after))
    )
    ended = tx.connection.execute(query.order_by(o.updated_at, o.id).limit(MOST)).all()
    rows = [(row.id, row.history_seq, row.history_hash) for row in ended]
    if ended:
        values = {"cursor_at": ended[-1].updated_at, "cursor_id": ended[-1].id, "updated_at": now}
        if tx.connection.execute(sa.update(upkeep).where(upkeep.c.name == _PROGRESS).values(values)).rowcount == 0:
            tx.connection.execute(sa.insert(upkeep), {"name": _PROGRESS, "done": 0, **values})
    if len(ended) < MOST:
        signed = sa.exists().where(h.operation == o.id, h.seq == o.history_seq)
        live = sa.select(o.id, o.history_seq, o.history_hash).where(sa.text(LIVE), ~signed).order_by(o.id)
        rows += [(row.id, row.history_seq, row.history_hash) for row in tx.connection.execute(live)]
    return sorted(set(rows)), len(ended) == MOST


def heads_digest(heads: Iterable[Head]) -> bytes:
    """Return the digest of heads in the order of their operations."""
    made = hashlib.sha256(_VERSION)
    for operation, seq, value in heads:
        for part in (operation.encode(), str(seq).encode(), value):
            made.update(len(part).to_bytes(4, "big") + part)
    return made.digest()


def digest(row: Any) -> bytes:
    """Return what a checkpoint signs: all of it, in fixed order, each part with its length in front."""
    made = hashlib.sha256(_VERSION)
    for name in ("number", "at", "operations", "heads", "previous", "public"):
        value = row[name] if isinstance(row[name], bytes) else str(row[name]).encode()
        made.update(len(value).to_bytes(4, "big") + value)
    return made.digest()


def signed_faults(row: Any, before: Any | None, heads: Iterable[Head], public: bytes | None) -> Iterator[str]:
    """Yield what is wrong with a checkpoint by itself: its place in the chain, its heads, its signature. `public`: the trusted key."""
    expected, previous = (1, b"") if before is None else (before["number"] + 1, before["digest"])
    if row["number"] != expected or row["previous"] != previous:
        yield f"the checkpoint before {row['number']} is missing or another one"
    if public is not None and row["public"] != public:
        yield f"checkpoint {row['number']} is signed with another key"
    if row["heads"] != heads_digest(heads) or row["digest"] != digest(row):
        yield f"checkpoint {row['number']} was changed"
        return
    try:
        Ed25519PublicKey.from_public_bytes(row["public"]).verify(row["signature"], row["digest"])
    except (InvalidSignature, ValueError):
        yield f"checkpoint {row['number']} has a signature that does not verify"


def heads_of(view: View, number: int) -> list[Head]:
    """Return the heads that a checkpoint signs."""
    h = checkpoint_heads.c
    query = sa.select(h.operation, h.seq, h.hash).where(h.checkpoint == number).order_by(h.operation)
    return [(row.operation, row.seq, row.hash) for row in view.connection.execute(query)]


def rows_of(view: View, after: int = 0, limit: int = 100) -> list[dict[str, Any]]:
    """Return checkpoints behind a number, in order."""
    query = sa.select(checkpoints).where(_c.number > after).order_by(_c.number).limit(limit)
    return [dict(row) for row in view.connection.execute(query).mappings()]


def verify_checkpoint(view: View, row: dict[str, Any], before: dict[str, Any] | None, public: bytes | None) -> list[Fault]:
    """Verify a checkpoint, and that every head that it signs still stands in the history."""
    heads = heads_of(view, row["number"])
    faults = [Fault(operation="", seq=0, fault=fault) for fault in signed_faults(row, before, heads, public)]
    h = checkpoint_heads.c
    stands = sa.exists().where(history.c.operation == h.operation, history.c.seq == h.seq, history.c.hash == h.hash)
    query = sa.select(h.operation, h.seq).where(h.checkpoint == row["number"], ~stands).order_by(h.operation).limit(100)
    for operation, seq in view.connection.execute(query):
        faults.append(Fault(operation=operation, seq=seq, fault=f"the row that checkpoint {row['number']} signed is gone or changed"))
    return faults

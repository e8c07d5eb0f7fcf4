"""Handshakes: audited, never events, with what they owe (MISSION B9)."""

from collections.abc import Sequence

import sqlalchemy as sa

from ledger.secrets import add_secrets, revoked
from ledger.tables_receiving import handshakes, secrets
from ledger.transaction import Transaction
from schemas.receiving import HandshakeNoted, NoteHandshake

KEPT = 1_000
"""Rows of one provider that are kept: some handshakes come before any signature, from whoever likes."""


def note_handshakes(tx: Transaction, commands: Sequence[NoteHandshake]) -> list[HandshakeNoted]:
    """Write a row for each; a secret that was handed over is stored only where the account has none (never replaced)."""
    ended = revoked(tx, [command.secret_id for command in commands], max(command.now for command in commands))
    answers: dict[int, HandshakeNoted] = {}
    ordered = sorted(commands, key=lambda item: item.provider)
    if tx.postgres and any(command.captured is not None for command in ordered):
        # Two processes must not both find the account without a secret.
        tx.connection.execute(sa.text("SELECT pg_advisory_xact_lock(hashtextextended('gateway.capture', 0))"))
    for command in ordered:
        if command.secret_id in ended:
            answers[id(command)] = "revoked"
        elif command.captured is not None and not _captured(tx, command):
            answers[id(command)] = "not_captured"
        else:
            _write(tx, command)
            answers[id(command)] = "noted"
    for provider in sorted({command.provider for command in commands}):
        _forget(tx, provider)
    return [answers[id(command)] for command in commands]


def _captured(tx: Transaction, command: NoteHandshake) -> bool:
    assert command.captured is not None
    c = secrets.c
    held = sa.select(c.id).where(c.provider == command.provider, c.purpose == "webhook", c.revoked_at.is_(None)).limit(1)
    if tx.connection.execute(held).one_or_none() is not None:
        return False
    return add_secrets(tx, [command.captured])[0] is not None


def _write(tx: Transaction, command: NoteHandshake) -> None:
    answer = command.answer
    url = tx.vault.seal("handshakes", "fetch_url", command.id, answer.fetch_url.encode()) if answer.fetch_url else None
    row = {
        "id": command.id,
        "provider": command.provider,
        "kind": answer.kind,
        "at": command.now,
        "accepted": answer.accepted,
        "reason": answer.reason[:200],
        "fetch_url": url,
        "due_at": None if url is None else command.now,
        "tries": 0,
        "outcome": "",
    }
    tx.connection.execute(handshakes.insert(), row)


def _forget(tx: Transaction, provider: str) -> None:
    c = handshakes.c
    old = sa.select(c.id).where(c.provider == provider).order_by(c.at.desc(), c.id.desc()).offset(KEPT).limit(KEPT)
    tx.connection.execute(sa.delete(handshakes).where(c.id.in_(old.scalar_subquery()), c.due_at.is_(None)))

"""Stored secrets: sealed, ended by time or by revocation, and which of them matched (MISSION B11)."""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa
import structlog
from sqlalchemy.dialects import postgresql, sqlite

from ledger.errors import VaultError
from ledger.tables_receiving import secret_uses, secrets
from ledger.transaction import RECEIVING, Transaction, View
from schemas.delivery import Delivery
from schemas.operation import Micros
from schemas.receiving import AddSecret, EndSecret, SecretUse, StoredSecret

_log = structlog.get_logger("ledger")
MAX_SECRETS = 1_000
"""Stored secrets that are read; far more than a hundred providers' rotations leave."""
_REFERENCED = ":"
"""In the id of whatever is not stored: references of the configuration (`env:…`) and published keys (`kid:…`)."""


def add_secrets(tx: Transaction, commands: Sequence[AddSecret]) -> list[str | None]:
    """Seal and store secrets; the first of a name wins, None for the others."""
    c = secrets.c
    insert = (postgresql.insert if tx.postgres else sqlite.insert)(secrets).on_conflict_do_nothing(index_elements=[c.name])
    answers: dict[int, str | None] = {}
    for command in sorted(commands, key=lambda item: item.name):  # one lock order everywhere
        row = {
            "id": command.id,
            "name": command.name,
            "provider": command.provider,
            "purpose": command.purpose,
            "value": tx.vault.seal("secrets", "value", command.id, command.value),
            "source": command.source,
            "created_at": command.now,
            "created_by": command.by,
            "not_before": command.not_before,
            "not_after": command.not_after,
        }
        stored = tx.connection.execute(insert.returning(c.id), row).scalar_one_or_none()
        answers[id(command)] = stored
        if stored is not None:
            tx.changed.add(RECEIVING)
    return [answers[id(command)] for command in commands]


def end_secrets(tx: Transaction, commands: Sequence[EndSecret]) -> list[str | None]:
    """Retire or revoke secrets by name. A revocation stays as it was first; an earlier end is never moved back."""
    c = secrets.c
    names = sorted({command.name for command in commands})
    query = sa.select(c.id, c.name, c.not_before, c.not_after, c.revoked_at).where(c.name.in_(names)).order_by(c.name)
    found = {row.name: dict(row._mapping) for row in tx.connection.execute(query.with_for_update())}  # noqa: SLF001 - SQLAlchemy's public name for it
    for command in commands:
        row = found.get(command.name)
        if row is None:
            continue
        if command.not_after is None:
            row["revoked_at"] = command.now if row["revoked_at"] is None else row["revoked_at"]
        else:
            row["not_after"] = command.not_after if row["not_after"] is None else min(row["not_after"], command.not_after)
            if row["not_before"] is not None and row["not_before"] >= row["not_after"]:
                row["not_before"] = None  # it ends before it would have begun
        values = {name: row[name] for name in ("not_before", "not_after", "revoked_at")}
        tx.connection.execute(sa.update(secrets).where(c.id == row["id"]).values(values))
        tx.changed.add(RECEIVING)
    return [found[command.name]["id"] if command.name in found else None for command in commands]


def revoked(tx: Transaction, ids: Iterable[str], now: Micros) -> frozenset[str]:
    """Return which of these secrets are stored and valid no more, whatever the asking process still believes."""
    stored = sorted({identity for identity in ids if identity and _REFERENCED not in identity})
    if not stored:
        return frozenset()
    c = secrets.c
    ended = c.revoked_at.is_not(None) | (c.not_after <= now)
    return frozenset(tx.connection.execute(sa.select(c.id).where(c.id.in_(stored), ended)).scalars())


def note_uses(tx: Transaction, deliveries: Iterable[Delivery]) -> None:
    """Record which secrets matched: at most one row for each of them in a batch, in one order everywhere."""
    rows: dict[tuple[str, str], dict[str, object]] = {}
    for delivery in deliveries:
        if not delivery.secret_id or delivery.parent:
            continue  # nothing signed it, or it is one more element of a request that was counted
        key = (delivery.provider, delivery.secret_id)
        at, before = delivery.received_at, rows.get(key)
        first, last, uses = (at, at, 0) if before is None else (before["first_used_at"], before["last_used_at"], before["uses"])
        assert isinstance(first, int)
        assert isinstance(last, int)
        assert isinstance(uses, int)
        rows[key] = {
            "provider": key[0],
            "secret_id": key[1],
            "first_used_at": min(first, at),
            "last_used_at": max(last, at),
            "uses": uses + 1,
        }
    if not rows:
        return
    tx.connection.execute(_count_uses(postgres=tx.postgres), [rows[key] for key in sorted(rows)])


@cache  # building a statement costs as much as running it
def _count_uses(*, postgres: bool) -> Any:
    insert = (postgresql.insert if postgres else sqlite.insert)(secret_uses)
    new, old = insert.excluded, secret_uses.c
    later = sa.case((new.last_used_at > old.last_used_at, new.last_used_at), else_=old.last_used_at)
    return insert.on_conflict_do_update(
        index_elements=[old.provider, old.secret_id], set_={"last_used_at": later, "uses": old.uses + new.uses}
    )


# --- queries


def stored_secrets(view: View, provider: str | None = None) -> list[StoredSecret]:
    """Return the newest stored secrets with their values, in the order of their making; ended ones too."""
    c = secrets.c
    query = sa.select(secrets).order_by(c.created_at.desc(), c.id.desc()).limit(MAX_SECRETS)
    if provider is not None:
        query = query.where(c.provider == provider)
    found = []
    for row in reversed(view.connection.execute(query).mappings().all()):
        try:
            found.append(StoredSecret(**{**row, "value": view.vault.unseal("secrets", "value", row["id"], row["value"])}))
        except VaultError as error:  # one that does not open is missing; the others verify
            _log.error("ledger.secret_unreadable", secret=row["id"], fault=str(error))
    return found


def uses(view: View, provider: str | None = None) -> list[SecretUse]:
    """Return which secrets have matched, and when."""
    c = secret_uses.c
    query = sa.select(secret_uses).order_by(c.provider, c.secret_id).limit(MAX_SECRETS)
    if provider is not None:
        query = query.where(c.provider == provider)
    return [SecretUse(**row) for row in view.connection.execute(query).mappings()]

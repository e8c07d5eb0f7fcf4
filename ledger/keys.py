"""API keys: only their hashes are kept, and a revoked one fails on the next request in every process."""

from collections.abc import Sequence

import sqlalchemy as sa

from ledger.tables import api_keys
from ledger.transaction import Transaction
from schemas.commands import AddKey, ApiKey, RevokeKey

_VALUES = ("id", "key_sha256", "owner", "subject")


def add_keys(tx: Transaction, commands: Sequence[AddKey]) -> list[ApiKey]:
    """Store keys. An id or a hash that exists already is an error of that command alone."""
    rows = [
        {
            **{name: getattr(command, name) for name in _VALUES},
            "scopes": " ".join(sorted(set(command.scopes))),
            "created_at": command.now,
        }
        for command in commands
    ]
    tx.connection.execute(api_keys.insert(), rows)
    return [
        ApiKey(
            id=command.id,
            owner=command.owner,
            subject=command.subject,
            scopes=tuple(sorted(set(command.scopes))),
            created_at=command.now,
            revoked_at=None,
        )
        for command in commands
    ]


def revoke_keys(tx: Transaction, commands: Sequence[RevokeKey]) -> list[bool]:
    """Revoke keys; the time of the first revocation stays. Answers False for an unknown id."""
    wanted = sorted({command.id for command in commands})
    query = sa.select(api_keys.c.id, api_keys.c.revoked_at).where(api_keys.c.id.in_(wanted)).order_by(api_keys.c.id)
    found = {row.id: row.revoked_at for row in tx.connection.execute(query.with_for_update())}
    times: dict[str, int] = {}
    for command in commands:
        if command.id in found and found[command.id] is None:
            times.setdefault(command.id, command.now)
    if times:
        update = api_keys.update().where(api_keys.c.id == sa.bindparam("key"), api_keys.c.revoked_at.is_(None))
        rows = [{"key": key, "at": at} for key, at in sorted(times.items())]
        tx.connection.execute(update.values(revoked_at=sa.bindparam("at")), rows)
    return [command.id in found for command in commands]

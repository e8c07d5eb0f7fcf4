"""Refused requests, kept sealed and few: so that people can see why, and strangers cannot fill the disk (MISSION B10, B12)."""

from typing import Any, Final

import sqlalchemy as sa

from ledger.tables_receiving import refusals
from ledger.transaction import Transaction
from schemas.commands import Quarantine
from schemas.delivery import Refusal

KEPT: Final = 50  # newest of one provider and one reason, so that a flood of one kind does not push out the others
BODY_BYTES: Final = 65_536
HEAD_BYTES: Final = 65_536


def quarantine(tx: Transaction, commands: list[Quarantine]) -> list[None]:
    """Insert the refusals and delete what is more than `KEPT` of its provider and reason, in the same transaction."""
    rows = [_row(tx, refusal) for command in commands for refusal in command.refusals]
    if rows:
        tx.connection.execute(_insert(postgres=tx.postgres), rows)
        _make_room(tx, sorted({row["provider"] for row in rows}))
    return [None] * len(commands)


def _make_room(tx: Transaction, providers: list[str]) -> None:
    c = refusals.c
    number = sa.func.row_number().over(partition_by=(c.provider, c.reason), order_by=(c.at.desc(), c.id.desc())).label("number")
    ranked = sa.select(c.id, number).where(c.provider.in_(providers)).subquery()
    tx.connection.execute(sa.delete(refusals).where(c.id.in_(sa.select(ranked.c.id).where(ranked.c.number > KEPT))))


def _row(tx: Transaction, refusal: Refusal) -> dict[str, Any]:
    headers = b"\r\n".join(name + b": " + value for name, value in refusal.headers)
    sealed = {"target": refusal.target, "headers": headers, "body": refusal.body or b""}
    fits = {"target": HEAD_BYTES, "headers": HEAD_BYTES, "body": BODY_BYTES}
    return {
        "id": refusal.id,
        "provider": refusal.provider,
        "at": refusal.at,
        "reason": refusal.reason,
        "detail": refusal.detail,
        "scheme_id": refusal.scheme_id,
        "method": refusal.method,
        "bytes": refusal.bytes,
        # An empty body is kept as sealed emptiness: NULL says that it was too large.
        **{
            name: None
            if len(plain) > fits[name] or (name == "body" and refusal.body is None)
            else tx.vault.seal("refusals", name, refusal.id, plain)
            for name, plain in sealed.items()
        },
    }


def _insert(*, postgres: bool) -> Any:
    """Return an insert that leaves a row with the same id as it is: the same command may come again after a lost answer."""
    if postgres:
        from sqlalchemy.dialects.postgresql import insert

        return insert(refusals).on_conflict_do_nothing()
    from sqlalchemy.dialects.sqlite import insert as sqlite_insert

    return sqlite_insert(refusals).on_conflict_do_nothing()

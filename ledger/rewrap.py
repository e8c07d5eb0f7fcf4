"""Sealing anew with the current master key, table by table, in windows of rows that may end anywhere (MISSION H4, H5).

Every sealed value names its key, so that a run that was killed finds what is left; nothing else is kept of it. A value that
somebody has written meanwhile is left as it is: what is replaced is compared.
"""

from collections.abc import Callable, Sequence
from typing import Final

import sqlalchemy as sa

from ledger.errors import VaultError
from ledger.rows import history_text_row
from ledger.schema import metadata
from ledger.transaction import Transaction
from schemas.upkeep import Rewrap, Rewrapped, Switch

SEALED: Final[dict[str, tuple[str, ...]]] = {
    "operations": ("remembered", "failed_refs", "request", "metadata", "error_message", "cancel_reason", "cancel_effect"),
    "history_texts": ("text",),
    "deliveries": ("headers", "body"),
    "delivery_conflicts": ("body",),
    "exchanges": ("response_body",),
    "secrets": ("value",),
    "key_documents": ("document",),
    "handshakes": ("fetch_url",),
    "refusals": ("target", "headers", "body"),
    "signing_keys": ("private",),
}
"""Every table with sealed columns."""
_NAMES: Final[dict[str, Callable[..., str]]] = {
    "history_texts": history_text_row,
    "delivery_conflicts": lambda delivery, _content: str(delivery),
    "key_documents": lambda provider, url: f"{provider}:{url}",
}
MAX_NAMED: Final = 20  # rows that do not open: the first ones are named


def switch(tx: Transaction, commands: Sequence[Switch]) -> list[str]:
    """Make the newest master key the one that seals. Answers its id."""
    return [tx.vault.switch(tx.connection) for _ in commands]


def rewrap(tx: Transaction, commands: Sequence[Rewrap]) -> list[Rewrapped]:
    """Seal one window for each command."""
    return [_rewrap(tx, command) for command in commands]


def _rewrap(tx: Transaction, command: Rewrap) -> Rewrapped:
    table = metadata.tables[command.place]
    names = SEALED[command.place]
    keys = list(table.primary_key.columns)
    head = tx.vault.head
    # What is sealed with the current key stays where it is: only its beginning is read.
    old = [
        sa.case((sa.func.substr(table.c[name], 1, len(head)) != sa.literal(head, sa.LargeBinary), table.c[name]), else_=None).label(name)
        for name in names
    ]
    query = sa.select(*keys, *old).order_by(*keys).limit(command.limit)
    if command.after:
        query = query.where(
            sa.tuple_(*keys) > sa.tuple_(*(sa.literal(value, key.type) for key, value in zip(keys, command.after, strict=True)))
        )
    rows = tx.connection.execute(query).all()
    sealed, unopened = 0, []
    for row in rows:
        place = row[: len(keys)]
        name = _NAMES.get(command.place, str)(*place)
        for column, value in zip(names, row[len(keys) :], strict=True):
            if value is None:
                continue
            try:
                plain = tx.vault.unseal(table.name, column, name, value)
            except VaultError:
                unopened.append(f"{table.name}.{column} of {name}")
                continue
            fresh = tx.vault.seal(table.name, column, name, plain)
            mine = [key == part for key, part in zip(keys, place, strict=True)]
            update = sa.update(table).where(*mine, table.c[column] == value).values({column: fresh})
            sealed += tx.connection.execute(update).rowcount
    after = tuple(rows[-1][: len(keys)]) if len(rows) == command.limit else None
    return Rewrapped(looked_at=len(rows), sealed=sealed, after=after, unopened=tuple(unopened[:MAX_NAMED]))

"""What may be asked of the inbox: refusals, and deliveries of a provider or status. Bounded; sealed columns come back opened."""

from collections.abc import Mapping
from typing import Any, Final

import sqlalchemy as sa

from ledger.queries import MAX_PAGE, Place
from ledger.tables import deliveries, delivery_conflicts, operations
from ledger.tables_receiving import refusals
from ledger.transaction import View
from schemas.operation import Micros

_SEALED: Final = ("target", "headers", "body")
_HEADS: Final = [column for column in refusals.c if column.name not in _SEALED]
_DELIVERY_HEADS: Final = [column for column in deliveries.c if column.name not in {"headers", "body"}]


def listed(view: View, *, status: str | None, provider: str | None, limit: int, after: Place | None = None) -> list[Mapping[str, Any]]:
    """Return a page of deliveries of a status and provider (None: any), the newest first, without headers and bodies."""
    c = deliveries.c
    query = sa.select(*_DELIVERY_HEADS).order_by(c.received_at.desc(), c.id.desc())
    if status is not None:
        query = query.where(c.status == status)
    if provider is not None:
        query = query.where(c.provider == provider)
    if after is not None:
        query = query.where(sa.tuple_(c.received_at, c.id) < sa.tuple_(*map(sa.literal, after)))
    return [dict(row) for row in view.connection.execute(query.limit(_bounded(limit))).mappings()]


def stored(view: View, delivery_id: str, owner: str | None) -> Mapping[str, Any] | None:
    """Return a delivery, opened, an element of an array with the headers and body of the whole (None: empty).

    With an `owner` only one that is attached to an operation of theirs.
    """
    c = deliveries.c
    query = sa.select(deliveries).where(c.id == delivery_id)
    if owner is not None:
        query = query.join(operations, operations.c.id == c.operation).where(operations.c.owner == owner)
    row = view.connection.execute(query).mappings().one_or_none()
    if row is None:
        return None
    found = dict(row)
    holder: Mapping[Any, Any] = row
    if row["parent"]:
        whole = view.connection.execute(sa.select(deliveries).where(c.id == row["parent"])).mappings().one_or_none()
        # Of what nobody signed only the newest are kept: the whole may be gone before its last element.
        holder = whole if whole is not None else {"id": "", "headers": None, "body": None}
    for column in ("headers", "body"):
        sealed = holder[column]
        found[column] = None if sealed is None else view.vault.unseal("deliveries", column, holder["id"], sealed)
    return found


def refused(view: View, *, provider: str | None, limit: int, after: Place | None = None) -> list[Mapping[str, Any]]:
    """Return a page of kept refusals, the newest first, without what is sealed."""
    c = refusals.c
    query = sa.select(*_HEADS).order_by(c.at.desc(), c.id.desc())
    if provider is not None:
        query = query.where(c.provider == provider)
    if after is not None:
        query = query.where(sa.tuple_(c.at, c.id) < sa.tuple_(*map(sa.literal, after)))
    return [dict(row) for row in view.connection.execute(query.limit(_bounded(limit))).mappings()]


def refusal(view: View, refusal_id: str) -> Mapping[str, Any] | None:
    """Return a kept refusal, opened (bytes as received; None: too large to be kept)."""
    row = view.connection.execute(sa.select(refusals).where(refusals.c.id == refusal_id)).mappings().one_or_none()
    if row is None:
        return None
    opened = dict(row)
    for column in _SEALED:
        if opened[column] is not None:
            opened[column] = view.vault.unseal("refusals", column, refusal_id, opened[column])
    return opened


def refusals_since(view: View, since: Micros) -> dict[str, dict[str, int]]:
    """Return provider -> reason -> how many refusals since then are kept. A full shelf means: at least so many.

    `stale` are genuine deliveries outside their time window: refused too, and kept as deliveries.
    """
    c = refusals.c
    counted = sa.select(c.provider, c.reason, sa.func.count()).where(c.at >= since).group_by(c.provider, c.reason)
    found: dict[str, dict[str, int]] = {}
    for provider, reason, count in view.connection.execute(counted.order_by(c.provider, c.reason).limit(MAX_PAGE)):
        found.setdefault(provider, {})[reason] = count
    d = deliveries.c
    stale = sa.select(d.provider, sa.func.count()).where(d.received_at >= since, d.standing == "stale").group_by(d.provider)
    for provider, count in view.connection.execute(stale.order_by(d.provider).limit(MAX_PAGE)):
        found.setdefault(provider, {})["stale"] = count
    return found


def conflicts_since(view: View, since: Micros) -> dict[str, int]:
    """Return provider -> how many contents have come since then under an event id that was known with another one.

    A walk over all conflicts, for an operator's commands: they are few, or the alarm has rung.
    """
    c, d = delivery_conflicts.c, deliveries.c
    counted = sa.select(d.provider, sa.func.count()).join(delivery_conflicts, c.delivery == d.id).where(c.received_at >= since)
    rows = view.connection.execute(counted.group_by(d.provider).order_by(d.provider).limit(MAX_PAGE))
    return {row[0]: row[1] for row in rows}


def _bounded(limit: int) -> int:
    return max(0, min(limit, MAX_PAGE))

"""What may be asked of the record: every query is `f(view, …)`, bounded, and answers values.

`owner` None means any owner: only the command line and duties of the house ask so. Rows that are not operations are
mappings by column name; sealed columns come back opened.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from ledger import tables
from ledger.errors import LedgerError
from ledger.rows import from_row, history_text_row
from ledger.tables import history_texts, idempotency_keys
from ledger.tables_upkeep import tombstones
from ledger.transaction import View
from schemas.commands import ApiKey
from schemas.operation import Micros, Operation
from schemas.states import State

MAX_PAGE: Final = 1_000  # rows of one answer: a longer one is asked for page by page, each in a transaction of its own
ROUTE: Final = "operations"  # of the keys
UNREADABLE: Final = "[these words cannot be read]"
_op = tables.operations.c
_BY_ID: Final = sa.select(tables.operations).where(_op.id == sa.bindparam("id"))
_BY_ID_AND_OWNER: Final = _BY_ID.where(_op.owner == sa.bindparam("owner"))
_KEY: Final = sa.select(tables.api_keys).where(
    tables.api_keys.c.key_sha256 == sa.bindparam("sha256"), tables.api_keys.c.revoked_at.is_(None)
)
_DELIVERY_HEADS: Final = [column for column in tables.deliveries.c if column.name not in {"headers", "body"}]

Place = tuple[Micros, str]
"""A place in a list in order of time: (time, id) of the last row seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationFilter:
    """Which operations. None: any. `created_after` is included, `created_before` is not."""

    owner: str | None
    states: frozenset[State] | None = None
    provider: str | None = None
    reference: str | None = None
    idempotency_key: str | None = None
    remote_job_id: str | None = None
    created_after: Micros | None = None
    created_before: Micros | None = None


# --- operations


def operation(view: View, operation_id: str, owner: str | None) -> Operation | None:
    """Return the operation, or None: not there, or another owner's."""
    if owner is None:
        row = view.connection.execute(_BY_ID, {"id": operation_id}).one_or_none()
    else:
        row = view.connection.execute(_BY_ID_AND_OWNER, {"id": operation_id, "owner": owner}).one_or_none()
    return None if row is None else from_row(row, view.vault)


def tombstone(view: View, operation_id: str, owner: str) -> Mapping[str, Any] | None:
    """Return what stays of an owner's operation whose record has expired: how and when it ended, when it was removed (F6)."""
    c = tombstones.c
    row = view.connection.execute(sa.select(tombstones).where(c.operation == operation_id, c.owner == owner)).mappings().one_or_none()
    return None if row is None else dict(row)


def operation_by_key(view: View, owner: str, route: str, key: str) -> Operation | None:
    """Return the operation that an owner's idempotency key stands for on a route."""
    c = idempotency_keys.c
    query = sa.select(tables.operations).join(idempotency_keys, c.operation == _op.id)
    row = view.connection.execute(query.where(c.owner == owner, c.route == route, c.key == key)).one_or_none()
    return None if row is None else from_row(row, view.vault)


class Found(list[Operation]):
    """A page of operations. `unreadable`: rows that stand among them and cannot be read, named (never a silent gap)."""

    def __init__(self) -> None:
        super().__init__()
        self.unreadable: list[str] = []


def _found(view: View, query: sa.Select[Any], limit: int, after: Callable[[Place], Any], order: tuple[Any, ...]) -> Found:
    """Return up to `limit` operations that can be read; those that cannot take no place of them."""
    found, most = Found(), _bounded(limit)
    place: Place | None = None
    while len(found) < most and len(found.unreadable) <= MAX_PAGE:
        wanted = most - len(found)
        more = query if place is None else query.where(after(place))
        rows = view.connection.execute(more.order_by(*order).limit(wanted)).all()
        for row in rows:
            try:
                found.append(from_row(row, view.vault))
            except LedgerError:
                found.unreadable.append(row.id)
        if len(rows) < wanted:
            break
        place = (rows[-1].created_at, rows[-1].id)
    return found


def operations(view: View, wanted: OperationFilter, limit: int, after: Place | None = None) -> Found:
    """Return a page of operations, the newest first, beginning behind `after`."""
    query = sa.select(tables.operations).where(*_conditions(wanted))
    if after is not None:
        query = query.where(_older(after))
    return _found(view, query, limit, _older, (_op.created_at.desc(), _op.id.desc()))


def _older(place: Place) -> sa.ColumnElement[bool]:
    return sa.tuple_(_op.created_at, _op.id) < sa.tuple_(*map(sa.literal, place))


def _younger(place: Place) -> sa.ColumnElement[bool]:
    return sa.tuple_(_op.created_at, _op.id) > sa.tuple_(*map(sa.literal, place))


def _conditions(wanted: OperationFilter) -> Iterable[sa.ColumnElement[bool]]:
    if wanted.idempotency_key is not None:
        c = idempotency_keys.c
        mine = sa.select(c.operation).where(c.route == ROUTE, c.key == wanted.idempotency_key)
        yield _op.id.in_(mine if wanted.owner is None else mine.where(c.owner == wanted.owner))  # on its index
    for name in ("owner", "provider", "reference", "remote_job_id"):
        value = getattr(wanted, name)
        if value is not None:
            yield _op[name] == value
    if wanted.states is not None:
        yield _op.state.in_(sorted(str(state) for state in wanted.states))
    if wanted.created_after is not None:
        yield _op.created_at >= wanted.created_after
    if wanted.created_before is not None:
        yield _op.created_at < wanted.created_before


def questions(view: View, owner: str | None, limit: int, after: Place | None = None) -> Found:
    """Return operations with an open question (parked, awaiting approval, or an incident), the oldest first."""
    query = sa.select(tables.operations).where(_op.question_id.is_not(None))
    if owner is not None:
        query = query.where(_op.owner == owner)
    if after is not None:
        query = query.where(_younger(after))
    return _found(view, query, limit, _younger, (_op.created_at, _op.id))


def counts_by_state(view: View, owner: str | None = None) -> dict[State, int]:
    """Return how many operations are in each state; states without one are absent."""
    query = sa.select(_op.state, sa.func.count()).group_by(_op.state)
    if owner is not None:
        query = query.where(_op.owner == owner)
    return {State(state): count for state, count in view.connection.execute(query)}


def live_providers(view: View) -> list[str]:
    """Return the names of providers that have operations which are not final."""
    return list(view.connection.execute(sa.select(_op.provider).where(sa.text(tables.LIVE)).distinct().order_by(_op.provider)).scalars())


def live_counts(view: View) -> dict[tuple[str, State], int]:
    """Return how many operations that are not final each provider has in each state. A walk of the index of what lives."""
    query = sa.select(_op.provider, _op.state, sa.func.count()).where(sa.text(tables.LIVE)).group_by(_op.provider, _op.state)
    return {(provider, State(state)): count for provider, state, count in view.connection.execute(query)}


# --- what belongs to one operation


def history(view: View, operation_id: str, after_seq: int = 0, limit: int = 100) -> list[Mapping[str, Any]]:
    """Return history rows behind `after_seq`, in their order (B130).

    `changes` is parsed; `text` is the person's or provider's words, None where there were none; `erased` says that
    there were some and they have been erased.
    """
    h, t = tables.history.c, history_texts.c
    joined = tables.history.outerjoin(history_texts, sa.and_(t.operation == h.operation, t.seq == h.seq))
    query = sa.select(tables.history, t.salt, t.text).select_from(joined).where(h.operation == operation_id, h.seq > after_seq)
    rows: list[Mapping[str, Any]] = []
    for found in view.connection.execute(query.order_by(h.seq).limit(_bounded(limit))).mappings():
        row = dict(found)
        row["changes"] = json.loads(row["changes"])
        sealed = row["text"]
        row["erased"] = sealed is None and row["text_hash"] != b""
        if sealed is not None:
            row["text"] = _text(view, history_text_row(operation_id, row["seq"]), sealed)
        rows.append(row)
    return rows


def _text(view: View, place: str, sealed: bytes) -> str:
    """Return the words of a history row; where they do not open, that: the history goes on."""
    try:
        return view.vault.unseal("history_texts", "text", place, sealed).decode()
    except (LedgerError, UnicodeDecodeError):
        return UNREADABLE


def artifact(view: View, operation_id: str, role: str = "output") -> Mapping[str, Any] | None:
    """Return the newest artifact of a role."""
    c = tables.artifacts.c
    query = sa.select(tables.artifacts).where(c.operation == operation_id, c.role == role)
    row = view.connection.execute(query.order_by(c.created_at.desc(), c.id.desc()).limit(1)).mappings().one_or_none()
    return None if row is None else dict(row)


def artifacts(view: View, operation_id: str, limit: int = 100) -> list[Mapping[str, Any]]:
    """Return the artifacts of an operation, the oldest first."""
    c = tables.artifacts.c
    return _rows(view, sa.select(tables.artifacts).where(c.operation == operation_id).order_by(c.created_at, c.id), limit)


def known_artifacts(view: View, ids: Sequence[str]) -> set[str]:
    """Return which of these (at most MAX_PAGE) artifacts belong to an operation that still keeps their files."""
    c = tables.artifacts.c
    return set(view.connection.execute(sa.select(c.id).where(c.id.in_(ids[:MAX_PAGE]), c.removed_at.is_(None))).scalars())


def exchanges(view: View, operation_id: str, limit: int = 100) -> list[Mapping[str, Any]]:
    """Return the newest recorded calls of an operation, the newest first, each with the kept part of its answer."""
    c = tables.exchanges.c
    query = sa.select(tables.exchanges).where(c.operation == operation_id).order_by(c.started_at.desc(), c.id.desc())
    return [_opened(view, "exchanges", ("response_body",), row) for row in _rows(view, query, limit)]


def observations(view: View, operation_id: str, limit: int = 100) -> list[Mapping[str, Any]]:
    """Return the newest observations of an operation, the newest first."""
    c = tables.observations.c
    return _rows(view, sa.select(tables.observations).where(c.operation == operation_id).order_by(c.number.desc()), limit)


# --- deliveries


def deliveries_of(view: View, operation_id: str, limit: int = 100) -> list[Mapping[str, Any]]:
    """Return the newest deliveries that belong to an operation, the newest first, without headers and bodies."""
    c = tables.deliveries.c
    query = sa.select(*_DELIVERY_HEADS).where(c.operation == operation_id).order_by(c.received_at.desc(), c.id.desc())
    return _rows(view, query, limit)


def deliveries(view: View, status: str | None, limit: int, after: Place | None = None) -> list[Mapping[str, Any]]:
    """Return a page of deliveries (of a status), the newest first, behind `after`, without headers and bodies."""
    c = tables.deliveries.c
    query = sa.select(*_DELIVERY_HEADS).order_by(c.received_at.desc(), c.id.desc())
    if status is not None:
        query = query.where(c.status == status)
    if after is not None:
        query = query.where(sa.tuple_(c.received_at, c.id) < sa.tuple_(*map(sa.literal, after)))
    return _rows(view, query, limit)


def delivery(view: View, delivery_id: str) -> Mapping[str, Any] | None:
    """Return a delivery with its headers and body opened (bytes as received; None: not kept here)."""
    query = sa.select(tables.deliveries).where(tables.deliveries.c.id == delivery_id)
    row = view.connection.execute(query).mappings().one_or_none()
    return None if row is None else _opened(view, "deliveries", ("headers", "body"), row)


# --- keys and heartbeats


def api_key(view: View, sha256: bytes) -> ApiKey | None:
    """Return the key with this hash; None when there is none or it has been revoked."""
    row = view.connection.execute(_KEY, {"sha256": sha256}).one_or_none()
    return None if row is None else _api_key(row)


def api_keys(view: View, limit: int = MAX_PAGE) -> list[ApiKey]:
    """Return all keys, revoked ones too, in the order of their making."""
    query = sa.select(tables.api_keys).order_by(tables.api_keys.c.created_at, tables.api_keys.c.id).limit(_bounded(limit))
    return [_api_key(row) for row in view.connection.execute(query)]


def _api_key(row: sa.Row[Any]) -> ApiKey:
    return ApiKey(
        id=row.id,
        owner=row.owner,
        subject=row.subject,
        scopes=tuple(row.scopes.split()),
        created_at=row.created_at,
        revoked_at=row.revoked_at,
    )


def heartbeats(view: View, limit: int = MAX_PAGE) -> list[Mapping[str, Any]]:
    """Return the last beat of every duty and process; `counts` is parsed."""
    rows = _rows(view, sa.select(tables.heartbeats).order_by(tables.heartbeats.c.duty, tables.heartbeats.c.process), limit)
    return [{**row, "counts": json.loads(row["counts"])} for row in rows]


# ---


def _bounded(limit: int) -> int:
    return max(0, min(limit, MAX_PAGE))


def _rows(view: View, query: sa.Select[Any], limit: int) -> list[Mapping[str, Any]]:
    return [dict(row) for row in view.connection.execute(query.limit(_bounded(limit))).mappings()]


def _opened(view: View, table: str, columns: tuple[str, ...], row: Mapping[Any, Any]) -> dict[str, Any]:
    opened = dict(row)
    for column in columns:
        if opened[column] is not None:
            opened[column] = view.vault.unseal(table, column, opened["id"], opened[column])
    return opened

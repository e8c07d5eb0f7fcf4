"""Everything that the record holds about one operation, for somebody else to look into: bounded, the newest of each kind."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from ledger import queries, tables
from ledger.transaction import View
from schemas.operation import Operation

HISTORY: Final = 1_000  # rows
OTHERS: Final = 200  # rows of each other kind

Rows = list[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """One operation and what belongs to it, each the oldest first. `totals`: how many there are of each kind."""

    operation: Operation
    history: Rows  # as queries.history, and `changes_text`: the very bytes that are hashed
    attempts: Rows
    exchanges: Rows
    observations: Rows
    deliveries: Rows
    artifacts: Rows
    totals: Mapping[str, int]


def gather(view: View, operation_id: str, owner: str | None) -> Gathered | None:
    """Return what is on record; None: not there, or another owner's.

    The operation is read first and its history only up to that head: on PostgreSQL each statement sees its own moment,
    and rows are only ever appended, so that the proof fits the head whatever is written meanwhile.
    """
    op = queries.operation(view, operation_id, owner)
    if op is None:
        return None
    after = max(0, op.history_seq - HISTORY)
    history = queries.history(view, op.id, after, min(HISTORY, op.history_seq))
    history = [{**row, "changes_text": _text(row["changes"])} for row in history if row["seq"] <= op.history_seq]
    kinds = {
        "attempts": tables.attempts,
        "exchanges": tables.exchanges,
        "observations": tables.observations,
        "deliveries": tables.deliveries,
        "artifacts": tables.artifacts,
    }
    totals = {name: _count(view, table, op.id) for name, table in kinds.items()}
    return Gathered(
        operation=op,
        history=history,
        attempts=_attempts(view, op.id)[::-1],
        exchanges=queries.exchanges(view, op.id, OTHERS)[::-1],
        observations=queries.observations(view, op.id, OTHERS)[::-1],
        deliveries=queries.deliveries_of(view, op.id, OTHERS)[::-1],
        artifacts=queries.artifacts(view, op.id, OTHERS),
        totals={"history": op.history_seq, **totals},
    )


def _text(changes: Mapping[str, Any]) -> str:
    """Return changes as the chain hashes them (`ledger/history.py`, write_changes)."""
    return json.dumps(changes, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _attempts(view: View, operation_id: str) -> Rows:
    c = tables.attempts.c
    query = sa.select(tables.attempts).where(c.operation == operation_id).order_by(c.opened_at.desc(), c.number.desc(), c.id.desc())
    return [dict(row) for row in view.connection.execute(query.limit(OTHERS)).mappings()]


def _count(view: View, table: sa.Table, operation_id: str) -> int:
    return int(view.connection.execute(sa.select(sa.func.count()).where(table.c.operation == operation_id)).scalar_one())

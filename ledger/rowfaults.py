"""Rows that cannot be read, judged or written: set aside with a reason, tried again ever more seldom, shown (B113, B115).

A row is at fault when a sealed column does not open, a word or JSON is of a newer version, or one of the database's own
constraints is broken (written with them off, or restored in part), so that every write to it would fail. An error of the
database itself is nobody's fault and never comes here.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa
import structlog
from sqlalchemy.dialects import postgresql, sqlite

from ledger.errors import LedgerError
from ledger.rows import from_row
from ledger.tables import operations
from ledger.tables_upkeep import row_faults
from ledger.transaction import Transaction, View
from schemas.operation import SECOND, Micros

SINK_SECONDS: Final = 60
"""How long a row that is at fault is left alone the first time; twice as long each time after."""
MOST_SECONDS: Final = 3_600
REASON: Final = 300  # characters
LOOKS: Final = 50  # rows that are looked at again at once
_log = structlog.get_logger("ledger")
_c = row_faults.c
_OPERATIONS: Final = operations.name


def note(tx: Transaction, operation_id: str, error: Exception, now: Micros) -> Micros:
    """Set an operation aside and return until when. Our own errors name places, never values; of others only the kind is kept."""
    reason = str(error) if isinstance(error, LedgerError) else type(error).__name__
    reason = reason.replace("\x00", "")[:REASON]
    mine = (_c.place == _OPERATIONS) & (_c.row == operation_id)
    times = (tx.connection.execute(sa.select(_c.times).where(mine)).scalar_one_or_none() or 0) + 1
    until = now + min(SINK_SECONDS << min(times - 1, 10), MOST_SECONDS) * SECOND
    insert: Any = (postgresql.insert if tx.postgres else sqlite.insert)(row_faults)
    row = {"place": _OPERATIONS, "row": operation_id, "reason": reason, "first_at": now, "last_at": now, "times": times, "until": until}
    changing = {name: insert.excluded[name] for name in ("reason", "last_at", "times", "until")}
    tx.connection.execute(insert.on_conflict_do_update(index_elements=[_c.place, _c.row], set_=changing), row)
    _log.error("ledger.row_sunk", operation=operation_id, error=type(error).__name__, times=times)
    return until


def aside(operation: Any, now: Any) -> sa.ColumnElement[bool]:
    """Return the condition that the operation of this id is left alone at `now`."""
    return sa.exists().where(_c.place == _OPERATIONS, _c.row == operation, _c.until > now)


def writable(tx: Transaction, ids: Iterable[str], now: Micros) -> list[str]:
    """Return those of the operations that the database lets be written. All of them, unless this transaction is careful."""
    if not tx.careful:
        return list(ids)
    sound = []
    for operation_id in ids:
        try:
            with tx.connection.begin_nested():
                tx.connection.execute(_PROBE, {"b_id": operation_id})
        except sa.exc.IntegrityError as error:
            note(tx, operation_id, error, now)
        else:
            sound.append(operation_id)
    return sound


# Every column that a CHECK or the deferred key speaks of is "changed", so that the database looks at all of them.
_PROBE: Final = (
    sa.update(operations)
    .where(operations.c.id == sa.bindparam("b_id"))
    .values({name: operations.c[name] for name in ("state", "due_at", "verdict_seq", "revision", "lease_fence", "version")})
)


def look_again(tx: Transaction, now: Micros) -> dict[str, int]:
    """Forget the faults of operations that can be read and written again; return how many are healed, and how many are left."""
    query = sa.select(_c.row).where(_c.place == _OPERATIONS, _c.until <= now).order_by(_c.until, _c.row).limit(LOOKS)
    healed = []
    for operation_id in tx.connection.execute(query).scalars().all():
        row = tx.connection.execute(sa.select(operations).where(operations.c.id == operation_id)).one_or_none()
        try:
            if row is not None:
                from_row(row, tx.vault)
                with tx.connection.begin_nested():
                    tx.connection.execute(_PROBE, {"b_id": operation_id})
        except (LedgerError, sa.exc.IntegrityError) as error:
            note(tx, operation_id, error, now)
        else:
            healed.append(operation_id)
    if healed:
        tx.connection.execute(sa.delete(row_faults).where(_c.place == _OPERATIONS, _c.row.in_(healed)))
    left = tx.connection.execute(sa.select(sa.func.count()).select_from(row_faults)).scalar_one()
    return {"rows_healed": len(healed), "rows_left_alone": left}


def left_alone(view: View, limit: int = 100) -> Sequence[Mapping[str, Any]]:
    """Return the rows that are set aside, the oldest first."""
    query = sa.select(row_faults).order_by(_c.first_at, _c.place, _c.row).limit(limit)
    return [dict(row) for row in view.connection.execute(query).mappings()]

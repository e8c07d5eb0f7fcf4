"""What an operator wants to know of the database itself: which one it is, whether it is sound, and when providers last called."""

from collections.abc import Mapping
from typing import Any, Final

import sqlalchemy as sa

from ledger.engine import has_wal_reset_bug
from ledger.schema import metadata
from ledger.tables import deliveries, operations
from ledger.transaction import View
from schemas.operation import Micros

MAX_FAULTS: Final = 100
MOST_OVERDUE: Final = 100_000
_GUARDS: Final = {  # triggers that keep the history append-only; a rebuilt table loses them silently
    "sqlite": ("history_keeps_delete", "history_keeps_update"),
    "postgresql": ("history_keeps_all", "history_keeps_rows"),
}
_CLOCK: Final = sa.text("SELECT (extract(epoch from clock_timestamp()) * 1000000)::bigint")


def version(view: View) -> str:
    """Return the database's name and version, as in `SQLite 3.51.3`."""
    if _is_postgres(view):
        return f"PostgreSQL {view.connection.exec_driver_sql('SHOW server_version').scalar_one()}"
    return f"SQLite {view.connection.exec_driver_sql('SELECT sqlite_version()').scalar_one()}"


def takes_one_process(view: View) -> bool:
    """Return whether this SQLite has the WAL-reset bug, so that only one process may have the file open."""
    if _is_postgres(view):
        return False
    text = str(view.connection.exec_driver_sql("SELECT sqlite_version()").scalar_one())
    return has_wal_reset_bug(tuple(int(part) for part in text.split(".")))


def faults(view: View) -> list[str]:
    """Return what is wrong with the database by its own checks: rows, references, guards of the history. Empty is sound."""
    found = [f"the guard {name} of the history is missing: it could be edited unseen" for name in _missing_guards(view)]
    if _is_postgres(view):
        there = set(sa.inspect(view.connection).get_table_names())
        return found + [f"the table {name} is missing" for name in sorted(set(metadata.tables) - there)]
    broken = [str(row[0]) for row in view.connection.exec_driver_sql(f"PRAGMA integrity_check({MAX_FAULTS})")]
    orphans = view.connection.exec_driver_sql("PRAGMA foreign_key_check").fetchmany(MAX_FAULTS)
    found += [text for text in broken if text != "ok"]
    return found + [f"{row[0]} row {row[1]} points at a missing row of {row[2]}" for row in orphans]


def _missing_guards(view: View) -> list[str]:
    if _is_postgres(view):
        query = "SELECT tgname FROM pg_trigger WHERE tgrelid = 'history'::regclass AND tgenabled <> 'D'"
    else:
        query = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'history'"
    there = {str(row[0]) for row in view.connection.exec_driver_sql(query)}
    return sorted(set(_GUARDS[view.connection.dialect.name]) - there)


def overdue(view: View, now: Micros) -> int:
    """Return how many operations are due and wait for a worker: by the index of what is scheduled, at most `MOST_OVERDUE`."""
    c = operations.c
    late = sa.select(c.id).where(c.due_at.is_not(None), c.due_at <= now).limit(MOST_OVERDUE).subquery()
    return int(view.connection.execute(sa.select(sa.func.count()).select_from(late)).scalar_one())


def clock(view: View) -> Micros | None:
    """Return the database's clock; None where it has none of its own."""
    return int(view.connection.execute(_CLOCK).scalar_one()) if _is_postgres(view) else None


def last_deliveries(view: View, provider: str) -> Mapping[str, Any]:
    """Return when a provider's newest delivery came, how many are kept by status, and which secret last matched."""
    c = deliveries.c
    counted = sa.select(c.status, sa.func.count()).where(c.provider == provider).group_by(c.status)
    newest = sa.select(c.received_at, c.secret_id).where(c.provider == provider).order_by(c.received_at.desc()).limit(1)
    row = view.connection.execute(newest).one_or_none()
    return {
        "last_at": None if row is None else row.received_at,
        "last_secret": None if row is None else row.secret_id,
        "by_status": {str(status): int(count) for status, count in view.connection.execute(counted)},
    }


def _is_postgres(view: View) -> bool:
    return view.connection.dialect.name == "postgresql"

"""What an old reader keeps the database from cleaning away: SQLite's WAL file, PostgreSQL's dead rows (B117, B122).

None of our own reads lasts (ledger/readers.py), and PostgreSQL ends our idle transactions; other programs' may.
"""

from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
import structlog

from ledger.engine import WAL_LIMIT_BYTES, Engines
from ledger.faults import tell
from ledger.transaction import View

TEND_BYTES: Final = WAL_LIMIT_BYTES // 4  # from here on the WAL file is emptied as soon as no reader is in the way
OLD_SECONDS: Final = 300  # a transaction of anybody that lasts longer is told
_log = structlog.get_logger("ledger")
_OLDEST: Final = sa.text(
    "SELECT coalesce(max(extract(epoch from clock_timestamp() - xact_start)), 0)::bigint FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
)


def wal_bytes(engines: Engines) -> int:
    """Return the size of an SQLite file's WAL; 0 where there is none."""
    try:
        return 0 if engines.path is None else Path(f"{engines.path}-wal").stat().st_size
    except OSError:
        return 0


def tend(engines: Engines, most: int = TEND_BYTES) -> dict[str, int]:
    """Empty a WAL file that has grown beyond `most`, without waiting for anybody. Returns what was done; nothing on PostgreSQL.

    An SQLite with the WAL-reset bug has one connection that writes and checkpoints: it is left to it.
    """
    size = wal_bytes(engines)
    if size <= most or engines.path is None or engines.write.pool.size() == 1:  # type: ignore[attr-defined] # a QueuePool
        return {}
    try:
        with engines.write.connect() as connection:
            driver: Any = connection.connection.driver_connection
            (patience,) = driver.execute("PRAGMA busy_timeout").fetchone()
            driver.execute("PRAGMA busy_timeout = 0")  # a reader in the way must not become everybody's wait
            try:
                (busy, *_) = driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                driver.execute(f"PRAGMA busy_timeout = {patience}")
    except sa.exc.SQLAlchemyError as error:
        raise tell(error, engines.place) from error
    if not busy:
        return {"truncated": 1}
    _log.warning("ledger.wal_pinned", bytes=size)
    return {"pinned": 1}


def oldest_transaction(view: View) -> int:
    """Return for how many seconds the oldest open transaction of anybody has lasted (PostgreSQL; 0 elsewhere)."""
    if view.connection.dialect.name != "postgresql":
        return 0
    return int(view.connection.execute(_OLDEST).scalar_one())

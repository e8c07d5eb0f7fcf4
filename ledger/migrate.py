"""Migrations: the only way in which tables come to be (B161). At start, under a lock that holds across processes (B160)."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psycopg
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from ledger.engine import Engines
from ledger.errors import LedgerUnavailableError, SchemaTooNewError, SchemaTooOldError
from ledger.faults import Fault, classify, tell

_FOLDER: Final = Path(__file__).with_name("migrations")
_LOCK: Final = 0x7265636F6E63696C  # our advisory lock of a PostgreSQL database: "reconcil"
_TURNS: Final = 12  # waits of busy_timeout each (a minute) for another process that migrates the same SQLite file


def migrate(engines: Engines) -> bool:
    """Bring the schema to this version; answer whether there was anything to do.

    Of several processes that start at once exactly one migrates; the others wait and find it done. One transaction: a
    process killed in the middle leaves the old schema. Raises SchemaTooNewError, LedgerUnavailableError.
    """
    try:
        if _current(engines):
            return False
        for _ in range(_TURNS):
            try:
                with engines.turn(), _locked(engines) as connection:
                    return _upgrade(connection)
            except sa.exc.DBAPIError as error:
                if classify(error) is not Fault.CONFLICT:
                    raise
    except (sa.exc.SQLAlchemyError, psycopg.Error) as error:
        raise tell(error, engines.place) from error
    raise LedgerUnavailableError("another process has been migrating the database for too long; see what it does")


def migrate_to(engines: Engines, revision: str) -> None:
    """Make the tables of an empty database as an earlier (or this) version had them, to restore a copy into them.

    Raises SchemaTooNewError for a version that this one does not know.
    """
    try:
        known = {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
        if revision not in known:
            raise SchemaTooNewError(f"the copy is of a newer version (schema {revision}); install that version of the gateway")
        with engines.turn(), _locked(engines) as connection:
            config = _config()
            config.attributes["connection"] = connection
            command.upgrade(config, revision)
    except (sa.exc.SQLAlchemyError, psycopg.Error) as error:
        raise tell(error, engines.place) from error


def check(engines: Engines) -> None:
    """Raise SchemaTooOldError or SchemaTooNewError unless the schema is of this version."""
    try:
        if not _current(engines):
            if not _has_tables(engines):
                raise SchemaTooOldError(
                    f"the database {engines.place} is empty: put it back from the backup if it had a record; else the first start, or"
                    " gateway database migrate, makes its tables"
                )
            raise SchemaTooOldError("the database is older than this version; run: gateway database migrate")
    except (sa.exc.SQLAlchemyError, psycopg.Error) as error:
        raise tell(error, engines.place) from error


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _current(engines: Engines) -> bool:
    with engines.turn(), engines.write.connect() as connection:
        return _up_to_date(connection)


def _has_tables(engines: Engines) -> bool:
    with engines.turn(), engines.write.connect() as connection:
        return bool(sa.inspect(connection).get_table_names())


def _up_to_date(connection: sa.Connection) -> bool:
    scripts = ScriptDirectory.from_config(_config())
    found = set(MigrationContext.configure(connection).get_current_heads())
    known = {script.revision for script in scripts.walk_revisions()}
    if found - known:
        raise SchemaTooNewError(
            f"the database is of a newer version (schema {', '.join(sorted(found - known))}); install that version of the gateway,"
            " or restore the backup that was made before the upgrade"
        )
    return found == set(scripts.get_heads())


def _upgrade(connection: sa.Connection) -> bool:
    if _up_to_date(connection):  # somebody else was faster while we waited for the lock
        return False
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    _finished(connection)
    return True


def _finished(connection: sa.Connection) -> None:
    if connection.dialect.name == "sqlite":
        broken = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
        assert not broken, f"the migration breaks foreign keys of {sorted({row[0] for row in broken})}"


@contextlib.contextmanager
def _locked(engines: Engines) -> Iterator[sa.Connection]:
    """Open the one transaction of the migration, which nobody else on this database can open meanwhile."""
    with engines.write.connect() as connection:
        if engines.postgres:
            with connection.begin():
                connection.execute(sa.text("SET LOCAL statement_timeout = 0"))
                connection.execute(sa.text("SET LOCAL lock_timeout = 0"))
                connection.execute(sa.text("SET LOCAL idle_in_transaction_session_timeout = 0"))
                connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
                yield connection
            return
        # Rebuilding a table with foreign keys on would delete its children; inside a transaction the PRAGMA does nothing.
        driver: Any = connection.connection.driver_connection
        driver.execute("PRAGMA foreign_keys=OFF")
        try:
            with connection.begin():  # BEGIN IMMEDIATE: the lock
                yield connection
        finally:
            driver.execute("PRAGMA foreign_keys=ON")

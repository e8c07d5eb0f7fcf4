"""A consistent copy of the database while it serves, and the way back (MISSION H5).

SQLite: its backup API, in steps, inside one read transaction: writers go on, and the copy is of one moment. (Without that
transaction every commit of another process makes the copy begin anew, and a busy database is never copied.)
PostgreSQL: every table by COPY in binary form, in one REPEATABLE READ snapshot. `pg_dump` serves as well; this needs no tool
of the server's version beside the gateway.
"""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from alembic.runtime.migration import MigrationContext
from psycopg import sql

from ledger.engine import Engines
from ledger.errors import ConfigurationError, LedgerError
from ledger.faults import why
from ledger.migrate import migrate_to
from ledger.schema import metadata
from ledger.tables import artifacts

PAGES: Final = 512  # of SQLite in one step: about 2 MiB, then whoever wants a lock gets it
FILE: Final = "gateway.db"
TABLES: Final = "tables"
FILES: Final = "artifacts.list"
_LINES: Final = 1_000
Tell = Callable[[int], None]


def backup(engines: Engines, folder: Path, tell: Tell) -> str:
    """Copy the database into `folder` and write down which artifacts it knows: `id sha256` a line. Returns its schema revision."""
    copy = _backup_postgres if engines.postgres else _backup_sqlite
    with engines.turn(), engines.read.connect() as connection:
        if engines.postgres:
            connection.execution_options(isolation_level="REPEATABLE READ")  # of this connection, until it is given back
        with connection.begin():
            if engines.postgres:
                connection.execute(sa.text("SET LOCAL statement_timeout = 0"))
            revision = MigrationContext.configure(connection).get_current_revision()  # the first read: the moment of the copy
            if revision is None:
                raise LedgerError("the database has no tables yet; there is nothing to back up")
            copy(connection, folder, tell)
            _list_artifacts(connection, folder / FILES)
    return revision


def want_empty(engines: Engines) -> None:
    """Raise ConfigurationError unless the database has no row: a restore that was killed on PostgreSQL leaves empty tables of ours."""
    with engines.turn(), engines.write.connect() as connection:
        there = set(sa.inspect(connection).get_table_names())
        rows = (sa.select(sa.literal(1)).select_from(table).limit(1) for table in metadata.sorted_tables if table.name in there)
        if there - set(_tables()) - {"alembic_version"} or any(connection.execute(query).first() for query in rows):
            raise ConfigurationError(f"the database {engines.place} is not empty; name another one by --database-url")


def restore(engines: Engines, folder: Path, revision: str, tell: Tell) -> None:
    """Bring a copy into an empty database. The next start migrates it, where it is older. Raises ConfigurationError."""
    want_empty(engines)
    if not engines.postgres:
        with engines.turn(), engines.write.connect() as connection:
            _restore_sqlite(connection, folder, tell)
        return
    migrate_to(engines, revision)
    with engines.write.connect() as connection, connection.begin():
        connection.execute(sa.text("SET LOCAL statement_timeout = 0"))
        _restore_postgres(connection, folder, tell)


def _backup_sqlite(connection: sa.Connection, folder: Path, tell: Tell) -> None:
    source: Any = connection.connection.driver_connection
    place = folder / FILE
    target = type(source)(place)
    place.chmod(0o600)
    with contextlib.closing(target), _told(connection, f"the copy {place} cannot be made"):
        source.backup(target, pages=PAGES, progress=lambda _status, left, total: tell(total - left))
        broken = target.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if broken != "ok":
        raise LedgerError(f"the copy is not sound ({broken}); run gateway database check")


def _restore_sqlite(connection: sa.Connection, folder: Path, tell: Tell) -> None:
    target: Any = connection.connection.driver_connection
    source = type(target)(f"{(folder / FILE).absolute().as_uri()}?mode=ro", uri=True)
    with contextlib.closing(source), _told(connection, f"the copy {folder / FILE} cannot be brought back"):
        source.backup(target, pages=PAGES, progress=lambda _status, left, total: tell(total - left))


@contextlib.contextmanager
def _told(connection: sa.Connection, what: str) -> Iterator[None]:
    """Make an error of the driver ours: its own backup API goes past SQLAlchemy, which would have done it."""
    driver = connection.dialect.loaded_dbapi
    try:
        yield
    except driver.Error as error:
        raise LedgerError(f"{what}: {why(error)}") from error


def _tables() -> list[str]:
    return [table.name for table in metadata.tables.values()]


def _backup_postgres(connection: sa.Connection, folder: Path, tell: Tell) -> None:
    place, done = folder / TABLES, 0
    place.mkdir(mode=0o700)
    driver: Any = connection.connection.driver_connection
    there = set(sa.inspect(connection).get_table_names())
    for name in (name for name in _tables() if name in there):
        command = sql.SQL("COPY {} TO STDOUT (FORMAT binary)").format(sql.Identifier(name))
        with driver.cursor() as cursor, cursor.copy(command) as copy, (place / name).open("wb") as file:
            for data in copy:
                file.write(data)
                done += len(data)
                tell(done)


def _restore_postgres(connection: sa.Connection, folder: Path, tell: Tell) -> None:
    driver: Any = connection.connection.driver_connection
    done = 0
    for file in sorted((folder / TABLES).iterdir()):
        command = sql.SQL("COPY {} FROM STDIN (FORMAT binary)").format(sql.Identifier(file.name))
        with driver.cursor() as cursor, cursor.copy(command) as copy, file.open("rb") as opened:
            while data := opened.read(1 << 20):
                copy.write(data)
                done += len(data)
                tell(done)


def _list_artifacts(connection: sa.Connection, place: Path) -> None:
    c = artifacts.c
    after: str | None = ""
    columns = [c.id, c.sha256]
    known = {column["name"] for column in sa.inspect(connection).get_columns(artifacts.name)}
    there = [c.removed_at.is_(None)] if c.removed_at.name in known else []
    with place.open("w", encoding="ascii") as file:
        while after is not None:
            query = sa.select(*columns).where(c.id > after, *there).order_by(c.id).limit(_LINES)
            rows = connection.execute(query).all()
            file.writelines(f"{row.id} {row.sha256}\n" for row in rows)
            after = rows[-1].id if len(rows) == _LINES else None

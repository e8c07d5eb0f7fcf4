"""The connections: SQLite (one file, or memory) and PostgreSQL, each set up and checked the same way every time.

SQLite: `isolation_level=None` and our own BEGIN: `BEGIN IMMEDIATE` for writers (a deferred read-then-write fails at
once with BUSY_SNAPSHOT, B116), `BEGIN` for readers; WAL; `synchronous=FULL` (NORMAL may lose an acknowledged row at
power loss). Every PRAGMA is read back: a misspelt or refused one is silent otherwise.
PostgreSQL: READ COMMITTED, few connections, and timeouts for statements, locks and idle transactions (B122), read back too. Behind
a pooler that lends a server connection for one transaction only (pgbouncer's transaction mode) nothing of a session holds: then
(`pooled`) the timeouts are set in every transaction, nothing is prepared, and nobody listens.
"""

import contextlib
import importlib
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NoReturn

import psycopg
import sqlalchemy as sa
from sqlalchemy.pool import StaticPool

from ledger.errors import ConfigurationError, LedgerUnavailableError
from ledger.faults import READ_ONLY, tell
from ledger.filelock import FileLock
from ledger.filewatch import FileWatch


def _current_sqlite() -> ModuleType:
    """Return the driver with a current SQLite where its wheel exists, else the standard library's with its limits."""
    try:
        return importlib.import_module("pysqlite3.dbapi2")
    except ImportError:
        return sqlite3


BUSY_TIMEOUT_MS: Final = 5_000  # below every provider's webhook timeout (B120)
WAL_LIMIT_BYTES: Final = 67_108_864  # what a checkpoint leaves of the WAL file (B117)
WRITE_CONNECTIONS: Final = 2  # the writer's, and one for migration and start-up checks
READ_CONNECTIONS: Final = 8
POOL_SECONDS: Final = 5.0
CONNECT_SECONDS: Final = 5
STATEMENT_MS: Final = 15_000
LOCK_MS: Final = 4_000  # as SQLite's busy timeout: what waits longer is rolled back and run again, and somebody may be told
IDLE_IN_TRANSACTION_MS: Final = 30_000
PREPARE_AFTER: Final = 5  # psycopg's own default; nothing behind a pooler
_SESSION: Final = {
    "statement_timeout": STATEMENT_MS,
    "lock_timeout": LOCK_MS,
    "idle_in_transaction_session_timeout": IDLE_IN_TRANSACTION_MS,
    "synchronous_commit": "on",  # acknowledged means stored, whatever the server's default
}
# Of TCP: a server whose machine or network is gone says nothing at all; without these a connection hangs for a quarter of an hour.
_WIRE: Final = {
    "connect_timeout": CONNECT_SECONDS,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
_WAL_RESET_BUG: Final = ((3, 7, 0), (3, 51, 3))  # from, up to and without: sqlite.org/wal.html#walresetbug
_FORMS: Final = "sqlite:///PATH or postgresql://USER@HOST/NAME"


@dataclass(frozen=True, slots=True)
class Engines:
    """The two engines of one database. `url` has no password. Readers cannot write on SQLite (`query_only`)."""

    write: sa.Engine
    read: sa.Engine
    url: str
    path: str | None = None  # the file of SQLite; None: memory, or PostgreSQL
    file_lock: FileLock | None = None
    watch: FileWatch | None = None  # of a file
    one_connection: contextlib.AbstractContextManager[Any] | None = None  # memory: writer and readers share one connection and take turns
    options: dict[str, Any] = field(default_factory=dict, repr=False)
    pooled: bool = False  # PostgreSQL behind a pooler: no session outlives a transaction

    @property
    def postgres(self) -> bool:
        """Return whether this is PostgreSQL (else SQLite)."""
        return self.write.dialect.name == "postgresql"

    @property
    def place(self) -> str:
        """Return what people call this database: the file's path, or HOST:PORT/NAME; nothing of a password."""
        if not self.postgres:
            return self.path or "in memory"
        url = self.write.url
        hosts = url.query.get("host", ())
        host = url.host or (hosts if isinstance(hosts, str) else ", ".join(hosts)) or "the local socket"
        return f"{host}:{url.port or 5432}/{url.database or url.username or ''}"

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Hold the only connection of a memory database; does nothing for others."""
        if self.one_connection is None:
            yield
        else:
            with self.one_connection:
                yield

    @contextlib.contextmanager
    def begin(self) -> Iterator[sa.Connection]:
        """Open a write transaction; it commits at the end, or rolls back on an exception. Driver errors become ours."""
        try:
            with self.turn(), self.write.begin() as connection:
                yield connection
        except (sa.exc.SQLAlchemyError, psycopg.Error) as error:
            raise tell(error, self.place) from error

    @contextlib.contextmanager
    def look(self) -> Iterator[sa.Connection]:
        """Open a read transaction. Driver errors become ours."""
        try:
            with self.turn(), self.read.connect() as connection:
                yield connection
        except (sa.exc.SQLAlchemyError, psycopg.Error) as error:
            raise tell(error, self.place) from error

    def dial(self) -> "psycopg.Connection[Any]":
        """Return a new autocommit PostgreSQL connection outside the pools, for LISTEN and NOTIFY."""
        assert self.postgres, "only PostgreSQL has notifications"
        assert not self.pooled, "a pooler hands no notification on"
        arguments, keywords = self.write.dialect.create_connect_args(self.write.url)
        return psycopg.connect(*arguments, **{**keywords, **self.options}, autocommit=True)

    def gone(self) -> str:
        """Return why this record is lost while it is open (its file was deleted or replaced), or the empty text."""
        return "" if self.watch is None else self.watch.look()

    def hold(self) -> None:
        """Keep one idle connection of a file open, and watch its WAL file too: only a stranger can take that away now."""
        if self.watch is None:
            return
        connection = self.read.connect()
        connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar_one()  # opens the WAL file
        connection.rollback()  # an open read would keep the WAL from being taken over (B117)
        connection.detach()  # not one of the pool's: they may all be in use, or be closed
        self.watch.hold(connection.close)

    def close(self) -> None:
        """Close the connections and give the file back."""
        if self.watch is not None:
            self.watch.close()
        self.read.dispose()
        self.write.dispose()
        if self.file_lock is not None:
            self.file_lock.release()


def open_engines(
    url: str,
    *,
    application_name: str = "gateway",
    pooled: bool = False,
    sqlite_module: ModuleType | None = None,
) -> Engines:
    """Return the engines of `url`: `sqlite:///PATH`, `sqlite://` (memory) or `postgresql://…` (also `postgres://`).

    `pooled`: a pooler stands before PostgreSQL that keeps no session. Nothing is dialled yet on PostgreSQL. Raises
    ConfigurationError, whose message never has the password.
    """
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        raise ConfigurationError(f"the database address cannot be read; it is of the form {_FORMS}") from None
    match parsed.drivername:
        case "sqlite" | "sqlite+pysqlite":
            return _open_sqlite(parsed, sqlite_module or _current_sqlite())
        case "postgresql" | "postgres" | "postgresql+psycopg":
            return _open_postgres(parsed.set(drivername="postgresql+psycopg"), application_name, pooled=pooled)
        case other:
            raise ConfigurationError(f"databases of kind {other} are not supported; use {_FORMS}")


# --- SQLite


def has_wal_reset_bug(version: tuple[int, ...]) -> bool:
    """Return whether this SQLite may corrupt a file that two connections write or checkpoint at once."""
    first, mended = _WAL_RESET_BUG
    return first <= version < mended


def _open_sqlite(url: sa.URL, module: ModuleType) -> Engines:
    if url.query or url.host:
        raise ConfigurationError("the SQLite address takes a path and nothing else: sqlite:///PATH")
    common: dict[str, Any] = {"module": module, "hide_parameters": True}
    arguments = {"isolation_level": None, "check_same_thread": False, "timeout": BUSY_TIMEOUT_MS / 1000}
    if url.database in {None, "", ":memory:"}:
        engine = sa.create_engine("sqlite+pysqlite://", poolclass=StaticPool, connect_args=arguments, **common)
        sa.event.listen(engine, "connect", _prepare(_pragmas(memory=True, reader=False)))
        sa.event.listen(engine, "begin", _begin("BEGIN IMMEDIATE"))
        return Engines(write=engine, read=engine, url="sqlite://", one_connection=threading.RLock())
    path = str(url.database)
    place = Path(path).absolute().as_uri()
    buggy = has_wal_reset_bug(module.sqlite_version_info)  # then one process, and in it one connection that writes
    lock = FileLock.beside(path, exclusive=buggy, version=module.sqlite_version)
    watch = FileWatch(path, lock.opened)

    def dial() -> Any:
        """Open the file that is known: never make one (`mode=rw`), never follow another that stands in its place."""
        if gone := watch.look():
            raise LedgerUnavailableError(gone)
        connection = module.connect(f"{place}?mode=rw", uri=True, **arguments)
        if gone := watch.look():
            connection.close()
            raise LedgerUnavailableError(gone)
        return connection

    plain = url.set(drivername="sqlite+pysqlite")
    pool: dict[str, Any] = {"max_overflow": 0, "pool_timeout": POOL_SECONDS, "creator": dial}
    write = sa.create_engine(plain, pool_size=1 if buggy else WRITE_CONNECTIONS, **pool, **common)
    sa.event.listen(write, "connect", _prepare(_pragmas(memory=False, reader=False)))
    sa.event.listen(write, "begin", _begin("BEGIN IMMEDIATE"))
    read = sa.create_engine(plain, pool_size=READ_CONNECTIONS, **pool, **common)
    sa.event.listen(read, "connect", _prepare(_pragmas(memory=False, reader=True)))
    sa.event.listen(read, "begin", _begin("BEGIN"))
    return Engines(write=write, read=read, url=f"sqlite:///{path}", path=path, file_lock=lock, watch=watch)


def _pragmas(*, memory: bool, reader: bool) -> tuple[tuple[str, int | str], ...]:
    """Return the PRAGMAs in their order; busy_timeout first, so that the others wait for their turn."""
    pragmas: list[tuple[str, int | str]] = [("busy_timeout", BUSY_TIMEOUT_MS)]
    if not memory:
        pragmas += [("journal_mode", "wal"), ("journal_size_limit", WAL_LIMIT_BYTES)]
    pragmas += [
        ("synchronous", 2),  # FULL
        ("foreign_keys", 1),
        ("recursive_triggers", 1),  # else INSERT OR REPLACE would pass by the triggers that keep history append-only
    ]
    if sys.platform == "darwin":
        pragmas += [("fullfsync", 1), ("checkpoint_fullfsync", 1)]
    if reader:
        pragmas += [("query_only", 1)]
    return tuple(pragmas)


def _prepare(pragmas: tuple[tuple[str, int | str], ...]) -> Callable[[Any, Any], None]:
    def prepare(connection: Any, _: Any) -> None:
        for name, value in pragmas:
            cursor = connection.execute(f"PRAGMA {name}={value}")
            cursor.fetchall()
            found = connection.execute(f"PRAGMA {name}").fetchone()
            if found is None or found[0] != value:
                _refuse(name, value, found)

    return prepare


def _refuse(name: str, value: int | str, found: Any) -> NoReturn:
    raise ConfigurationError(
        f"SQLite refuses PRAGMA {name}={value} (it answers {found and found[0]}); the database must be on a local file system"
    )


def _begin(statement: str) -> Callable[[sa.Connection], None]:
    def begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql(statement)

    return begin


# --- PostgreSQL


def _open_postgres(url: sa.URL, application_name: str, *, pooled: bool) -> Engines:
    options: dict[str, Any] = {name: value for name, value in _WIRE.items() if name not in url.query}
    options |= {"application_name": application_name, "prepare_threshold": None if pooled else PREPARE_AFTER}
    if not pooled:
        ours = " ".join(f"-c {name}={value}" for name, value in _SESSION.items())
        options["options"] = f"{url.query.get('options', '')} {ours}".strip()
    common: dict[str, Any] = {
        "isolation_level": "READ COMMITTED",
        "pool_pre_ping": True,
        "max_overflow": 0,
        "pool_timeout": POOL_SECONDS,
        "connect_args": options,
        "hide_parameters": True,  # a failed statement's message must not carry payloads
    }
    write = sa.create_engine(url, pool_size=WRITE_CONNECTIONS, **common)
    read = sa.create_engine(url, pool_size=READ_CONNECTIONS, **common)
    for engine in (write, read):
        if pooled:
            sa.event.listen(engine, "begin", _begin("; ".join(f"SET LOCAL {name} = '{value}'" for name, value in _SESSION.items())))
        else:
            sa.event.listen(engine, "connect", _check_session)
        sa.event.listen(engine, "handle_error", _demoted(write, read))
    return Engines(write=write, read=read, url=url.render_as_string(hide_password=True), options=options, pooled=pooled)


def _check_session(connection: Any, _: Any) -> None:
    """Read back what was asked of the session: a pooler may have been told to drop it without a word."""
    found = connection.execute("SELECT current_setting('statement_timeout')").fetchone()
    connection.rollback()
    if found != (f"{STATEMENT_MS // 1000}s",):
        raise ConfigurationError(
            "a pooler stands before the database and drops the settings of our sessions; set database_pooled = true,"
            " or let database_url lead to the server itself"
        )


def _demoted(*engines: sa.Engine) -> Callable[[sa.engine.ExceptionContext], None]:
    """Return what to do when a server is a standby all at once: hang up everywhere, so that the next dial finds its successor."""

    def look(context: sa.engine.ExceptionContext) -> None:
        if getattr(context.original_exception, "sqlstate", None) == READ_ONLY:
            context.is_disconnect = True
            for engine in engines:
                engine.dispose()  # those in use are closed when they come back

    return look

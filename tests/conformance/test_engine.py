"""The connections are set up as they must be, refuse what would corrupt, and their errors are told apart."""

import multiprocessing
import sqlite3
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from ledger.engine import Engines, has_wal_reset_bug, open_engines
from ledger.errors import ConfigurationError, LedgerError, LedgerUnavailableError
from ledger.faults import Fault, classify, tell
from ledger.migrate import migrate
from ledger.tables import heartbeats
from tests.conformance.conftest import Database

BEAT = {"duty": "d", "process": "p", "last_at": 1, "last_ok_at": None, "runs": 1, "failures": 0, "counts": "{}", "error": ""}


def _beat(process: str) -> dict[str, Any]:
    return BEAT | {"process": process}


def test_sqlite_connections_are_set_up(tmp_path: Path) -> None:
    """WAL, FULL, foreign keys and the busy timeout hold on writing and reading connections alike."""
    engines = open_engines(f"sqlite:///{tmp_path}/new/folder/gateway.db")
    for engine in (engines.write, engines.read):
        with engine.connect() as connection:
            for name, value in (
                ("journal_mode", "wal"), ("synchronous", 2), ("foreign_keys", 1), ("busy_timeout", 5000),
                ("recursive_triggers", 1), ("journal_size_limit", 67_108_864),
            ):  # fmt: skip
                assert connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() == value, name
    engines.close()


def test_the_database_file_is_private(tmp_path: Path) -> None:
    """Nobody else may read the file that is made."""
    open_engines(f"sqlite:///{tmp_path}/gateway.db").close()
    assert (tmp_path / "gateway.db").stat().st_mode & 0o077 == 0


def test_readers_cannot_write_on_sqlite(tmp_path: Path) -> None:
    """A write through the reading engine is refused by SQLite itself."""
    engines = open_engines(f"sqlite:///{tmp_path}/gateway.db")
    migrate(engines)
    with pytest.raises(LedgerError), engines.look() as connection:
        connection.execute(heartbeats.insert(), _beat("p"))
    engines.close()


def test_postgres_connections_are_set_up(postgres_server: Any) -> None:
    """Timeouts against stuck statements and idle transactions are set (B122), commits wait for the disk."""
    url = postgres_server.url(postgres_server.template).replace("postgresql://", "postgres://")
    engines = open_engines(url, application_name="gateway-test")
    with engines.look() as connection:
        for name, value in (
            ("statement_timeout", "15s"), ("lock_timeout", "4s"),
            ("idle_in_transaction_session_timeout", "30s"), ("synchronous_commit", "on"),
            ("application_name", "gateway-test"), ("transaction_isolation", "read committed"),
        ):  # fmt: skip
            assert connection.execute(sa.text(f"SHOW {name}")).scalar_one() == value, name
    engines.close()


def test_a_dead_wire_is_noticed() -> None:
    """B122: a server whose machine or network vanishes is given up within seconds; who sets it otherwise in the address is heard."""
    engines = open_engines("postgresql://u@127.0.0.1:1/db?keepalives_idle=60")
    assert (engines.options["tcp_user_timeout"], engines.options["keepalives_count"], engines.options["connect_timeout"]) == (10_000, 3, 5)
    assert "keepalives_idle" not in engines.options
    _, dialled = engines.write.dialect.create_connect_args(engines.write.url)
    assert dialled["keepalives_idle"] == "60"
    engines.close()


def test_a_read_then_write_never_meets_a_snapshot_conflict(engines: Engines) -> None:
    """Two writers that read before they write take turns: neither fails (B116)."""
    gate, failures = threading.Barrier(2), []

    def work(name: str) -> None:
        gate.wait(10)
        try:
            for number in range(20):
                with engines.begin() as connection:
                    connection.execute(sa.select(heartbeats)).all()
                    connection.execute(heartbeats.insert(), _beat(f"{name}{number}"))
        except Exception as error:  # noqa: BLE001 - whatever it is, the test reports it
            failures.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    with engines.look() as connection:
        assert len(connection.execute(sa.select(heartbeats)).all()) == 40


def test_a_failed_transaction_leaves_nothing(engines: Engines) -> None:
    """An exception rolls everything back, and a reader opened later sees nothing of it."""
    with pytest.raises(KeyError), engines.begin() as connection:
        raise KeyError(connection.execute(heartbeats.insert(), _beat("p")).rowcount)
    with engines.look() as connection:
        assert connection.execute(sa.select(heartbeats)).all() == []


def test_a_memory_database_is_one_for_writer_and_readers() -> None:
    """What was written is read, from other threads too."""
    engines = open_engines("sqlite://")
    assert migrate(engines)

    def write() -> None:
        with engines.begin() as connection:
            connection.execute(heartbeats.insert(), _beat("p"))

    thread = threading.Thread(target=write)
    thread.start()
    thread.join(10)
    with engines.look() as connection:
        assert len(connection.execute(sa.select(heartbeats)).all()) == 1
    engines.close()


# --- one file, several processes


def _module_with(version: tuple[int, int, int]) -> ModuleType:
    module = ModuleType("sqlite3_of_another_version")
    module.__dict__.update(vars(sqlite3), sqlite_version_info=version, sqlite_version=".".join(map(str, version)))
    return module


def _hold(url: str, held: Any, done: Any) -> None:
    engines = open_engines(url)
    held.set()
    done.wait(30)
    engines.close()


@pytest.mark.parametrize(
    ("version", "affected"),
    [((3, 6, 23), False), ((3, 7, 0), True), ((3, 40, 1), True), ((3, 51, 2), True), ((3, 51, 3), False), ((3, 53, 0), False)],
)
def test_versions_with_the_wal_reset_bug(version: tuple[int, int, int], affected: bool) -> None:  # noqa: FBT001 - a table of cases
    """The affected versions are those that sqlite.org names."""
    assert has_wal_reset_bug(version) is affected


@pytest.mark.parametrize("version", [(3, 51, 2), (3, 51, 3)])
def test_an_affected_sqlite_shares_its_file_with_nobody(tmp_path: Path, version: tuple[int, int, int]) -> None:
    """A second process on a file is refused, with the cure, when its SQLite has the WAL-reset bug; else both work."""
    url = f"sqlite:///{tmp_path}/gateway.db"
    context = multiprocessing.get_context("spawn")
    held, done = context.Event(), context.Event()
    process = context.Process(target=_hold, args=(url, held, done))
    process.start()
    assert held.wait(30)
    try:
        if version == (3, 51, 2):
            with pytest.raises(ConfigurationError, match=r"another process.*gateway serve.*pysqlite3.*PostgreSQL"):
                open_engines(url, sqlite_module=_module_with(version))
        else:
            open_engines(url, sqlite_module=_module_with(version)).close()
    finally:
        done.set()
        process.join(30)
    open_engines(url, sqlite_module=_module_with(version)).close()


def test_an_affected_sqlite_has_one_writing_connection(tmp_path: Path) -> None:
    """With the bug even one process has only one connection that writes and checkpoints."""
    engines = open_engines(f"sqlite:///{tmp_path}/gateway.db", sqlite_module=_module_with((3, 40, 1)))
    assert engines.write.pool.size() == 1  # type: ignore[attr-defined] # a QueuePool
    engines.close()


# --- addresses


@pytest.mark.parametrize(
    "url", ["mysql://root:PASSWORD@host/db", "PASSWORD", "postgresql://u:PASSWORD@[::1/db", "sqlite:///x?mode=PASSWORD"]
)
def test_a_wrong_address_is_named_without_its_password(url: str) -> None:
    """Other databases and unreadable addresses are refused; no message has the password (D6)."""
    with pytest.raises(ConfigurationError) as refused:
        open_engines(url)
    assert "PASSWORD" not in str(refused.value)


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_an_unreachable_server_is_unavailable(scheme: str) -> None:
    """A refused connection is LedgerUnavailableError at the first use; neither it nor the shown address has the password."""
    engines = open_engines(f"{scheme}://user:PASSWORD@127.0.0.1:1/db")
    assert engines.url == "postgresql+psycopg://user:***@127.0.0.1:1/db"
    with pytest.raises(LedgerUnavailableError) as refused, engines.begin():
        pass
    assert "PASSWORD" not in str(refused.value)
    assert "PASSWORD" not in repr(engines)
    engines.close()


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1:1/db", r"127\.0\.0\.1:1/db is not available: nobody listens there; start the server"),
        ("nowhere.invalid/db", r"nowhere\.invalid:5432/db is not available: the host is unknown"),
    ],
)
def test_a_server_that_cannot_be_reached_is_named_with_its_cure(address: str, words: str) -> None:
    """Host, port and database, the reason in our words, what to do; never the password (D6)."""
    engines = open_engines(f"postgresql://user:PASSWORD@{address}")
    with pytest.raises(LedgerUnavailableError, match=words) as refused, engines.look():
        pass
    assert "PASSWORD" not in str(refused.value)
    engines.close()


def test_what_a_server_refuses_at_the_door_is_named(postgres_server: Any) -> None:
    """An unknown database and an unknown user, as a real server says it."""
    url = sa.make_url(postgres_server.url("nothing_of_that_name"))
    for wrong, words in ((url, "has no such database"), (url.set(username="stranger", database="postgres"), "this user|user or password")):
        engines = open_engines(wrong.render_as_string(hide_password=False))
        with pytest.raises(LedgerUnavailableError, match=words), engines.look():
            pass
        engines.close()


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    """The path and the cure, whatever first touches it."""
    (tmp_path / "notes.txt").write_text("no database, only words " * 100)
    engines = open_engines(f"sqlite:///{tmp_path}/notes.txt")
    for look in (lambda: migrate(engines), lambda: engines.begin().__enter__()):
        with pytest.raises(LedgerError, match=f"{tmp_path}/notes.txt is not a whole SQLite database; name another"):
            look()
    engines.close()


def test_a_path_that_cannot_be_is_a_configuration_error(tmp_path: Path) -> None:
    """A database below a file names the file."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigurationError, match=f"{tmp_path}/file/gateway.db"):
        open_engines(f"sqlite:///{tmp_path}/file/gateway.db")


@pytest.mark.parametrize(
    ("words", "meaning"),
    [
        ("FATAL:  the database system is starting up", "is starting; this passes by itself"),
        ("FATAL:  the database system is shutting down", "is stopping; this passes"),
        ("FATAL:  the database system is in recovery mode", "recovers from a crash"),
        ("FATAL:  the database system is not yet accepting connections", "takes no connections yet"),
        ("FATAL:  the database system is not accepting connections", "takes no connections yet"),
        ("Connection refused\n\tIs the server running locally and accepting connections on that socket?", "nobody listens there"),
        ("No such file or directory\n\tIs the server running locally and accepting connections on that socket?", "no socket there"),
        ("FATAL:  sorry, too many clients already", "raise its max_connections"),
        ("FATAL:  remaining connection slots are reserved for roles with the SUPERUSER attribute", "raise its max_connections"),
        ('FATAL:  too many connections for role "gateway"', "raise its connection limit"),
        ('FATAL:  too many connections for database "gateway"', "raise its connection limit"),
        ('FATAL:  role "gateway" does not exist', "does not know this user"),
        ('FATAL:  database "gateway" does not exist', "no such database"),
        ("connection failed: session is read-only", "the address must lead to the primary"),
    ],
)
def test_what_a_server_says_at_the_door(words: str, meaning: str) -> None:
    """B162: a server that starts, stops, recovers or is full is not called one without our database, which nobody should then make."""
    ours = tell(psycopg.OperationalError(f'connection to server at "10.0.0.1", port 5432 failed: {words}'))
    assert isinstance(ours, LedgerUnavailableError)
    assert meaning in str(ours)


# --- errors


def _sqlite_error(code: int) -> sa.exc.DBAPIError:
    error = sqlite3.OperationalError("of a test")
    error.sqlite_errorcode = code  # type: ignore[attr-defined,unused-ignore] # set by the driver itself
    error.sqlite_errorname = "SQLITE_TEST"  # type: ignore[attr-defined,unused-ignore] # the same
    return sa.exc.OperationalError("statement", {"secret": "PRIVATE"}, error)


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (_sqlite_error(5), Fault.CONFLICT),  # busy
        (_sqlite_error(517), Fault.CONFLICT),  # busy snapshot
        (_sqlite_error(262), Fault.CONFLICT),  # locked, shared cache
        (_sqlite_error(13), Fault.UNAVAILABLE),  # full
        (_sqlite_error(778), Fault.UNAVAILABLE),  # I/O error, write
        (_sqlite_error(8), Fault.UNAVAILABLE),  # read-only
        (_sqlite_error(19), Fault.OTHER),  # constraint
        (_sqlite_error(1), Fault.OTHER),  # SQL
        (psycopg.errors.SerializationFailure(), Fault.CONFLICT),
        (psycopg.errors.DeadlockDetected(), Fault.CONFLICT),
        (psycopg.errors.AdminShutdown(), Fault.UNAVAILABLE),
        (psycopg.errors.DiskFull(), Fault.UNAVAILABLE),
        (psycopg.errors.TooManyConnections(), Fault.UNAVAILABLE),
        (psycopg.errors.QueryCanceled(), Fault.UNAVAILABLE),
        (psycopg.errors.ReadOnlySqlTransaction(), Fault.UNAVAILABLE),
        (psycopg.OperationalError("connection lost"), Fault.UNAVAILABLE),
        (psycopg.errors.UniqueViolation(), Fault.OTHER),
        (psycopg.errors.SyntaxError(), Fault.OTHER),
        (sa.exc.TimeoutError(), Fault.UNAVAILABLE),
        (TimeoutError(), Fault.OTHER),
        (ValueError(), Fault.OTHER),
    ],
)
def test_errors_are_told_apart(error: Exception, fault: Fault) -> None:
    """Conflicts are run again, refusals of the database are told to callers, the rest are mistakes (B124, B165)."""
    assert classify(error) is fault
    ours = tell(error)
    assert isinstance(ours, LedgerUnavailableError) is (fault is not Fault.OTHER)
    assert "PRIVATE" not in str(ours)


def test_a_refused_statement_does_not_repeat_its_values(database: Database) -> None:
    """A violated constraint names itself, never the row (D6), in our error and in the driver's behind it."""
    engines = open_engines(database.url)
    with pytest.raises(LedgerError) as refused, engines.begin() as connection:
        connection.execute(heartbeats.insert(), [BEAT | {"error": "PRIVATE"}, BEAT | {"error": "PRIVATE"}])
    assert not isinstance(refused.value, LedgerUnavailableError)
    assert "PRIVATE" not in str(refused.value)
    assert "PRIVATE" not in str(refused.value.__cause__)
    engines.close()

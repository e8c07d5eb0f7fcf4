"""Behind a pooler that keeps no session, and with a line that breaks at the worst moment."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from ledger import tables
from ledger.engine import open_engines
from ledger.errors import ConfigurationError, LedgerUnavailableError
from ledger.ledger import Ledger
from ledger.queries import heartbeats
from ledger.vault import Vault
from schemas.commands import Beat, Ingest, Register
from tests.conformance.conftest import LIMIT, PostgresServer, until
from tests.conformance.house import NOW, REPORTS, delivery, intent
from tests.conformance.pooler import Pooler

pytestmark = pytest.mark.postgres
CONTRACTS = {"reports": REPORTS}


def _socket(server: PostgresServer) -> str:
    """Return the path of the server's socket, as its address tells it."""
    with psycopg.connect(server.url("postgres")) as connection:
        return f"{connection.info.host}/.s.PGSQL.{connection.info.port}"


@pytest.fixture
def pooler(postgres_server: PostgresServer) -> Iterator[Pooler]:
    with Pooler(_socket(postgres_server)) as made:
        yield made


@pytest.fixture
def name(postgres_server: PostgresServer) -> Iterator[str]:
    """Give the name of a migrated database without rows."""
    taken = postgres_server.take()
    yield taken
    postgres_server.give_back(taken)


def test_nothing_of_a_session_is_needed(pooler: Pooler, postgres_server: PostgresServer, vault: Vault) -> None:
    """H2: migration, writes, reads and wake-ups of two processes, every transaction on another server connection than the last."""
    empty = postgres_server.create()
    ledgers = [Ledger.open(pooler.url(empty), vault=vault, contracts=CONTRACTS, pooled=True) for _ in range(2)]
    heard = threading.Event()
    ledgers[1].on_due(heard.set)
    for ledger in ledgers:
        ledger.start()

    async def scenario() -> None:
        async with asyncio.timeout(LIMIT):
            for round_ in range(12):  # more often than a driver waits before it prepares a statement
                await asyncio.gather(*(ledger.write(Beat(duty=f"d{round_}", process="p", now=1, ok=True)) for ledger in ledgers))
                await asyncio.gather(*(ledger.read(heartbeats) for ledger in ledgers for _ in range(4)))
            registered = await ledgers[0].write(Register(intent=intent(1), now=NOW))
            assert registered.outcome == "created"
            assert len(await ledgers[1].read(heartbeats)) == 12

    asyncio.run(scenario())
    assert heard.wait(LIMIT)  # nobody can listen there: the clock tells
    engines = ledgers[0].engines
    for way in (engines.begin, engines.look):
        with way() as connection:
            shown = [connection.execute(sa.text(f"SHOW {word}")).scalar_one() for word in ("statement_timeout", "lock_timeout")]
        assert shown == ["15s", "4s"]
    assert pooler.transactions > 25
    for ledger in ledgers:
        assert ledger.close()
    postgres_server.drop(empty)


@pytest.mark.parametrize("strict", [True, False], ids=["refuses", "drops"])
def test_a_pooler_that_we_were_not_told_of_is_named(postgres_server: PostgresServer, vault: Vault, *, strict: bool) -> None:
    """H2: whether it refuses our session's settings or drops them without a word, the start ends with the setting that cures it."""
    with Pooler(_socket(postgres_server), strict=strict) as pooler:
        error = LedgerUnavailableError if strict else ConfigurationError
        with pytest.raises(error, match="set database_pooled = true"):
            Ledger.open(pooler.url(postgres_server.template), vault=vault, contracts={})


def test_a_commit_whose_answer_is_lost_may_be_repeated(pooler: Pooler, name: str, vault: Vault) -> None:
    """A2, B4, B124: the caller is told that it is unknown; the repeat of a delivery is a duplicate, of an intent the same operation."""
    ledger = Ledger.open(pooler.url(name), vault=vault, contracts=CONTRACTS, migrate=False, pooled=True)
    ledger.start()
    for command in (Register(intent=intent(1), now=NOW), Ingest(delivery=delivery(1, "job-1"), now=NOW)):
        pooler.lose_commit.set()
        with pytest.raises(LedgerUnavailableError):
            ledger.write_now(command)
        assert not pooler.lose_commit.is_set()
    again = intent(1, id=f"op_{9:032d}", idempotency_token="token-9")  # the edge gives each request ids of its own
    repeated = ledger.write_now(Register(intent=again, now=NOW))
    assert repeated.operation is not None
    assert (repeated.outcome, repeated.operation.id) == ("replayed", intent(1).id)
    once_more = replace(delivery(1, "job-1"), id="dlv_once_more")
    assert ledger.write_now(Ingest(delivery=once_more, now=NOW)).status == "duplicate"
    with ledger.engines.look() as connection:
        for table in (tables.operations, tables.deliveries):
            assert connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one() == 1
    ledger.close()


def test_all_connections_of_readers_are_cut_at_once(postgres_server: PostgresServer, name: str, vault: Vault) -> None:
    """B124: a failover cuts every line; the next reads dial anew, all of them, and nobody hears of it."""
    ledger = Ledger.open(postgres_server.url(name), vault=vault, contracts={}, migrate=False)
    ledger.start(several_processes=False)
    together = threading.Barrier(4)

    def meet(view: Any) -> int:
        together.wait(LIMIT)  # four readers at once, so four connections
        return int(view.connection.execute(sa.text("SELECT pg_backend_pid()")).scalar_one())

    async def scenario() -> set[int]:
        async with asyncio.timeout(LIMIT):
            found: list[asyncio.Future[int]] = []
            for number in range(1, 5):
                found.append(asyncio.ensure_future(ledger.read(meet)))
                await until(lambda number=number: together.n_waiting == number or found[0].done())  # type: ignore[misc] # the same
            return set(await asyncio.gather(*found))

    before = asyncio.run(scenario())
    assert len(before) == 4
    with psycopg.connect(postgres_server.url(name), autocommit=True) as killer:
        killer.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = ANY(%s)", [list(before)])
    after = asyncio.run(scenario())
    assert len(after) == 4
    assert not after & before
    ledger.close()


def test_a_server_that_becomes_a_standby_is_left(postgres_server: PostgresServer, name: str, vault: Vault) -> None:
    """H2: one that refuses writes of a sudden is hung up on, by readers too; while there is no other it is told, and then it is over."""
    ledger = Ledger.open(postgres_server.url(name), vault=vault, contracts={}, migrate=False)
    pid = sa.text("SELECT pg_backend_pid()")
    ledger.write_now(Beat(duty="d", process="p", now=1, ok=True))
    reader = ledger.read_now(lambda view: view.connection.execute(pid).scalar_one())
    connection = ledger._writer.commits.connection
    assert connection is not None
    driver: Any = connection.connection.driver_connection
    driver.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
    driver.commit()
    ledger.write_now(Beat(duty="d", process="p", now=2, ok=True))  # another server was found: nobody hears of it
    assert ledger.read_now(lambda view: view.connection.execute(pid).scalar_one()) != reader
    with psycopg.connect(postgres_server.url("postgres"), autocommit=True) as server:
        server.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on'.encode())
        ledger.engines.write.dispose()
        ledger._writer.commits.close()
        with pytest.raises(LedgerUnavailableError, match="a standby; the address must lead to the primary"):
            ledger.write_now(Beat(duty="d", process="p", now=3, ok=True))
        demanding = open_engines(postgres_server.url(name) + "&target_session_attrs=read-write")
        with pytest.raises(LedgerUnavailableError, match="a standby; the address"), demanding.look():
            pass
        server.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only'.encode())
        with demanding.look() as connection:
            assert connection.execute(pid).scalar_one()
    demanding.close()
    ledger.write_now(Beat(duty="d", process="p", now=4, ok=True))
    ledger.close()

"""Field faults of kind i, database: contention, streams and paging, through the running house."""

import asyncio
import contextlib
import sqlite3
import threading
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import sqlalchemy as sa

from cli.world import RealWorld
from ledger import tables
from ledger.engine import WAL_LIMIT_BYTES
from schemas.commands import Ingest
from schemas.delivery import Delivery, Event
from schemas.operation import SECOND
from schemas.states import State
from simulator.server import Simulator
from tests.conformance.conftest import Database
from tests.faults.whole import QUIET, ShiftedWorld, Whole, add_key, eventually, options, whole


class Contended:
    """Fails the first `times` commits of a kind, as another process's conflicting commit would, and counts the tries."""

    def __init__(self, kind: str, times: int, error: Any) -> None:
        self.point = f"{kind}.before_commit"
        self.left = times
        self.error = error
        self.tries = 0
        self.armed = False

    def __call__(self, point: str) -> None:
        if not self.armed or point != self.point:
            return
        self.tries += 1
        if self.left > 0:
            self.left -= 1
            raise self.error()


def _conflict(database: Database) -> Any:
    if database.kind == "postgres":
        return psycopg.errors.SerializationFailure

    def busy() -> sa.exc.OperationalError:
        original = sqlite3.OperationalError("database is locked")
        original.sqlite_errorcode = sqlite3.SQLITE_BUSY
        original.sqlite_errorname = "SQLITE_BUSY"
        return sa.exc.OperationalError("COMMIT", {}, original)

    return busy


@pytest.mark.parametrize("kind", ["Register", "ClaimWork", "Settle", "Ingest"], ids=str.lower, scope="function")
def test_the_first_commits_meet_a_conflict(tmp_path: Path, kind: str, postgres_or_sqlite: Database) -> None:
    """B124: BUSY or 40001 on the first three commits of each step: applied once, the provider is called once, nobody hears of it."""
    database = postgres_or_sqlite
    contended = Contended(kind, 3, _conflict(database))

    async def scenario() -> None:
        async with (
            Simulator(options(), RealWorld()) as sim,
            whole(tmp_path, origin=sim.base_url, database_url=database.url, contract=QUIET, at=contended) as home,
        ):
            contended.armed = True
            made = await home.made("run=9999")
            op = await home.until(made, lambda op: op.remote_job_id is not None)
            assert op.remote_job_id is not None
            answer = await home.deliver("evt_1", op.remote_job_id, "running")
            assert answer.json()["status"] == "accepted"
            await home.reaches(made, State.OBSERVING)
            assert contended.left == 0
            assert contended.tries >= 4
            assert len(sim.calls("POST", "/v1/reports")) == len(sim.jobs) == 1
            assert (await home.operation(made)).hints == 1
            rows = await home.history(made)
            assert len([row for row in rows if row["cause"] == "delivery"]) == 1
            assert len(await home.rows(tables.attempts)) == 1
            await home.audited()

    asyncio.run(scenario())


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def postgres_or_sqlite(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Give a database of either kind; `kind` names something else in that test."""
    if request.param == "sqlite":
        yield Database(url=f"sqlite:///{tmp_path}/gateway.db", kind="sqlite")
        return
    server = request.getfixturevalue("postgres_server")
    name = server.take()
    yield Database(url=server.url(name), kind="postgres")
    server.give_back(name)


def test_endless_conflict_is_503_and_never_a_loss(tmp_path: Path, database: Database) -> None:
    """B124: a delivery that cannot be committed is answered 503 with Retry-After; its repeat is stored."""
    contended = Contended("Ingest", 1_000, _conflict(database))

    async def scenario() -> None:
        async with whole(tmp_path, database_url=database.url, contract=QUIET, reconcile=False, at=contended) as home:
            made = await home.adopted("job-1")
            contended.armed, at = True, home.house.world.now()
            refused = await home.deliver("evt_1", "job-1", "running", at=at)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
            contended.armed = False
            assert (await home.deliver("evt_1", "job-1", "running", at=at)).json()["status"] == "accepted"
            assert (await home.operation(made)).hints == 1

    asyncio.run(scenario())


def test_many_events_on_one_operation_at_once(tmp_path: Path, database: Database) -> None:
    """B116, B124: 200 deliveries in parallel at two servers with a writer each: no 5xx, every one applied once."""

    async def scenario() -> None:
        async with (
            whole(tmp_path, database_url=database.url, contract=QUIET, reconcile=False, several=False) as first,
            whole(tmp_path, database_url=database.url, contract=QUIET, reconcile=False, several=False) as second,
        ):
            made = await first.adopted("job-1")
            answers = await asyncio.gather(
                *((first if number % 2 else second).deliver(f"evt_{number}", "job-1", "running") for number in range(200))
            )
            assert {answer.status_code for answer in answers} == {200}
            assert {answer.json()["status"] for answer in answers} == {"accepted"}
            assert (await first.operation(made)).hints == 200
            await first.audited()

    asyncio.run(scenario())


def test_a_duplicate_among_deliveries_harms_no_neighbour(tmp_path: Path, database: Database) -> None:
    """B128: three receipts held back so that they are one transaction, the middle one a duplicate: the other two are stored."""
    hold, armed = threading.Event(), threading.Event()

    def wait(point: str) -> None:
        if armed.is_set() and point == "AddKey.before_commit":
            hold.wait(20)

    async def scenario() -> None:
        async with whole(tmp_path, database_url=database.url, contract=QUIET, reconcile=False, at=wait) as home:
            at = home.house.world.now()
            await home.deliver("evt_1", "job-1", "running", at=at)
            armed.set()
            plug = asyncio.create_task(add_key(home.house))
            posts = [asyncio.create_task(home.deliver(f"evt_{number}", "job-1", "running", at=at)) for number in (0, 1, 2)]
            await eventually(lambda: home.ledger.waiting() == 3)
            hold.set()
            await plug
            assert [answer.json()["status"] for answer in await asyncio.gather(*posts)] == ["unmatched", "duplicate", "unmatched"]
            assert len(await home.rows(tables.deliveries)) == 3

    asyncio.run(scenario())


# --- streams and the WAL


def _wal(folder: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return (folder / "gateway.db-wal").stat().st_size
    return 0


async def _slow_reader(home: Whole, path: str) -> asyncio.StreamReader:
    """Ask for something long and take only the beginning of it."""
    host, _, port = home.address.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1_024)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {home.key}\r\nConnection: close\r\n\r\n".encode())
    await writer.drain()
    assert b"200" in await reader.readline()
    return reader


def test_slow_readers_pin_no_snapshot(tmp_path: Path) -> None:
    """B117: history and result streams that nobody takes, long polls that wait, while 3000 writes come: the WAL stays bounded."""

    async def scenario() -> None:
        async with Simulator(options(), RealWorld()) as sim, whole(tmp_path, origin=sim.base_url, contract=QUIET) as home:
            made = (await home.create(request={"kind": "sales", "rows": 200_000})).json()["id"]
            op = await home.until(made, lambda op: op.remote_job_id is not None)
            assert op.remote_job_id is not None
            await home.deliver("evt_end", op.remote_job_id, "succeeded")
            await home.reaches(made, State.SUCCEEDED)
            waiting = await home.adopted("job-w")
            slow = [await _slow_reader(home, f"/v1/operations/{made}/{what}") for what in ("result", "history")]
            poll = asyncio.create_task(home.client().get(f"/v1/operations/{waiting}", headers={"Prefer": "wait=20"}))
            for _ in range(30):
                await asyncio.gather(*(_write(home) for _ in range(100)))
            assert home.ledger.engines.read.pool.checkedout() == 0  # type: ignore[attr-defined] # a QueuePool
            assert await asyncio.to_thread(_checkpointed, home)
            assert _wal(tmp_path) <= WAL_LIMIT_BYTES // 4
            assert len(slow) == 2
            poll.cancel()

    asyncio.run(scenario())


async def _write(home: Whole) -> None:
    world = home.house.world
    identity = world.new_id("dlv_")
    event = Event(dedup_key=identity, content_sha256="0" * 64, remote_job_id=identity, event_id=identity)
    await home.ledger.write(
        Ingest(
            delivery=Delivery(
                id=identity, provider="reports", received_at=world.now(), event=event, secret_id="s", scheme_id="v", body=b"x" * 4_000
            ),
            now=world.now(),
        )
    )


def _checkpointed(home: Whole) -> bool:
    """Return whether a checkpoint that empties the WAL gets through: it does not behind a reader's snapshot."""
    other = sqlite3.connect(str(home.ledger.engines.path))
    busy = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    other.close()
    return int(busy) == 0


# --- paging


async def _pages(client: httpx.AsyncClient, path: str, name: str) -> list[Any]:
    found: list[Any] = []
    cursor: dict[str, str] = {}
    for _ in range(20):
        page = (await client.get(path, params={"limit": "10", **cursor})).json()
        found += page[name]
        if page["next_cursor"] is None:
            return found
        cursor = {"cursor": page["next_cursor"]}
    raise AssertionError("the pages have no end")


class Standing(ShiftedWorld):
    """A clock that stands, and may be set back."""

    __slots__ = ("moment",)

    def __init__(self) -> None:
        super().__init__()
        self.moment = RealWorld().now()

    def now(self) -> int:
        return self.moment


def test_rows_of_one_moment_are_paged_once_each_in_order(tmp_path: Path, database: Database) -> None:
    """B130: history rows in one microsecond and behind a clock that stepped back, 25 operations at once: pages have each once, in order."""
    world = Standing()

    async def scenario() -> None:
        async with whole(tmp_path, database_url=database.url, contract=QUIET, reconcile=False, world=world) as home:
            made = await home.adopted("job-1")
            for number in range(19):
                assert (await home.deliver(f"evt_{number}", "job-1", "running")).status_code == 200
            world.moment -= 100 * SECOND
            for number in range(5):
                answer = await home.client().post(f"/v1/operations/{made}/cancel" if number == 0 else f"/v1/operations/{made}/refresh")
                assert answer.status_code in {202, 429}
            rows = await _pages(home.client(), f"/v1/operations/{made}/history", "history")
            assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
            assert len(rows) >= 21
            assert sorted(row["at"] for row in rows) != [row["at"] for row in rows]

            for number in range(24):
                await home.adopted(f"job-{number + 2}")
            listed = await _pages(home.client(), "/v1/operations", "operations")
            assert len(listed) == len({item["id"] for item in listed}) == 25
            assert [(item["created_at"], item["id"]) for item in listed] == sorted(
                ((item["created_at"], item["id"]) for item in listed), reverse=True
            )

    asyncio.run(scenario())

"""The writer commits together, isolates the bad, retries conflicts, tells when the database refuses, and lives on."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from ledger.commits import News, Parts
from ledger.engine import Engines, open_engines
from ledger.errors import LedgerBusyError, LedgerClosedError, LedgerError, LedgerUnavailableError
from ledger.kinds import function_of
from ledger.ledger import Ledger
from ledger.queries import api_keys, heartbeats
from ledger.transaction import Transaction, View
from ledger.vault import Vault
from ledger.writer import Writer
from schemas.commands import AddKey, Beat, Command, RevokeKey
from tests.conformance.conftest import LIMIT, MASTER, Database, until


def key(number: int, sha: bytes | None = None) -> AddKey:
    return AddKey(id=f"key_{number}", key_sha256=sha or b"%032d" % number, owner="acme", subject="s", scopes=("b", "a"), now=number)


def beat(process: str, now: int = 1, *, ok: bool = True) -> Beat:
    return Beat(duty="sweep", process=process, now=now, ok=ok, counts={"done": 1})


class Bench:
    """A writer with what a test wants to see of it."""

    def __init__(self, engines: Engines, **options: Any) -> None:
        self.engines = engines
        self.points: list[str] = []
        self.news: list[News] = []
        self.function: Callable[[type[Command]], Callable[[Transaction, Any], Sequence[Any]]] = function_of
        self.crash_at = ""
        self.before_commit: Callable[[], None] = lambda: None
        self.hold = threading.Event()
        self.hold.set()
        parts = Parts(
            engines=engines,
            vault=Vault(MASTER),
            contracts=dict,
            tell=self.news.append,
            chance=lambda: 0.0,
            crash_point=self.pass_by,
            function_of=self.find,
        )
        self.writer = Writer(parts, **options)

    def find(self, kind: type[Command]) -> Callable[[Transaction, Any], Sequence[Any]]:
        return self.function(kind)

    def pass_by(self, point: str) -> None:
        self.points.append(point)
        if point.endswith(".begun"):
            assert self.hold.wait(LIMIT)
        if point == "AddKey.before_commit":
            before, self.before_commit = self.before_commit, lambda: None
            before()
        if point == self.crash_at:
            raise KeyboardInterrupt(point)

    def keys(self) -> list[str]:
        with self.engines.look() as connection:
            return [key.id for key in api_keys(View(connection=connection, vault=Vault(MASTER)))]


@pytest.fixture
def bench(engines: Engines) -> Iterator[Bench]:
    made = Bench(engines)
    yield made
    made.hold.set()
    made.writer.close(LIMIT)


async def _write_all(bench: Bench, commands: Sequence[Command], between: Callable[[list[Any]], None] = lambda _: None) -> list[Any]:
    """Hold the writer in a transaction of another command, so that all of `commands` wait together; return their answers."""
    bench.hold.clear()
    plug = asyncio.ensure_future(bench.writer.write(beat("plug")))
    await until(lambda: bool(bench.points))
    tasks = [asyncio.ensure_future(bench.writer.write(command)) for command in commands]
    await until(lambda: bench.writer.waiting() == len(commands))
    between(tasks)
    bench.hold.set()
    async with asyncio.timeout(LIMIT):
        _, *answers = await asyncio.gather(plug, *tasks, return_exceptions=True)
    return answers


def test_what_waits_is_committed_together(bench: Bench) -> None:
    """A hundred waiting commands of one kind are one transaction, answered in their order."""
    bench.writer.start()
    answers = asyncio.run(_write_all(bench, [key(number) for number in range(100)]))
    assert [answer.id for answer in answers] == [f"key_{number}" for number in range(100)]
    assert bench.points.count("AddKey.after_commit") == 1
    assert len(bench.keys()) == 100


def test_a_batch_is_bounded(engines: Engines) -> None:
    """No transaction takes more commands than the bound."""
    bench = Bench(engines, batch=10)
    bench.writer.start()
    asyncio.run(_write_all(bench, [key(number) for number in range(41)]))
    assert bench.points.count("AddKey.after_commit") == 5
    bench.writer.close(LIMIT)


def test_kinds_take_turns_by_age(bench: Bench) -> None:
    """One kind per transaction; the kind whose oldest command waits longest is next, so none starves."""
    bench.writer.start()
    asyncio.run(_write_all(bench, [key(1), beat("a"), key(2), RevokeKey(id="key_1", now=5), beat("b")]))
    commits = [point for point in bench.points if point.endswith("after_commit")]
    assert commits == ["Beat.after_commit", "AddKey.after_commit", "Beat.after_commit", "RevokeKey.after_commit"]


def test_a_bad_command_does_not_poison_its_neighbours(bench: Bench) -> None:
    """Of 50 keys in one batch one repeats a hash: it alone fails, the other 49 are stored (B113, B128)."""
    bench.writer.start()
    commands = [key(number) for number in range(50)]
    commands[33] = key(33, sha=b"%032d" % 7)
    answers = asyncio.run(_write_all(bench, commands))
    assert [number for number, answer in enumerate(answers) if isinstance(answer, BaseException)] == [33]
    assert isinstance(answers[33], LedgerError)
    assert not isinstance(answers[33], LedgerUnavailableError)
    assert len(bench.keys()) == 49


def test_a_command_that_breaks_its_function_fails_alone(bench: Bench) -> None:
    """An exception of the function itself goes to the command that causes it, rolled back; the others are stored."""

    def picky(tx: Transaction, commands: Sequence[AddKey]) -> Sequence[Any]:
        answers = function_of(AddKey)(tx, commands)
        if any(command.id == "key_2" for command in commands):
            raise ZeroDivisionError
        return answers

    bench.function = lambda kind: picky if kind is AddKey else function_of(kind)
    bench.writer.start()
    answers = asyncio.run(_write_all(bench, [key(number) for number in range(5)]))
    assert isinstance(answers[2], ZeroDivisionError)
    assert bench.keys() == ["key_0", "key_1", "key_3", "key_4"]


def _failing(times: int, error: Callable[[], Exception]) -> tuple[Callable[[type[Command]], Any], list[int]]:
    """Return functions that fail after their work, `times` times, and the list of their tries."""
    tries: list[int] = []

    def work(tx: Transaction, commands: Sequence[Any]) -> Sequence[Any]:
        answers = function_of(type(commands[0]))(tx, commands)
        tries.append(len(commands))
        if len(tries) <= times:
            raise error()
        return answers

    return lambda kind: work if kind is AddKey else function_of(kind), tries


def test_conflicts_are_run_again(bench: Bench) -> None:
    """The first three tries meet a serialization failure: everything is applied once, nobody hears of it (B124)."""
    bench.function, tries = _failing(3, psycopg.errors.SerializationFailure)
    bench.writer.start()
    answers = asyncio.run(_write_all(bench, [key(1)]))
    assert [answer.id for answer in answers] == ["key_1"]
    assert tries == [1, 1, 1, 1]
    assert bench.keys() == ["key_1"]


def test_endless_conflicts_end(bench: Bench) -> None:
    """After a bounded number of tries the caller hears that the database is not available; nothing was written (B124)."""
    bench.function, tries = _failing(1000, psycopg.errors.DeadlockDetected)
    bench.writer.start()
    (answer,) = asyncio.run(_write_all(bench, [key(1)]))
    assert isinstance(answer, LedgerUnavailableError)
    assert len(tries) == 7
    assert bench.keys() == []


def _cut(bench: Bench) -> None:
    """Take the writer's connection away as a server or an operating system would."""
    if bench.engines.postgres:
        with bench.engines.dial() as other:
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
    else:
        connection = bench.writer.commits.connection
        assert connection is not None
        connection.connection.driver_connection.close()  # type: ignore[union-attr] # a driver's connection


def test_the_writer_survives_a_lost_connection(bench: Bench) -> None:
    """When the connection is lost while idle the next command dials anew; its caller does not even notice (B124)."""
    bench.writer.start()
    asyncio.run(_write_all(bench, [key(1)]))
    _cut(bench)
    for number in (2, 3):
        assert bench.writer.submit(key(number)).result(LIMIT).id == f"key_{number}"
    assert bench.keys() == ["key_1", "key_2", "key_3"]


def test_a_connection_lost_at_the_commit_is_not_tried_again(bench: Bench) -> None:
    """Whether it was committed is unknown then: the caller is told, the writer lives on (B124)."""
    bench.before_commit = lambda: _cut(bench)
    bench.writer.start()
    with pytest.raises(LedgerError):
        bench.writer.submit(key(1)).result(LIMIT)
    assert bench.writer.submit(key(2)).result(LIMIT).id == "key_2"
    assert bench.keys() == ["key_2"]


def test_a_slow_refusal_is_everybodys(engines: Engines) -> None:
    """B120: what waits while the database refuses slowly is refused with it, of whatever kind: kind after kind would wait for minutes."""
    bench = Bench(engines, hopeless=0.0)
    bench.function, tries = _failing(1000, psycopg.errors.AdminShutdown)
    bench.writer.start()
    bench.hold.clear()
    first = bench.writer.submit(key(1))
    asyncio.run(until(lambda: bool(bench.points)))
    waiting = [bench.writer.submit(command) for command in (beat("p"), RevokeKey(id="key_1", now=5), key(2))]
    bench.hold.set()
    for ticket in (first, *waiting):
        with pytest.raises(LedgerUnavailableError):
            ticket.result(LIMIT)
    assert tries == [1]
    assert bench.writer.submit(beat("p")).result(LIMIT) is None  # and the next is tried
    bench.writer.close(LIMIT)


def test_a_conflict_over_rows_is_not_everybodys(bench: Bench) -> None:
    """B124: whoever is in conflict is refused alone on PostgreSQL, where the others' rows are free; SQLite has one lock for all."""
    bench.writer._hopeless = 0.0
    bench.function, _ = _failing(1000, psycopg.errors.DeadlockDetected)
    bench.writer.start()
    bench.hold.clear()
    first = bench.writer.submit(key(1))
    asyncio.run(until(lambda: bool(bench.points)))
    other = bench.writer.submit(beat("p"))
    bench.hold.set()
    with pytest.raises(LedgerUnavailableError):
        first.result(LIMIT)
    assert (other.exception(LIMIT) is None) is bench.engines.postgres


def test_a_slow_refusal_of_reads_is_everybodys(database: Database, vault: Vault) -> None:
    """B120: the same for reads: sixteen at a time, each lot with a wait of its own, would be minutes."""
    ledger = Ledger.open(database.url, vault=vault, contracts={}, migrate=False)
    ledger._readers._hopeless = 0.0
    gate = threading.Event()
    taken: list[int] = []

    def refused(_: View) -> None:
        taken.append(1)
        assert gate.wait(LIMIT)
        raise LedgerUnavailableError("gone")

    async def scenario() -> None:
        async with asyncio.timeout(LIMIT):
            held = []
            for number in range(1, 5):  # one for each thread
                held.append(asyncio.ensure_future(ledger.read(refused)))
                await until(lambda number=number: len(taken) == number)  # type: ignore[misc] # bound by the default
            waiting = [asyncio.ensure_future(ledger.read(heartbeats)) for _ in range(100)]
            await until(lambda: len(ledger._readers._tickets) == 100)
            gate.set()
            answers = await asyncio.gather(*held, *waiting, return_exceptions=True)
            assert {type(answer) for answer in answers[:4]} == {LedgerUnavailableError}
            assert LedgerUnavailableError in {type(answer) for answer in answers[4:]}
            assert len(await ledger.read(heartbeats)) == 0

    ledger.start(several_processes=False)
    asyncio.run(scenario())
    ledger.close()


@pytest.mark.parametrize("kind", ["sqlite"])
def test_closing_has_one_bound(database: Database, vault: Vault) -> None:
    """B103: readers that hang are waited for together, not one after the other: the process ends within its grace."""
    ledger = Ledger.open(database.url, vault=vault, contracts={}, migrate=False)
    ledger.start()
    gate = threading.Event()
    held: list[asyncio.Future[bool]] = []

    taken: list[int] = []

    def hangs(_: View) -> bool:
        taken.append(1)
        return gate.wait(LIMIT)

    async def hang() -> None:
        for number in range(1, 5):  # one for each thread
            held.append(asyncio.ensure_future(ledger.read(hangs)))
            await until(lambda number=number: len(taken) == number)  # type: ignore[misc] # bound by the default
        for task in held:
            task.cancel()

    asyncio.run(hang())
    began = time.monotonic()
    ledger.close(1.0)
    took = time.monotonic() - began
    gate.set()
    assert took < 3.5  # four one after the other would be four seconds


def _stored(ledger: Ledger, number: int) -> bool:
    try:
        ledger.write_now(key(number))
    except LedgerUnavailableError as error:
        return "full" not in str(error)
    return True


def test_a_full_disk_is_told_and_recovered_from(tmp_path: Path, vault: Vault) -> None:
    """SQLITE_FULL: the writer answers "unavailable", reads go on, and when there is room again it works (B165)."""
    url = f"sqlite:///{tmp_path}/gateway.db"
    ledger = Ledger.open(url, vault=vault, contracts={})
    ledger.start()
    ledger.write_now(key(1))
    connection = ledger._writer.commits.connection
    assert connection is not None
    driver: Any = connection.connection.driver_connection
    pages = driver.execute("PRAGMA page_count").fetchone()[0]
    driver.execute(f"PRAGMA max_page_count={pages}")
    failed = next(number for number in range(2, 200) if not _stored(ledger, number))
    assert len(ledger.read_now(api_keys)) == failed - 1
    assert ledger.write_now(key(failed)).id == f"key_{failed}"  # the new connection has no limit: there is room again
    ledger.close()


def test_a_locked_database_is_waited_for(tmp_path: Path, vault: Vault) -> None:
    """Another process holds the write lock for a while: the command waits and is applied once (B116)."""
    url = f"sqlite:///{tmp_path}/gateway.db"
    ledger = Ledger.open(url, vault=vault, contracts={})
    ledger.start()
    other = open_engines(url)
    waiting = threading.Event()
    with other.begin():
        ticket = ledger._writer.submit(key(1))
        waiting.set()
        with pytest.raises(TimeoutError):
            ticket.result(0.2)
    assert ticket.result(LIMIT).id == "key_1"
    other.close()
    ledger.close()


def test_a_full_queue_is_busy(engines: Engines) -> None:
    """Beyond the bound of a kind commands are refused at once, others are not, and what waits is still committed."""
    bench = Bench(engines, waiting=3)
    bench.writer.start()
    bench.hold.clear()
    first = bench.writer.submit(key(0))  # in its transaction: it does not wait any more
    asyncio.run(until(lambda: bool(bench.points)))
    waiting = [bench.writer.submit(key(number)) for number in (1, 2, 3)]
    with pytest.raises(LedgerBusyError):
        bench.writer.submit(key(4))
    other = bench.writer.submit(beat("p"))
    bench.hold.set()
    assert [ticket.result(LIMIT).id for ticket in [first, *waiting]] == ["key_0", "key_1", "key_2", "key_3"]
    assert other.result(LIMIT) is None
    bench.writer.close(LIMIT)


def test_a_cancelled_caller_disturbs_nobody(bench: Bench) -> None:
    """Half of the waiting tasks are cancelled: their commands are committed all the same and the others answered."""
    bench.writer.start()

    def cancel(tasks: list[Any]) -> None:
        for task in tasks[::2]:
            task.cancel()

    answers = asyncio.run(_write_all(bench, [key(number) for number in range(10)], cancel))
    assert [isinstance(answer, asyncio.CancelledError) for answer in answers] == [True, False] * 5
    assert len(bench.keys()) == 10


def test_a_loop_that_is_gone_disturbs_nobody(bench: Bench) -> None:
    """The loop of a waiting caller is closed before the commit: the writer goes on for the others."""
    bench.writer.start()

    async def abandon() -> None:
        bench.hold.clear()
        task = asyncio.ensure_future(bench.writer.write(key(1)))
        await until(lambda: bool(bench.points))
        task.cancel()

    asyncio.run(abandon())
    bench.hold.set()
    assert bench.writer.submit(key(2)).result(LIMIT).id == "key_2"
    assert bench.keys() == ["key_1", "key_2"]


@pytest.mark.parametrize(("place", "stored"), [("begun", []), ("before_commit", []), ("after_commit", ["key_1"])])
def test_a_crash_at_a_commit_boundary(bench: Bench, place: str, stored: list[str]) -> None:
    """Killed before the commit nothing is stored, after it everything; nobody is answered, and the health check sees it (A2)."""
    bench.crash_at = f"AddKey.{place}"
    bench.writer.start()
    answers = asyncio.run(_write_all(bench, [key(1)]))
    assert isinstance(answers[0], LedgerClosedError)
    assert bench.keys() == stored
    bench.writer._thread.join(LIMIT)  # type: ignore[union-attr] # started above
    assert not bench.writer.alive
    with pytest.raises(LedgerClosedError):
        bench.writer.submit(key(2))


def test_closing_commits_what_waits(bench: Bench) -> None:
    """SIGTERM in the middle: what was accepted is committed, what comes later is refused."""
    bench.writer.start()
    bench.hold.clear()
    tickets = [bench.writer.submit(key(number)) for number in range(20)]
    closing = threading.Thread(target=bench.writer.close, args=(LIMIT,))
    closing.start()
    bench.hold.set()
    closing.join(LIMIT)
    assert [ticket.result(0).id for ticket in tickets] == [f"key_{number}" for number in range(20)]
    with pytest.raises(LedgerClosedError):
        bench.writer.submit(key(99))


def test_news_comes_after_the_commit_and_only_then(bench: Bench) -> None:
    """Listeners hear what a committed transaction reports; a rolled back one is never heard of."""

    def reporting(tx: Transaction, commands: Sequence[AddKey]) -> Sequence[Any]:
        tx.changed.update(command.id for command in commands)
        tx.due.update(command.id for command in commands if command.now > 1)
        return function_of(AddKey)(tx, commands)

    bench.function = lambda kind: reporting if kind is AddKey else function_of(kind)
    bench.writer.start()
    asyncio.run(_write_all(bench, [key(1), key(2), key(3, sha=b"%032d" % 2)]))
    bench.writer.submit(beat("p")).result(LIMIT)
    changed = set().union(*(news.changed for news in bench.news))
    assert changed == {"key_1", "key_2"}
    assert set().union(*(news.due for news in bench.news)) == {"key_2"}


def test_a_failing_listener_does_not_end_the_writer(engines: Engines) -> None:
    """A listener that raises is logged; its commit stands and commands go on."""

    def broken(_: News) -> None:
        raise ZeroDivisionError

    def reporting(tx: Transaction, commands: Sequence[AddKey]) -> Sequence[Any]:
        tx.changed.update(command.id for command in commands)
        return function_of(AddKey)(tx, commands)

    bench = Bench(engines)
    bench.writer._parts.tell = broken
    bench.function = lambda kind: reporting if kind is AddKey else function_of(kind)
    bench.writer.start()
    for number in range(3):
        assert bench.writer.submit(key(number)).result(LIMIT).id == f"key_{number}"
    bench.writer.close(LIMIT)


# --- the facade


def test_the_facade_writes_and_reads(ledger: Ledger) -> None:
    """`write` answers by kind after the commit; `read` sees it, from both sides, on both databases."""

    async def scenario() -> None:
        async with asyncio.timeout(LIMIT):
            stored = await ledger.write(key(1))
            assert await ledger.read(api_keys) == [stored]
            assert await ledger.write(RevokeKey(id="key_1", now=9))
            assert not await ledger.write(RevokeKey(id="key_unknown", now=9))
            await asyncio.gather(*(ledger.read(heartbeats) for _ in range(200)))

    asyncio.run(scenario())
    assert ledger.read_now(api_keys)[0].revoked_at == 9


def test_a_ledger_works_without_threads(database: Database, vault: Vault) -> None:
    """The command line and the simulation write and read in their own thread."""
    ledger = Ledger.open(database.url, vault=vault, contracts={}, migrate=False)
    assert ledger.write_now(key(1)).id == "key_1"
    with pytest.raises(LedgerError):
        ledger.write_now(key(1))
    assert len(ledger.read_now(api_keys)) == 1
    ledger.close()
    with pytest.raises(LedgerClosedError):
        ledger.write_now(key(2))


def test_a_memory_ledger_works(vault: Vault) -> None:
    """The simulation's database: migrated, proven, written and read, with threads or without."""
    for start in (False, True):
        ledger = Ledger.open("sqlite://", vault=vault, contracts={})
        if start:
            ledger.start()
        ledger.write_now(key(1))
        assert len(ledger.read_now(api_keys)) == 1
        ledger.close()


def test_reads_are_bounded_and_isolated(ledger: Ledger) -> None:
    """A failing query fails alone; beyond the bound reads are refused at once (B120)."""
    gate = threading.Event()

    def slow(_: View) -> bool:
        return gate.wait(LIMIT)

    def wrong(view: View) -> None:
        view.connection.execute(sa.text("SELECT nothing FROM nowhere"))

    async def scenario() -> None:
        async with asyncio.timeout(LIMIT):
            held = [asyncio.ensure_future(ledger.read(slow)) for _ in range(4)]
            await asyncio.sleep(0)
            await until(lambda: not ledger._readers._tickets)
            mixed = [asyncio.ensure_future(ledger.read(wrong if number % 3 == 0 else heartbeats)) for number in range(30)]
            await asyncio.sleep(0)
            ledger._readers._bound = len(ledger._readers._tickets)
            with pytest.raises(LedgerBusyError):
                await ledger.read(heartbeats)
            gate.set()
            assert await asyncio.gather(*held) == [True] * 4
            answers = await asyncio.gather(*mixed, return_exceptions=True)
            assert [isinstance(answer, LedgerError) for answer in answers] == [number % 3 == 0 for number in range(30)]

    asyncio.run(scenario())


def test_no_transaction_stays_open(ledger: Ledger) -> None:
    """After the answers all connections are back in their pools: nothing pins the WAL (B117, B122)."""
    asyncio.run(_read_often(ledger))
    assert ledger.engines.read.pool.checkedout() == 0  # type: ignore[attr-defined] # a QueuePool
    connection = ledger._writer.commits.connection
    assert connection is None or not connection.in_transaction()


async def _read_often(ledger: Ledger) -> None:
    async with asyncio.timeout(LIMIT):
        await asyncio.gather(*(ledger.read(heartbeats) for _ in range(50)))
        await asyncio.gather(*(ledger.write(beat(str(number))) for number in range(50)))

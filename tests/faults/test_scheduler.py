"""Field faults of kinds h and i that concern the clockwork: slow providers, wrong clocks, values reloaded from the record."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from ledger import tables
from ledger.audit import self_audit
from ledger.engine import open_engines
from ledger.ledger import Ledger
from ledger.vault import Vault
from schemas.commands import Claimed, ClaimWork, Ingest, Register, Renew, Settle, Sweep
from schemas.evidence import JobKnown
from schemas.operation import SECOND
from schemas.states import State
from tests.conformance.conftest import Database
from tests.conformance.house import NOW, REPORTS, delivery, intent
from tests.faults.providers import Provider
from tests.faults.whole import REPORTS as CONTRACT
from tests.faults.whole import ShiftedWorld, Whole, changed, eventually, seconds, whole
from tests.reconciler.servers import Server, read_request, response, serving

if TYPE_CHECKING:
    from schemas.contract import Contract

SLOW = changed(CONTRACT, ("\n[cancel]", "\n[limits]\nconcurrency = 40\nrate_per_second = 1000\n\n[cancel]"))


class Slow(Provider):
    """Takes creates at once and holds every read until it is released."""

    async def __call__(self, server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            request = await read_request(server, reader)
            if request.startswith(b"POST"):
                await self._create(request, writer)
            else:
                self.gets.append("held")
                await server.release.wait()
                writer.write(response(503, b"", "retry-after: 60"))
            await writer.drain()


async def _held(home: Whole, provider: Slow, count: int) -> None:
    made = [await home.made() for _ in range(count)]
    await eventually(lambda: len(provider.gets) >= count)
    for operation in made:
        assert (await home.operation(operation)).state in {State.ACCEPTED, State.OBSERVING}


async def _nothing_checked_out(home: Whole) -> None:
    """Wait for the pool to be whole: a tick may look just now; what a call holds stays out for as long as it hangs."""
    pool: Any = home.ledger.engines.read.pool
    await eventually(lambda: pool.checkedout() == 0)


def test_slow_reads_hold_no_connection_and_delay_no_delivery(tmp_path: Path, database: Database) -> None:
    """B120: 30 reads hang at the provider: no connection is in use, and deliveries are answered within a second; so after a drain."""
    provider = Slow()

    async def scenario() -> None:
        async with serving(provider) as server, whole(tmp_path, origin=server.url, database_url=database.url, contract=SLOW) as home:
            await _held(home, provider, 30)
            await _nothing_checked_out(home)
            took = []
            for number in range(100):
                began = time.monotonic()
                answer = await home.deliver(f"evt_{number}", f"other-{number}", "running")
                took.append(time.monotonic() - began)
                assert answer.status_code == 200
            assert sorted(took)[-2] < 1.0
            await _nothing_checked_out(home)
            assert home.clockwork is not None
            drained = await home.clockwork.drain(0.1)
            assert drained.interrupted == 30
            await _nothing_checked_out(home)
            leased = await home.rows(tables.operations, tables.operations.c.lease_until.is_not(None))
            assert leased == []

    asyncio.run(scenario())


def test_no_transaction_is_open_during_a_call(tmp_path: Path, database: Database) -> None:
    """B122: while the provider lets a create and reads wait, nothing is in a transaction, and another writer commits at once."""
    provider = Slow()

    async def scenario() -> None:
        async with serving(provider) as server, whole(tmp_path, origin=server.url, database_url=database.url, contract=SLOW) as home:
            await _held(home, provider, 3)
            with _open_transactions(home) as count:
                await eventually(lambda: count() == 0)  # a tick's ends at once; one around a call would hang as long as it does
            assert await asyncio.to_thread(_commit_elsewhere, database.url) < 0.5

    asyncio.run(scenario())


@contextlib.contextmanager
def _open_transactions(home: Whole) -> Iterator[Callable[[], int]]:
    """Give what counts the transactions that are open now."""
    engines = home.ledger.engines
    if not engines.postgres:
        connection = home.ledger._writer.commits.connection
        assert connection is not None
        driver: Any = connection.connection.driver_connection
        yield lambda: int(driver.in_transaction)
        return
    query = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'"
    with engines.dial() as other:
        yield lambda: len(other.execute(query).fetchall())


def _commit_elsewhere(url: str) -> float:
    engines = open_engines(url)
    began = time.monotonic()
    with engines.begin() as connection:
        connection.execute(sa.update(tables.operations).values(revision=tables.operations.c.revision))
    took = time.monotonic() - began
    engines.close()
    return took


# --- clocks


def _claim(ledger: Ledger, worker: str, offset: float) -> tuple[Claimed, ...]:
    """Claim with a process clock that is wrong by `offset` seconds."""
    now = _now(ledger) + seconds(offset)
    command = ClaimWork(
        worker=worker, room={"reports": 10}, limit=10, lease=seconds(20), send_budget=seconds(5), now=now, chance=0.5
    )  # fmt: skip
    return ledger.write_now(command).items


def _now(ledger: Ledger) -> int:
    if not ledger.engines.postgres:
        return NOW
    with ledger.engines.look() as connection:
        return int(connection.execute(sa.text("SELECT (extract(epoch from clock_timestamp()) * 1000000)::bigint")).scalar_one())


def test_a_wrong_clock_claims_no_lease_of_another(postgres_server: Any, vault: Vault) -> None:
    """B127: on PostgreSQL leases are written and judged by the database's clock: 30 s off either way claims nothing twice."""
    name = postgres_server.take()
    contracts: dict[str, Contract] = {"reports": REPORTS}
    ledgers = [Ledger.open(postgres_server.url(name), vault=vault, contracts=contracts, migrate=False) for _ in range(2)]
    try:
        first, second = ledgers
        now = _now(first)
        first.write_now(Register(intent=intent(1), now=now))
        (held,) = _claim(first, "a", 0)
        for offset in (30, -30, 3_000):
            assert _claim(second, "b", offset) == ()
        first.write_now(Register(intent=intent(2), now=now))
        (wrong,) = _claim(second, "b", 30)  # a lease written by a process whose clock is ahead
        assert wrong.operation.id == intent(2).id
        for offset in (0, 15, -30):
            assert _claim(first, "a", offset) == ()
        renewal = Renew(operation_id=wrong.operation.id, fence=wrong.fence, lease=seconds(20), now=now - seconds(3_000))
        assert second.write_now(renewal)
        assert _claim(first, "a", 15) == ()
        assert held.fence == wrong.fence == 1
    finally:
        for ledger in ledgers:
            ledger.close()
        postgres_server.give_back(name)


def test_a_host_whose_clock_is_off_is_not_ready(tmp_path: Path, postgres_server: Any) -> None:
    """B127: more than two seconds between this host and PostgreSQL fail `readyz`, which tells how much, and not `livez`."""
    name = postgres_server.take()

    async def scenario() -> None:
        world = ShiftedWorld()
        async with whole(tmp_path, database_url=postgres_server.url(name), reconcile=False, world=world) as home:
            assert (await home.client().get("/readyz")).status_code == 200
            for offset in (5, -5):
                world.offset = seconds(offset)
                unready = await home.client().get("/readyz")
                assert unready.status_code == 503
                assert unready.json()["checks"]["clock"].startswith(f"{offset:+d}")
                assert (await home.client().get("/livez")).status_code == 200

    asyncio.run(scenario())
    postgres_server.give_back(name)


def test_the_fence_holds_even_where_clocks_do_not(database: Database, vault: Vault) -> None:
    """B125, B127: a successor claims early (its lease was cut short by a wrong clock); the former's word counts as evidence only."""
    contracts: dict[str, Contract] = {"reports": REPORTS}
    ledger = Ledger.open(database.url, vault=vault, contracts=contracts, migrate=False)
    ledger.write_now(Register(intent=intent(1), now=_now(ledger)))
    (former,) = _claim(ledger, "a", 0)
    with ledger.engines.begin() as connection:  # what a clock that is far ahead would have made of it
        connection.execute(sa.update(tables.operations).values(lease_until=0, due_at=0))
    (successor,) = _claim(ledger, "b", 1)
    settled = ledger.write_now(
        Settle(
            operation_id=former.operation.id,
            fence=former.fence,
            errand=former.errand,
            evidence=JobKnown(remote_job_id="job-1", source="create"),
            started_at=_now(ledger),
            now=_now(ledger),
            chance=0.5,
            actor="a",
            attempt_id=former.attempt_id,
        )
    )
    assert settled.stale
    assert (settled.operation.lease_owner, settled.operation.lease_fence) == ("b", successor.fence)
    assert not ledger.write_now(Renew(operation_id=former.operation.id, fence=former.fence, lease=seconds(20), now=_now(ledger)))
    ledger.close()


# --- what comes back from the record


def test_every_clock_is_judged_after_a_reload(database: Database, vault: Vault) -> None:
    """B119: leases, deadlines and keys written by one process are compared by another one; no check trips over what it reads."""
    contracts: dict[str, Contract] = {"reports": REPORTS}
    first = Ledger.open(database.url, vault=vault, contracts=contracts, migrate=False)
    now = _now(first)
    first.write_now(Register(intent=intent(1), now=now))
    first.write_now(Register(intent=intent(2, approval_seconds=60), now=now))
    first.write_now(Register(intent=intent(3, create_seconds=1), now=now))
    _claim(first, "a", 0)
    first.close()

    again = Ledger.open(database.url, vault=vault, contracts=contracts, migrate=False)
    swept = again.write_now(Sweep(now=now + seconds(7_200), limit=10, chance=0.5))
    assert isinstance(swept.counts, dict)
    items = _claim(again, "b", 7_200) if not again.engines.postgres else ()
    for item in items:
        assert item.errand
    counts = again.read_now(self_audit, now)
    assert not {name: count for name, count in counts.items() if count}
    with again.engines.look() as connection:
        for row in connection.execute(sa.select(tables.operations)).mappings():
            times = [value for name, value in row.items() if name.endswith(("_at", "_deadline", "_until")) and value is not None]
            assert times
            assert all(type(value) is int for value in times)
    again.close()


def test_a_sweep_gets_past_many_orphans(database: Database, vault: Vault) -> None:
    """B036, B115: deliveries that nobody will ever claim stand first, more of them than one sweep takes; one behind them is attached."""
    contracts: dict[str, Contract] = {"reports": REPORTS}
    ledger = Ledger.open(database.url, vault=vault, contracts=contracts, migrate=False)
    for number in range(30):
        ledger.write_now(Ingest(delivery=delivery(number, f"nobodys-{number}"), now=NOW))
    ledger.write_now(Register(intent=intent(1), now=NOW))
    now = max(NOW, _now(ledger))
    (item,) = _claim(ledger, "a", 0) if not ledger.engines.postgres else _claim(ledger, "a", (NOW - _now(ledger)) / SECOND + 1)
    late = delivery(99, "job-1")
    ledger.write_now(Ingest(delivery=late, now=NOW))
    ledger.write_now(
        Settle(
            operation_id=item.operation.id, fence=item.fence, errand=item.errand, evidence=JobKnown(remote_job_id="job-1", source="create"),
            started_at=NOW, now=NOW, chance=0.5, actor="a", attempt_id=item.attempt_id,
        )
    )  # fmt: skip
    with ledger.engines.begin() as connection:  # as a crash between receipt and application would have left it
        connection.execute(
            sa.update(tables.deliveries)
            .where(tables.deliveries.c.id == late.id)
            .values(status="received", operation=None, received_at=NOW + 1)
        )
    for _ in range(2):
        ledger.write_now(Sweep(now=now + seconds(120), limit=10, chance=0.5))
    with ledger.engines.look() as connection:
        row = connection.execute(
            sa.select(tables.deliveries.c.status, tables.deliveries.c.operation).where(tables.deliveries.c.id == late.id)
        ).one()
    assert tuple(row) == ("applied", item.operation.id)
    ledger.close()

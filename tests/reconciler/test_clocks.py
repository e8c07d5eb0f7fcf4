"""Wall clocks that step while the clockwork runs: forward by a year over thousands of operations, and back by hours."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from ledger import tables
from ledger.engine import Engines
from schemas.contract import Limits
from schemas.operation import SECOND
from schemas.states import Mode, State
from tests.reconciler.houses import QUICK, house
from tests.reconciler.servers import Server, read_request, response, serving, until

YEAR = 365 * 86_400 * SECOND
OPERATIONS = 10_000
RATE, CONCURRENCY = 40.0, 8


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 90))


class Alive:
    """A provider whose jobs all run on; counts the reads of each, and how many it has at a time."""

    def __init__(self) -> None:
        self.reads: Counter[str] = Counter()
        self.first = 0.0
        self.open = self.most_open = 0

    async def __call__(self, server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            request = await read_request(server, reader)
            self.first = self.first or time.monotonic()
            self.reads[request.split(b" ")[1].decode().rpartition("/")[2]] += 1
            self.open += 1
            self.most_open = max(self.most_open, self.open)
            await asyncio.sleep(0)
            self.open -= 1
            writer.write(response(200, json.dumps({"status": "running"}).encode()))
            await writer.drain()


def _copy(engines: Engines, operation: str, count: int) -> None:
    """Make as many operations like this one: registering them takes ten times as long, and is not what is tested."""
    with engines.begin() as connection:
        (like,) = connection.execute(sa.select(tables.operations).where(tables.operations.c.id == operation)).mappings()
        own = ("id", "idempotency_key", "idempotency_token")
        copies = [{**like, **dict.fromkeys(own, f"op_f{number:031x}"), "remote_job_id": f"job-{number}"} for number in range(1, count + 1)]
        connection.execute(sa.insert(tables.operations), copies)


def test_a_leap_into_next_year_floods_nobody(tmp_path: Path) -> None:
    """C2, C3, A9: 10,000 operations are overdue at once, past all deadlines: paced as ever, and none is timed out without a read."""
    contract = replace(QUICK, limits=Limits(concurrency=CONCURRENCY, rate_per_second=RATE))

    async def scenario() -> None:
        provider = Alive()
        async with serving(provider) as server, house(tmp_path, {"jobs": server.url}, contract=contract, start=False) as home:
            name = await home.register(mode=Mode.ADOPT, remote_job_id="job-0", request=None)
            await asyncio.to_thread(_copy, home.ledger.engines, name, OPERATIONS - 1)
            home.world.moment += YEAR
            await home.clockwork.start()
            await until(lambda: sum(provider.reads.values()) >= 100, 60)
            elapsed = time.monotonic() - provider.first
            assert sum(provider.reads.values()) <= RATE * (elapsed + 1) + CONCURRENCY + 1
            assert provider.most_open <= CONCURRENCY
            assert home.clockwork.claims["claimed"] <= sum(provider.reads.values()) + CONCURRENCY
            await home.clockwork.drain(5)
            c = tables.operations.c
            with home.ledger.engines.look() as connection:
                moved = connection.execute(sa.select(c.remote_job_id, c.state).where(c.state != str(State.ACCEPTED))).all()
            assert moved
            assert {job for job, _ in moved} <= set(provider.reads)
            assert {state for _, state in moved} <= {str(State.OBSERVING), str(State.RESULT_TIMED_OUT)}

    run(scenario)


def test_a_clock_that_is_set_back_stops_no_read(tmp_path: Path) -> None:
    """B106: two hours back while it runs: the step is noticed by monotonic time, and what was due is due, not in two hours."""

    async def scenario() -> None:
        provider = Alive()
        async with serving(provider) as server, house(tmp_path, {"jobs": server.url}, start=False) as home:
            sweep = next(duty for duty in home.clockwork.ticks.duties if duty.name == "sweep.silent")
            await home.clockwork.ticks.run_once(sweep)
            name = await home.register(mode=Mode.ADOPT, remote_job_id="job-1", request=None)
            home.world.moment -= 7_200 * SECOND
            due = (await home.operation(name)).due_at
            assert due is not None
            assert due > home.world.now() + 7_000 * SECOND
            await home.clockwork.start()
            await home.clockwork.ticks.run_once(sweep)
            assert sweep.counts["set_right"] == 1
            await until(lambda: provider.reads["job-1"] > 0)
            await home.clockwork.ticks.run_once(sweep)
            await home.clockwork.ticks.run_once(sweep)
            assert sweep.counts["set_right"] == 1

    run(scenario)

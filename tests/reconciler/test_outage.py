"""A provider that is gone for a day while ten thousand operations wait for it: no herd before, at or after its return (C3, B073)."""

import asyncio
import heapq
import json
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from lifecycle import schedule
from reconciler.crew import Crew
from reconciler.pace import Pace
from schemas.contract import Limits
from schemas.http import AnsweredOutcome, MaybeOutcome
from schemas.operation import SECOND
from schemas.settings import ClockworkSettings
from schemas.states import Mode
from tests.reconciler.houses import QUICK, house
from tests.reconciler.servers import Server, read_request, response, serving, until
from tests.reconciler.worlds import SteppedWorld

DAY = 86_400.0
OPERATIONS = 10_000


@dataclass(slots=True)
class Town:
    """Simulated time: an account's pace, and operations that come back by the schedule's own back-off."""

    random: Random
    limits: Limits
    back_at: float  # seconds until the provider answers again
    silence: float  # seconds that a call takes which nobody answers
    now: float = 0.0
    calls: list[float] = field(default_factory=list)
    read: Counter[int] = field(default_factory=Counter)  # answers of each operation

    def run(self, until_all_read: int) -> None:
        """Run until every operation has been read so often."""
        pace = Pace({"a": self.limits}, now=0.0)
        due: list[tuple[float, int]] = [(0.0, number) for number in range(OPERATIONS)]
        failures: Counter[int] = Counter()
        flying: list[tuple[float, int]] = []
        done = 0
        while done < OPERATIONS:
            while flying and flying[0][0] <= self.now:
                _, number = heapq.heappop(flying)
                pace.finish("a")
                up = self.now >= self.back_at
                outcome = AnsweredOutcome(status=200) if up else MaybeOutcome(error="timeout")
                pace.heard("a", str(number), outcome, now=self.now, chance=self.random.random())
                failures[number] = 0 if up else failures[number] + 1
                self.read[number] += up
                done += up and self.read[number] == until_all_read
                rest = schedule.pause(30.0, 0, 30.0, self.random.random()) if up else self._backed_off(failures[number])
                heapq.heappush(due, (self.now + rest / SECOND, number))
            room = pace.room(self.now).get("a", 0)
            while room and due and due[0][0] <= self.now:
                _, number = heapq.heappop(due)
                pace.start("a", self.now)
                self.calls.append(self.now)
                heapq.heappush(flying, (self.now + (0.05 if self.now >= self.back_at else self.silence), number))
                room -= 1
            waits = [pace.opens_in(self.now), flying[0][0] - self.now if flying else None, due[0][0] - self.now if due else None]
            self.now += max(0.001, min(wait for wait in waits if wait is not None and wait > 0))

    def _backed_off(self, failures: int) -> int:
        return schedule.pause(schedule.RETRY_SECONDS, failures, schedule.MAX_RETRY_SECONDS, self.random.random())


def test_ten_thousand_operations_come_back_without_a_herd() -> None:
    """B073, C3, I: a day of silence costs a few calls a minute; then the account's rate holds in every second, in later rounds too."""
    town = Town(random=Random(7), limits=Limits(concurrency=16, rate_per_second=50.0), back_at=DAY, silence=30.0)
    town.run(until_all_read=3)
    a_second = Counter(int(at) for at in town.calls)
    outage = [count for second, count in a_second.items() if second < DAY]
    first_minute = sum(count for second, count in a_second.items() if second < 120)
    assert first_minute <= 60
    assert sum(outage) - first_minute <= DAY / 30 * 4
    assert sum(outage) > DAY / 90, "it is tried again and again, so that its return is noticed"
    back = [at for at in town.calls if at >= DAY]
    assert back[0] - DAY <= 91, "its return is noticed within a pause and the call that waits in vain"
    after = [count for second, count in a_second.items() if second > DAY]
    assert max(after) <= 51
    assert town.now - DAY <= 3 * OPERATIONS / 50 * 1.2 + 120, "and none of its rate is wasted"
    assert set(town.read.values()) >= {3}
    assert len(town.read) == OPERATIONS


class Shut:
    """A provider that does not answer until it is opened, counting its calls by the test's seconds."""

    def __init__(self) -> None:
        self.open = False
        self.calls: list[float] = []
        self.now = 0.0

    async def __call__(self, server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            request = await read_request(server, reader)
            self.calls.append(self.now)
            if not self.open:
                writer.write(response(502, b"<html>bad gateway"))
            elif request.startswith(b"POST"):
                writer.write(response(201, json.dumps({"id": f"job-{len(self.calls)}"}).encode()))
            else:
                writer.write(response(200, b'{"status": "running"}'))
            await writer.drain()


def test_the_crew_keeps_to_the_rate_at_the_socket(tmp_path: Path) -> None:
    """B073, C3: 80 jobs that are all due at once, a provider that is down, then up: bounded calls at the raw server, in each round."""
    limits = Limits(concurrency=8, rate_per_second=20.0)
    contract = replace(QUICK, limits=limits)
    provider, neighbour = Shut(), Shut()
    neighbour.open = True

    async def scenario() -> None:
        async with (
            serving(provider) as server,
            serving(neighbour) as other,
            house(tmp_path, {"jobs": server.url, "others": other.url}, contract=contract, start=False, world=SteppedWorld()) as home,
        ):
            adopted = {"mode": Mode.ADOPT, "request": None, "idempotency_key": None}
            await asyncio.gather(
                *(home.register(remote_job_id=f"j-{number}", **adopted) for number in range(80)),
                *(home.register(remote_job_id=f"o-{number}", provider="others", **adopted) for number in range(5)),
            )
            crew = _crew(home)
            for step in range(60):  # quarters of a second
                provider.open = step >= 16
                provider.now = step / 4
                home.world.shift += 0.25
                await crew.claim_once()
                await until(lambda: crew.in_flight == 0, 30)
            assert (crew.failed, crew.settled) == (0, len(provider.calls) + len(neighbour.calls))

    asyncio.run(scenario())
    down = [at for at in provider.calls if at < 4]
    up = Counter(int(at) for at in provider.calls if at >= 4)
    assert 8 <= len(down) <= 8 + 7 + 1 + 2  # the run, what was under way with it, and trials
    assert max(up.values()) <= 25
    assert sum(up.values()) >= 150
    assert len(neighbour.calls) >= 15


def _crew(home: Any) -> Crew:
    """Return the clockwork's own crew: the test is what wakes it."""
    crew: Crew = home.clockwork._crew
    assert isinstance(crew._settings, ClockworkSettings)
    return crew

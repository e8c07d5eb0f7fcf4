"""The clockwork: APScheduler ticks and wake-ups drive claiming; duties keep the record and this process healthy.

The schedule itself is the `due_at` column. A wake-up is an event that is cleared *before* the claim: what becomes due while a
claim runs sets it again, so that no wake-up is lost. The tick `work` is only the fallback.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import structlog

from artifacts.store import Store
from ledger import queries
from ledger.errors import LedgerError
from ledger.ledger import Ledger
from reconciler import conditions
from reconciler.crew import Crew, Drained, Performs
from reconciler.desk import Accounts
from reconciler.fetching import FETCH_SECONDS, Fetcher
from reconciler.leases import Leases
from reconciler.pace import Pace
from reconciler.retention import Retention
from reconciler.ticks import Duty, Ticks, told
from reconciler.walker import WALK_LIMIT_SECONDS, WALK_SECONDS, Walker
from schemas.commands import Beat, Sweep, SweepPart
from schemas.operation import SECOND, Micros
from schemas.settings import ClockworkSettings
from schemas.world import World

_log = structlog.get_logger("reconciler")

SWEEP_LIMIT: Final = 500  # rows of each kind: a sweep is one short transaction, the next one goes on
SWEEPS: Final[Mapping[str, SweepPart]] = {
    "sweep": "receipts",
    "sweep.unclaimed": "unclaimed",
    "sweep.silent": "silent",
    "sweep.beats": "beats",
    "sweep.faults": "faults",
}
WAL_SECONDS: Final = 30.0
BEAT_SECONDS: Final = 10.0
PACE_SECONDS: Final = 5.0
TIDY_SECONDS: Final = 3_600.0
RETENTION_SECONDS: Final = 600.0
RETENTION_RUN_SECONDS: Final = 20.0  # of one run, below the limit of a duty; the next one goes on
STRAY_AGE_SECONDS: Final = 86_400  # an answer waits for its commit no longer than minutes
PART_AGE_SECONDS: Final = 86_400  # no transfer lasts a day: the collection clock has ended it
_RENEW_STEPS: Final = 6  # ticks in one lease
STANDS_SECONDS: Final = 60.0  # a claim that takes longer hangs: the record answers or refuses within seconds
STEP_SECONDS: Final = 2.0  # what NTP does by slewing takes hours
# A lease is not believed when it is longer than any reasonable one: another process may be set to longer ones than this.
LONGEST_LEASES, LONGEST_LEASE_SECONDS = 4, 600.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 15.0  # between claims while the record refuses

Audit = Callable[[], Awaitable[Mapping[str, int]]]


async def remove_strays(record: Ledger, store: Store, older_than: Micros) -> int:
    """Remove whole files that no operation owns: their worker died, or came too late, before the record took them over."""
    removed, after = 0, ""
    while page := await asyncio.to_thread(store.stored, older_than, after=after):
        known = await record.read(queries.known_artifacts, page)
        for stray in set(page) - known:
            await store.remove(stray)
            removed += 1
        after = page[-1]
    return removed


class Clockwork:
    """The reconciler of one process. `audit` runs the ledger's self-audit (0 is healthy), `fetcher` fetches keys and confirmations."""

    def __init__(
        self,
        *,
        record: Ledger,
        world: World,
        performer: Performs,
        leases: Leases,
        pace: Pace,
        accounts: Accounts,
        store: Store,
        settings: ClockworkSettings,
        worker: str,
        audit: Audit,
        fetcher: Fetcher | None = None,
        walker: Walker | None = None,
        retention: Retention | None = None,
    ) -> None:
        self._record = record
        self._world = world
        self._accounts = accounts
        self._fetcher = fetcher
        self._pace = pace
        self._settings = settings
        self._worker = worker
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()
        self._driver: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._crew = Crew(record=record, world=world, performer=performer, pace=pace, settings=settings, worker=worker, freed=self._freed)
        self._offset: float | None = None  # of the wall clock to the monotonic one, in seconds
        self._stepped = True  # whoever starts does not know what the clock did before
        self._drove = world.monotonic()  # when the driver last came round
        self.claims = {"runs": 0, "claimed": 0, "failures": 0}

        async def tidy() -> Mapping[str, int]:
            parts = await asyncio.to_thread(store.sweep, world.now() - PART_AGE_SECONDS * SECOND)
            return {"parts": parts, "strays": await remove_strays(record, store, world.now() - STRAY_AGE_SECONDS * SECOND)}

        async def retain() -> Mapping[str, int]:
            return {} if retention is None else await retention.run_once(RETENTION_RUN_SECONDS)

        self.ticks = Ticks(
            (
                Duty(name="work", seconds=settings.poll_seconds, run=self._poll),
                Duty(name="renew", seconds=settings.lease_seconds / _RENEW_STEPS, run=leases.renew_once),
                *(Duty(name=name, seconds=settings.sweep_seconds, run=self._sweeper(part)) for name, part in SWEEPS.items()),
                Duty(name="wal", seconds=WAL_SECONDS, run=record.tend),
                Duty(name="audit", seconds=settings.audit_seconds, run=audit),
                Duty(name="tidy", seconds=TIDY_SECONDS, run=tidy),
                *([Duty(name="retention", seconds=RETENTION_SECONDS, run=retain)] if retention is not None else []),
                *([Duty(name="fetch", seconds=FETCH_SECONDS, run=fetcher.run_once)] if fetcher is not None else []),
                *([Duty(name="walk", seconds=WALK_SECONDS, run=walker.run_once, limit=WALK_LIMIT_SECONDS)] if walker is not None else []),
                Duty(name=conditions.DUTY, seconds=PACE_SECONDS, run=self._share, states=True),
                Duty(name="beat", seconds=BEAT_SECONDS, run=self._beat),
            ),
            monotonic=world.monotonic,
        )

    async def start(self) -> None:
        """Start the ticks and the driver in the running loop. Raises RuntimeError where the scheduler is not as we set it."""
        self._loop = asyncio.get_running_loop()
        self._record.on_due(self.wake)
        self.ticks.start()
        self._driver = asyncio.create_task(self._drive(), name="clockwork")
        self.wake()

    def wake(self) -> None:
        """Look for due operations soon. From any thread; after the end it does nothing."""
        if self._loop is not None and not self._stop.is_set():
            with contextlib.suppress(RuntimeError):  # the loop may close while another thread calls
                self._loop.call_soon_threadsafe(self._wake.set)

    def describe(self) -> dict[str, Any]:
        """Return the effective settings of every duty, how they went, and what is in flight; for diagnostics."""
        return {
            "worker": self._worker,
            "in_flight": self._crew.in_flight,
            "settled": self._crew.settled,
            "failed": self._crew.failed,
            "claims": dict(self.claims),
            "events": dict(self.ticks.events),
            "duties": self.ticks.describe(),
        }

    def late(self) -> list[str]:
        """Return the duties that have not gone well for too long; `claim`: the driver hangs or is gone."""
        stands = self._world.monotonic() - self._drove > self._settings.poll_seconds * 3 + STANDS_SECONDS
        return [*self.ticks.late(), *(["claim"] if stands else [])]

    async def drain(self, seconds: float | None = None) -> Drained:
        """Stop claiming, wait for what is under way, interrupt the rest, close the connections (C8, B103)."""
        self._stop.set()
        self._wake.set()
        self._crew.close()
        if self._driver is not None:
            await asyncio.wait([self._driver])
        drained = await self._crew.drain(self._settings.drain_seconds if seconds is None else seconds)
        self.ticks.stop()
        for account in self._accounts.values():
            await account.transport.aclose()
        if self._fetcher is not None:
            await self._fetcher.aclose()
        _log.info("reconciler.drained", finished=drained.finished, interrupted=drained.interrupted, lost=drained.lost)
        return drained

    async def _drive(self) -> None:
        pause = 0.0
        while not self._stop.is_set():
            self._wake.clear()
            self._drove = self._world.monotonic()
            pause = await self._claim(pause)
            with contextlib.suppress(TimeoutError):
                # While the record refuses, wake-ups do not hurry the next try; the end does.
                waiting = self._stop.wait() if pause > 0 else self._wake.wait()
                await asyncio.wait_for(waiting, pause or self._patience())
            self.ticks.revive()

    async def _claim(self, pause: float) -> float:
        """Claim until nothing more is due or there is no room; return 0, or how long to pause after a failure."""
        try:
            while not self._stop.is_set():
                self.claims["runs"] += 1
                claimed = await self._crew.claim_once()
                self.claims["claimed"] += claimed
                if claimed == 0 or not self._crew.starved:
                    return 0.0
        except LedgerError as error:
            self._not_claimed(error)
        except Exception as error:  # noqa: BLE001 - whatever a claim trips over, the next one is tried (B113)
            self._not_claimed(error)
        else:
            return 0.0
        return min(max(pause * 2, _FIRST_PAUSE), _LONGEST_PAUSE) * (0.5 + self._world.chance() / 2)

    def _not_claimed(self, error: Exception) -> None:
        self.claims["failures"] += 1
        _log.warning("reconciler.claim_failed", error=type(error).__name__, **told(error))

    def _patience(self) -> float:
        """Return how long to wait for a wake-up: the poll interval, or until the pace makes room."""
        opens = self._pace.opens_in(self._world.monotonic()) if self._crew.starved else None
        return max(0.001, min(self._settings.poll_seconds, opens if opens is not None else self._settings.poll_seconds))

    def _freed(self) -> None:
        if self._crew.starved:
            self._wake.set()

    async def _poll(self) -> Mapping[str, int]:
        self._wake.set()
        return {}

    def _sweeper(self, part: SweepPart) -> Callable[[], Awaitable[Mapping[str, int]]]:
        """Return the duty of one part of the sweep: each has its own transaction, last success and counts, and fails alone."""

        async def run() -> Mapping[str, int]:
            sweep = Sweep(now=self._world.now(), limit=SWEEP_LIMIT, chance=self._world.chance(), part=part)
            swept = await self._record.write(sweep)
            return swept.counts

        return self._sweep_silent if part == "silent" else run

    async def _sweep_silent(self) -> Mapping[str, int]:
        """Drive on what is silent; after a step of the clock what waits for a time that is gone."""
        self._look_at_the_clock()
        swept = await self._record.write(
            Sweep(
                now=self._world.now(),
                limit=SWEEP_LIMIT,
                chance=self._world.chance(),
                part="silent",
                stepped=self._stepped,
                longest_lease=round(max(self._settings.lease_seconds * LONGEST_LEASES, LONGEST_LEASE_SECONDS) * SECOND),
            )
        )
        self._stepped = bool(swept.counts.get("set_right"))  # there may be more than one sweep takes
        return swept.counts

    def _look_at_the_clock(self) -> None:
        """Notice a wall clock that was set back, by the monotonic one (B106)."""
        offset = self._world.now() / SECOND - self._world.monotonic()
        if self._offset is not None and abs(offset - self._offset) > STEP_SECONDS:
            self._stepped = self._stepped or offset < self._offset
            _log.warning("reconciler.clock_stepped", seconds=round(offset - self._offset, 3))
        self._offset = offset

    async def _share(self) -> Mapping[str, int]:
        """Share the accounts' limits with the other processes, and say how the accounts do."""
        beats = await self._record.read(queries.heartbeats)
        now = self._world.monotonic()
        self._pace.share(len(conditions.processes(beats, self._world.now()) | {self._worker}), now)
        return conditions.counts(self._pace, now)

    async def _beat(self) -> Mapping[str, int]:
        beaten = 0
        more = {"work": self.claims, "beat": self.ticks.events}
        for duty in self.ticks.duties:
            if not duty.fresh:
                continue
            counts = {**duty.counts, "runs": duty.runs, **more.get(duty.name, {})}
            beat = Beat(duty=duty.name, process=self._worker, now=self._world.now(), ok=duty.ok, counts=counts, error=duty.error)
            await self._record.write(beat)
            duty.fresh = False
            beaten += 1
        return {"beaten": beaten}

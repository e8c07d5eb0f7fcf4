"""APScheduler as a ticker: it holds no state worth keeping; what is due stands in the record (B100, B109).

Every tick is a duty that runs once and returns counts. One process may have several; none of them needs to be the only one.
"""

import asyncio
import datetime as dt
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_MAX_INSTANCES, EVENT_JOB_MISSED
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.interval import IntervalTrigger

from ledger.errors import LedgerError

_log = structlog.get_logger("reconciler")

DEMANDED: Final[Mapping[str, Any]] = {
    "coalesce": True,
    "max_instances": 1,
    "misfire_grace_seconds": None,
    "timezone": "UTC",
    "store": "MemoryJobStore",
}
"""What every duty's effective settings must be: read back at the start, and shown by `gateway doctor`."""
_EVENTS: Final = {EVENT_JOB_ERROR: "errors", EVENT_JOB_MISSED: "missed", EVENT_JOB_MAX_INSTANCES: "skipped"}
# Intervals (and seconds) without a run: the wall clock was set back and the scheduler waits for the old time (B106).
_STALLED_AFTER, _STALLED_SLACK = 1.5, 1.0
# A duty is late when it has not gone well for three intervals and twice its limit: one failure, or one hang, is not yet a fault.
_LATE_INTERVALS, _LATE_LIMITS = 3.0, 2.0


@dataclass(slots=True, kw_only=True)
class Duty:
    """One recurring duty. `run` does it once and returns counts; `limit` seconds bound it (B107)."""

    name: str
    seconds: float
    run: Callable[[], Awaitable[Mapping[str, int]]]
    limit: float = 30.0
    started: float | None = None  # monotonic
    went_well: float | None = None  # monotonic: the end of its last run without a fault
    running: bool = False
    runs: int = 0
    failures: int = 0
    fresh: bool = False  # has run since the last heartbeat
    ok: bool = True
    error: str = ""
    states: bool = False  # its counts tell how things stand: the latest hold; those of any other duty add up
    counts: dict[str, int] = field(default_factory=dict)


class Ticks:
    """Runs duties on an AsyncIOScheduler: memory store, UTC, late runs made up for once, never two of one duty at a time."""

    def __init__(self, duties: tuple[Duty, ...], *, monotonic: Callable[[], float]) -> None:
        self.duties = duties
        self.events = dict.fromkeys(_EVENTS.values(), 0)
        self._monotonic = monotonic
        self._began = 0.0
        self._store = MemoryJobStore()
        self._scheduler = AsyncIOScheduler(
            timezone=dt.UTC,
            jobstores={"default": self._store},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        )
        self._scheduler.add_listener(self._heard, EVENT_JOB_ERROR | EVENT_JOB_MISSED | EVENT_JOB_MAX_INSTANCES)

    def start(self) -> None:
        """Start ticking in the running loop. Raises RuntimeError where the scheduler's effective settings are not ours (B102)."""
        self._began = self._monotonic()
        for duty in self.duties:
            self._scheduler.add_job(self.run_once, _every(duty), args=(duty,), id=duty.name)
        self._scheduler.start()
        for job in self.describe():
            if {name: job[name] for name in DEMANDED} != DEMANDED:
                self._scheduler.shutdown(wait=False)
                raise RuntimeError(f"the scheduler does not honour the settings of the duty {job['duty']}")

    def stop(self) -> None:
        """Tick no more. Whoever drains has done so before: shutdown cancels what runs, whatever `wait` says (B103)."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)

    def describe(self) -> list[dict[str, Any]]:
        """Return each duty's effective settings, read back from the scheduler, and how it went."""
        jobs = {job.id: job for job in self._scheduler.get_jobs()}
        return [
            {
                "duty": duty.name,
                "seconds": jobs[duty.name].trigger.interval.total_seconds(),
                "coalesce": jobs[duty.name].coalesce,
                "max_instances": jobs[duty.name].max_instances,
                "misfire_grace_seconds": jobs[duty.name].misfire_grace_time,
                "timezone": str(jobs[duty.name].trigger.timezone),
                "store": type(self._store).__name__ if self._store.lookup_job(duty.name) is jobs[duty.name] else "another",
                "runs": duty.runs,
                "failures": duty.failures,
                "error": duty.error,
                "counts": dict(duty.counts),
            }
            for duty in self.duties
            if duty.name in jobs
        ]

    def revive(self) -> int:
        """Re-arm duties that monotonic time says are overdue, to run within one interval; return how many."""
        revived = 0
        now = self._monotonic()
        for duty in self.duties:
            last = self._began if duty.started is None else duty.started
            stalled = not duty.running and now - last > duty.seconds * _STALLED_AFTER + _STALLED_SLACK
            if stalled and self._scheduler.running:
                duty.started = now
                self._scheduler.reschedule_job(duty.name, trigger=_every(duty))
                _log.warning("reconciler.duty_revived", duty=duty.name)
                revived += 1
        return revived

    def late(self) -> list[str]:
        """Return the duties that have not gone well for too long, by monotonic time: they hang, fail, or are not started any more."""
        now = self._monotonic()
        return [
            duty.name
            for duty in self.duties
            if now - (self._began if duty.went_well is None else duty.went_well)
            > duty.seconds * _LATE_INTERVALS + duty.limit * _LATE_LIMITS
        ]

    async def run_once(self, duty: Duty) -> None:
        """Run one duty within its limit and note how it went; its failure concerns nobody else."""
        duty.started = self._monotonic()
        duty.runs += 1
        duty.fresh = duty.running = True
        try:
            async with asyncio.timeout(duty.limit):
                counts = await duty.run()
        except (LedgerError, TimeoutError, OSError) as error:
            self._failed(duty, error)
        except Exception as error:
            self._failed(duty, error)
            raise  # a fault of ours: the scheduler's listener counts it too
        else:
            duty.ok, duty.error = True, ""
            duty.went_well = self._monotonic()
            if duty.states:
                duty.counts.clear()
            for name, count in counts.items():
                duty.counts[name] = duty.counts.get(name, 0) + count
        finally:
            duty.running = False

    def _failed(self, duty: Duty, error: Exception) -> None:
        duty.ok, duty.error = False, type(error).__name__
        duty.failures += 1
        _log.warning("reconciler.duty_failed", duty=duty.name, error=duty.error, **told(error))

    def _heard(self, event: Any) -> None:
        word = _EVENTS[event.code]
        self.events[word] += 1
        _log.warning("reconciler.tick_event", duty=event.job_id, event_kind=word)


def told(error: Exception) -> dict[str, str]:
    """Return the text of an error of the record or of a file, which hold no payload; nothing of any other."""
    match error:
        case LedgerError():
            return {"fault": str(error)}
        case OSError():
            return {"fault": f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or "")}
        case _:
            return {}


class Interval(IntervalTrigger):  # type: ignore[misc] # the library has no types
    """An interval whose catching up is one step, however far the clock has leapt.

    The library's own makes a date of every missed time up to now, whatever `coalesce` says: after a leap of a year a tick of a
    fifth of a second keeps the loop busy for minutes and fills the memory with 157 million of them.
    """

    __slots__ = ()

    def get_next_fire_time(self, previous_fire_time: dt.datetime | None, now: dt.datetime) -> dt.datetime | None:
        """Return the next time of the interval's grid, or the last one that was missed."""
        if previous_fire_time is not None:
            missed = math.floor((now - previous_fire_time).total_seconds() / self.interval_length)
            if missed > 1:
                previous_fire_time += (missed - 1) * self.interval
        following: dt.datetime | None = super().get_next_fire_time(previous_fire_time, now)
        return following


def _every(duty: Duty) -> Interval:
    return Interval(seconds=duty.seconds, timezone=dt.UTC)

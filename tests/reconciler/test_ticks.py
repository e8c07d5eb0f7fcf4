"""Ticks: APScheduler's sharp edges, seen on a real scheduler in a real loop."""

import asyncio
import datetime as dt
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import pytest
from apscheduler.jobstores.memory import MemoryJobStore

from ledger.errors import LedgerUnavailableError
from reconciler.ticks import Duty, Interval, Ticks
from tests.reconciler.servers import until


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 30))


async def _nothing() -> Mapping[str, int]:
    return {"done": 1}


def test_a_late_tick_is_made_up_for_once() -> None:
    """A loop that is blocked over several due times runs the duty late, once, and counts no miss (B101)."""

    async def scenario() -> None:
        duty = Duty(name="sweep", seconds=0.4, run=_nothing)
        ticks = Ticks((duty,), monotonic=time.monotonic)
        ticks.start()
        time.sleep(1.7)  # noqa: ASYNC251 - blocking the loop is the fault that is tested
        blocked = time.monotonic()
        await until(lambda: duty.runs > 0)
        assert duty.runs == 1
        assert time.monotonic() - blocked < 1
        assert ticks.events == {"errors": 0, "missed": 0, "skipped": 0}
        ticks.stop()

    run(scenario)


def test_settings_that_do_not_hold_are_refused_at_start() -> None:
    """The effective settings are read back from the scheduler's own jobs; others than ours end the start (B102)."""

    async def scenario() -> None:
        ticks = Ticks((Duty(name="sweep", seconds=9, run=_nothing),), monotonic=time.monotonic)
        ticks._scheduler.configure(timezone="UTC", job_defaults={"misfire_grace_time": 1})
        with pytest.raises(RuntimeError, match="sweep"):
            ticks.start()
        elsewhere = Ticks((Duty(name="sweep", seconds=9, run=_nothing),), monotonic=time.monotonic)
        elsewhere._scheduler.remove_jobstore("default")
        elsewhere._scheduler.add_jobstore(MemoryJobStore(), "default")
        with pytest.raises(RuntimeError, match="sweep"):
            elsewhere.start()

    run(scenario)


def test_a_failing_duty_stops_nothing() -> None:
    """A refusal of the record, and a fault of ours, are counted; the duty runs again, and so do the others (B113)."""

    async def refused() -> Mapping[str, int]:
        raise LedgerUnavailableError

    async def broken() -> Mapping[str, int]:
        raise ZeroDivisionError

    async def scenario() -> None:
        duties = (
            Duty(name="well", seconds=0.05, run=_nothing),
            Duty(name="refused", seconds=0.05, run=refused),
            Duty(name="broken", seconds=0.05, run=broken),
        )
        ticks = Ticks(duties, monotonic=time.monotonic)
        ticks.start()
        await until(lambda: all(duty.runs >= 3 for duty in duties))
        ticks.stop()
        shown = {duty["duty"]: duty for duty in ticks.describe()}
        assert duties[0].counts["done"] >= 2
        assert (shown["well"]["failures"], shown["well"]["error"]) == (0, "")
        assert (duties[1].ok, duties[1].error) == (False, "LedgerUnavailableError")
        assert (duties[2].ok, duties[2].error) == (False, "ZeroDivisionError")
        assert ticks.events["errors"] >= 2

    run(scenario)


def test_a_hanging_duty_ends_by_its_limit_and_its_skips_are_counted() -> None:
    """A duty that hangs is cut by its limit, skipped runs are heard, and the other duties go on meanwhile (B107)."""

    async def hangs() -> Mapping[str, int]:
        await asyncio.Event().wait()
        return {}

    async def scenario() -> None:
        stuck, well = Duty(name="stuck", seconds=0.1, run=hangs, limit=0.5), Duty(name="well", seconds=0.1, run=_nothing)
        ticks = Ticks((stuck, well), monotonic=time.monotonic)
        ticks.start()
        await until(lambda: stuck.runs >= 2)
        assert stuck.error == "TimeoutError"
        assert ticks.events["skipped"] > 0
        assert well.runs >= 3
        ticks.stop()

    run(scenario)


def test_a_clock_that_is_set_back_does_not_stop_the_duties() -> None:
    """When the scheduler waits for a time that the clock has left behind, monotonic time re-arms the duty (B106)."""

    async def scenario() -> None:
        shift = 0.0
        duty = Duty(name="sweep", seconds=0.2, run=_nothing)
        ticks = Ticks((duty,), monotonic=lambda: time.monotonic() + shift)
        ticks.start()
        await until(lambda: duty.runs == 1)
        # What the scheduler is left with after the clock went back: a next run two hours ahead.
        job = ticks._scheduler.get_job("sweep")
        job.modify(next_run_time=job.next_run_time + dt.timedelta(hours=2))
        assert ticks.revive() == 0  # not overdue yet
        shift = 2.0
        assert ticks.revive() == 1
        seen = duty.runs
        await until(lambda: duty.runs > seen, 3)
        ticks.stop()

    run(scenario)


def test_a_leap_of_a_year_is_made_up_for_in_one_step() -> None:
    """B106, C2: the scheduler's clock leaps by a year over ticks of a fifth of a second: a date or two, not 157 million."""
    trigger = Interval(seconds=0.2, timezone=dt.UTC)
    began = trigger.get_next_fire_time(None, trigger.start_date)
    for leap in (dt.timedelta(days=365), dt.timedelta(seconds=0.7), dt.timedelta(0)):
        assert began is not None
        now = began + leap
        found: list[dt.datetime] = []
        following: dt.datetime | None = began
        while following is not None and following <= now:  # what the scheduler does for every job that is due
            found.append(following)
            following = trigger.get_next_fire_time(following, now)
            assert len(found) <= 4, "a date for every missed time"
        assert following is not None
        assert now - found[-1] <= trigger.interval
        assert dt.timedelta(0) < following - now <= trigger.interval


def test_a_duty_that_hangs_fails_or_never_runs_is_late() -> None:
    """C2, B107: a duty is late once it has not gone well for three intervals and two limits of monotonic time; a good run ends that."""
    clock = 0.0
    failing = True

    async def fails() -> Mapping[str, int]:
        if failing:
            raise LedgerUnavailableError
        return {}

    async def scenario() -> None:
        nonlocal clock, failing
        duties = (
            Duty(name="never", seconds=10, run=_nothing, limit=5),
            Duty(name="fails", seconds=10, run=fails, limit=5),
            Duty(name="well", seconds=10, run=_nothing, limit=5),
        )
        ticks = Ticks(duties, monotonic=lambda: clock)
        ticks.start()
        clock = 40.0
        await ticks.run_once(duties[1])
        await ticks.run_once(duties[2])
        assert ticks.late() == []
        clock = 41.0
        assert ticks.late() == ["never", "fails"]
        failing = False
        await ticks.run_once(duties[1])
        assert ticks.late() == ["never"]
        ticks.stop()

    run(scenario)

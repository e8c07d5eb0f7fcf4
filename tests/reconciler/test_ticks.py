"""Ticks: APScheduler's sharp edges, seen on a real scheduler in a real loop."""

import asyncio
import datetime as dt
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import pytest

from ledger.errors import LedgerUnavailableError
from reconciler.ticks import Duty, Ticks
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

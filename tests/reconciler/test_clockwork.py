"""The clockwork over a real record and real servers: waking, bounds, hangs, drains, restarts."""

import asyncio
import gc
import json
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

from artifacts.store import Store
from ledger import queries
from ledger.audit import self_audit
from reconciler.clockwork import STANDS_SECONDS, SWEEPS, remove_strays
from schemas.commands import Beat
from schemas.contract import Limits
from schemas.http import AnsweredOutcome
from schemas.operation import SECOND
from schemas.states import Mode, State
from tests.reconciler.houses import QUICK, house, open_ledger
from tests.reconciler.servers import Server, read_request, response, serving, until
from tests.reconciler.worlds import SteppedWorld


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 60))


class Provider:
    """A provider of jobs that are done at once; `gate` holds its answers back while it is closed."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.waiting = 0
        self.most_waiting = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            request = await read_request(server, reader)
            method, target, _ = request.split(b"\r\n")[0].decode().split(" ")
            self.calls[f"{method} {target}"] += 1
            answer = self._answer(server, method, target)
            self.waiting += 1
            self.most_waiting = max(self.most_waiting, self.waiting)
            try:
                await self.gate.wait()
            finally:
                self.waiting -= 1
            writer.write(answer)
            await writer.drain()

    def _answer(self, server: Server, method: str, target: str) -> bytes:
        if method == "POST":
            return response(202, json.dumps({"id": f"job-{self.calls['POST /jobs']}"}).encode())
        if target.startswith("/files/"):
            return response(200, b"a,b\n1,2\n", "content-type: text/csv")
        return response(200, json.dumps({"status": "done", "result_url": f"{server.url}/files/1"}).encode())


def test_an_operation_runs_from_intent_to_stored_result(tmp_path: Path) -> None:
    """Registered, sent once, read, collected, succeeded: driven by the clockwork alone, and the self-audit reports 0 (C2, F1)."""

    async def scenario() -> None:
        provider = Provider()
        async with serving(provider) as server, house(tmp_path, {"jobs": server.url}) as home:
            done = await home.reaches(await home.register(), State.SUCCEEDED)
            assert provider.calls["POST /jobs"] == 1
            assert done.result_artifact is not None
            assert (tmp_path / "artifacts" / done.result_artifact).read_bytes() == b"a,b\n1,2\n"
            duties = {duty.name: duty for duty in home.clockwork.ticks.duties}
            for name in ("audit", "sweep", "tidy", "beat"):
                await home.clockwork.ticks.run_once(duties[name])
                assert duties[name].ok, duties[name].error
            assert not any(duties["audit"].counts.values())
            assert home.leases._held == {}  # nothing is renewed for errands that have ended
            beats = await home.ledger.read(queries.heartbeats)
            assert {"work", "audit", "sweep", "tidy"} <= {beat["duty"] for beat in beats}

    run(scenario)


def test_a_file_that_no_operation_owns_is_removed_and_a_result_never(tmp_path: Path) -> None:
    """F3: a worker that died between its file and its commit leaves no stray for ever; what the record names is kept."""

    async def scenario() -> None:
        async with serving(Provider()) as server, house(tmp_path, {"jobs": server.url}) as home:
            done = await home.reaches(await home.register(), State.SUCCEEDED)
            store = Store(tmp_path / "artifacts")
            writer = await store.create("art_" + "0" * 32)
            await writer.write(b"left behind")
            await writer.commit()
            later = 2**62 // SECOND * SECOND  # far past whatever the files' times are
            assert await remove_strays(home.ledger, store, 0) == 0
            assert await remove_strays(home.ledger, store, later) == 1
            assert store.stored(later) == [done.result_artifact]

    run(scenario)


def test_no_wake_up_is_lost(tmp_path: Path) -> None:
    """With polling out of the way, every registration is sent at once: what becomes due during a claim wakes the next one."""

    async def scenario() -> None:
        provider = Provider()
        quick = replace(QUICK, limits=replace(QUICK.limits, rate_per_second=1_000.0))
        async with serving(provider) as server, house(tmp_path, {"jobs": server.url}, contract=quick, poll_seconds=3_000) as home:
            for _ in range(20):
                await asyncio.gather(*(home.register() for _ in range(3)))
            await until(lambda: provider.calls["POST /jobs"] == 60, 20)

    run(scenario)


def test_a_wake_up_during_a_claim_is_not_lost(tmp_path: Path) -> None:
    """What becomes due while a claim is being committed causes another claim, without the poll (B100, C2)."""

    async def scenario() -> None:
        wakes: list[Callable[[], None]] = []
        points: list[str] = []

        def at(point: str) -> None:
            points.append(point)
            if "ClaimWork" in point and wakes:
                wakes.pop()()

        ledger = open_ledger(tmp_path, {"jobs": QUICK}, at)
        async with (
            serving(Provider()) as server,
            house(tmp_path, {"jobs": server.url}, shared=ledger, start=False, poll_seconds=3_000) as home,
        ):
            wakes.append(home.clockwork.wake)
            await home.clockwork.start()
            await until(lambda: home.clockwork.claims["runs"] == 2)
            assert wakes == [], points
        ledger.close()

    run(scenario)


def test_what_a_claim_brings_after_the_drain_began_is_given_back(tmp_path: Path) -> None:
    """A drain that begins while a claim is being committed sends nothing of it: the lease is given back, the attempt closed (B103)."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        provider = Provider()
        drains: list[asyncio.Task[Any]] = []
        begun = asyncio.Event()

        def at(point: str) -> None:
            if "ClaimWork" in point and not begun.is_set() and armed:
                asyncio.run_coroutine_threadsafe(begin(), loop).result(5)

        async def begin() -> None:
            if not drains:
                drains.append(asyncio.create_task(home.clockwork.drain(5.0)))
                await asyncio.sleep(0)
            begun.set()

        armed: list[bool] = []
        ledger = open_ledger(tmp_path, {"jobs": QUICK}, at)
        async with serving(provider) as server, house(tmp_path, {"jobs": server.url}, shared=ledger, start=False) as home:
            name = await home.register()
            armed.append(True)
            await home.clockwork.start()
            await asyncio.wait_for(begun.wait(), 5)
            await drains[0]
            found = await home.operation(name)
            assert (found.state, found.lease_until, found.open_attempt) == (State.CREATE_PENDING, None, None)
            assert found.lease_fence == 1  # it had been claimed
            assert provider.calls["POST /jobs"] == 0
        ledger.close()

    run(scenario)


def test_no_more_is_claimed_than_there_is_room_for(tmp_path: Path) -> None:
    """Claims are bounded by the workers: what waits stays unleased in the record, for others to take (C1, C3)."""

    async def scenario() -> None:
        provider = Provider()
        provider.gate.clear()
        async with serving(provider) as server, house(tmp_path, {"jobs": server.url}, workers=3) as home:
            ids = [await home.register() for _ in range(8)]
            await until(lambda: provider.waiting == 3)
            leased = [op for name in ids if (op := await home.operation(name)).lease_until is not None]
            assert len(leased) == home.clockwork.describe()["in_flight"] == 3
            provider.gate.set()
            for name in ids:
                await home.reaches(name, State.SUCCEEDED)
            assert provider.most_waiting == 3
            assert provider.calls["POST /jobs"] == 8

    run(scenario)


def test_a_freed_place_is_used_at_once(tmp_path: Path) -> None:
    """Where a claim was bounded by room, the end of an errand causes the next claim; nothing waits for the poll (C3)."""

    async def scenario() -> None:
        provider = Provider()
        provider.gate.clear()
        async with (
            serving(provider) as server,
            house(tmp_path, {"jobs": server.url}, workers=1, poll_seconds=3_000) as home,
        ):
            for _ in range(5):
                await home.register()
            await until(lambda: provider.waiting == 1)
            provider.gate.set()
            await until(lambda: provider.calls["POST /jobs"] == 5)

    run(scenario)


def test_a_hanging_provider_holds_up_no_other(tmp_path: Path) -> None:
    """A provider that never answers fills its own places only; another provider's operations go on (B107, C3)."""

    async def scenario() -> None:
        stuck, well = Provider(), Provider()
        stuck.gate.clear()
        slow = replace(QUICK, limits=Limits(concurrency=2, total_seconds=30.0))
        async with (
            serving(stuck) as first,
            serving(well) as second,
            house(tmp_path, {"jobs": first.url, "well": second.url}, contracts={"jobs": slow, "well": QUICK}, workers=6) as home,
        ):
            for _ in range(6):
                await home.register()
            await until(lambda: stuck.waiting == 2)
            others = [await home.register(provider="well") for _ in range(6)]
            for name in others:
                await home.reaches(name, State.SUCCEEDED)
            assert stuck.most_waiting == 2
            await home.clockwork.drain(0.0)

    run(scenario)


def test_two_schedulers_share_the_work(tmp_path: Path) -> None:
    """Two clockworks on one record read each due operation once: leases decide, not the scheduler (B100, B109)."""

    async def scenario() -> None:
        provider = Provider()
        ledger = open_ledger(tmp_path, {"jobs": QUICK})
        async with serving(provider) as server:
            async with (
                house(tmp_path, {"jobs": server.url}, shared=ledger, worker="worker:1") as one,
                house(tmp_path, {"jobs": server.url}, shared=ledger, worker="worker:2") as two,
            ):
                ids = [await one.register(mode=Mode.ADOPT, remote_job_id=f"job-{number}", request=None) for number in range(20)]
                for name in ids:
                    await two.reaches(name, State.SUCCEEDED)
            # One read that sees the end, and the fresh one that collecting begins with.
            assert {provider.calls[f"GET /jobs/job-{number}"] for number in range(20)} == {2}
        tables = {row[0] for row in ledger.read_now(lambda view: view.connection.exec_driver_sql("SELECT name FROM sqlite_master").all())}
        assert not [name for name in tables if "apscheduler" in name or "job_store" in name]
        ledger.close()

    run(scenario)


def test_a_drain_lets_calls_end(tmp_path: Path) -> None:
    """A drain waits for what is under way, and starts nothing more (B103)."""

    async def scenario() -> None:
        provider = Provider()
        provider.gate.clear()
        async with serving(provider) as server, house(tmp_path, {"jobs": server.url}) as home:
            name = await home.register()
            await until(lambda: provider.waiting == 1)
            gc.collect()  # whatever nobody holds would vanish here (B112)
            draining = asyncio.create_task(home.clockwork.drain(10.0))
            await asyncio.sleep(0)
            later = await home.register()
            provider.gate.set()
            drained = await draining
            assert (drained.finished, drained.interrupted, drained.lost) == (1, 0, 0)
            assert (await home.operation(name)).remote_job_id == "job-1"
            assert (await home.operation(later)).state is State.CREATE_PENDING
            assert provider.calls["POST /jobs"] == 1

    run(scenario)


def test_a_drain_interrupts_what_hangs_and_says_what_is_known(tmp_path: Path) -> None:
    """A create cut by the drain is ambiguous, never forgotten; a read gives its lease back; the next process goes on (A6, B103)."""

    async def scenario() -> None:
        provider = Provider()
        provider.gate.clear()
        async with serving(provider) as server:
            async with house(tmp_path, {"jobs": server.url}) as home:
                sent = await home.register()
                read = await home.register(mode=Mode.ADOPT, remote_job_id="job-77", request=None)
                await until(lambda: provider.waiting == 2)
                drained = await home.clockwork.drain(0.05)
                assert (drained.finished, drained.interrupted, drained.lost) == (0, 2, 0)
                assert (await home.operation(sent)).state is State.CREATE_UNKNOWN
                given_back = await home.operation(read)
                assert (given_back.state, given_back.lease_until) == (State.ACCEPTED, None)
            provider.gate.set()
            async with house(tmp_path, {"jobs": server.url}, worker="worker:2") as home:
                home.world.shift += 5
                await home.reaches(read, State.SUCCEEDED)

    run(scenario)


def test_a_record_that_is_gone_does_not_end_the_clockwork(tmp_path: Path) -> None:
    """Claims and duties that the record refuses are counted and tried again, without haste; a drain still ends (B113, B165)."""

    async def scenario() -> None:
        async with serving(Provider()) as server, house(tmp_path, {"jobs": server.url}) as home:
            await until(lambda: home.clockwork.claims["runs"] > 1)
            home.ledger.close()
            await until(lambda: home.clockwork.claims["failures"] >= 3)
            before = home.clockwork.claims["failures"]
            for _ in range(50):  # wake-ups do not turn a refusal into a storm
                home.clockwork.wake()
                await asyncio.sleep(0.01)
            assert home.clockwork.claims["failures"] < before + 10
            (sweep,) = (duty for duty in home.clockwork.ticks.duties if duty.name == "sweep")
            await home.clockwork.ticks.run_once(sweep)
            assert (sweep.ok, sweep.failures) == (False, 1)
            await until(lambda: home.clockwork.claims["failures"] > before)

    run(scenario)


def test_hanging_providers_do_not_take_all_workers(tmp_path: Path) -> None:
    """B107: two accounts whose calls all hang, each with more due than there are workers: a third one's job is still done."""
    hanging, alive = Provider(), Provider()
    hanging.gate.clear()

    async def scenario() -> None:
        async with (
            serving(hanging) as one,
            serving(hanging) as two,
            serving(alive) as three,
            house(tmp_path, {"a": one.url, "b": two.url, "c": three.url}, workers=8) as home,
        ):
            for provider in "ab":
                for _ in range(12):
                    await home.register(provider=provider)
            await until(lambda: hanging.waiting >= 6)
            made = await home.register(provider="c")
            await home.reaches(made, State.SUCCEEDED, seconds=30)
            assert hanging.most_waiting <= 7
            hanging.gate.set()

    run(scenario)


def test_processes_that_live_share_an_accounts_limits(tmp_path: Path) -> None:
    """C3: the limits are the account's: a second reconciler's heartbeat halves this one's part, its silence gives it back."""

    async def scenario() -> None:
        contract = replace(QUICK, limits=replace(QUICK.limits, concurrency=8))
        async with house(tmp_path, {"jobs": "http://127.0.0.1:9"}, contract=contract, start=False, world=SteppedWorld()) as home:
            (duty,) = [duty for duty in home.clockwork.ticks.duties if duty.name == "pace"]
            rooms = []
            for passes in (0, 30, 31):
                home.world.shift += passes
                assert await duty.run() == {}
                rooms.append(home.clockwork._pace.room(home.world.monotonic())["jobs"])
                if not passes:
                    await home.ledger.write(Beat(duty="pace", process="worker:2", now=home.world.now(), ok=True))
            assert rooms == [8, 4, 4]
            home.clockwork._pace.heard("jobs", "op_1", AnsweredOutcome(status=200), now=home.world.monotonic(), chance=0.5)
            assert home.clockwork._pace.room(home.world.monotonic())["jobs"] == 8

    run(scenario)


def test_what_waits_for_a_paused_account_is_not_overdue(tmp_path: Path) -> None:
    """C2, C3: the self-audit stays 0 while an account is held, and counts what is overdue as soon as nobody says so any more."""

    async def scenario() -> None:
        async with house(tmp_path, {"jobs": "http://127.0.0.1:9"}, start=False, world=SteppedWorld()) as home:
            await home.register()
            home.world.shift += 600
            assert (await home.ledger.read(self_audit, home.world.now()))["active_overdue"] == 1
            home.clockwork._pace.hold("jobs", 3_000, home.world.monotonic())
            (duty,) = [duty for duty in home.clockwork.ticks.duties if duty.name == "pace"]
            counts = dict(await duty.run())
            await home.ledger.write(Beat(duty=duty.name, process="worker:1", now=home.world.now(), ok=True, counts=counts))
            for passes, overdue in ((0, 0), (59, 0), (2, 1)):
                home.world.shift += passes
                assert (await home.ledger.read(self_audit, home.world.now()))["active_overdue"] == overdue

    run(scenario)


def test_an_account_that_is_called_again_is_no_longer_told_as_paused(tmp_path: Path) -> None:
    """C2, C3: the heartbeat says how an account stands now; a pause that is over would hide its overdue operations for ever."""

    async def scenario() -> None:
        async with house(tmp_path, {"jobs": "http://127.0.0.1:9"}, start=False, world=SteppedWorld()) as home:
            await home.register()
            home.world.shift += 600
            (duty,) = [duty for duty in home.clockwork.ticks.duties if duty.name == "pace"]
            home.clockwork._pace.hold("jobs", 100, home.world.monotonic())
            for passes, said, overdue in ((0, 100, 0), (40, 60, 0), (60, None, 1)):
                home.world.shift += passes
                await home.clockwork.ticks.run_once(duty)
                await home.clockwork._beat()
                assert duty.counts.get("jobs.held") == said
                assert (await home.ledger.read(self_audit, home.world.now()))["active_overdue"] == overdue

    run(scenario)


def test_the_effective_settings_are_shown(tmp_path: Path) -> None:
    """Diagnostics show each duty's settings as the scheduler has them (B102)."""

    async def scenario() -> None:
        async with serving(Provider()) as server, house(tmp_path, {"jobs": server.url}, sweep_seconds=7.0) as home:
            shown = home.clockwork.describe()
            duties = {duty["duty"]: duty for duty in shown["duties"]}
            assert set(duties) == {"work", "renew", *SWEEPS, "wal", "retention", "audit", "tidy", "pace", "beat"}
            assert duties["sweep"]["seconds"] == 7.0
            assert duties["renew"]["seconds"] == 7.5
            for duty in duties.values():
                assert (duty["coalesce"], duty["max_instances"], duty["misfire_grace_seconds"]) == (True, 1, None)

    run(scenario)


def test_a_driver_that_stands_is_late(tmp_path: Path) -> None:
    """C8, B107: a claim that hangs, or a driver that is gone, is told to readiness; it is no duty of the scheduler's."""

    async def scenario() -> None:
        async with serving(Provider()) as server, house(tmp_path, {"jobs": server.url}) as home:
            await until(lambda: home.clockwork.claims["runs"] > 1)
            assert home.clockwork.late() == []
            driver = home.clockwork._driver
            assert driver is not None
            driver.cancel()
            await asyncio.wait([driver])
            home.world.shift += STANDS_SECONDS + 2
            assert "claim" in home.clockwork.late()

    run(scenario)


def test_duties_that_are_due_together_do_not_meet(tmp_path: Path) -> None:
    """B111: every duty at once, again and again, beside running errands: each has transactions of its own, and its own last success."""

    async def scenario() -> None:
        async with serving(Provider()) as server, house(tmp_path, {"jobs": server.url}) as home:
            made = [await home.register() for _ in range(3)]
            ticks = home.clockwork.ticks
            for _ in range(20):
                await asyncio.gather(*(ticks.run_once(duty) for duty in ticks.duties))
                assert [(duty.name, duty.error) for duty in ticks.duties if not duty.ok] == []
            for operation in made:
                await home.reaches(operation, State.SUCCEEDED)
            assert {beat["duty"] for beat in await home.ledger.read(queries.heartbeats)} == {duty.name for duty in ticks.duties}

    run(scenario)


def test_one_duty_that_fails_stops_no_other(tmp_path: Path) -> None:
    """B107: each part of the sweep is a duty of its own: one that fails keeps its last success, the others get a new one."""

    async def scenario() -> None:
        async with serving(Provider()) as server, house(tmp_path, {"jobs": server.url}) as home:
            ticks = home.clockwork.ticks
            broken = next(duty for duty in ticks.duties if duty.name == "sweep.silent")
            await asyncio.gather(*(ticks.run_once(duty) for duty in ticks.duties))

            async def fails() -> dict[str, int]:
                raise OSError(5, "the disk fails")

            broken.run = fails
            await asyncio.gather(*(ticks.run_once(duty) for duty in ticks.duties if duty.name != "beat"))
            await ticks.run_once(next(duty for duty in ticks.duties if duty.name == "beat"))
            beats = {beat["duty"]: beat for beat in await home.ledger.read(queries.heartbeats)}
            assert beats["sweep.silent"]["last_ok_at"] < beats["sweep.silent"]["last_at"]
            assert beats["sweep.silent"]["error"] == "OSError"
            others = [beats[name] for name in ("sweep", "sweep.unclaimed", "sweep.beats", "sweep.faults", "audit")]
            assert all(beat["last_ok_at"] == beat["last_at"] and beat["error"] == "" for beat in others)

    run(scenario)

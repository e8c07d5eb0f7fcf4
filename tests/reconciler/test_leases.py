"""Leases over a real record: renewed while a transfer lasts, and what happens when one is lost (C1)."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from ledger.ledger import Ledger
from reconciler.leases import Leases
from schemas.commands import Claimed, ClaimWork, Register, Settle
from schemas.evidence import Read, StatusFacts
from schemas.operation import SECOND
from schemas.states import Errand, Mode, Reading
from tests.reconciler.accounts import CONTRACT, LEASE_SECONDS, Bench, endless
from tests.reconciler.houses import intent, open_ledger
from tests.reconciler.servers import Server, read_request, response, serving, until
from tests.reconciler.worlds import StillWorld


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 30))


async def claim(ledger: Ledger, world: StillWorld, worker: str) -> Claimed:
    """Claim the one operation that is due."""
    command = ClaimWork(
        worker=worker,
        room={"jobs": 1},
        limit=1,
        lease=round(LEASE_SECONDS * SECOND),
        send_budget=10 * SECOND,
        now=world.now(),
        chance=0.5,
    )
    (claimed,) = (await ledger.write(command)).items
    return claimed


async def adopted(ledger: Ledger, world: StillWorld, origin: str) -> None:
    adopt = intent(world, origin, mode=Mode.ADOPT, remote_job_id="job-1", request=None)
    await ledger.write(Register(intent=adopt, now=world.now()))
    world.moment += 60 * SECOND


async def ended(ledger: Ledger, world: StillWorld, origin: str) -> None:
    """Record an operation whose success has been read."""
    await adopted(ledger, world, origin)
    claimed = await claim(ledger, world, "worker:0")
    await ledger.write(
        Settle(
            operation_id=claimed.operation.id,
            fence=claimed.fence,
            errand=Errand.READ,
            evidence=Read(facts=StatusFacts(reading=Reading.SUCCEEDED, remote_state="done"), digest="d"),
            started_at=world.now(),
            now=world.now(),
            chance=0.5,
            actor="worker:0",
        )
    )


def pass_seconds(world: StillWorld, seconds: float) -> None:
    world.shift += seconds
    world.moment += round(seconds * SECOND)


def test_a_transfer_keeps_its_lease_and_ends_when_it_is_lost(tmp_path: Path) -> None:
    """A long transfer outlives its first lease by renewals; once another worker has it, it ends: no file, nothing settled (C1)."""

    async def scenario() -> None:
        ledger = open_ledger(tmp_path, {"jobs": CONTRACT})
        async with serving(endless) as server:
            bench = Bench(tmp_path / "artifacts", server.url, record=ledger)
            world = bench.world
            await ended(ledger, world, server.url)
            claimed = await claim(ledger, world, "worker:1")
            assert claimed.errand is Errand.COLLECT
            task = asyncio.create_task(bench.performer.perform(claimed, world.monotonic(), world.monotonic() + 30))
            await until(lambda: bench.files() != [] and len(server.requests) == 2)

            assert await bench.leases.renew_once() == {"renewed": 0, "lost": 0}  # too young
            for _ in range(4):
                pass_seconds(world, 16)
                assert await bench.leases.renew_once() == {"renewed": 1, "lost": 0}
                assert await bench.leases.renew_once() == {"renewed": 0, "lost": 0}
            pass_seconds(world, LEASE_SECONDS + 1)  # as if this process had been stopped
            taken = await claim(ledger, world, "worker:2")
            assert taken.fence > claimed.fence
            assert await bench.leases.renew_once() == {"renewed": 0, "lost": 1}
            assert await asyncio.wait_for(task, 5) is None
            assert bench.files() == []
            assert await bench.leases.renew_once() == {"renewed": 0, "lost": 0}
            await bench.transport.aclose()
        ledger.close()

    run(scenario)


def test_a_read_whose_lease_is_lost_still_brings_its_evidence(tmp_path: Path) -> None:
    """A stale worker's evidence counts: only transfers end with their lease (ARCHITECTURE, The way of a due operation)."""

    async def late(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(server, reader)
        await gate.wait()
        writer.write(response(200, b'{"status": "running"}'))
        await writer.drain()

    gate = asyncio.Event()

    async def scenario() -> None:
        ledger = open_ledger(tmp_path, {"jobs": CONTRACT})
        async with serving(late) as server:
            bench = Bench(tmp_path / "artifacts", server.url, record=ledger)
            await adopted(ledger, bench.world, server.url)
            claimed = await claim(ledger, bench.world, "worker:1")
            task = asyncio.create_task(bench.performer.perform(claimed, bench.world.monotonic(), bench.world.monotonic() + 30))
            await asyncio.wait_for(server.seen.wait(), 5)
            pass_seconds(bench.world, LEASE_SECONDS + 1)
            await claim(ledger, bench.world, "worker:2")
            assert (await bench.leases.renew_once())["lost"] == 1
            gate.set()
            command = await asyncio.wait_for(task, 5)
            assert isinstance(command, Settle)
            assert isinstance(command.evidence, Read)
            assert (await ledger.write(command)).stale
            await bench.transport.aclose()
        ledger.close()

    run(scenario)


def test_an_unreachable_record_loses_a_lease_only_when_its_time_is_over(tmp_path: Path) -> None:
    """A renewal that fails is tried again while the lease lasts; after its end the lease counts as lost (C1)."""

    async def scenario() -> None:
        world, lost = StillWorld(), asyncio.Event()
        ledger = open_ledger(tmp_path, {"jobs": CONTRACT})
        await adopted(ledger, world, "http://provider.test")
        claimed = await claim(ledger, world, "worker:1")
        leases = Leases(ledger, world, lease_seconds=LEASE_SECONDS)
        leases.hold(claimed, world.monotonic(), lost.set)
        ledger.close()
        for _ in range(2):
            pass_seconds(world, 16)
            assert await leases.renew_once() == {"renewed": 0, "lost": 0}
        assert not lost.is_set()
        pass_seconds(world, 16)
        assert await leases.renew_once() == {"renewed": 0, "lost": 1}
        assert lost.is_set()

    run(scenario)


def test_releasing_an_old_lease_keeps_a_newer_one(tmp_path: Path) -> None:
    """Two errands of one operation in one process: the end of the stale one does not stop the renewals of the other."""

    async def scenario() -> None:
        world = StillWorld()
        ledger = open_ledger(tmp_path, {"jobs": CONTRACT})
        await adopted(ledger, world, "http://provider.test")
        leases = Leases(ledger, world, lease_seconds=LEASE_SECONDS)
        old = await claim(ledger, world, "worker:1")
        pass_seconds(world, LEASE_SECONDS + 1)
        new = await claim(ledger, world, "worker:1")
        leases.hold(old, world.monotonic() - LEASE_SECONDS, lambda: None)
        leases.hold(new, world.monotonic(), lambda: None)
        leases.release(old)
        pass_seconds(world, 16)
        assert await leases.renew_once() == {"renewed": 1, "lost": 0}
        ledger.close()

    run(scenario)

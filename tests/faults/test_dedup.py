"""Field faults of kind b, dedup: one event is applied once, and none is swallowed, through the running house."""

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from cli.world import RealWorld
from ledger import tables
from schemas.operation import SECOND
from schemas.states import State
from simulator.jobs import Phase
from simulator.server import Simulator
from tests.conformance.conftest import Database
from tests.faults.whole import QUIET, Whole, changed, options, whole
from tests.gateway.house import House, house

ROUNDS = 50


async def _barrier_round(houses: list[Whole], number: int, job: str) -> list[str]:
    """Send one event through every house at once; each on a connection of its own, the last byte held back until all are there."""
    at = houses[0].house.world.now()
    answers = await asyncio.gather(*(each.deliver(f"evt_{number}", job, "running", at=at) for each in houses))
    assert {answer.status_code for answer in answers} == {200}
    return sorted(answer.json()["status"] for answer in answers)


@pytest.mark.parametrize("writers", ["two servers", "two requests"])
def test_two_identical_posts_at_once_are_one_application(tmp_path: Path, database: Database, writers: str) -> None:
    """B024: 50 rounds of the same event at the same moment, at two servers with writers of their own or at one: 50 applications."""

    async def scenario() -> None:
        async with whole(tmp_path, database_url=database.url, contract=QUIET, reconcile=False, several=False) as first:
            if writers == "two requests":
                await _rounds(first, [first, first])
                return
            async with whole(tmp_path, database_url=database.url, contract=QUIET, reconcile=False, several=False) as second:
                await _rounds(first, [first, second])

    asyncio.run(scenario())


async def _rounds(first: Whole, houses: list[Whole]) -> None:
    for number in range(ROUNDS):
        operation = await first.adopted(f"job-{number}")
        assert await _barrier_round(houses, number, f"job-{number}") == ["accepted", "duplicate"]
        assert (await first.operation(operation)).hints == 1
    applied = await first.rows(tables.history, tables.history.c.cause == "delivery")
    stored = await first.rows(tables.deliveries)
    assert (len(applied), len(stored)) == (ROUNDS, ROUNDS)
    await first.audited()


BLANK: list[tuple[str, Any]] = [
    ("missing", ...),
    ("null", None),
    ("empty", ""),
    ("spaces", "  "),
    ("zero", 0),
    ("list", []),
    ("object", {}),
    ("false", False),
]


@pytest.mark.parametrize(("name", "value"), BLANK, ids=[name for name, _ in BLANK])
def test_a_bad_id_swallows_no_event(tmp_path: Path, name: str, value: Any) -> None:
    """B029: two different events with each unusable id are both visible, and a repeat of one of them is one event."""

    def body(state: str) -> bytes:
        event: dict[str, Any] = {"type": "job.changed", "job": "job-1", "state": state}
        return json.dumps(event if value is ... else {"id": value, **event}).encode()

    async def scenario() -> None:
        async with house(tmp_path) as home:
            answers = [(await home.deliver("reports", body(state))) for state in ("running", "done", "running")]
            assert [answer.status_code for answer in answers] == [200, 200, 200], name
            assert [answer.json()["status"] for answer in answers] == ["unmatched", "unmatched", "duplicate"]
            assert await _stored(home) == 2

    asyncio.run(scenario())


async def _stored(home: House) -> int:
    return int(
        await home.ledger.read(lambda view: view.connection.execute(sa.select(sa.func.count()).select_from(tables.deliveries)).scalar_one())
    )


WITHOUT_ID = changed(QUIET, ('id = "header:webhook-id"\n', ""))


def _reads(sim: Simulator, job: str) -> int:
    return len(sim.calls("GET", f"/v1/reports/{job}"))


async def _accepted(home: Whole, sim: Simulator) -> tuple[str, str, int]:
    """Create a job that runs for long, and return operation, job and the number of its reads so far."""
    made = await home.made("run=9999")
    op = await home.until(made, lambda op: op.remote_job_id is not None and op.lease_until is None)
    assert op.remote_job_id is not None
    return made, op.remote_job_id, _reads(sim, op.remote_job_id)


async def _read_after(home: Whole, operation: str, moment: int) -> None:
    await home.until(operation, lambda op: op.last_read_at is not None and op.last_read_at >= moment and op.lease_until is None)


def test_events_without_an_id_are_told_apart_by_their_signed_bytes(tmp_path: Path, database: Database) -> None:
    """B031: the same signed body three times is one application and one read; two identical pings at different times only cause reads."""

    async def scenario() -> None:
        async with (
            Simulator(options(), RealWorld()) as sim,
            whole(tmp_path, origin=sim.base_url, database_url=database.url, contract=WITHOUT_ID) as home,
        ):
            made, job, before = await _accepted(home, sim)
            at = home.house.world.now()
            copies = [await home.deliver("ignored", job, "succeeded", at=at) for _ in range(3)]
            assert [answer.json()["status"] for answer in copies] == ["accepted", "duplicate", "duplicate"]
            await _read_after(home, made, at)
            assert _reads(sim, job) == before + 1
            assert (await home.operation(made)).hints == 1

            ping = await home.deliver("ignored", job, "succeeded", at=at + SECOND)
            assert ping.json()["status"] == "accepted"
            await home.until(made, lambda op: _reads(sim, job) == before + 2 and op.lease_until is None)
            op = await home.operation(made)
            assert (op.state, op.hints) == (State.OBSERVING, 2)
            await home.audited()

    asyncio.run(scenario())


def test_the_same_id_with_other_bytes_causes_one_read_and_no_overwrite(tmp_path: Path) -> None:
    """B027: through the running house: 2xx conflict, the first payload kept, one row of the conflict, one read, the state as read."""

    async def scenario() -> None:
        async with Simulator(options(), RealWorld()) as sim, whole(tmp_path, origin=sim.base_url, contract=QUIET) as home:
            made, job, _ = await _accepted(home, sim)
            moment = home.house.world.now()
            first = await home.deliver("evt_1", job, "running")
            await _read_after(home, made, moment)
            await home.until(made, lambda op: op.lease_until is None)
            before, moment = _reads(sim, job), home.house.world.now()
            second = await home.deliver("evt_1", job, "succeeded")
            assert [answer.json()["status"] for answer in (first, second)] == ["accepted", "conflict"]
            await _read_after(home, made, moment)
            assert _reads(sim, job) == before + 1
            assert len(await home.rows(tables.delivery_conflicts)) == 1
            (kept,) = await home.rows(tables.deliveries)
            assert kept["claimed_state"] == "running"
            assert (await home.operation(made)).state is State.OBSERVING

    asyncio.run(scenario())


def test_a_redelivery_after_the_end_does_nothing_even_when_its_first_is_forgotten(tmp_path: Path, database: Database) -> None:
    """B034: late copies are duplicates; with the dedup row pruned by hand, a late event is one history row and nothing else."""

    async def scenario() -> None:
        async with (
            Simulator(options(), RealWorld()) as sim,
            whole(tmp_path, origin=sim.base_url, database_url=database.url, contract=QUIET) as home,
        ):
            made, job, _ = await _accepted(home, sim)
            sim.force(job, Phase.SUCCEEDED)
            at = home.house.world.now()
            assert (await home.deliver("evt_1", job, "succeeded", at=at)).json()["status"] == "accepted"
            done = await home.reaches(made, State.SUCCEEDED)
            assert (await home.deliver("evt_1", job, "succeeded", at=at)).json()["status"] == "duplicate"
            assert await home.operation(made) == done

            def prune() -> None:
                with home.ledger.engines.begin() as connection:
                    connection.execute(sa.delete(tables.deliveries))

            await asyncio.to_thread(prune)
            calls = len(sim.calls())
            assert (await home.deliver("evt_1", job, "failed", at=at)).json()["status"] == "accepted"
            after = await home.operation(made)
            assert (after.state, after.result_artifact, after.version, after.due_at) == (
                State.SUCCEEDED,
                done.result_artifact,
                done.version,
                None,
            )
            rows = await home.history(made)
            assert [row["code"] for row in rows if row["cause"] == "delivery"][-1] == "late_delivery"
            assert len([row for row in rows if row["to_state"] == "succeeded" and row["from_state"] != "succeeded"]) == 1
            assert len(await home.rows(tables.artifacts)) == 1
            assert len(sim.calls()) == calls
            await home.audited()

    asyncio.run(scenario())


@pytest.mark.parametrize("place", ["begun", "before_commit", "after_commit"])
def test_a_crash_while_a_delivery_is_stored_loses_nothing(tmp_path: Path, database: Database, place: str) -> None:
    """B025 (in process): the writer dies around the commit; the sender hears 503, and the redelivery is applied, once in all."""
    state = {"armed": False}

    def die(point: str) -> None:
        if state["armed"] and point == f"Ingest.{place}":
            raise KeyboardInterrupt

    async def scenario() -> None:
        async with whole(tmp_path, database_url=database.url, contract=QUIET, reconcile=False, at=die) as home:
            made = await home.adopted("job-1")
            at = home.house.world.now()
            state["armed"] = True
            lost = await home.deliver("evt_1", "job-1", "running", at=at)
            assert (lost.status_code, lost.headers["retry-after"]) == (503, "5")
            state["armed"] = False
        async with whole(tmp_path, database_url=database.url, contract=QUIET, reconcile=False) as again:
            answer = await again.deliver("evt_1", "job-1", "running", at=at)
            assert answer.json()["status"] == ("duplicate" if place == "after_commit" else "accepted")
            op = await again.operation(made)
            assert op.hints == 1
            assert op.due_at is not None
            assert op.due_at <= again.house.world.now()
            await again.audited()

    asyncio.run(scenario())


def test_a_delivery_is_answered_only_once_it_is_stored(tmp_path: Path) -> None:
    """B024, B164: while the commit of the first copy is held up both wait; nobody is told `duplicate` of what is not stored."""
    hold, reached = threading.Event(), threading.Event()
    state = {"armed": False}

    def wait(point: str) -> None:
        if state["armed"] and point == "Ingest.before_commit":
            reached.set()
            hold.wait(10)

    async def scenario() -> None:
        async with whole(tmp_path, contract=QUIET, reconcile=False, at=wait) as home:
            await home.adopted("job-1")
            state["armed"], at = True, home.house.world.now()
            copies = [asyncio.create_task(home.deliver("evt_1", "job-1", "running", at=at)) for _ in range(2)]
            assert await asyncio.to_thread(reached.wait, 10)
            assert not any(copy.done() for copy in copies)
            hold.set()
            answers = await asyncio.gather(*copies)
            assert sorted(answer.json()["status"] for answer in answers) == ["accepted", "duplicate"]

    asyncio.run(scenario())

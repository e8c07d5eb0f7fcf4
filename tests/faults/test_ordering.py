"""Field faults of kind c, ordering: callbacks are hints in whatever order they come; the provider's own answer decides."""

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from cli.world import RealWorld
from ledger import tables
from schemas.operation import SECOND
from schemas.states import FINAL, State
from simulator.jobs import Phase
from simulator.server import Simulator
from simulator.signing import standard_webhook
from tests.conformance.conftest import Database
from tests.faults.whole import QUIET, REPORTS, SECRET, Whole, changed, eventually, options, whole

ENDS = {Phase.SUCCEEDED: State.SUCCEEDED, Phase.FAILED: State.FAILED, Phase.CANCELLED: State.CANCELLED}


def _reads(sim: Simulator, job: str) -> int:
    return len(sim.calls("GET", f"/v1/reports/{job}"))


async def _accepted(home: Whole, *faults: str) -> tuple[str, str]:
    """Create a job and return operation and job once it is known."""
    made = await home.made(*faults)
    op = await home.until(made, lambda op: op.remote_job_id is not None and op.lease_until is None)
    assert op.remote_job_id is not None
    return made, op.remote_job_id


async def _quiet(home: Whole, operation: str, since: int) -> None:
    """Wait until a read that began at `since` or later has been settled."""
    await home.until(operation, lambda op: op.last_read_at is not None and op.last_read_at >= since and op.lease_until is None)


@pytest.mark.parametrize("order", list(itertools.permutations(("queued", "queued_again", "waiting"))), ids="-".join)
def test_events_of_one_moment_end_as_the_provider_says(tmp_path: Path, order: tuple[str, ...]) -> None:
    """B038: three events with equal times in each order: the state is what the read says (queued), also when it was wrong before."""

    async def scenario() -> None:
        async with Simulator(options(), RealWorld()) as sim, whole(tmp_path, origin=sim.base_url, contract=QUIET) as home:
            made, job = await _accepted(home, "queue=9999")
            sim.force(job, Phase.RUNNING)
            moment = home.house.world.now()
            await home.deliver("evt_0", job, "running")
            await _quiet(home, made, moment)
            assert (await home.operation(made)).remote_state == "running"
            sim.force(job, Phase.QUEUED)
            moment = home.house.world.now()
            for word in order:
                assert (await home.deliver(f"evt_{word}", job, word.removesuffix("_again"))).json()["status"] == "accepted"
            await home.until(made, lambda op: op.hints == 4)
            await _quiet(home, made, moment)
            op = await home.operation(made)
            assert (op.remote_state, op.state) == ("queued", State.OBSERVING)
            await home.audited()

    asyncio.run(scenario())


@pytest.mark.parametrize("order", list(itertools.permutations(("succeeded", "running", "queued"))), ids="-".join)
def test_events_after_an_outage_change_nothing_behind_the_end(tmp_path: Path, order: tuple[str, ...]) -> None:
    """B039: whichever comes first brings the read that ends it; the others are history rows `late_delivery`, answered 2xx."""

    async def scenario() -> None:
        async with Simulator(options(), RealWorld()) as sim, whole(tmp_path, origin=sim.base_url, contract=QUIET) as home:
            made, job = await _accepted(home, "run=9999")
            sim.force(job, Phase.SUCCEEDED)
            await home.deliver("evt_0", job, order[0])
            done = await home.reaches(made, State.SUCCEEDED)
            for number, word in enumerate(order[1:], start=1):
                assert (await home.deliver(f"evt_{number}", job, word)).status_code == 200
            after = await home.operation(made)
            assert (after.state, after.version, after.due_at) == (State.SUCCEEDED, done.version, None)
            rows = await home.history(made)
            assert [row["code"] for row in rows][-2:] == ["late_delivery", "late_delivery"]

    asyncio.run(scenario())


@pytest.mark.parametrize("first", list(ENDS))
def test_no_later_end_replaces_the_first(tmp_path: Path, database: Database, first: Phase) -> None:
    """B041: every terminal claim after every terminal state, each twice: the first stays, with exactly one terminal history row."""

    async def scenario() -> None:
        async with (
            Simulator(options(), RealWorld()) as sim,
            whole(tmp_path, origin=sim.base_url, database_url=database.url, contract=QUIET) as home,
        ):
            made, job = await _accepted(home, "run=9999")
            sim.force(job, first)
            await home.deliver("evt_0", job, str(first))
            done = await home.reaches(made, ENDS[first])
            for number, (claim, truth) in enumerate(itertools.product([*ENDS, Phase.EXPIRED], ENDS)):
                sim.force(job, truth)  # the provider itself now says another end
                at = home.house.world.now()
                for status in ("accepted", "duplicate"):
                    assert (await home.deliver(f"evt_{first}_{number}", job, str(claim), at=at)).json()["status"] == status
            after = await home.operation(made)
            assert (after.state, after.version, after.result_artifact) == (done.state, done.version, done.result_artifact)
            ends = [row for row in await home.history(made) if row["to_state"] in FINAL and row["from_state"] != row["to_state"]]
            assert [row["to_state"] for row in ends] == [str(done.state)]
            late = [row for row in await home.history(made) if row["code"] == "late_delivery"]
            assert len(late) == 12
            await home.audited()

    asyncio.run(scenario())


UNECHOED = changed(REPORTS, ('client_reference = "body:data.client_reference"\n', ""), ('add = { client_reference = "{operation}" }\n', ""))


@pytest.mark.parametrize("echo", ["echoed", "unechoed"])
def test_a_callback_before_the_create_answer_is_kept_and_attaches(tmp_path: Path, database: Database, echo: str) -> None:
    """B042: the provider calls back and answers the create two seconds later; the event waits, attaches, and is read.

    With our echo it names the job at once; without, the create answer does.
    """
    contract = REPORTS if echo == "echoed" else UNECHOED

    async def scenario() -> None:
        async with (
            Simulator(options(), RealWorld()) as sim,
            whole(tmp_path, origin=sim.base_url, database_url=database.url, contract=contract) as home,
        ):
            sim.configure(reports_callback_url=home.callback_url)
            made = await home.made("early_callback", "delay_create_response=2", "run=9999")
            await eventually(lambda: len(sim.deliveries()) == 1)
            deliveries = await home.rows(tables.deliveries)
            known = (await home.operation(made)).remote_job_id
            assert known == (sim.deliveries()[0].job if echo == "echoed" else None)
            assert deliveries[0]["status"] == ("applied" if echo == "echoed" else "orphan")
            assert [sent.status for sent in sim.deliveries()] == [200]
            async with asyncio.timeout(10):
                op = await home.reaches(made, State.OBSERVING)
            (job,) = sim.jobs
            assert (op.remote_job_id, op.remote_state, op.hints) == (job, "running", 1)
            (kept,) = await home.rows(tables.deliveries)
            assert (kept["operation"], kept["status"]) == (made, "applied")
            assert len(sim.calls("POST", "/v1/reports")) == 1
            await home.audited()

    asyncio.run(scenario())


def test_a_finish_event_that_says_running_causes_one_read(tmp_path: Path) -> None:
    """B045: type and state of an event disagree: exactly one read, and the end is the read's."""

    async def scenario() -> None:
        async with Simulator(options(), RealWorld()) as sim, whole(tmp_path, origin=sim.base_url, contract=QUIET) as home:
            made, job = await _accepted(home, "run=9999")
            sim.force(job, Phase.FAILED)
            assert _reads(sim, job) == 0
            body: dict[str, Any] = {
                "type": "report.succeeded",
                "timestamp": "2026-01-01T00:00:00Z",
                "data": {"id": job, "status": "running"},
            }
            answer = await _send(home, body)
            assert answer == "accepted"
            await home.reaches(made, State.FAILED)
            assert _reads(sim, job) == 1

    asyncio.run(scenario())


async def _send(home: Whole, body: dict[str, Any]) -> str:
    content = json.dumps(body).encode()
    now = home.house.world.now() // SECOND * SECOND
    headers = standard_webhook(secret=SECRET, event_id="evt_finish", at=now, body=content, forged=False)
    return str((await home.client().post("/webhooks/reports", content=content, headers=headers)).json()["status"])

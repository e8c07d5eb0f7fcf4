"""A result that can be read once, a worker that dies between storing it and the commit, and its successor (F4)."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from ledger import queries
from ledger.ledger import Ledger
from schemas.commands import Claimed, ClaimWork, Register, Settle
from schemas.contract import Contract
from schemas.evidence import JobKnown, Read, StatusFacts
from schemas.operation import SECOND, Micros, Operation
from schemas.states import Errand, Reading, State
from tests.reconciler.accounts import CONTRACT, Bench
from tests.reconciler.houses import intent, open_ledger
from tests.reconciler.servers import Handler, Server, read_request, response, serving

assert CONTRACT.result is not None
ONE_SHOT: Contract = replace(CONTRACT, result=replace(CONTRACT.result, one_shot=True))
BODY = b"a,b\n1,2\n" * 100
LEASE = 45 * SECOND


def once(cut: int | None) -> Handler:
    """Return a provider that gives its result one time; `cut`: and breaks off after so many bytes."""
    given = False

    async def handler(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal given
        request = await read_request(server, reader)
        if request.split(b" ")[1].startswith(b"/jobs/"):
            writer.write(response(200, json.dumps({"status": "done", "result_url": f"{server.url}/f"}).encode()))
        elif given:
            writer.write(response(410, b"{}"))
        else:
            given = True
            whole = response(200, BODY, "content-type: text/csv")
            writer.write(whole if cut is None else whole[: len(whole) - len(BODY) + cut])
        await writer.drain()

    return handler


async def claim(record: Ledger, worker: str, now: Micros) -> Claimed:
    command = ClaimWork(worker=worker, room={"jobs": 5}, limit=5, lease=LEASE, send_budget=10 * SECOND, now=now, chance=0.5)
    (item,) = (await record.write(command)).items
    return item


async def collecting(record: Ledger, bench: Bench, origin: str) -> Claimed:
    """Bring an operation to where its result is to be collected, leased by the first worker."""
    now = bench.world.now()
    wanted = intent(bench.world, origin)
    await record.write(Register(intent=wanted, now=now))
    for evidence in (
        JobKnown(remote_job_id="job-1", source="create"),
        Read(facts=StatusFacts(reading=Reading.SUCCEEDED, remote_state="done"), digest="d"),
    ):
        item = await claim(record, "first", now)
        await record.write(settlement(item, evidence, now))
        now += 60 * SECOND
    return await claim(record, "first", now)


def settlement(item: Claimed, evidence: JobKnown | Read, now: Micros) -> Settle:
    return Settle(
        operation_id=item.operation.id, fence=item.fence, errand=item.errand, evidence=evidence, started_at=now, now=now, chance=0.5,
        actor="test", attempt_id=item.attempt_id,
    )  # fmt: skip


async def performed(bench: Bench, item: Claimed) -> Settle:
    """Perform an errand as the crew does: a task of its own."""
    now = bench.world.monotonic()
    command = await asyncio.create_task(bench.performer.perform(item, now, now + 30.0))
    assert isinstance(command, Settle)
    return command


@pytest.mark.parametrize(
    ("cut", "crash", "state"),
    [
        (None, "after storing", State.SUCCEEDED),
        (400, "after storing", State.RESULT_UNAVAILABLE),
        (None, "before sending", State.RESULT_UNAVAILABLE),
    ],
)
def test_a_lost_worker_s_result_is_found_and_never_read_again(tmp_path: Path, cut: int | None, crash: str, state: State) -> None:
    """What was stored is found by the attempt on record; what was not is a question. Either way the provider is asked once at most (F4)."""

    async def scenario() -> Operation:
        record = open_ledger(tmp_path, {"jobs": ONE_SHOT})
        async with serving(once(cut)) as server:
            bench = Bench(tmp_path / "artifacts", server.url, contract=ONE_SHOT, record=record)
            item = await collecting(record, bench, server.url)
            assert (item.errand, item.attempt_id is not None) == (Errand.COLLECT, True)
            if crash == "after storing":
                await performed(bench, item)  # and its commit never comes: the worker is gone
            later = bench.world.now() + 120 * SECOND + LEASE + SECOND
            successor = await claim(record, "second", later)
            assert (successor.errand, successor.attempt_id) == (Errand.COLLECT, None)
            await record.write(replace(await performed(bench, successor), now=later))
            asked = sum(request.startswith(b"GET /f ") for request in server.requests)
            assert asked == (1 if crash == "after storing" else 0)
            found = await record.read(queries.operation, item.operation.id, None)
            await bench.transport.aclose()
        record.close()
        assert found is not None
        return found

    op = asyncio.run(scenario())
    assert op.state is state
    assert op.error_code == (None if state is State.SUCCEEDED else "one_shot_lost")
    if state is State.SUCCEEDED:
        assert op.result_artifact is not None
        assert (tmp_path / "artifacts" / op.result_artifact).read_bytes() == BODY

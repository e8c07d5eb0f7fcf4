"""Faults of the create answer and of tokens, over real HTTP."""

import asyncio

import httpx
import pytest

from simulator.jobs import Phase
from tests.simulator.stage import PATIENCE, Stage

pytestmark = pytest.mark.anyio
both = pytest.mark.parametrize("api", ["reports", "batches"])


async def create(stage: Stage, api: str, *faults: str, token: str | None = None) -> httpx.Response:
    return await (stage.report if api == "reports" else stage.batch)(*faults, token=token)


@both
async def test_drop_create_response_accepts_and_cuts(stage: Stage, api: str) -> None:
    """drop_create_response: the job exists, and the client got no answer (MISSION A6)."""
    with pytest.raises(httpx.RemoteProtocolError):
        await create(stage, api, "drop_create_response")
    assert stage.only_job().api == api


async def test_drop_create_response_sends_not_one_byte(stage: Stage) -> None:
    """drop_create_response: a raw client sees the connection end with nothing on it."""
    reader, writer = await asyncio.open_connection(*stage.sim.base_url.removeprefix("http://").split(":"))
    body = b'{"kind":"raw","rows":1}'
    head = f"POST /v1/reports HTTP/1.1\r\nhost: x\r\nx-simulate: drop_create_response\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    async with asyncio.timeout(PATIENCE):
        try:
            got = await reader.read()
        except ConnectionResetError:
            got = b""
    writer.close()
    assert got == b""
    assert len(stage.sim.jobs) == 1


async def test_body_faults_hit_once_per_token(stage: Stage) -> None:
    """A recorded request can be resent with the same token: its create fault hits the first request only."""
    with pytest.raises(httpx.RemoteProtocolError):
        await stage.report(token="t-1", simulate=["drop_create_response"])
    again = await stage.report(token="t-1", simulate=["drop_create_response"])
    assert (again.status_code, again.headers["idempotent-replayed"]) == (202, "true")
    assert again.json()["id"] == stage.only_job().id


async def test_body_faults_hit_once_per_body_without_tokens(stage: Stage) -> None:
    """Batches have no tokens: the same body is what is counted, and the repeat makes a second job."""
    with pytest.raises(httpx.RemoteProtocolError):
        await stage.batch(simulate=["drop_create_response"])
    assert (await stage.batch(simulate=["drop_create_response"])).status_code == 200
    assert len(stage.sim.jobs) == 2


async def test_header_faults_hit_the_resend_too(stage: Stage) -> None:
    """A create fault in the header hits that request, also when its token is known."""
    await stage.report(token="t-8")
    with pytest.raises(httpx.RemoteProtocolError):
        await stage.report("drop_create_response", token="t-8")
    assert len(stage.sim.jobs) == 1


@pytest.mark.parametrize("token", ["", "x" * 256])
async def test_tokens_have_bounds(stage: Stage, token: str) -> None:
    """An empty or overlong Idempotency-Key is a 400 and makes no job."""
    assert (await stage.report(token=token)).status_code == 400
    assert not stage.sim.jobs


async def test_create_repeats_keeps_the_fault_up(stage: Stage) -> None:
    """create_repeats=2: the second request is hit too, the third is answered."""
    chosen = ["create_status=503", "create_repeats=2"]
    statuses = [(await stage.report(token="t-2", simulate=chosen)).status_code for _ in range(3)]
    assert statuses == [503, 503, 202]


@both
async def test_delay_create_response_accepts_first(stage: Stage, api: str) -> None:
    """delay_create_response: the job exists while its answer is still held back."""
    asking = asyncio.create_task(create(stage, api, "delay_create_response=50"))
    await stage.until(lambda: len(stage.sim.jobs) == 1)
    assert not asking.done()
    stage.sim.advance(50)
    answer = await asking
    assert answer.json()["id"] == stage.only_job().id


@both
async def test_create_status_accepts_nothing(stage: Stage, api: str) -> None:
    """create_status=503: an error with Retry-After, and no job."""
    answer = await create(stage, api, "create_status=503")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert not stage.sim.jobs


@both
async def test_accept_anyway_lies_about_it(stage: Stage, api: str) -> None:
    """create_status with accept_anyway: the error says no, the job says yes."""
    answer = await create(stage, api, "create_status=502", "accept_anyway")
    assert answer.status_code == 502
    assert stage.only_job().api == api


@both
async def test_create_500_though_done(stage: Stage, api: str) -> None:
    """create_500_though_done: 500, and the job exists."""
    assert (await create(stage, api, "create_500_though_done")).status_code == 500
    assert stage.only_job().api == api


@both
async def test_reject_is_definite(stage: Stage, api: str) -> None:
    """reject=403: that status with a code, and no job (MISSION A10)."""
    answer = await create(stage, api, "reject=403")
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "rejected")
    assert not stage.sim.jobs


async def test_sync_success_answers_with_the_finished_report(stage: Stage) -> None:
    """sync_success: 200 with status, result and a callback about it (MISSION A5)."""
    answer = await stage.report("sync_success", rows=3)
    assert (answer.status_code, answer.json()["status"]) == (200, "succeeded")
    assert len(answer.json()["result"]["sha256"]) == 64
    assert (await stage.receiver.wait(1))[0].value["type"] == "report.succeeded"


async def test_sync_success_answers_with_the_finished_batch(stage: Stage) -> None:
    """sync_success: a batch is completed at once, with its output file."""
    shown = (await stage.batch("sync_success")).json()
    assert (shown["status"], shown["request_counts"]["completed"]) == ("completed", 4)
    assert (await stage.client.get(f"/v1/files/{shown['output_file_id']}/content")).status_code == 200


@both
async def test_early_callback_comes_before_the_answer(stage: Stage, api: str) -> None:
    """early_callback: when the create answer arrives the callback is already there, about this job."""
    job = (await create(stage, api, "early_callback")).json()["id"]
    (got,) = stage.receiver.got
    assert got.value["data"]["id"] == job


async def test_early_callback_can_be_about_the_end(stage: Stage) -> None:
    """early_callback with queue=0,run=0: the callback that overtakes the create answer says that all is over."""
    await stage.report("early_callback", "queue=0", "run=0")
    assert stage.receiver.got[0].value["type"] == "report.succeeded"


@both
async def test_hide_after_create(stage: Stage, api: str) -> None:
    """hide=20: 404 and not listed at first, then there (MISSION A6, visibility delay)."""
    job = await stage.opened(api, "hide=20")
    assert (await stage.get(api, job)).status_code == 404
    assert (await stage.client.get(f"/v1/{api}")).json()["data"] == []
    stage.sim.advance(20)
    assert (await stage.get(api, job)).status_code == 200
    assert [item["id"] for item in (await stage.client.get(f"/v1/{api}")).json()["data"]] == [job]


async def test_token_is_replayed(stage: Stage) -> None:
    """Same Idempotency-Key and body: the same job, said to be replayed; another body: 422 and no job."""
    first, second = [await stage.report(token="t-3") for _ in range(2)]
    assert first.json()["id"] == second.json()["id"]
    assert "idempotent-replayed" not in first.headers
    assert second.headers["idempotent-replayed"] == "true"
    other = await stage.report(token="t-3", rows=8)
    assert (other.status_code, other.json()["error"]["code"]) == (422, "idempotency_key_reused")
    assert len(stage.sim.jobs) == 1


async def test_no_idempotency(stage: Stage) -> None:
    """no_idempotency: the same token makes two jobs, also after the fault is gone."""
    ids = {(await stage.report("no_idempotency", token="t-4")).json()["id"] for _ in range(2)}
    assert len(ids) == 2


async def test_forget_tokens(stage: Stage) -> None:
    """forget_tokens=30: a token is honoured for 30 s, then it makes a second job."""
    chosen = ["forget_tokens=30"]
    first = (await stage.report(token="t-5", simulate=chosen)).json()["id"]
    assert (await stage.report(token="t-5", simulate=chosen)).json()["id"] == first
    stage.sim.advance(30)
    late = await stage.report(token="t-5", simulate=chosen)
    assert "idempotent-replayed" not in late.headers
    assert late.json()["id"] != first


async def test_other_job_id(stage: Stage) -> None:
    """other_job_id: the resend claims to be a replay, and names another job that exists too (MISSION A8)."""
    first = await stage.report(token="t-6", simulate=["other_job_id"])
    second = await stage.report(token="t-6", simulate=["other_job_id"])
    assert second.headers["idempotent-replayed"] == "true"
    assert {first.json()["id"], second.json()["id"]} == set(stage.sim.jobs)
    assert len(stage.sim.jobs) == 2


async def test_batches_ignore_tokens(stage: Stage) -> None:
    """Batches have no idempotency: the same token and body make two jobs, newest first in the list."""
    ids = [(await stage.batch(token="t-7")).json()["id"] for _ in range(2)]
    assert [item["id"] for item in (await stage.client.get("/v1/batches")).json()["data"]] == ids[::-1]


async def test_header_wins_over_body(stage: Stage) -> None:
    """The header's layer is the last: `off` there takes a body's fault away, a value replaces it."""
    assert (await stage.report("reject=off", simulate=["reject"])).status_code == 202
    assert (await stage.report("reject=409", simulate=["reject=404"])).status_code == 409


@both
async def test_durations_per_job(stage: Stage, api: str) -> None:
    """queue, run and finalize set a job's own durations."""
    job = await stage.opened(api, "queue=100", "run=100", "finalize=100")
    seen = []
    for _ in range(4):
        stage.sim.advance(99)
        seen.append(stage.sim.phase(job))
    expected = [Phase.QUEUED, Phase.RUNNING, Phase.FINALIZING if api == "batches" else Phase.SUCCEEDED, Phase.SUCCEEDED]
    assert seen == expected


async def test_unknown_faults_are_refused_by_name(stage: Stage) -> None:
    """A misspelt fault is a 400 that lists what exists, in header and body alike, and makes no job."""
    for answer in (await stage.report("droop"), await stage.report(simulate=["droop"]), await stage.report(simulate="droop")):
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "invalid_simulate"
    assert not stage.sim.jobs

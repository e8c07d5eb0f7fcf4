"""Faults of reads, cancels, ends and results, over real HTTP."""

import asyncio
import hashlib
import json

import httpx
import pytest

from tests.simulator.stage import Stage

pytestmark = pytest.mark.anyio
both = pytest.mark.parametrize("api", ["reports", "batches"])
END = 200.0  # seconds after which every job here has ended


@both
async def test_rate_limit(stage: Stage, api: str) -> None:
    """rate_limit=2: two reads are 429 with Retry-After, the third is answered (MISSION C3)."""
    job = await stage.opened(api, "rate_limit=2")
    answers = [await stage.get(api, job) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [429, 429, 200]
    assert answers[0].headers["retry-after"] == "1"


@both
async def test_read_faults_hit_lists_too(stage: Stage, api: str) -> None:
    """A list that shows the job is a read of it."""
    await stage.opened(api, "rate_limit")
    assert [(await stage.client.get(f"/v1/{api}")).status_code for _ in range(2)] == [429, 200]


@both
async def test_html_200(stage: Stage, api: str) -> None:
    """html_200=1: a page with status 200, then JSON again (MISSION C4)."""
    job = await stage.opened(api, "html_200")
    page, honest = [await stage.get(api, job) for _ in range(2)]
    assert (page.status_code, page.headers["content-type"].split(";")[0]) == (200, "text/html")
    assert honest.json()["id"] == job


@both
async def test_cut_body(stage: Stage, api: str) -> None:
    """cut_body=1: the answer ends before its Content-Length."""
    job = await stage.opened(api, "cut_body")
    with pytest.raises(httpx.RemoteProtocolError, match="complete message body"):
        await stage.get(api, job)
    assert (await stage.get(api, job)).json()["id"] == job


@both
async def test_hang_reads(stage: Stage, api: str) -> None:
    """hang_reads=1: a read is received and never answered; the next is."""
    job = await stage.opened(api, "hang_reads")
    with pytest.raises(httpx.ReadTimeout):
        await stage.client.get(f"/v1/{api}/{job}", timeout=0.2)
    assert (await stage.get(api, job)).json()["id"] == job
    assert len(stage.sim.calls("GET", f"/v1/{api}/{job}")) == 2


async def test_a_read_can_choose_its_fault(stage: Stage) -> None:
    """X-Simulate on a read hits that read only."""
    job = await stage.opened("reports")
    assert (await stage.client.get(f"/v1/reports/{job}", headers={"x-simulate": "rate_limit"})).status_code == 429
    assert (await stage.get("reports", job)).status_code == 200
    assert (await stage.client.get(f"/v1/reports/{job}", headers={"x-simulate": "nonsense"})).status_code == 400


@both
async def test_refuse_cancel(stage: Stage, api: str) -> None:
    """refuse_cancel: 409, and the job goes on to its end (MISSION E4)."""
    job = await stage.opened(api, "refuse_cancel")
    assert (await stage.cancel(api, job)).status_code == 409
    stage.sim.advance(END)
    assert await stage.status(api, job) in {"succeeded", "completed"}


@both
async def test_slow_cancel(stage: Stage, api: str) -> None:
    """slow_cancel=40: `cancelling` for 40 s, then cancelled."""
    job = await stage.opened(api, "slow_cancel=40")
    await stage.cancel(api, job)
    seen = [await stage.status(api, job)]
    for _ in range(2):
        stage.sim.advance(20)
        seen.append(await stage.status(api, job))
    assert seen == ["cancelling", "cancelling", "cancelled"]


@both
async def test_ignore_cancel(stage: Stage, api: str) -> None:
    """ignore_cancel: the cancel is answered as taken; the job runs and ends as if nothing had been asked."""
    job = await stage.opened(api, "ignore_cancel")
    assert (await stage.cancel(api, job)).is_success
    stage.sim.advance(30)
    assert await stage.status(api, job) in {"running", "in_progress"}
    stage.sim.advance(END)
    assert await stage.status(api, job) in {"succeeded", "completed"}


@both
async def test_complete_during_cancel(stage: Stage, api: str) -> None:
    """complete_during_cancel: cancelling, then a success with a result (MISSION E2)."""
    job = await stage.opened(api, "complete_during_cancel")
    assert (await stage.cancel(api, job)).json()["status"] == "cancelling"
    stage.sim.advance(5)
    assert await stage.status(api, job) in {"succeeded", "completed"}


@both
async def test_drop_cancel_response(stage: Stage, api: str) -> None:
    """drop_cancel_response: the cancel is taken without an answer; a repeated one is answered (MISSION E4)."""
    job = await stage.opened(api, "drop_cancel_response")
    with pytest.raises(httpx.RemoteProtocolError):
        await stage.cancel(api, job)
    assert await stage.status(api, job) == "cancelling"
    assert (await stage.cancel(api, job)).is_success


@both
async def test_cancel_after_the_end_is_refused(stage: Stage, api: str) -> None:
    """A cancel that comes too late is a 409, and the end stands."""
    job = await stage.opened(api)
    stage.sim.advance(END)
    answer = await stage.cancel(api, job)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "already_ended")


async def test_fail(stage: Stage) -> None:
    """fail: the end is `failed` with an error and without a result."""
    job = await stage.opened("reports", "fail")
    stage.sim.advance(END)
    shown = (await stage.get("reports", job)).json()
    assert (shown["status"], shown["error"]["code"], shown["result"]) == ("failed", "report_failed", None)
    batch = await stage.opened("batches", "fail")
    stage.sim.advance(END)
    shown = (await stage.get("batches", batch)).json()
    assert (shown["status"], shown["output_file_id"], len(shown["errors"]["data"])) == ("failed", None, 1)


async def test_expire(stage: Stage) -> None:
    """expire: a report without a result; a batch with half its items done and the others named (MISSION F5)."""
    job = await stage.opened("reports", "expire")
    batch = await stage.opened("batches", "expire")
    stage.sim.advance(END)
    assert await stage.status("reports", job) == "expired"
    assert (await stage.client.get(f"/v1/reports/{job}/result")).status_code == 410
    shown = (await stage.get("batches", batch)).json()
    assert (shown["status"], shown["request_counts"]) == ("expired", {"total": 4, "completed": 2, "failed": 2})
    errors = (await stage.client.get(f"/v1/files/{shown['error_file_id']}/content")).text.splitlines()
    assert {json.loads(line)["error"]["code"] for line in errors} == {"batch_expired"}


async def test_wrong_checksum(stage: Stage) -> None:
    """wrong_checksum: the declared SHA-256 is not the result's (MISSION F2)."""
    job = await stage.opened("reports", "wrong_checksum")
    stage.sim.advance(END)
    declared = (await stage.get("reports", job)).json()["result"]["sha256"]
    content = (await stage.client.get(f"/v1/reports/{job}/result")).content
    assert hashlib.sha256(content).hexdigest() != declared


async def _result(stage: Stage, api: str, *faults: str) -> tuple[httpx.Response, int]:
    """Return the result of a finished job, and the bytes that an honest one has."""
    honest, job = await stage.opened(api), await stage.opened(api, *faults)
    stage.sim.advance(END)
    urls = []
    for each in (honest, job):
        shown = (await stage.get(api, each)).json()
        urls.append(shown["result"]["url"] if api == "reports" else f"/v1/files/{shown['output_file_id']}/content")
    return await stage.client.get(urls[1]), len((await stage.client.get(urls[0])).content)


@both
async def test_truncated_result(stage: Stage, api: str) -> None:
    """truncated_result: a whole HTTP answer that lacks the end of the result."""
    answer, honest = await _result(stage, api, "truncated_result")
    assert answer.status_code == 200
    assert 0 < len(answer.content) < honest


@both
async def test_html_result(stage: Stage, api: str) -> None:
    """html_result: the download is a page with status 200."""
    answer, _ = await _result(stage, api, "html_result")
    assert (answer.status_code, answer.headers["content-type"].split(";")[0]) == (200, "text/html")


@both
async def test_cut_result(stage: Stage, api: str) -> None:
    """cut_result=1: the download ends before its Content-Length."""
    with pytest.raises(httpx.RemoteProtocolError, match="complete message body"):
        await _result(stage, api, "cut_result")


async def test_one_shot_result(stage: Stage) -> None:
    """one_shot_result: the first read of the result takes it away (MISSION F4)."""
    answer, honest = await _result(stage, "reports", "one_shot_result")
    assert (answer.status_code, len(answer.content)) == (200, honest)
    assert (await stage.client.get(answer.request.url)).status_code == 410


@both
async def test_expire_result(stage: Stage, api: str) -> None:
    """expire_result: the job is done, its result is gone (MISSION F6)."""
    answer, _ = await _result(stage, api, "expire_result")
    assert answer.status_code == 410


async def test_a_stop_drops_what_hangs(stage: Stage) -> None:
    """A read that hangs does not keep the simulator from stopping."""
    job = await stage.opened("reports", "hang_reads")
    reading = asyncio.create_task(stage.get("reports", job))
    await stage.until(lambda: len(stage.sim.calls("GET")) == 1)
    stage.sim.provider.closing.set()
    with pytest.raises(httpx.RemoteProtocolError):
        await reading

"""The two APIs when nobody misbehaves: lives of jobs, lists, results, refusals."""

import hashlib
import json
from typing import Any

import pytest

from tests.simulator.stage import Stage

pytestmark = pytest.mark.anyio
END = 200.0


async def test_life_of_a_report(stage: Stage) -> None:
    """202 with a status URL; queued, running with progress, succeeded with a CSV that has the declared size and checksum."""
    created = await stage.report(rows=5_000, client_reference="ref-1")
    assert created.status_code == 202
    assert set(created.json()) == {"id", "status", "status_url", "client_reference"}
    url = created.json()["status_url"]
    seen = [(await stage.client.get(url)).json()]
    for seconds in (40, 40):
        stage.sim.advance(seconds)
        seen.append((await stage.client.get(url)).json())
    assert [one["status"] for one in seen] == ["queued", "running", "succeeded"]
    assert seen[0]["progress"] == 0 < seen[1]["progress"] < seen[2]["progress"] == 1
    assert [one["result"] is None for one in seen] == [True, True, False]
    assert seen[0]["updated_at"] < seen[1]["updated_at"]
    result = seen[2]["result"]
    answer = await stage.client.get(result["url"])
    assert answer.headers["content-type"].split(";")[0] == result["media_type"] == "text/csv"
    assert len(answer.content) == result["bytes"] == int(answer.headers["content-length"])
    assert hashlib.sha256(answer.content).hexdigest() == result["sha256"]
    assert len(answer.text.splitlines()) == 5_001


async def test_large_result_streams_whole(stage: Stage) -> None:
    """300,000 rows come in many pieces and are what the status declares."""
    job = await stage.opened("reports", rows=300_000)
    stage.sim.advance(END)
    result = (await stage.get("reports", job)).json()["result"]
    hasher, pieces = hashlib.sha256(), 0
    async with stage.client.stream("GET", result["url"]) as answer:
        async for piece in answer.aiter_bytes():
            hasher.update(piece)
            pieces += 1
    assert hasher.hexdigest() == result["sha256"]
    assert pieces > 10


async def test_reports_are_found_by_reference(stage: Stage) -> None:
    """The list filters by client_reference exactly; an unknown one is an empty list."""
    job = await stage.opened("reports", client_reference="mine")
    await stage.opened("reports", client_reference="other")
    found = (await stage.client.get("/v1/reports", params={"client_reference": "mine"})).json()["data"]
    assert [one["id"] for one in found] == [job]
    assert (await stage.client.get("/v1/reports", params={"client_reference": "no"})).json() == {"data": []}


async def test_cancelled_report_has_no_result(stage: Stage) -> None:
    """202, cancelling, cancelled; the result is gone."""
    job = await stage.opened("reports")
    stage.sim.advance(30)
    answer = await stage.cancel("reports", job)
    assert (answer.status_code, answer.json()["status"]) == (202, "cancelling")
    stage.sim.advance(5)
    assert await stage.status("reports", job) == "cancelled"
    assert (await stage.client.get(f"/v1/reports/{job}/result")).status_code == 410


async def test_life_of_a_batch(stage: Stage) -> None:
    """Validating, in progress, finalizing, completed; the files hold every item once, out of order, failures apart (F5)."""
    items = [{"custom_id": f"c-{number}", "fail": number in {3, 7}} for number in range(10)]
    created = await stage.client.post("/v1/batches", json={"input": items, "metadata": {"operation": "op_1"}})
    assert (created.status_code, created.json()["object"]) == (200, "batch")
    job = created.json()["id"]
    seen = [created.json()]
    for seconds in (40, 31, 5):
        stage.sim.advance(seconds)
        seen.append((await stage.get("batches", job)).json())
    assert [one["status"] for one in seen] == ["validating", "in_progress", "finalizing", "completed"]
    assert [one["output_file_id"] is None for one in seen] == [True, True, True, False]
    last = seen[-1]
    assert last["request_counts"] == {"total": 10, "completed": 8, "failed": 2}
    assert last["metadata"] == {"operation": "op_1"}
    assert last["created_at"] <= last["in_progress_at"] <= last["finalizing_at"] <= last["completed_at"]
    output, errors = [await lines(stage, last[name]) for name in ("output_file_id", "error_file_id")]
    names = [line["custom_id"] for line in output]
    assert sorted(names) == [f"c-{number}" for number in range(10) if number not in {3, 7}]
    assert names != sorted(names)
    assert {line["custom_id"]: line["error"]["code"] for line in errors} == {"c-3": "item_failed", "c-7": "item_failed"}
    assert all(line["response"]["status_code"] == 200 for line in output)


async def lines(stage: Stage, file: str) -> list[dict[str, Any]]:
    answer = await stage.client.get(f"/v1/files/{file}/content")
    assert answer.status_code == 200
    return [json.loads(line) for line in answer.text.splitlines()]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 64, 1_000])
async def test_counted_batches_have_every_item_once(stage: Stage, count: int) -> None:
    """The short form {"count", "fail"}: the files of any size hold each item exactly once."""
    job = await stage.opened("batches", input={"count": count, "fail": count // 2})
    stage.sim.advance(END)
    shown = (await stage.get("batches", job)).json()
    got = [line["custom_id"] for name in ("output_file_id", "error_file_id") if shown[name] for line in await lines(stage, shown[name])]
    assert sorted(map(str, got)) == sorted(f"item-{index}" for index in range(count))
    assert shown["request_counts"] == {"total": count, "completed": count - count // 2, "failed": count // 2}


async def test_cancelled_batch_keeps_what_was_done(stage: Stage) -> None:
    """Cancelling, then cancelled with the finished items in the output file and the others named in the error file."""
    job = await stage.opened("batches", input={"count": 10})
    stage.sim.advance(10 + 31)
    assert (await stage.cancel("batches", job)).json()["status"] == "cancelling"
    assert (await stage.get("batches", job)).json()["output_file_id"] is None
    stage.sim.advance(5)
    shown = (await stage.get("batches", job)).json()
    assert (shown["status"], shown["request_counts"]) == ("cancelled", {"total": 10, "completed": 5, "failed": 5})
    assert shown["cancelling_at"] <= shown["cancelled_at"]
    assert len(await lines(stage, shown["output_file_id"])) == 5
    assert {line["error"]["code"] for line in await lines(stage, shown["error_file_id"])} == {"batch_cancelled"}


async def test_batches_are_paged_newest_first(stage: Stage) -> None:
    """Limit and after walk the list without gaps; bad values are 400."""
    jobs = [await stage.opened("batches") for _ in range(5)][::-1]
    first = (await stage.client.get("/v1/batches", params={"limit": 3})).json()
    second = (await stage.client.get("/v1/batches", params={"limit": 3, "after": first["last_id"]})).json()
    assert [[one["id"] for one in page["data"]] for page in (first, second)] == [jobs[:3], jobs[3:]]
    assert [page["has_more"] for page in (first, second)] == [True, False]
    assert (first["first_id"], second["last_id"]) == (jobs[0], jobs[-1])
    for bad in ({"limit": 0}, {"limit": 101}, {"limit": "x"}, {"limit": "²"}, {"after": "batch_none"}):
        assert (await stage.client.get("/v1/batches", params=bad)).status_code == 400


async def test_credential(stage: Stage) -> None:
    """With a credential: 401 without it or with another, and the journal keeps only that there was one."""
    stage.sim.configure(credential="s3cret")
    statuses = []
    for value in (None, b"Bearer wrong", b"s3cret", b"Bearer s3cret", b"Bearer \xff"):
        headers = [] if value is None else [(b"authorization", value)]
        statuses.append((await stage.client.get("/v1/batches", headers=headers)).status_code)
    assert statuses == [401, 401, 401, 200, 401]
    assert [call.authorized for call in stage.sim.calls("GET", "/v1/batches")] == [False, True, True, True, True]
    assert "s3cret" not in repr(stage.sim.calls())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"nonsense",
        b'{"rows": -1}',
        b'{"rows": true}',
        b'{"rows": 1e9}',
        b'{"kind": 5}',
        b'{"client_reference": {}}',
        b'{"simulate": 5}',
        b'{"simulate": ["fail=x"]}',
        b'{"simulate": ["rate_limit=1.5"]}',
        b'{"simulate": ["hide=nan"]}',
        b'{"callback_url": "file:///etc/passwd"}',
        b'{"kind": "\\ud800"}',
        b'{"input": []}',
        b'{"input": [{"custom_id": "a"}, {"custom_id": "a"}]}',
        b'{"input": [5]}',
        b'{"input": {"count": 2, "fail": 3}}',
        b'{"input": {"count": 1}, "metadata": {"a": 1}}',
        b"[" * 5_000,
    ],
)
async def test_bad_bodies_are_refused(stage: Stage, body: bytes) -> None:
    """Whatever a stranger posts is a 400 with a code, never a 500, and makes no job (where the API reads that field)."""
    for api in ("reports", "batches"):
        answer = await stage.client.post(f"/v1/{api}", content=body)
        if b'"input"' in body and api == "reports":
            assert answer.status_code == 202  # reports know no such field
        else:
            assert answer.status_code == 400
            assert answer.json()["error"]["code"]
    assert not [job for job in stage.sim.jobs.values() if job.api == "batches"]


async def test_too_large_a_body_is_refused(stage: Stage) -> None:
    """413, before it is read to its end."""
    answer = await stage.client.post("/v1/reports", content=b" " * 5_000_000)
    assert answer.status_code == 413


async def test_a_strange_host_header_is_harmless(stage: Stage) -> None:
    """A Host that is none gives a relative status_url, not an error."""
    answer = await stage.client.post("/v1/reports", json={}, headers={"host": "[[<x>"})
    assert answer.status_code == 202
    assert answer.json()["status_url"] == f"/v1/reports/{answer.json()['id']}"


async def test_unknown_ids_are_404(stage: Stage) -> None:
    """Unknown ids, ids of the other API, and files that do not exist yet are 404."""
    job = await stage.opened("batches")
    stored = stage.sim.jobs[job]
    for path in (
        "/v1/reports/x",
        f"/v1/reports/{job}",
        "/v1/batches/x",
        "/v1/files/x/content",
        f"/v1/files/{stored.output_file_id}/content",
    ):
        assert (await stage.client.get(path)).status_code == 404
    for path in ("/v1/reports/x/cancel", "/v1/batches/x/cancel"):
        assert (await stage.client.post(path)).status_code == 404

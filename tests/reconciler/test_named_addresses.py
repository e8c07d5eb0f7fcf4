"""Whole runs of a provider that names its own addresses and hides how a job ended, with two actions in one contract."""

import asyncio
import json
from pathlib import Path
from typing import Any

from providers.contract import load
from schemas.states import State
from tests.reconciler.accounts import CREDENTIAL
from tests.reconciler.houses import house
from tests.reconciler.servers import Server, answering, header, read_request, response, serving

QUEUE = load(b"""
name = "jobs"
[limits]
total_seconds = 5

[actions.image.create]
path = "/{request.model}"
take = ["model"]
job_id = "body:request_id"
remember = { status_url = "body:status_url" }
[actions.image.status]
url = "status_url"
state = "body:status"
http_readings = { 202 = "running" }
poll_seconds = 1
max_poll_seconds = 1
[[actions.image.status.outcome]]
words = ["COMPLETED"]
at = "body:error"
present = "failed"
absent = "succeeded"

[actions.batch.create]
path = "/batches"
job_id = "header:location"
job_id_re = "/batches/([^/]+)$"
[actions.batch.status]
path = "/batches/{remote_job_id}"
state = "body:status"
readings = { done = "succeeded" }
poll_seconds = 1
max_poll_seconds = 1
""")


def said(status: int, value: object, *headers: str) -> bytes:
    return response(status, json.dumps(value).encode(), "content-type: application/json", *headers)


class Provider:
    """Answers a create with an address of its own, and a read of that address with 202 once, then with the end."""

    def __init__(self, address: str = "", error: Any = None) -> None:
        self.address = address
        self.error = error
        self.reads = 0

    async def __call__(self, server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            line = (await read_request(server, reader)).split(b"\r\n", 1)[0]
            if line.startswith(b"POST /batches "):
                answer = response(202, b"", f"location: {server.url}/batches/b-7")
            elif line.startswith(b"GET /batches/b-7 "):
                answer = said(200, {"status": "done"})
            elif line.startswith(b"POST /fast%2Fsdxl "):
                address = self.address or f"{server.url}/odd/place/r1?key=1"
                answer = said(200, {"request_id": "r1", "status_url": address})
            elif line.startswith(b"GET /odd/place/r1?key=1 "):
                self.reads += 1
                answer = said(202, {"status": "IN_QUEUE"}) if self.reads == 1 else said(200, {"status": "COMPLETED", "error": self.error})
            else:
                answer = response(404)
            writer.write(answer)
            await writer.drain()


IMAGE = {"action": "image", "request": b'{"model":"fast/sdxl","prompt":"a"}'}


def test_a_job_is_read_where_its_create_answer_said(tmp_path: Path) -> None:
    """A5, C4: what the path needs is not sent, 202 is running, the end stands beside the word; another action goes its own way."""

    async def scenario() -> None:
        provider = Provider()
        async with serving(provider) as server, house(tmp_path, {"jobs": server.url}, contract=QUEUE) as home:
            image = await home.register(**IMAGE)
            batch = await home.register(action="batch")
            done = await home.reaches(image, State.SUCCEEDED, seconds=30)
            assert (done.remote_job_id, done.remote_state) == ("r1", "COMPLETED")
            assert done.remembered == {"status_url": f"{server.url}/odd/place/r1?key=1"}
            assert (await home.reaches(batch, State.SUCCEEDED, seconds=30)).remote_job_id == "b-7"
            created = next(request for request in server.requests if request.startswith(b"POST /fast"))
            assert created.endswith(b'{"prompt":"a"}')
            read = next(request for request in server.requests if request.startswith(b"GET /odd"))
            assert header(read, "authorization") == f"Bearer {CREDENTIAL}"
            assert provider.reads >= 2

    asyncio.run(scenario())


def test_a_completed_job_with_an_error_has_failed(tmp_path: Path) -> None:
    """C4: never a success because of its word."""

    async def scenario() -> None:
        async with serving(Provider(error="out of memory")) as server, house(tmp_path, {"jobs": server.url}, contract=QUEUE) as home:
            failed = await home.reaches(await home.register(**IMAGE), State.FAILED, State.SUCCEEDED, seconds=30)
            assert (failed.state, failed.remote_state) == (State.FAILED, "COMPLETED/out of memory")

    asyncio.run(scenario())


def test_an_address_elsewhere_is_never_asked(tmp_path: Path) -> None:
    """B146, B148: not one connection; the operation waits, and says why."""

    async def scenario() -> None:
        async with serving(answering(said(200, {"status": "COMPLETED"}))) as elsewhere:
            provider = Provider(address=f"{elsewhere.url}/odd/place/r1")
            async with serving(provider) as server, house(tmp_path, {"jobs": server.url}, contract=QUEUE) as home:
                image = await home.register(**IMAGE)
                async with asyncio.timeout(30):
                    while (op := await home.operation(image)).read_failures < 2:  # noqa: ASYNC110 - the record is asked, nothing is guessed
                        await asyncio.sleep(0.02)
                assert (op.state, op.last_read_error) == (State.ACCEPTED, "protocol: foreign_url")
                assert elsewhere.connections == 0

    asyncio.run(scenario())

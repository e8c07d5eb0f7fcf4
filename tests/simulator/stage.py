"""What the simulator's tests stand on: a real world, a receiver for callbacks, and a client, all over real HTTP on loopback."""

import asyncio
import json
import random
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import httpx

from schemas.operation import Micros
from simulator.jobs import Job
from simulator.options import SimulatorOptions
from simulator.server import Simulator

PATIENCE = 10.0  # seconds until a condition that does not come fails the test
REPORTS_SECRET = "whsec_dGVzdHMtcmVwb3J0cy1zZWNyZXQtMDAwMDAwMDAw"
BATCHES_SECRETS = ("whsec_batches_new", "whsec_batches_old")


class RealWorld:
    """The real clock: official packages that verify signatures look at it too. Ids are made of seeded chance."""

    def __init__(self) -> None:
        self._chance = random.Random(20_260_101)

    def now(self) -> Micros:
        return time.time_ns() // 1_000  # noqa: TID251 # the official packages judge signatures by the real clock

    def monotonic(self) -> float:
        return time.monotonic()

    def new_id(self, prefix: str) -> str:
        return prefix + uuid.UUID(int=self._chance.getrandbits(128), version=4).hex

    def new_token(self) -> str:
        return f"{self._chance.getrandbits(160):040x}"

    def chance(self) -> float:
        return self._chance.random()


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One callback as it came in."""

    path: str
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    @property
    def value(self) -> Any:
        return json.loads(self.body)


class Receiver:
    """A server that keeps what comes and answers 200, or what `statuses` says, one after the other; 0 is no answer at all."""

    def __init__(self) -> None:
        self.got: list[Received] = []
        self.statuses: list[int] = []
        self._came = asyncio.Condition()
        self._server: asyncio.Server | None = None
        self.url = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        status = self.statuses.pop(0) if self.statuses else 200
        if status:
            writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())
            await writer.drain()
        writer.close()
        async with self._came:
            self.got.append(Received(path=head[0].split(" ")[1], headers=headers, body=body))
            self._came.notify_all()

    async def wait(self, count: int) -> list[Received]:
        """Return what came once at least `count` came."""
        async with asyncio.timeout(PATIENCE), self._came:
            await self._came.wait_for(lambda: len(self.got) >= count)
        return self.got


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A simulator whose jobs queue 10 s, run 60 s, finalize 5 s: they move only when a test advances the clock."""

    sim: Simulator
    client: httpx.AsyncClient
    receiver: Receiver

    async def report(self, *faults: str, token: str | None = None, **body: Any) -> httpx.Response:
        """Create a report; `faults` go into the header."""
        return await self.client.post("/v1/reports", json={"kind": "sales", "rows": 7, **body}, headers=_headers(faults, token))

    async def batch(self, *faults: str, token: str | None = None, **body: Any) -> httpx.Response:
        """Create a batch of four items; `faults` go into the header."""
        return await self.client.post("/v1/batches", json={"input": {"count": 4}, **body}, headers=_headers(faults, token))

    async def opened(self, api: str, *faults: str, **body: Any) -> str:
        """Create a job that must be accepted, and return its id."""
        answer = await (self.report if api == "reports" else self.batch)(*faults, **body)
        assert answer.is_success, answer.text
        return str(answer.json()["id"])

    async def get(self, api: str, job: str) -> httpx.Response:
        return await self.client.get(f"/v1/{api}/{job}")

    async def status(self, api: str, job: str) -> str:
        return str((await self.get(api, job)).json()["status"])

    async def cancel(self, api: str, job: str, *faults: str) -> httpx.Response:
        return await self.client.post(f"/v1/{api}/{job}/cancel", headers=_headers(faults, None))

    def only_job(self) -> Job:
        (job,) = self.sim.jobs.values()
        return job

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return when the condition holds; fail when it does not come."""
        async with asyncio.timeout(PATIENCE):
            while not condition():  # noqa: ASYNC110 # the condition is whatever a test asks, nobody could set an event
                await asyncio.sleep(0.002)

    def notes(self, job: str | None = None) -> list[str]:
        return [entry.note for entry in self.sim.deliveries(job)]


def options(receiver: Receiver, **more: Any) -> SimulatorOptions:
    base: dict[str, Any] = {
        "reports_callback_url": f"{receiver.url}/hooks/reports",
        "batches_callback_url": f"{receiver.url}/hooks/batches",
        "reports_secret": REPORTS_SECRET,
        "batches_secrets": BATCHES_SECRETS,
        "queue_seconds": 10.0,
        "run_seconds": 60.0,
        "finalize_seconds": 5.0,
        "cancel_seconds": 5.0,
        "callback_retry_seconds": (1.0, 5.0),
        "late_copy_seconds": 30.0,
    }
    return SimulatorOptions(**(base | more))


def _headers(faults: tuple[str, ...], token: str | None) -> dict[str, str]:
    headers = {"x-simulate": ",".join(faults)} if faults else {}
    return headers | ({"idempotency-key": token} if token is not None else {})

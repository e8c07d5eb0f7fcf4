"""Providers on raw sockets: a create that goes wrong in every way, and what it left behind."""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.reconciler.servers import Server, header, read_request, response

Misbehave = Callable[["Provider", asyncio.StreamWriter], Awaitable[None]]


@dataclass(slots=True)
class Provider:
    """Executes creates, and answers the first ones as `answers` say (None or none left: properly). Holds jobs by token."""

    answers: list[bytes | Misbehave | None] = field(default_factory=list)
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    posts: list[bytes] = field(default_factory=list)
    gets: list[str] = field(default_factory=list)
    others: list[bytes] = field(default_factory=list)
    executes: bool = True  # a create that is answered badly made a job all the same
    lookups: bool = True  # the lookup answers; else 503

    async def __call__(self, server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            request = await read_request(server, reader)
            method, path, _ = request.split(b"\r\n")[0].decode().split(" ")
            match method:
                case "POST" if path == "/v1/reports":
                    if not await self._create(request, writer):
                        return
                case "GET":
                    self.gets.append(path)
                    writer.write(self._read(path))
                case _:
                    self.others.append(request)
                    writer.write(response(404))
            await writer.drain()

    async def _create(self, request: bytes, writer: asyncio.StreamWriter) -> bool:
        """Answer a create; False: the connection is over."""
        self.posts.append(request)
        answer = self.answers.pop(0) if self.answers else None
        if answer is None or self.executes:
            self._execute(request)
        if callable(answer):
            await answer(self, writer)
            return False
        writer.write(answer if answer is not None else self._accepted(request))
        return True

    def _execute(self, request: bytes) -> dict[str, Any]:
        body = json.loads(request.split(b"\r\n\r\n", 1)[1])
        fresh = {"id": f"rep_{len(self.jobs) + 1}", "status": "running", "client_reference": body.get("client_reference")}
        return self.jobs.setdefault(header(request, "idempotency-key"), fresh)

    def _accepted(self, request: bytes) -> bytes:
        return response(202, json.dumps(self._execute(request)).encode(), "content-type: application/json")

    def _read(self, path: str) -> bytes:
        if "?" in path:
            if not self.lookups:
                return response(503)
            wanted = path.partition("client_reference=")[2]
            found = [job for job in self.jobs.values() if job["client_reference"] == wanted]
            return response(200, json.dumps({"data": found}).encode(), "content-type: application/json")
        found = [job for job in self.jobs.values() if path.endswith("/" + job["id"])]
        return response(200, json.dumps(found[0]).encode(), "content-type: application/json") if found else response(404)

    @property
    def tokens(self) -> list[str]:
        return [header(request, "idempotency-key") for request in self.posts]


async def silent(provider: Provider, writer: asyncio.StreamWriter) -> None:
    """Never answer; the connection stays open until the client gives up."""
    del provider
    await writer.wait_closed()


async def close(provider: Provider, writer: asyncio.StreamWriter) -> None:
    """Close without a word."""
    del provider
    writer.close()


async def reset_after_head(provider: Provider, writer: asyncio.StreamWriter) -> None:
    """Begin an answer and reset the connection."""
    del provider
    writer.write(b"HTTP/1.1 202 Accepted\r\ncontent-le")
    await writer.drain()
    raw: socket.socket = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    writer.transport.abort()


async def cut(provider: Provider, writer: asyncio.StreamWriter) -> None:
    """Promise more than is sent."""
    del provider
    writer.write(b'HTTP/1.1 202 Accepted\r\ncontent-length: 1000\r\n\r\n{"id": "rep_1"')
    await writer.drain()
    writer.close()

"""Raw sockets against a real server: what a client library would never send."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from starlette.types import ASGIApp

from gateway.server import serve
from schemas.settings import WebSettings


@dataclass(slots=True)
class Served:
    """A running server's address."""

    host: str
    port: int
    stop: asyncio.Event = field(default_factory=asyncio.Event)


@contextlib.asynccontextmanager
async def running(app: ASGIApp, web: WebSettings) -> AsyncIterator[Served]:
    """Serve `app` on a free port of loopback until the block ends."""
    stop, address = asyncio.Event(), asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(app, web, on_started=address.set_result, stop=stop))
    await asyncio.wait([task, address], timeout=10, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        await task
    host, _, port = address.result().removeprefix("http://").rpartition(":")
    try:
        yield Served(host, int(port) if port.isdigit() else 0, stop)
    finally:
        stop.set()
        await asyncio.wait_for(task, 15)


@dataclass(frozen=True, slots=True)
class Reply:
    """A parsed answer."""

    status: int
    headers: dict[str, str]
    body: bytes


async def read_reply(reader: asyncio.StreamReader) -> Reply:
    """Read one answer with a Content-Length."""
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
    lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:] if line)}
    body = await asyncio.wait_for(reader.readexactly(int(headers.get("content-length", "0"))), 20)
    return Reply(int(lines[0].split()[1]), headers, body)


async def exchange(served: Served, data: bytes) -> Reply:
    """Send bytes on a new connection and read one answer."""
    reader, writer = await asyncio.open_connection(served.host, served.port)
    try:
        writer.write(data)
        await writer.drain()
        return await read_reply(reader)
    finally:
        writer.close()


async def closed(reader: asyncio.StreamReader, seconds: float) -> bytes:
    """Return what still comes until the other side closes. Raises TimeoutError when it does not within `seconds`."""
    with contextlib.suppress(ConnectionError):
        return await asyncio.wait_for(reader.read(), seconds)
    return b""

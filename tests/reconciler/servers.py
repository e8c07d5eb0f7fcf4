"""Raw servers on loopback that do to a client what real ones do."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

Handler = Callable[["Server", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass(slots=True)
class Server:
    """What a raw server saw. `requests` are whole requests, head and body."""

    port: int = 0
    scheme: str = "http"
    host: str = "127.0.0.1"
    connections: int = 0
    requests: list[bytes] = field(default_factory=list)
    seen: asyncio.Event = field(default_factory=asyncio.Event)
    release: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"


@contextlib.asynccontextmanager
async def serving(handler: Handler, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """Serve `handler` for each connection until the block ends."""
    server = Server(host=host, scheme="https" if tls else "http")
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await handler(server, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            tasks.discard(task)
            writer.close()

    listener = await asyncio.start_server(connected, host, 0, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        server.release.set()
        for task in list(tasks):
            task.cancel()
        if tasks:
            await asyncio.wait(list(tasks))


async def read_request(server: Server, reader: asyncio.StreamReader) -> bytes:
    """Read one request with its body, note it, and return it."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    request = head + (await reader.readexactly(length) if length else b"")
    server.requests.append(request)
    server.seen.set()
    return request


def answering(*answers: bytes) -> Handler:
    """Return a handler that gives the answers in turn over kept-alive connections, the last one for ever."""
    queue = list(answers)

    async def handler(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(server, reader)
            writer.write(queue.pop(0) if len(queue) > 1 else queue[0])
            await writer.drain()

    return handler


def closing(answer: bytes) -> Handler:
    """Return a handler that reads one request, writes `answer` as it is, and closes."""

    async def handler(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(server, reader)
        writer.write(answer)
        await writer.drain()

    return handler


def response(status: int, body: bytes = b"", *headers: str) -> bytes:
    """Return the bytes of a complete answer."""
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def header(request: bytes, name: str) -> str:
    """Return the first value of a header in raw request bytes, or the empty text."""
    for line in request.split(b"\r\n\r\n")[0].split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key.decode().lower() == name.lower():
            return value.decode().strip()
    return ""


async def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    """Wait until a condition that no event announces is true; fail after `seconds`."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for (a file, a counter) has no event
            await asyncio.sleep(0.005)

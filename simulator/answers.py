"""Answers, honest and spoiled. Aborting needs the connection itself: `simulator/server.py` puts it into the scope."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from schemas.jsontext import UnreadableJsonError, parse
from simulator.faults import HEADER, FaultError, parse_header
from simulator.jobs import Job
from simulator.provider import Provider

ABORT = "simulator.abort"  # scope extension: drop the connection now
CLOSE = "simulator.close"  # scope extension: send what is written, then close
READ_FAULTS = ("hang_reads", "rate_limit", "html_200", "cut_body")
HTML = b"<!doctype html><html><head><title>Maintenance</title></head><body><h1>We will be back soon</h1></body></html>\n"


class RefusalError(Exception):
    """The request cannot be served; carries the answer that says why."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.answer = failure(status, code, message)


def failure(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> Response:
    """Return the error answer of both APIs."""
    return JSONResponse({"error": {"code": code, "message": message}}, status, headers)


async def document(request: Request) -> dict[str, Any]:
    """Return the request's JSON object. Raises RefusalError (400)."""
    try:
        value = parse(await request.body())
    except UnreadableJsonError as problem:
        raise RefusalError(400, "invalid_json", str(problem)) from problem
    if not isinstance(value, dict):
        raise RefusalError(400, "invalid_json", "the body must be a JSON object")
    return value


def selected(request: Request) -> dict[str, float | None]:
    """Return the faults that the request's header selects. Raises RefusalError (400)."""
    try:
        return parse_header(request.headers.get(HEADER, ""))
    except FaultError as problem:
        raise RefusalError(400, "invalid_simulate", str(problem)) from problem


def struck(request: Request, jobs: Sequence[Job], names: tuple[str, ...]) -> str | None:
    """Return the fault that hits this request: by its header, else by what the jobs it asks for have left."""
    chosen = selected(request)
    for name in names:
        if (chosen.get(name) or 0) > 0:
            return name
    return next((hit for job in jobs if (hit := job.take(names)) is not None), None)


def read(provider: Provider, request: Request, jobs: Sequence[Job], value: Any) -> Response:
    """Return the answer to a read, as the faults have it."""
    body = json.dumps(value, separators=(",", ":")).encode()
    match struck(request, jobs, READ_FAULTS):
        case "hang_reads":
            return Hang(provider.closing)
        case "rate_limit":
            return rate_limited(provider, 429)
        case "html_200":
            return Response(HTML, media_type="text/html")
        case "cut_body":
            return Cut(body, "application/json")
        case _:
            return Response(body, media_type="application/json")


def rate_limited(provider: Provider, status: int) -> Response:
    """Return 429 or 503 with `Retry-After`."""
    return failure(status, "slow_down", "try again later", {"retry-after": str(provider.options.retry_after_seconds)})


def streamed(chunks: AsyncIterator[bytes], *, size: int | None, media_type: str) -> Response:
    """Return a result of `size` bytes, sent piece by piece."""
    headers = {"content-length": str(size)} if size is not None else {}
    return StreamingResponse(chunks, media_type=media_type, headers=headers)


async def disconnected(receive: Receive) -> None:
    """Return when the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


class Abort(Response):
    """No answer at all: the connection is dropped."""

    async def __call__(self, scope: Scope, receive: Receive, _send: Send) -> None:
        """Drop the connection."""
        scope["extensions"][ABORT]()
        await disconnected(receive)


class Cut(Response):
    """An answer that promises all its bytes (`promised`, else those of `body`), sends half of `body` and closes."""

    def __init__(self, body: bytes, media_type: str, *, promised: int | None = None) -> None:
        super().__init__(body, media_type=media_type, headers={"content-length": str(promised or len(body))})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send half and close."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": bytes(self.body)[: len(self.body) // 2], "more_body": True})
        scope["extensions"][CLOSE]()
        await disconnected(receive)


class Hang(Response):
    """No answer until the client gives up or the simulator stops."""

    def __init__(self, closing: asyncio.Event) -> None:
        super().__init__()
        self._closing = closing

    async def __call__(self, scope: Scope, receive: Receive, _send: Send) -> None:
        """Wait for either, then drop the connection."""
        waits = [asyncio.ensure_future(disconnected(receive)), asyncio.ensure_future(self._closing.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        scope["extensions"][ABORT]()
        await disconnected(receive)

"""The simulator as an ASGI application: routes, the credential, and the log of every request."""

import asyncio
import contextlib
import hashlib
import hmac
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from schemas.world import World
from simulator import admin, batches, reports
from simulator.answers import RefusalError, failure
from simulator.journal import HEADERS_OF_INTEREST, Call
from simulator.options import MAX_BODY_BYTES, SimulatorOptions
from simulator.provider import Provider

_ADMIN = "/_simulator/"

ROUTES = (
    Route("/v1/reports", reports.post_report, methods=["POST"]),
    Route("/v1/reports", reports.list_reports, methods=["GET"]),
    Route("/v1/reports/{job_id}", reports.get_report, methods=["GET"]),
    Route("/v1/reports/{job_id}/cancel", reports.cancel_report, methods=["POST"]),
    Route("/v1/reports/{job_id}/result", reports.get_result, methods=["GET"]),
    Route("/v1/batches", batches.post_batch, methods=["POST"]),
    Route("/v1/batches", batches.list_batches, methods=["GET"]),
    Route("/v1/batches/{job_id}", batches.get_batch, methods=["GET"]),
    Route("/v1/batches/{job_id}/cancel", batches.cancel_batch, methods=["POST"]),
    Route("/v1/files/{file_id}/content", batches.get_file, methods=["GET"]),
    Route("/_simulator/jobs", admin.jobs, methods=["GET"]),
    Route("/_simulator/jobs/{job_id}", admin.force, methods=["POST"]),
    Route("/_simulator/calls", admin.calls, methods=["GET"]),
    Route("/_simulator/deliveries", admin.deliveries, methods=["GET"]),
    Route("/_simulator/advance", admin.advance, methods=["POST"]),
    Route("/_simulator/faults", admin.faults, methods=["POST"]),
    Route("/_simulator/deliver/{job_id}", admin.deliver, methods=["POST"]),
)


def create_app(options: SimulatorOptions, world: World) -> Starlette:
    """Return the application; its memory is `app.state.provider`. Faults that cut connections need `simulator/server.py`.

    Raises FaultError for options that name unknown faults.
    """
    provider = Provider(options, world)

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        await provider.callbacks.open()
        ticking = asyncio.create_task(provider.schedule.run())
        provider.ready.set()
        try:
            yield
        finally:
            provider.closing.set()
            ticking.cancel()
            await asyncio.gather(ticking, return_exceptions=True)
            await provider.callbacks.close()

    app = Starlette(routes=ROUTES, lifespan=lifespan, exception_handlers={RefusalError: _refuse})
    app.add_middleware(Gate, provider=provider)
    app.state.provider = provider
    return app


def provider_of(app: Starlette) -> Provider:
    """Return the memory of an application that `create_app` made."""
    provider = app.state.provider
    assert isinstance(provider, Provider)
    return provider


async def _refuse(_request: Request, problem: Exception) -> Response:
    assert isinstance(problem, RefusalError)
    return problem.answer


class Gate:
    """Reads the body within bounds, writes the request into the journal, checks the credential, numbers the answer."""

    def __init__(self, app: ASGIApp, provider: Provider) -> None:
        self._app = app
        self._provider = provider

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = await _body(receive, self._provider.options.body_seconds)
        if isinstance(body, Response):
            await body(scope, receive, send)
            return
        request_id = self._provider.world.new_id("req_")
        headers = Headers(scope=scope)
        ours = scope["path"].startswith(_ADMIN)
        if not ours:
            self._provider.journal.called(self._call(scope, headers, request_id, body))

        async def numbered(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), (b"x-request-id", request_id.encode())]
            await send(message)

        if not ours and not self._admitted(headers):
            refusal = failure(401, "unauthorized", "the credential is missing or wrong", {"www-authenticate": "Bearer"})
            await refusal(scope, receive, numbered)
            return
        await self._app(scope, _replay(body, receive), numbered)

    def _call(self, scope: Scope, headers: Headers, request_id: str, body: bytes) -> Call:
        return Call(
            at=self._provider.clock.now(),
            request_id=request_id,
            method=scope["method"],
            path=scope["path"],
            query=scope["query_string"].decode("latin-1"),
            headers={name: value for name, value in headers.items() if name in HEADERS_OF_INTEREST},
            authorized="authorization" in headers,
            body_bytes=len(body),
            body_sha256=hashlib.sha256(body).hexdigest(),
            body=body,
        )

    def _admitted(self, headers: Headers) -> bool:
        wanted = self._provider.options.credential
        given = headers.get("authorization", "")
        return wanted is None or hmac.compare_digest(given.encode("latin-1"), f"Bearer {wanted}".encode())


def _replay(body: bytes, receive: Receive) -> Receive:
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return pending.pop() if pending else await receive()

    return replay


async def _body(receive: Receive, seconds: float) -> bytes | Response:
    """Return the whole body, or the answer that says why not: 408 too slow, 413 too large, 400 gone."""
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(seconds):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return failure(400, "gone", "the request was not finished")
                pieces.append(message.get("body", b""))
                size += len(pieces[-1])
                if size > MAX_BODY_BYTES:
                    return failure(413, "too_large", f"at most {MAX_BODY_BYTES} bytes", {"connection": "close"})
                if not message.get("more_body", False):
                    return b"".join(pieces)
    except TimeoutError:
        return failure(408, "too_slow", f"the body must come within {seconds:g} s", {"connection": "close"})

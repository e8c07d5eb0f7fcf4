"""The application: two plain ASGI endpoints for the hot paths, Starlette's router for the rest, and one edge around all."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import structlog
from starlette.exceptions import HTTPException
from starlette.routing import Route as StarletteRoute
from starlette.routing import Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway import openapi, reference
from gateway.bounds import CallerGoneError, read_body, refuse_encoding, send_problem
from gateway.call import Answer, Call
from gateway.gate import Gate
from gateway.keys import Keyring, Principal
from gateway.problems import ProblemError
from gateway.receiver import PREFIX, Receiver
from gateway.routes import ROUTES, Route
from gateway.watch import Watchers
from ledger.errors import LedgerBusyError, LedgerClosedError, LedgerUnavailableError
from ledger.fold import UnknownProviderError

_OPERATION: Final = "/v1/operations/"
_NOBODY: Final = Principal(key_id="", owner="", subject="", scopes=frozenset())
_STALL_SECONDS: Final = 60.0  # a reader that takes no chunk for so long is cut
_EDGE: Final = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)
_CLOSED: Final = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
_VARY: Final = (b"vary", b"Authorization")
_log = structlog.get_logger("gateway")


def create_app(gate: Gate) -> ASGIApp:
    """Return the ASGI application of the HTTP edge."""
    keyring, watchers = Keyring(gate.ledger, gate.world), Watchers(gate.ledger)
    doors = {(route.method, route.path): _Door(route, gate, keyring, watchers) for route in ROUTES}
    routes = [StarletteRoute(path, door, methods=[method]) for (method, path), door in doors.items()]
    described = openapi.document(_version())
    routes.append(StarletteRoute("/openapi.json", _Fixed(Answer(content=json.dumps(described).encode())), methods=["GET"]))
    routes.append(StarletteRoute("/docs", _Fixed(reference.page(described)), methods=["GET"]))
    router = Router(routes=routes, redirect_slashes=False)
    read = doors["GET", _OPERATION + "{id}"]
    return _Edge(gate, Receiver(gate), read, router)


class _Edge:
    """Dispatches, adds the headers that every answer has, and turns every error into a problem without a trace."""

    __slots__ = ("_gate", "_read", "_receiver", "_router")

    def __init__(self, gate: Gate, receiver: Receiver, read: ASGIApp, router: Router) -> None:
        self._gate = gate
        self._receiver = receiver
        self._read = read
        self._router = router

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await _other(scope, receive, send)
            return
        request_id = self._gate.world.new_id("req_")
        path: str = scope["path"]
        started = False

        async def send_edged(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
                given = {name for name, _ in headers}
                headers += [item for item in (*_EDGE, _CLOSED) if item[0] not in given]
                if path.startswith("/v1"):
                    headers.append(_VARY)
                message["headers"] = headers
            await send(message)

        try:
            await self._dispatch(path, scope, receive, send_edged)
        except CallerGoneError:
            return
        except ProblemError as problem:
            await send_problem(problem, receive, send_edged, drain=True)
        except Exception as error:  # noqa: BLE001 - the edge: whatever was not foreseen becomes one honest answer and one log line
            self._gate.count("gateway.failed", {"error": type(error).__name__})
            _log.error("gateway.failed", error=type(error).__name__, request=request_id, where=_where(error))
            if started:
                raise ConnectionAbortedError("the answer was cut; the log has the cause") from None
            await send_problem(ProblemError("internal_error", f"quote {request_id}"), receive, send_edged, drain=False)

    async def _dispatch(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        if path.startswith(PREFIX):
            await self._receiver(scope, receive, send)
        elif scope["method"] == "GET" and path.startswith(_OPERATION) and "/" not in (rest := path[len(_OPERATION) :]) and rest:
            scope["path_params"] = {"id": rest}
            await self._read(scope, receive, send)
        else:
            scope["app"] = self  # makes the router raise instead of answering in plain text
            try:
                await self._router(scope, receive, send)
            except HTTPException as error:
                code = "method_not_allowed" if error.status_code == 405 else "not_found"  # noqa: PLR2004 - RFC 9110's number
                raise ProblemError(code, "", headers=tuple((error.headers or {}).items())) from None


class _Door:
    """One route: who asks, may they, what do they send; then the handler, then the answer."""

    __slots__ = ("_gate", "_keyring", "_route", "_watchers")

    def __init__(self, route: Route, gate: Gate, keyring: Keyring, watchers: Watchers) -> None:
        self._route = route
        self._gate = gate
        self._keyring = keyring
        self._watchers = watchers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        complete = False

        async def tracked() -> Message:
            nonlocal complete
            message = await receive()
            complete = complete or not message.get("more_body", False)
            return message

        try:
            answer = await self._answer(scope, tracked)
        except ProblemError as problem:
            await send_problem(problem, receive, send, drain=not complete)
        except (LedgerBusyError, LedgerUnavailableError, LedgerClosedError, UnknownProviderError, TimeoutError) as error:
            code = "busy" if isinstance(error, LedgerBusyError) else "unavailable"
            self._gate.count("gateway.unavailable", {"code": code})
            await send_problem(ProblemError(code, "ask again", headers=(("Retry-After", "2"),)), receive, send, drain=not complete)
        else:
            await _send(answer, scope, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        principal, web = _NOBODY, self._gate.settings.web
        if self._route.scope is not None:
            async with asyncio.timeout(web.answer_seconds):
                principal = await self._keyring.principal(scope["headers"])
            principal.require(self._route.scope)
        headers: dict[str, str] = {}
        for raw_name, raw_value in scope["headers"]:
            name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        body = b""
        if self._route.method != "GET":
            refuse_encoding(scope["headers"])
            body = await read_body(scope, receive, limit=web.api_body_bytes, seconds=web.body_seconds, bodies=self._gate.bodies)
            media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
            if body and media_type != "application/json":
                raise ProblemError("unsupported_media_type", "send Content-Type: application/json")
        # A write that is cut here may be committed all the same: the caller's repeat is answered from the record.
        async with asyncio.timeout(web.answer_seconds) as bound:
            return await self._route.handler(
                Call(
                    gate=self._gate,
                    watchers=self._watchers,
                    principal=principal,
                    path=scope.get("path_params", {}),
                    query=scope["query_string"],
                    headers=headers,
                    body=body,
                    receive=receive,
                    bound=bound,
                )
            )


class _Fixed:
    """One answer that never changes."""

    __slots__ = ("_answer",)

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        del receive
        await _send(self._answer, scope, send)


async def _send(answer: Answer, scope: Scope, send: Send) -> None:
    content = answer.encoded()
    length = len(content) if isinstance(content, bytes) else answer.length
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1", "replace")) for name, value in answer.headers]
    if answer.content is not None:
        headers.append((b"content-type", answer.media_type.encode("latin-1", "replace")))
    if length is not None and answer.status != 304:  # noqa: PLR2004 - a 304 has no body and says no length (RFC 9110)
        headers.append((b"content-length", str(length).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    if isinstance(content, bytes):
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else content})
        return
    await _send_chunks(content, scope, send)


async def _send_chunks(chunks: AsyncIterator[bytes], scope: Scope, send: Send) -> None:
    close: Callable[[], object] | None = getattr(chunks, "aclose", None)
    try:
        if scope["method"] != "HEAD":
            async for chunk in chunks:
                async with asyncio.timeout(_STALL_SECONDS):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    finally:
        if close is not None:
            await close()  # type: ignore[misc]


async def _other(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer the protocol's other kinds: nothing to start or stop here, and no WebSocket."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1000})
        return
    while True:
        message = await receive()
        await send({"type": message["type"] + ".complete"})
        if message["type"] == "lifespan.shutdown":
            return


def _where(error: BaseException) -> str:
    """Return file and line of where it was raised: the place, never a value."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_code.co_filename.rsplit('/', 2)[-1]}:{trace.tb_lineno}"


def _version() -> str:
    try:
        return version("reconciliation-gateway")
    except PackageNotFoundError:
        return "0"

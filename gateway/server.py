"""The web server: uvicorn with the guards that it lacks (head time, head size, connection cap, framing overhead).

Written against uvicorn 0.54's `httptools_impl.py`; `tests/gateway/test_server.py` pins what is relied on.
"""

import asyncio
import contextlib
import logging
import socket
import stat
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import Any, Final

import structlog
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from schemas.settings import WebSettings

Started = Callable[[str], Awaitable[None] | None]
"""Called once with the address that is served: `http://host:port` or `unix:/path`."""

_BACKLOG: Final = 2048
_OVERHEAD_PER_BODY_BYTE: Final = 16  # one-byte chunks cost 5 bytes of framing each; far above is an attack on the parser's memory
_LINES_A_SECOND: Final = 5
_log = structlog.get_logger("gateway")


class _Few(logging.Filter):
    """Lets a few lines a second through: each of uvicorn's is about a malformed request, and strangers choose how many they send."""

    _second, _lines = 0.0, 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether there is room in the line's own second."""
        second = float(int(record.created))
        if second != self._second:
            self._second, self._lines = second, 0
        self._lines += 1
        return self._lines <= _LINES_A_SECOND


_requests = logging.getLogger("uvicorn.error.requests")
_requests.addFilter(_Few())


class _HeadTooLargeError(Exception):
    """Stops the parser; answered with 431."""


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's parser, with a deadline and a size limit on heads, a connection cap, and no half-read request left open."""

    web = WebSettings()  # replaced by `_protocol`

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Arm the head deadline; turn the newcomer away when the house is full."""
        self._head_timer: asyncio.TimerHandle | None = None
        self._in_body = self._head_begun = self._too_large = self._broken = False
        self._head_seen = self._wire_seen = self._body_seen = 0
        self.logger = _requests
        super().connection_made(transport)
        if len(self.connections) > self.web.max_connections:
            self._refuse(503)
        else:
            self._arm()

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: whoever asks for an upgrade gets plain HTTP, and a stranger must not fill the log by asking."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the deadline."""
        self._disarm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count what belongs to no complete head, and what is framing and no body; stop both at their bounds."""
        if self._broken or self.transport.is_closing():
            return
        if self._in_body:
            self._wire_seen += len(data)
        else:
            self._head_seen += len(data)
        super().data_received(data)
        if self._in_body:
            if self._wire_seen - self._body_seen > self.web.head_bytes + _OVERHEAD_PER_BODY_BYTE * self._body_seen:
                self._refuse(431)
        elif self._head_seen > self.web.head_bytes:
            self._refuse(431)
        elif self._head_seen or self._head_begun:
            self._arm()

    def on_message_begin(self) -> None:
        """Note that a head has begun; it may follow another request in the same packet."""
        self._head_begun = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Start the request, unless its head is too large."""
        self._disarm()
        self._head_begun = False
        self._head_seen = self._wire_seen = self._body_seen = 0
        if len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > self.web.head_bytes:
            self._too_large = True
            raise _HeadTooLargeError
        self._in_body = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Tell body from framing."""
        self._body_seen += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Expect the next head."""
        self._in_body = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Close instead of waiting for the rest of a request that is already answered (B133)."""
        super().on_response_complete()
        if self._in_body and not self.pipeline and not self.transport.is_closing():
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Answer what the parser refused; 431 when it was us who stopped it."""
        if self._too_large:
            self._refuse(431)
        elif self._answering():
            self._refuse(400)
        elif not self.transport.is_closing():
            super().send_400_response(msg)

    def _answering(self) -> bool:
        """Return whether a whole request is being answered, so that what comes now belongs to another one."""
        return not self._in_body and self.cycle is not None and not self.cycle.response_complete

    def _arm(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.web.head_seconds, self._head_late)

    def _disarm(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_late(self) -> None:
        self._head_timer = None
        if self._answering():
            self._arm()  # the request before is still being answered: it is not cut for its successor
        elif self._head_begun:
            self._refuse(408)
        else:
            self.transport.close()

    def _refuse(self, status: int) -> None:
        """Write a bare answer, unless one is under way, and close: nothing more is parsed."""
        if self._answering():
            # The fault is a successor's. Its predecessor may have been recorded: it gets its own answer, and that is the last.
            self._broken = True
            self.cycle.keep_alive = False
            self.flow.pause_reading()
        elif not self.transport.is_closing():
            if self.cycle is None or not self.cycle.response_started or self.cycle.response_complete:
                self.transport.write(STATUS_LINE[status] + b"content-length: 0\r\nconnection: close\r\n\r\n")
            self.transport.close()


def _protocol(web: WebSettings) -> type[GuardedProtocol]:
    return type("BoundProtocol", (GuardedProtocol,), {"web": web})


class _Server(uvicorn.Server):
    """A server that says where it listens, and leaves signals alone when it is given an event to stop by."""

    def __init__(self, config: uvicorn.Config, *, address: str, on_started: Started | None, stop: asyncio.Event | None) -> None:
        super().__init__(config)
        self._address = address
        self._on_started = on_started
        self._stop = stop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self._on_started is not None and self.started:
            answer = self._on_started(self._address)
            if answer is not None:
                await answer

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        if self._stop is not None:
            yield
            return
        with super().capture_signals():
            yield


def listen(web: WebSettings) -> tuple[socket.socket, str]:
    """Return a bound socket and its address as text. Raises OSError when it cannot be bound."""
    if web.uds is not None:
        path = Path(web.uds)
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISSOCK(path.lstat().st_mode):  # left by a process that was killed
                path.unlink()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(web.uds)
            path.chmod(0o660)  # whoever may connect is decided by the group; a key is still needed
        except OSError:
            listener.close()
            raise
        listener.setblocking(False)
        return listener, f"unix:{web.uds}"
    family, _, _, _, where = socket.getaddrinfo(web.host, web.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    listener = socket.create_server(where[:2], family=family, backlog=_BACKLOG)
    listener.setblocking(False)
    host, port = listener.getsockname()[:2]
    return listener, f"http://{f'[{host}]' if ':' in host else host}:{port}"


def configuration(app: ASGIApp, web: WebSettings) -> uvicorn.Config:
    """Return uvicorn's configuration: nothing trusted, nothing announced, no URL logged, every wait bounded."""
    return uvicorn.Config(
        app,
        http=_protocol(web),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,  # its lines hold URLs; ours do not
        server_header=False,
        proxy_headers=bool(web.trusted_proxies),
        forwarded_allow_ips=list(web.trusted_proxies),  # explicit: uvicorn trusts 127.0.0.1 by default (B150)
        backlog=_BACKLOG,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=max(1, round(web.shutdown_seconds)),
    )


async def serve(
    app: ASGIApp,
    settings: WebSettings,
    *,
    on_started: Started | None = None,
    stop: asyncio.Event | None = None,
    listening: tuple[socket.socket, str] | None = None,
) -> None:
    """Serve until `stop` is set, or (without one) until SIGINT or SIGTERM; then drain for `shutdown_seconds`.

    `listening` is what `listen` gave, where that was done before. Raises OSError when the address cannot be bound.
    """
    listener, address = listening or listen(settings)
    server = _Server(configuration(app, settings), address=address, on_started=on_started, stop=stop)
    watcher = None if stop is None else asyncio.ensure_future(_stop_when(stop, server))
    try:
        await server.serve(sockets=[listener])
    finally:
        if watcher is not None:
            watcher.cancel()
        listener.close()
        _forget(settings)
        _log.info("server.stopped")


def _forget(web: WebSettings) -> None:
    if web.uds is not None:
        Path(web.uds).unlink(missing_ok=True)


async def _stop_when(stop: asyncio.Event, server: Any) -> None:
    await stop.wait()
    server.should_exit = True

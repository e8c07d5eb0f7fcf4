"""httpx's transport interface over aiohttp's connector, and the exact knowledge of whether a byte has left.

httpx is the client's API; its own pool collapses under concurrency, so that aiohttp's connector carries the bytes. Its
trace hooks run immediately before the head (requests without a body) or before head and body together (requests with
one) go to the socket: there `Flight.depart` decides, at the last moment, whether they may. What remains is the time
from that check to the kernel: one iteration of the event loop, plus whatever the system stalls the process for.

Errors become httpx's own classes whose message is one of our words; no URL and no header ever stands in them.
"""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from types import SimpleNamespace
from typing import Final

import aiohttp
import httpx
from yarl import URL

from reconciler.addresses import ForbiddenAddressError

CHUNK_BYTES: Final = 65_536
MAX_HEADERS: Final = 100
MAX_HEADER_BYTES: Final = 8_190
MAX_HEAD_BYTES: Final = 65_536  # of all headers together
# Shorter than the idle timeout of common servers (uvicorn, node: 5 s), so that reads seldom meet a closed connection.
KEEPALIVE_SECONDS: Final = 3.0


_SWITCHING: Final = 101  # to another protocol, which we never offer
_TOKEN: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110 section 5.6.2


class NoDepartureError(Exception):
    """The bytes of a request may not leave (any more)."""


class Departure:
    """Whether bytes of a call may have left; what a caller that gets cancelled looks at."""

    __slots__ = ("sent",)

    def __init__(self) -> None:
        self.sent = False


class Flight:
    """One request on its way: whether its bytes may leave, and whether they have."""

    __slots__ = ("_departure", "_monotonic", "_repeatable", "_send_by", "body", "ended", "timeout", "too_late")

    def __init__(
        self,
        *,
        monotonic: Callable[[], float],
        send_by: float | None,
        repeatable: bool,
        body: bytes,
        timeout: aiohttp.ClientTimeout,
        departure: Departure,
    ) -> None:
        self._monotonic = monotonic
        self._departure = departure
        self._send_by = send_by
        self._repeatable = repeatable
        self.body = body
        self.timeout = timeout
        self.too_late = False
        self.ended = False

    @property
    def sent(self) -> bool:
        """Return whether bytes may have left."""
        return self._departure.sent

    @property
    def acting(self) -> bool:
        """Return whether the call changes something at the provider."""
        return self._send_by is not None

    def check(self) -> None:
        """Raise NoDepartureError unless bytes may leave now."""
        if self.ended or (self.sent and not self._repeatable):
            # aiohttp sends idempotent methods again by itself when a connection breaks; only a plain read may (B047, B050).
            raise NoDepartureError
        if self._send_by is not None and self._monotonic() >= self._send_by:
            self.too_late = True
            raise NoDepartureError

    def depart(self) -> None:
        """Check, and note that bytes leave."""
        self.check()
        self._departure.sent = True


def tracing() -> aiohttp.TraceConfig:
    """Return the hooks that ask each request's Flight before its bytes go to the socket."""
    config = aiohttp.TraceConfig()

    async def before_head(_: aiohttp.ClientSession, context: SimpleNamespace, __: aiohttp.TraceRequestHeadersSentParams) -> None:
        flight: Flight = context.trace_request_ctx
        if flight.body:
            flight.check()  # the head is only buffered now; it leaves together with the body
        else:
            flight.depart()

    async def before_body(_: aiohttp.ClientSession, context: SimpleNamespace, __: aiohttp.TraceRequestChunkSentParams) -> None:
        flight: Flight = context.trace_request_ctx
        flight.depart()

    config.on_request_headers_sent.append(before_head)
    config.on_request_chunk_sent.append(before_body)
    return config


class Wire(httpx.AsyncBaseTransport):
    """Carries httpx requests over one aiohttp session. Each request brings its `Flight` in the extension `flight`."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request and return the head of its answer, the body still to be read. Raises httpx.TransportError."""
        flight: Flight = request.extensions["flight"]
        try:
            response = await self._session.request(
                request.method,
                URL(str(request.url), encoded=True),
                headers=request.headers.multi_items(),
                data=flight.body or None,
                allow_redirects=False,
                timeout=flight.timeout,
                trace_request_ctx=flight,
            )
        except (aiohttp.ClientError, OSError, ValueError, NoDepartureError) as error:
            raise translated(error) from error
        return httpx.Response(response.status, headers=list(response.raw_headers), stream=_Body(response), request=request)

    async def aclose(self) -> None:
        """Close the session and its connections."""
        await self._session.close()


class _Body(httpx.AsyncByteStream):
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            while chunk := await self._response.content.readany():
                yield chunk
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise translated(error) from error

    async def aclose(self) -> None:
        # A body that was not read to its end takes its connection with it.
        self._response.close()


def nonsense(status: int, headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Return whether the head of an answer is one that two readers could understand differently, or that nobody asked for.

    aiohttp's parser, lenient for clients, refuses differing or doubled lengths, lengths beside chunks, broken chunks and bare
    controls. It takes header names that are no tokens (`content-length : 9`) and transfer codings that it does not know,
    and reads to the end of the connection then (RFC 9112 sections 5.1 and 6.3): a cut body would seem whole.
    """
    codings = [value.strip().lower() for name, value in headers if name.lower() == b"transfer-encoding"]
    return (
        status == _SWITCHING
        or codings not in ([], [b"chunked"])
        or not all(_TOKEN.fullmatch(name) for name, _ in headers)
        or sum(len(name) + len(value) for name, value in headers) > MAX_HEAD_BYTES
    )


def translated(error: Exception) -> httpx.TransportError:
    """Return httpx's error for one of aiohttp's, with one of our words as its message."""
    match error:
        case NoDepartureError():
            return httpx.LocalProtocolError("stopped")
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError() | ssl.SSLError():
            return httpx.ConnectError("tls")
        case aiohttp.ClientConnectorError() if isinstance(error.os_error, ForbiddenAddressError):
            return httpx.ConnectError("forbidden_address")
        case aiohttp.ClientConnectorDNSError():
            return httpx.ConnectError("dns")
        case aiohttp.ClientConnectorError():
            return httpx.ConnectError("refused" if isinstance(error.os_error, ConnectionRefusedError) else "connect")
        case aiohttp.ConnectionTimeoutError():
            return httpx.ConnectTimeout("connect_timeout")
        case aiohttp.InvalidURL():
            return httpx.UnsupportedProtocol("invalid_url")
        case aiohttp.ServerTimeoutError() | asyncio.TimeoutError():
            return httpx.ReadTimeout("timeout")
        case aiohttp.ServerDisconnectedError():
            return httpx.RemoteProtocolError("closed")
        case aiohttp.ClientPayloadError():
            return httpx.RemoteProtocolError("cut")
        case aiohttp.ClientResponseError():
            return httpx.RemoteProtocolError("protocol")
        case aiohttp.ClientConnectionError() | OSError():
            return httpx.ReadError("reset")
        case _:
            return httpx.LocalProtocolError("invalid_request")

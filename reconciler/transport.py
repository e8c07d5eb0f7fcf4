"""The one seam to providers: performs HTTP requests and says exactly what is known of each.

Not sent: no byte of the request left. Answered: a complete answer, whatever it says. Maybe: everything between.
"""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Final, Protocol

import aiohttp
import httpx

from providers.origins import address
from reconciler.addresses import Permitted, Resolve, Resolver, guarded_socket, is_public, resolve_by_system
from reconciler.trust import trusted
from reconciler.wire import KEEPALIVE_SECONDS, MAX_HEADER_BYTES, MAX_HEADERS, Departure, Flight, Wire, nonsense, tracing
from schemas.http import AnsweredOutcome, HttpRequest, MaybeOutcome, NotSentOutcome, Outcome
from schemas.world import World

_DEFAULTS: Final = (("user-agent", "reconciliation-gateway"), ("accept-encoding", "identity"))
_REFUSAL_BYTES: Final = 65_536  # of a download's answer that is not the file: enough to say why
_OK: Final = 200
_PARTIAL: Final = 206
_PLAIN: Final = frozenset({"", "identity"})
GZIP: Final = frozenset({"gzip", "x-gzip"})
"""Content codings in which a file may come although none was asked for: some stores keep it so."""


class Sink(Protocol):
    """Takes the bytes of a download in order."""

    async def begin(self, head: AnsweredOutcome) -> None:
        """Take the head (200, or 206 where a range was asked for); what it raises ends the download and reaches the caller."""
        ...

    async def write(self, chunk: bytes) -> None:
        """Take one chunk; what it raises ends the download and reaches the caller."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Downloaded:
    """A complete `200` or `206` whose body went to the sink as it came. Everything incomplete is a MaybeOutcome instead (B090)."""

    status: int
    headers: tuple[tuple[str, str], ...]
    bytes: int

    def header(self, name: str) -> str:
        """Return the first value of header `name` (any case), or the empty text."""
        wanted = name.lower()
        return next((value for key, value in self.headers if key == wanted), "")


class Transport:
    """The HTTP client of one provider account: its own connections, no cookies, no redirects, no proxies.

    `resolve` and `permitted` (which addresses a provider may name) have the defaults of production. Must be closed.
    """

    def __init__(
        self,
        world: World,
        *,
        concurrency: int = 16,
        tls: ssl.SSLContext | None = None,
        resolve: Resolve = resolve_by_system,
        permitted: Permitted = is_public,
    ) -> None:
        for name in ("httpx", "httpcore", "aiohttp"):
            logging.getLogger(name).setLevel(logging.WARNING)  # httpx logs whole URLs at INFO (B142)
        self._world = world
        self._concurrency = concurrency
        self._tls = tls if tls is not None else trusted()
        self._resolve = resolve
        self._permitted = permitted
        self._clients: dict[tuple[bool, bool], httpx.AsyncClient] = {}

    async def perform(self, request: HttpRequest, *, send_by: float | None = None, departure: Departure | None = None) -> Outcome:
        """Send one request and read its answer, bounded in time and size. Never raises for what the other side does.

        `send_by` (monotonic seconds) is for acting errands: no byte leaves then or later, `NotSentOutcome("too_late")`.
        `departure` tells a caller that gets cancelled whether bytes may have left.
        """
        repeatable = request.method == "GET" and send_by is None
        flight = self._flight(request, send_by=send_by, repeatable=repeatable, departure=departure or Departure())
        status: int | None = None
        try:
            async with asyncio.timeout(request.total_seconds), self._open(request, flight) as response:
                status = response.status_code
                body = bytearray()
                async for chunk in self._body(response, request.max_bytes):
                    body += chunk
            return AnsweredOutcome(status=status, headers=_headers(response), body=bytes(body))
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, _UnfitError) as error:
            return _failed(error, flight, status)
        finally:
            flight.ended = True

    async def download(
        self,
        request: HttpRequest,
        sink: Sink,
        *,
        max_bytes: int,
        silence_seconds: float,
        send_by: float | None = None,
        departure: Departure | None = None,
    ) -> Downloaded | AnsweredOutcome | MaybeOutcome | NotSentOutcome:
        """Stream one file to `sink`. `request.total_seconds` bounds it all, `silence_seconds` each wait for the next chunk.

        Any other status than 200 (or 206 where the request asks for a range) is an AnsweredOutcome and nothing reaches the sink,
        which gets a gzip-encoded body still encoded: it knows its own bounds. Raises only what the sink raises. `send_by`
        and `departure` are for results that reading consumes.
        """
        flight = self._flight(
            request, send_by=send_by, repeatable=send_by is None, departure=departure or Departure(), silence_seconds=silence_seconds
        )
        status: int | None = None
        try:
            async with asyncio.timeout(request.total_seconds), self._open(request, flight) as response:
                status = response.status_code
                if status != _OK and not (status == _PARTIAL and any(name.lower() == "range" for name, _ in request.headers)):
                    body = bytearray()
                    async for chunk in self._body(response, _REFUSAL_BYTES):
                        body += chunk
                    return AnsweredOutcome(status=status, headers=_headers(response), body=bytes(body))
                size = 0
                await sink.begin(AnsweredOutcome(status=status, headers=_headers(response)))
                async for chunk in self._body(response, max_bytes, takes=_PLAIN | GZIP):
                    size += len(chunk)
                    await sink.write(chunk)
            return Downloaded(status=status, headers=_headers(response), bytes=size)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, _UnfitError) as error:
            return _failed(error, flight, status)
        finally:
            flight.ended = True

    async def aclose(self) -> None:
        """Close all connections."""
        clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            await client.aclose()

    def _flight(
        self, request: HttpRequest, *, send_by: float | None, repeatable: bool, departure: Departure, silence_seconds: float | None = None
    ) -> Flight:
        connect = request.connect_seconds
        return Flight(
            monotonic=self._world.monotonic,
            send_by=send_by,
            repeatable=repeatable,
            body=request.body,
            timeout=aiohttp.ClientTimeout(total=None, connect=connect, sock_connect=connect, sock_read=silence_seconds),
            departure=departure,
        )

    @contextlib.asynccontextmanager
    async def _open(self, request: HttpRequest, flight: Flight) -> AsyncIterator[httpx.Response]:
        url = _checked(request)
        client = self._client(private=request.allow_private, fresh=flight.acting)
        given = {name.lower() for name, _ in request.headers}
        headers = [*request.headers, *(item for item in _DEFAULTS if item[0] not in given)]
        try:
            prepared = httpx.Request(request.method, url, headers=headers, content=request.body, extensions={"flight": flight})
        except (ValueError, TypeError) as error:
            raise _UnfitError("invalid_request") from error
        response = await client.send(prepared, stream=True, auth=None, follow_redirects=False)
        try:
            yield response
        finally:
            await response.aclose()

    async def _body(self, response: httpx.Response, limit: int, takes: frozenset[str] = _PLAIN) -> AsyncIterator[bytes]:
        if nonsense(response.status_code, response.headers.raw):
            raise _UnfitError("protocol")
        if response.headers.get("content-encoding", "").strip().lower() not in takes:
            raise _UnfitError("encoded")  # refused before anything is decoded (B093)
        declared = response.headers.get("content-length", "")
        if declared.isascii() and declared.isdigit() and int(declared[:20]) > limit:
            raise _UnfitError("too_large")
        size = 0
        async for chunk in response.aiter_raw():
            size += len(chunk)
            if size > limit:
                raise _UnfitError("too_large")
            yield chunk

    def _client(self, *, private: bool, fresh: bool) -> httpx.AsyncClient:
        client = self._clients.get((private, fresh))
        if client is None:
            connector = aiohttp.TCPConnector(
                limit=self._concurrency,
                ssl=self._tls,
                # An acting call never rides on a kept-alive connection: one that the server closes meanwhile would make
                # the call ambiguous, and an ambiguous create may need a person (B050). It pays a connect for that.
                force_close=fresh,
                keepalive_timeout=None if fresh else KEEPALIVE_SECONDS,
                resolver=Resolver(self._resolve, None if private else self._permitted),
                use_dns_cache=private,
                socket_factory=None if private else guarded_socket(self._permitted),
            )
            session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
                trace_configs=[tracing()],
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
                max_line_size=MAX_HEADER_BYTES,
                max_field_size=MAX_HEADER_BYTES,
                max_headers=MAX_HEADERS,
            )
            no_cookies = CookieJar(policy=DefaultCookiePolicy(allowed_domains=()))
            client = httpx.AsyncClient(transport=Wire(session), trust_env=False, cookies=no_cookies, timeout=None, follow_redirects=False)  # noqa: S113 - asyncio.timeout and aiohttp's phases bound every call
            self._clients[private, fresh] = client
        return client


class _UnfitError(Exception):
    """The request cannot be sent, or the answer cannot be used; the message is the word for it."""


def _checked(request: HttpRequest) -> str:
    """Return the URL in the form that was judged, which is the one that is called."""
    found = address(request.url)
    if found is None:
        raise _UnfitError("invalid_url")
    if not request.allow_private and not found.https:
        raise _UnfitError("forbidden_scheme")
    return found.url


def _failed(error: Exception, flight: Flight, status: int | None) -> MaybeOutcome | NotSentOutcome:
    if flight.too_late and not flight.sent:
        return NotSentOutcome(error="too_late", detail="the lease would have ended before an answer")
    match error:
        case TimeoutError():
            word = "timeout" if flight.sent else "connect_timeout"
        case httpx.InvalidURL():
            word = "invalid_url"
        case httpx.LocalProtocolError() if flight.sent:
            word = "closed"  # the connection broke and the library's own second send was stopped
        case _:
            word = str(error)
    detail = type(error).__name__
    if flight.sent:
        return MaybeOutcome(error=word, detail=detail, status=status)
    return NotSentOutcome(error=word, detail=detail)


def _headers(response: httpx.Response) -> tuple[tuple[str, str], ...]:
    return tuple((name.lower(), value) for name, value in response.headers.multi_items())

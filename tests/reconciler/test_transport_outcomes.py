"""Transport: what is known of a call after each way in which it can go wrong, against raw servers."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from reconciler.transport import Transport
from reconciler.wire import Departure
from schemas.http import AnsweredOutcome, HttpRequest, MaybeOutcome, NotSentOutcome, Outcome
from tests.reconciler.servers import Handler, Server, answering, closing, header, read_request, response, serving
from tests.reconciler.worlds import StillWorld

CREATE = b'{"create": 1}'
JSON = (("Content-Type", "application/json"),)


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


def _post(url: str, **changes: Any) -> HttpRequest:
    return HttpRequest(**{"method": "POST", "url": url, "headers": JSON, "body": CREATE, **changes})


def _get(url: str, **changes: Any) -> HttpRequest:
    return HttpRequest(**{"method": "GET", "url": url, **changes})


async def _outcome(request: HttpRequest, **options: Any) -> Outcome:
    transport = Transport(StillWorld(), **options)
    try:
        return await transport.perform(request)
    finally:
        await transport.aclose()


async def _against(handler: Handler, make: Callable[[str], HttpRequest] = _post) -> tuple[Outcome, Server]:
    async with serving(handler) as server:
        return await _outcome(make(server.url + "/jobs?signature=CANARY")), server


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_connection_refused_is_not_sent() -> None:
    """A refused connection surely executed nothing (A6, B047)."""
    outcome = asyncio.run(_outcome(_post(f"http://127.0.0.1:{_free_port()}/")))
    assert isinstance(outcome, NotSentOutcome)
    assert outcome.error == "refused"


def test_dns_failure_is_not_sent() -> None:
    """A name that does not resolve surely executed nothing (A6)."""

    async def nowhere(_: str, __: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "not known")

    outcome = asyncio.run(_outcome(_post("http://provider.invalid/"), resolve=nowhere))
    assert isinstance(outcome, NotSentOutcome)
    assert outcome.error == "dns"


def test_untrusted_certificate_is_not_sent(server_tls: ssl.SSLContext) -> None:
    """A certificate that does not verify ends the call before its first byte (A6), and the server reads no request."""

    async def scenario() -> None:
        async with serving(answering(response(200)), tls=server_tls) as server:
            outcome = await _outcome(_post(server.url))
            assert isinstance(outcome, NotSentOutcome)
            assert outcome.error == "tls"
            assert server.requests == []

    run(scenario)


def test_server_without_tls_is_not_sent() -> None:
    """Plain bytes where TLS was expected: no byte of the request left."""

    async def handler(_: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 no\r\n\r\n")

    async def scenario() -> None:
        async with serving(handler) as server:
            outcome = await _outcome(_post(server.url.replace("http:", "https:")))
            assert isinstance(outcome, NotSentOutcome)
            assert outcome.error == "tls"

    run(scenario)


def test_stuck_handshake_is_not_sent() -> None:
    """A server that accepts and never finishes TLS: the connect phase has its own limit, and nothing was sent."""

    async def handler(server: Server, _: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
        await server.release.wait()

    async def scenario() -> None:
        async with serving(handler) as server:
            outcome = await _outcome(_post(server.url.replace("http:", "https:"), connect_seconds=0.2))
            assert isinstance(outcome, NotSentOutcome)
            assert outcome.error == "connect_timeout"

    run(scenario)


@pytest.mark.parametrize(
    "url", ["ftp://x/", "http://", "http://u:p@127.0.0.1/", "http://127.0.0.1/a b", "http://[::1/", "http://x:99999/", "", "//x"]
)
def test_unusable_url_is_not_sent(url: str) -> None:
    """A URL that cannot be called is answered, never raised."""
    outcome = asyncio.run(_outcome(_post(url)))
    assert isinstance(outcome, NotSentOutcome)
    assert outcome.error == "invalid_url"


def test_header_injection_is_not_sent() -> None:
    """A line break in a header value reaches no server."""

    async def scenario() -> None:
        async with serving(answering(response(200))) as server:
            outcome = await _outcome(_post(server.url, headers=(("X-Reference", "a\r\nX-Evil: 1"),)))
            assert isinstance(outcome, NotSentOutcome)
            assert outcome.error == "invalid_request"
            assert server.requests == []

    run(scenario)


@pytest.mark.parametrize(
    ("answer", "error", "status"),
    [
        (b"", "closed", None),
        (b"HTTP/1.1 201 Created\r\ncontent-le", "closed", None),
        (b"HTTP/1.1 201 Created\r\ncontent-length: 1000\r\n\r\n" + b"x" * 400, "cut", 201),
        (b"HTTP/1.1 202 A\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n", "cut", 202),
        (b"HTTP/1.1 202 A\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nhello\r\n", None, None),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "protocol", None),
        (b"HTTP/1.1 200 X\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nx", "protocol", None),
        (b"HTTP/1.1 200 X\r\n" + b"a: b\r\n" * 200 + b"content-length: 0\r\n\r\n", "protocol", None),
        (b"HTTP/1.1 200 X\r\na: " + b"b" * 20_000 + b"\r\ncontent-length: 0\r\n\r\n", "protocol", None),
        (response(200, b"\x1f\x8b", "content-encoding: gzip"), "encoded", 200),
        (b"HTTP/1.1 200 X\r\ncontent-length: 99999999999999999999999\r\n\r\n", None, None),
    ],
)
def test_bytes_left_and_no_complete_answer_is_maybe(answer: bytes, error: str | None, status: int | None) -> None:
    """Once the request was read, all but a complete answer is ambiguous; its status is kept (A6, B048, B090, B093)."""
    outcome, server = asyncio.run(_against(closing(answer)))
    assert isinstance(outcome, MaybeOutcome)
    if error is not None:
        assert (outcome.error, outcome.status) == (error, status)
    assert len(server.requests) == 1
    assert "CANARY" not in repr(outcome)


def test_reset_after_request_is_maybe() -> None:
    """A connection reset after the request was read is ambiguous (B047)."""

    async def handler(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(server, reader)
        raw: socket.socket = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        writer.transport.abort()

    outcome, server = asyncio.run(_against(handler))
    assert isinstance(outcome, MaybeOutcome)
    assert outcome.error in {"reset", "closed"}
    assert len(server.requests) == 1


async def _silent(server: Server, reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await read_request(server, reader)
    await server.release.wait()


async def _trickling(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_request(server, reader)
    writer.write(b"HTTP/1.1 200 X\r\ncontent-length: 1000000\r\n\r\n")
    while not server.release.is_set():
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.02)


@pytest.mark.parametrize(("handler", "status"), [(_silent, None), (_trickling, 200)])
def test_silence_and_trickle_end_in_time(handler: Handler, status: int | None) -> None:
    """A provider that never answers, or drips bytes, is cut by the total limit and is ambiguous (B107)."""

    async def scenario() -> None:
        async with serving(handler) as server:
            outcome = await asyncio.wait_for(_outcome(_post(server.url, total_seconds=0.3)), 5)
            assert isinstance(outcome, MaybeOutcome)
            assert (outcome.error, outcome.status) == ("timeout", status)

    run(scenario)


def test_answer_over_the_limit_is_maybe() -> None:
    """A body over the limit is not read to its end, with or without a declared length (B093)."""

    async def endless(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(server, reader)
        writer.write(b"HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n")
        while not server.release.is_set():
            writer.write(b"1000\r\n" + b"x" * 4096 + b"\r\n")
            await writer.drain()

    def small(url: str) -> HttpRequest:
        return _get(url, max_bytes=10_000)

    for handler in (endless, answering(response(200, b"x" * 10_001))):
        outcome, _ = asyncio.run(_against(handler, small))
        assert isinstance(outcome, MaybeOutcome)
        assert (outcome.error, outcome.status) == ("too_large", 200)
    outcome, _ = asyncio.run(_against(answering(response(200, b"x" * 10_000)), small))
    assert isinstance(outcome, AnsweredOutcome)


def test_complete_answers_are_answered_whatever_they_say() -> None:
    """Any complete answer is an answer; a redirect is not followed and a cookie not kept (B094)."""
    redirect = response(307, b"moved", "Location: http://127.0.0.1:9/", "Set-Cookie: a=b", "X-Twice: 1", "X-Twice: 2")

    async def scenario() -> None:
        async with serving(answering(redirect, response(500, b"<html>"))) as server:
            transport = Transport(StillWorld())
            first = await transport.perform(_post(server.url))
            second = await transport.perform(_get(server.url))
            await transport.aclose()
            assert isinstance(first, AnsweredOutcome)
            assert (first.status, first.body, first.header("X-TWICE")) == (307, b"moved", "1")
            assert first.headers.count(("x-twice", "2")) == 1
            assert isinstance(second, AnsweredOutcome)
            assert (second.status, second.body) == (500, b"<html>")
            assert header(server.requests[1], "cookie") == ""
            assert server.connections == 1

    run(scenario)


def test_request_goes_out_as_it_was_made() -> None:
    """Method, raw path, headers and body reach the server unchanged; no encoding but identity is asked for."""

    async def scenario() -> None:
        async with serving(answering(response(200))) as server:
            await _outcome(_post(server.url + "/a%2Fb%20c/?q=%2F", headers=(*JSON, ("Idempotency-Key", "tok"), ("traceparent", "00-x"))))
            (request,) = server.requests
            assert request.startswith(b"POST /a%2Fb%20c/?q=%2F HTTP/1.1\r\n")
            assert request.endswith(b"\r\n\r\n" + CREATE)
            names = [line.split(b":")[0].lower() for line in request.split(b"\r\n\r\n")[0].split(b"\r\n")[1:]]
            assert len(names) == len(set(names))
            assert header(request, "accept-encoding") == "identity"
            assert header(request, "idempotency-key") == "tok"
            assert header(request, "content-length") == str(len(CREATE))

    run(scenario)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "GET"])
def test_a_connection_that_breaks_sends_an_acting_call_once(method: str) -> None:
    """The server reads a whole acting request and closes: seen once, ambiguous, never resent by a library (B047, B050)."""

    async def scenario() -> None:
        async with serving(closing(b"")) as server:
            transport = Transport(StillWorld())
            request = _post(server.url, method=method, body=CREATE if method in {"POST", "PUT"} else b"")
            outcome = await transport.perform(request, send_by=StillWorld().monotonic() + 60)
            await transport.aclose()
            assert isinstance(outcome, MaybeOutcome)
            assert outcome.error == "closed"
            assert len(server.requests) == 1

    run(scenario)


def test_an_acting_call_never_rides_on_a_kept_alive_connection() -> None:
    """A server that closes idle connections without a word makes no create ambiguous: acting calls dial anew (B050)."""

    async def handler(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(server, reader)
        writer.write(response(200, b"{}"))
        await writer.drain()
        await reader.read(1)  # a second request on this connection is taken and never answered

    async def scenario() -> None:
        async with serving(handler) as server:
            transport = Transport(StillWorld())
            assert isinstance(await transport.perform(_get(server.url)), AnsweredOutcome)
            for _ in range(2):
                outcome = await transport.perform(_post(server.url, total_seconds=5), send_by=StillWorld().monotonic() + 60)
                assert isinstance(outcome, AnsweredOutcome)
            await transport.aclose()
            assert server.connections == 3

    run(scenario)


def test_a_plain_read_survives_a_stale_connection() -> None:
    """A status read on a connection that the server has closed is made again at once: reading twice harms nothing."""

    async def handler(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(server, reader)
        writer.write(response(200, b"{}"))
        await writer.drain()
        if server.connections == 1:
            await read_request(server, reader)

    async def scenario() -> None:
        async with serving(handler) as server:
            transport = Transport(StillWorld())
            for _ in range(2):
                assert isinstance(await transport.perform(_get(server.url)), AnsweredOutcome)
            await transport.aclose()
            assert server.connections == 2

    run(scenario)


@pytest.mark.parametrize("body", [CREATE, b""])
def test_send_by_is_checked_after_connecting(body: bytes, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> None:
    """An acting call whose time runs out while it connects sends no byte: too_late (C1; ARCHITECTURE, The way of a due operation)."""
    world = StillWorld()

    async def slow_name(_: str, __: int) -> list[str]:
        world.shift += 100  # the process was paused between claim and send
        return ["127.0.0.1"]

    async def scenario() -> None:
        async with serving(answering(response(202, b"{}")), tls=server_tls) as server:
            transport = Transport(world, tls=client_tls, resolve=slow_name)
            request = _post(f"https://localhost:{server.port}/", body=body)
            outcome = await transport.perform(request, send_by=world.monotonic() + 50)
            assert isinstance(outcome, NotSentOutcome)
            assert outcome.error == "too_late"
            assert server.requests == []
            assert isinstance(await transport.perform(request, send_by=world.monotonic() + 50), AnsweredOutcome)
            await transport.aclose()

    run(scenario)


def test_cancelled_call_knows_whether_it_left() -> None:
    """A call that is cancelled before its bytes says not sent; one cancelled while it waits for the answer says sent (B103)."""

    async def cancelled(transport: Transport, request: HttpRequest, when: Callable[[], Awaitable[Any]]) -> bool:
        departure = Departure()
        task = asyncio.create_task(transport.perform(request, departure=departure))
        await when()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return departure.sent

    async def scenario() -> None:
        asked = asyncio.Event()

        async def stuck(host: str, _: int) -> list[str]:
            if host == "stuck.invalid":
                asked.set()
                await asyncio.Event().wait()
            return ["127.0.0.1"]

        async with serving(_silent) as server:
            transport = Transport(StillWorld(), resolve=stuck)
            assert not await cancelled(transport, _post("http://stuck.invalid/"), asked.wait)
            assert await cancelled(transport, _post(server.url), server.seen.wait)
            await transport.aclose()

    run(scenario)


def test_the_environment_chooses_no_proxy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Proxy variables and netrc of the environment change nothing: credentials go where the operator said."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login u password p\n")
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{_free_port()}")
    monkeypatch.setenv("NETRC", str(netrc))

    outcome, server = asyncio.run(_against(answering(response(200)), _get))

    assert isinstance(outcome, AnsweredOutcome)
    assert header(server.requests[0], "authorization") == ""

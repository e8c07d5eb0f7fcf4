"""Transport: addresses that a provider names (B146, F3), and downloads."""

import asyncio
import hashlib
import logging
import ssl
import tracemalloc
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from reconciler.addresses import is_public
from reconciler.transport import Downloaded, Transport
from schemas.http import AnsweredOutcome, HttpRequest, MaybeOutcome, NotSentOutcome
from tests.reconciler.servers import Handler, Server, answering, closing, read_request, response, serving
from tests.reconciler.worlds import StillWorld

PRIVATE = [
    "127.0.0.1", "127.255.255.254", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.1.2.3",
    "192.0.0.8", "192.0.2.1", "198.18.0.1", "203.0.113.1", "224.0.0.1", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "64:ff9b::7f00:1", "64:ff9b:1::1", "2002:7f00:1::", "2001::1",
    "fe80::1", "fe80::1%eth0", "2606:4700::1%1", "fc00::1", "fd00::1", "fec0::1", "ff02::1", "2001:db8::1",
    "localhost", "", "1", "127.1", "0x7f000001",
]  # fmt: skip


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


def _named(url: str) -> HttpRequest:
    """Return a request for a URL that a provider named."""
    return HttpRequest(method="GET", url=url, allow_private=False)


@pytest.mark.parametrize("address", PRIVATE)
def test_inward_addresses_are_not_public(address: str) -> None:
    """No private, link-local, reserved or IPv4-carrying address passes, also those that is_global lets through (B146)."""
    assert not is_public(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "93.184.216.34", "2606:4700::1", "2a00:1450:4001::1"])
def test_public_addresses_are_public(address: str) -> None:
    """Ordinary addresses of the internet may be dialled."""
    assert is_public(address)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "127.1", "2130706433", "0x7f000001", "017700000001", "[::ffff:127.0.0.1]", "0"]
)
def test_named_hosts_inside_are_never_dialled(host: str, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> None:
    """A host that means this machine, however it is written, gets no connection when a provider named it (B146, F3)."""

    async def scenario() -> None:
        async with serving(answering(response(200, b"inside")), tls=server_tls) as server:
            transport = Transport(StillWorld(), tls=client_tls)
            outcome = await transport.perform(_named(f"https://{host}:{server.port}/"))
            await transport.aclose()
            assert isinstance(outcome, NotSentOutcome)
            assert outcome.error in {"forbidden_address", "invalid_url"}
            assert server.connections == 0

    run(scenario)


def test_one_bad_address_among_good_ones_is_refused(server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> None:
    """Every address of a name is judged, not the one that would answer: with a bad one the good one is not dialled (B146)."""

    async def mixed(_: str, __: int) -> list[str]:
        return ["127.0.0.2", "127.0.0.1"]

    async def scenario() -> None:
        async with serving(answering(response(200)), host="127.0.0.2", tls=server_tls) as server:
            transport = Transport(StillWorld(), tls=client_tls, resolve=mixed, permitted=lambda address: address == "127.0.0.2")
            outcome = await transport.perform(_named(f"https://provider.test:{server.port}/"))
            await transport.aclose()
            assert isinstance(outcome, NotSentOutcome)
            assert outcome.error == "forbidden_address"
            assert server.connections == 0

    run(scenario)


def test_the_judged_address_is_the_dialled_one(server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> None:
    """A name is resolved once per connection; its judged address is dialled under the TLS name, and a later rebinding is refused (B146)."""
    answers = [["127.0.0.2"], ["127.0.0.1"]]
    asked: list[str] = []

    async def rebinding(host: str, _: int) -> list[str]:
        asked.append(host)
        return answers[len(asked) - 1]

    async def scenario() -> None:
        async with serving(closing(response(200, b"outside", "connection: close")), host="127.0.0.2", tls=server_tls) as server:
            transport = Transport(StillWorld(), tls=client_tls, resolve=rebinding, permitted=lambda address: address == "127.0.0.2")
            request = _named(f"https://provider.test:{server.port}/")
            first = await transport.perform(request)
            second = await transport.perform(request)
            await transport.aclose()
            assert isinstance(first, AnsweredOutcome)
            assert first.body == b"outside"
            assert isinstance(second, NotSentOutcome)
            assert second.error == "forbidden_address"
            assert asked == ["provider.test", "provider.test"]
            assert server.connections == 1

    run(scenario)


def test_a_redirect_inside_is_not_followed(server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> None:
    """A named host that answers with a redirect to a metadata address gives an answer, and nothing is dialled (B094, B146)."""

    async def outside(_: str, __: int) -> list[str]:
        return ["127.0.0.2"]

    async def scenario() -> None:
        async with (
            serving(answering(response(200, b"inside"))) as inner,
            serving(answering(response(302, b"", f"location: {inner.url}/")), host="127.0.0.2", tls=server_tls) as server,
        ):
            transport = Transport(StillWorld(), tls=client_tls, resolve=outside, permitted=lambda address: address == "127.0.0.2")
            outcome = await transport.perform(_named(f"https://provider.test:{server.port}/"))
            await transport.aclose()
            assert isinstance(outcome, AnsweredOutcome)
            assert outcome.status == 302
            assert inner.connections == 0

    run(scenario)


def test_a_named_plain_http_url_is_refused() -> None:
    """A provider cannot send us to plain http (F3)."""

    async def scenario() -> None:
        async with serving(answering(response(200))) as server:
            transport = Transport(StillWorld())
            outcome = await transport.perform(_named(server.url))
            await transport.aclose()
            assert isinstance(outcome, NotSentOutcome)
            assert outcome.error == "forbidden_scheme"
            assert server.connections == 0

    run(scenario)


class Sink:
    """Takes bytes, keeps only their size and digest."""

    def __init__(self) -> None:
        self.bytes = 0
        self.digest = hashlib.sha256()

    async def begin(self, head: AnsweredOutcome) -> None:
        self.status = head.status

    async def write(self, chunk: bytes) -> None:
        self.bytes += len(chunk)
        self.digest.update(chunk)


async def _download(
    handler: Handler, sink: Sink, *, max_bytes: int = 1 << 30, silence: float = 5, total: float = 30
) -> tuple[object, Server]:
    async with serving(handler) as server:
        transport = Transport(StillWorld())
        request = HttpRequest(method="GET", url=server.url + "/file?sig=CANARY", total_seconds=total)
        outcome = await transport.download(request, sink, max_bytes=max_bytes, silence_seconds=silence)
        await transport.aclose()
        return outcome, server


def test_download_streams_with_flat_memory() -> None:
    """A result of 64 MiB reaches the sink whole while memory stays flat (F3)."""
    block, blocks = b"0123456789abcdef" * 4096, 1024

    async def large(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(server, reader)
        writer.write(b"HTTP/1.1 200 X\r\ncontent-length: %d\r\n\r\n" % (len(block) * blocks))
        for _ in range(blocks):
            writer.write(block)
            await writer.drain()

    sink = Sink()
    tracemalloc.start()
    outcome, _ = asyncio.run(_download(large, sink))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(outcome, Downloaded)
    assert outcome.bytes == sink.bytes == len(block) * blocks
    assert sink.digest.hexdigest() == hashlib.sha256(block * blocks).hexdigest()
    assert peak < 8 << 20


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"HTTP/1.1 200 X\r\ncontent-length: 1000\r\n\r\n" + b"x" * 400, "cut"),
        (b"HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n", "cut"),
        (response(200, b"x" * 1_001), "too_large"),
        (response(200, b"x", "content-encoding: br"), "encoded"),
        (b"", "closed"),
    ],
)
def test_an_incomplete_download_says_so(answer: bytes, error: str) -> None:
    """A file that is cut, too large or encoded is never a Downloaded (B090, B093)."""
    outcome, _ = asyncio.run(_download(closing(answer), Sink(), max_bytes=1_000))
    assert isinstance(outcome, MaybeOutcome)
    assert outcome.error == error


def test_a_consuming_download_is_asked_for_once_and_in_time() -> None:
    """A result that reading consumes is asked for once, whatever breaks, and not at all after its send_by (F4)."""

    async def scenario() -> None:
        async with serving(closing(b"")) as server:
            transport, world = Transport(StillWorld()), StillWorld()
            request = HttpRequest(method="GET", url=server.url)
            for send_by, kind in ((world.monotonic() + 60, MaybeOutcome), (world.monotonic() - 1, NotSentOutcome)):
                outcome = await transport.download(request, Sink(), max_bytes=9, silence_seconds=5, send_by=send_by)
                assert isinstance(outcome, kind)
                assert len(server.requests) == 1
            await transport.aclose()

    run(scenario)


@pytest.mark.parametrize("status", [206, 204, 302, 404, 410, 500])
def test_another_status_is_an_answer_and_reaches_no_sink(status: int) -> None:
    """Partial content, redirects and errors are answers, not files (B098, B099)."""
    sink = Sink()
    outcome, _ = asyncio.run(_download(answering(response(status, b"" if status == 204 else b"why")), sink))
    assert isinstance(outcome, AnsweredOutcome)
    assert (outcome.status, sink.bytes) == (status, 0)


def test_silence_and_the_total_limit_end_a_download() -> None:
    """A transfer that falls silent, or drips for ever, ends (B107)."""

    async def stalls(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(server, reader)
        writer.write(b"HTTP/1.1 200 X\r\ncontent-length: 1000\r\n\r\nx")
        await server.release.wait()

    for silence, total in ((0.2, 30), (30, 0.2)):
        outcome, _ = asyncio.run(asyncio.wait_for(_download(stalls, Sink(), silence=silence, total=total), 5))
        assert isinstance(outcome, MaybeOutcome)
        assert (outcome.error, outcome.status) == ("timeout", 200)


def test_what_the_sink_raises_reaches_the_caller() -> None:
    """A full disk ends the transfer as the disk's error, not as the provider's."""

    class Full(Sink):
        async def write(self, chunk: bytes) -> None:
            raise FileExistsError(len(chunk))

    with pytest.raises(FileExistsError):
        asyncio.run(_download(answering(response(200, b"abc")), Full()))


def test_no_url_reaches_a_log(caplog: pytest.LogCaptureFixture) -> None:
    """With every logger of the process at DEBUG, the client libraries write no URL with a signature (B142)."""
    caplog.set_level(logging.DEBUG)
    asyncio.run(_download(answering(response(200, b"abc")), Sink()))
    asyncio.run(_download(closing(b""), Sink()))
    assert "CANARY" not in caplog.text

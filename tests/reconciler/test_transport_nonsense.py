"""Transport: heads and framings that two readers could understand differently, and whom TLS believes (F3, A6, C4)."""

import asyncio
import ssl
from pathlib import Path

import pytest

from reconciler.transport import Transport
from reconciler.trust import has_roots, trusted
from schemas.http import AnsweredOutcome, HttpRequest, MaybeOutcome, NotSentOutcome, Outcome
from tests.reconciler.servers import Server, answering, closing, read_request, response, serving
from tests.reconciler.worlds import StillWorld

OK = b"HTTP/1.1 200 X\r\n"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"


async def _answer(raw: bytes, **changes: float) -> Outcome:
    async with serving(closing(raw)) as server:
        transport = Transport(StillWorld())
        request = HttpRequest(method="GET", url=server.url, **{"total_seconds": 20.0, **changes})  # type: ignore[arg-type]
        outcome = await transport.perform(request)
        await transport.aclose()
        return outcome


@pytest.mark.parametrize(
    "raw",
    [
        OK + b"content-length: 2\r\ncontent-length: 2\r\n\r\n{}",
        OK + b"content-length: 2\r\ncontent-length: 5\r\n\r\n{}",
        OK + b"content-length: 2, 2\r\n\r\n{}",
        OK + b"content-length: +2\r\n\r\n{}",
        OK + b"content-length: -2\r\n\r\n{}",
        OK + b"content-length: 0x2\r\n\r\n{}",
        OK + b"content-length: 2_0\r\n\r\n{}",
        OK + b"content-length : 9\r\n\r\n{}",
        OK + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        OK + b"transfer-encoding: xchunked\r\n\r\n{}",
        OK + b"transfer-encoding: chunked, identity\r\n\r\n{}",
        OK + b"transfer-encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        OK + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        CHUNKED + b"-2\r\n{}\r\n0\r\n\r\n",
        CHUNKED + b"2\r\n{}xx0\r\n\r\n",
        CHUNKED + b"fffffffffffffffff\r\n{}\r\n0\r\n\r\n",
        CHUNKED + b"2\r\n{}\r\n0\r\ncontent-length: 9\r\n\r\n",
        CHUNKED + b"2\r\n{}\r\n0\r\n" + b"a: b\r\n" * 10_000,
        OK + b"x: a\x00b\r\ncontent-length: 2\r\n\r\n{}",
        OK + b"x: a\rb\r\ncontent-length: 2\r\n\r\n{}",
        OK + (b"a: " + b"b" * 8_000 + b"\r\n") * 9 + b"content-length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 " + b"X" * 20_000 + b"\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.1 101 X\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n{}",
        b"HTTP/1.1 204 X\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.1 0200 X\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/2 200\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/9.9 200 X\r\ncontent-length: 2\r\n\r\n{}",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"{}",
    ],
)
def test_an_answer_that_is_no_clean_http_is_protocol_nonsense(raw: bytes) -> None:
    """Doubled, differing and odd lengths, unknown codings, broken chunks, oversized heads, upgrades: no answer, no part of one (C4)."""
    outcome = asyncio.run(_answer(raw))
    assert isinstance(outcome, MaybeOutcome)
    assert outcome.error == "protocol"


@pytest.mark.parametrize(
    "raw",
    [
        CHUNKED + b"2;name=value\r\n{}\r\n0\r\nX-Status: succeeded\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nlink: x\r\n\r\n" + response(200, b"{}"),
        b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.0 200 OK\r\n\r\n{}",
    ],
)
def test_what_the_standard_allows_is_read(raw: bytes) -> None:
    """Trailers (which are ignored), chunk extensions, interim answers, HTTP/1.0: an answer like any other."""
    outcome = asyncio.run(_answer(raw))
    assert isinstance(outcome, AnsweredOutcome)
    assert (outcome.status, outcome.body, outcome.header("x-status")) == (200, b"{}", "")


def test_an_answer_cannot_bring_along_the_next_one() -> None:
    """A second answer behind the first is not taken for the answer to the next request: that one gets its own connection."""

    async def scenario() -> None:
        async with serving(answering(response(200, b"first") + response(200, b"smuggled"), response(200, b"second"))) as server:
            transport = Transport(StillWorld())
            bodies = []
            for _ in range(2):
                outcome = await transport.perform(HttpRequest(method="GET", url=server.url))
                assert isinstance(outcome, AnsweredOutcome)
                bodies.append(outcome.body)
            await transport.aclose()
            assert bodies == [b"first", b"second"]

    asyncio.run(scenario())


def test_dripping_headers_and_interim_answers_stretch_no_deadline() -> None:
    """A provider that sends header after header, or `100 Continue` without end, is cut by the total limit (B107)."""

    async def scenario() -> None:
        for start, drip in ((OK, b"a: b\r\n"), (b"", b"HTTP/1.1 100 X\r\n\r\n")):

            async def dripping(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await read_request(server, reader)
                writer.write(start)  # noqa: B023 - called within the iteration
                while not server.release.is_set():
                    writer.write(drip)  # noqa: B023 - called within the iteration
                    await writer.drain()
                    await asyncio.sleep(0.01)

            async with serving(dripping) as server:
                transport = Transport(StillWorld())
                outcome = await asyncio.wait_for(transport.perform(HttpRequest(method="GET", url=server.url, total_seconds=0.3)), 20)
                await transport.aclose()
                assert isinstance(outcome, MaybeOutcome)
                assert outcome.error == "timeout"

    asyncio.run(scenario())


# --- TLS


async def _by_tls(server_tls: ssl.SSLContext, client: ssl.SSLContext, host: str) -> tuple[Outcome, int]:
    async def here(_: str, __: int) -> list[str]:
        return ["127.0.0.1"]

    async with serving(answering(response(200, b"{}")), tls=server_tls) as server:
        transport = Transport(StillWorld(), tls=client, resolve=here)
        headers = (("Authorization", "Bearer CANARY"),)
        outcome = await transport.perform(HttpRequest(method="GET", url=f"https://{host}:{server.port}/", headers=headers))
        await transport.aclose()
        return outcome, len(server.requests)


def _ours(certificate: Path) -> ssl.SSLContext:
    """Return the context of production with the test's root beside the others."""
    context = trusted.__wrapped__()
    context.load_verify_locations(cadata=certificate.read_text().split("-----END PRIVATE KEY-----")[1])
    return context


def test_tls_believes_the_roots_and_the_very_host(certificate: Path, server_tls: ssl.SSLContext) -> None:
    """A certificate of an unknown root, or for another host, gets no byte of a request; a right one does (F3)."""
    for client, host, answered in (
        (_ours(certificate), "provider.test", True),
        (_ours(certificate), "PROVIDER.test.", True),
        (_ours(certificate), "other.test", False),
        (trusted(), "provider.test", False),
    ):
        outcome, requests = asyncio.run(_by_tls(server_tls, client, host))
        assert isinstance(outcome, AnsweredOutcome if answered else NotSentOutcome)
        assert requests == int(answered)
        if isinstance(outcome, NotSentOutcome):
            assert outcome.error == "tls"


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
def test_old_tls_is_refused(certificate: Path) -> None:
    """A server that speaks TLS 1.1 at most gets no request."""
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    old.load_cert_chain(certificate)
    lenient = _ours(certificate)
    lenient.set_ciphers("ALL:@SECLEVEL=0")  # so that the version alone decides
    outcome, requests = asyncio.run(_by_tls(old, lenient, "provider.test"))
    assert isinstance(outcome, NotSentOutcome)
    assert requests == 0
    assert trusted().minimum_version is ssl.TLSVersion.TLSv1_2


def test_the_environment_gets_no_key_of_a_connection(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, certificate: Path, server_tls: ssl.SSLContext
) -> None:
    """SSLKEYLOGFILE writes down no keys: what is said to providers cannot be read by whoever sets a variable (H4)."""
    log = tmp_path / "keys.log"
    monkeypatch.setenv("SSLKEYLOGFILE", str(log))
    outcome, _ = asyncio.run(_by_tls(server_tls, _ours(certificate), "provider.test"))
    assert isinstance(outcome, AnsweredOutcome)
    assert not log.exists()


def test_a_system_without_roots_uses_those_that_come_along(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On a slim image without certificates providers are still reached, and still verified."""
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bare.load_default_certs()
    assert not has_roots(bare)
    filled = trusted.__wrapped__()
    assert has_roots(filled)
    assert filled.verify_mode is ssl.CERT_REQUIRED
    assert filled.check_hostname

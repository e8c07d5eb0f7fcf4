"""The receiver on real sockets: bytes in pieces, bytes that are no text, bodies that never end or never come."""

import asyncio
import resource
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from gateway.app import _send
from gateway.call import Answer
from ledger import queries
from schemas.operation import SECOND
from schemas.settings import WebSettings
from tests.gateway.house import House, event, house, signature
from tests.gateway.wire import Reply, Served, closed, exchange, read_reply, running


def head(provider: str, *lines: bytes) -> bytes:
    return b"\r\n".join((b"POST /webhooks/%s HTTP/1.1" % provider.encode(), b"Host: h", *lines, b"", b""))


def chunked(body: bytes, size: int) -> bytes:
    parts = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def signed(home: House, body: bytes) -> bytes:
    return b"X-Sig: " + signature(body, home.world.now() // SECOND).encode()


def on_the_wire(folder: Path, scenario: Callable[[House, Served], Awaitable[None]], **web: Any) -> None:
    async def run() -> None:
        async with house(folder, **web) as home, running(home.app, home.gate.settings.web) as served:
            await scenario(home, served)

    asyncio.run(run())


def test_chunks_that_cut_a_character_are_one_delivery(tmp_path: Path) -> None:
    """B003: an emoji cut by chunk borders of 1 to 7 bytes is verified over the bytes as they came."""

    async def scenario(home: House, served: Served) -> None:
        body = '{"id":"evt_1","job":"job-1","note":"😀 é"}'.encode()
        for size in range(1, 8):
            reply = await exchange(served, head("reports", signed(home, body), b"Transfer-Encoding: chunked") + chunked(body, size))
            assert reply.status == 200, (size, reply.body)
        assert len(await home.ledger.read(queries.deliveries, None, 10)) == 1

    on_the_wire(tmp_path, scenario)


@pytest.mark.parametrize("value", [b"sha256=\xe9", b"t=1,v1=\xe9", b"   ", b"\xff\xfe", b"sha256=" + b"a" * 10_000, b"Bearer \xe9"])
@pytest.mark.parametrize(("provider", "name"), [("reports", b"X-Sig"), ("github", b"X-Hub-Signature-256"), ("token", b"X-Token")])
def test_bytes_that_are_no_text_in_a_signature_are_401(tmp_path: Path, provider: str, name: bytes, value: bytes) -> None:
    """B004: a stranger's header is refused cleanly by every scheme; the same connection goes on working."""

    async def scenario(home: House, served: Served) -> None:
        reader, writer = await asyncio.open_connection(served.host, served.port)
        body = event(1)
        length = b"Content-Length: %d" % len(body)
        writer.write(head(provider, name + b": " + value, length) + body)
        refused = await read_reply(reader)
        assert (refused.status, refused.headers["content-type"]) == (401, "application/problem+json")
        writer.write(head("reports", signed(home, body), length) + body)
        assert (await read_reply(reader)).status == 200  # B022
        writer.close()

    on_the_wire(tmp_path, scenario)


def test_every_refusal_leaves_the_connection_usable(tmp_path: Path) -> None:
    """B022: after 401, 404, 405, 415 and 503 a good delivery on the same connection is taken."""

    async def scenario(home: House, served: Served) -> None:
        body = event(1)
        length = b"Content-Length: %d" % len(body)
        reader, writer = await asyncio.open_connection(served.host, served.port)
        statuses = []
        for request in (
            head("reports", length) + body,
            head("nobody", length) + body,
            head("reports", length, b"Content-Encoding: gzip") + body,
            head("secretless", length) + body,
            b"GET /webhooks/reports HTTP/1.1\r\nHost: h\r\n\r\n",
            head("reports", signed(home, body), length) + body,
        ):
            writer.write(request)
            statuses.append((await asyncio.wait_for(read_reply(reader), 5)).status)
        assert statuses == [401, 404, 415, 503, 405, 200]
        writer.close()

    on_the_wire(tmp_path, scenario)


@pytest.mark.parametrize("path", ["/webhooks/reports", "/v1/operations"])
def test_endless_bodies_are_stopped_at_the_limit(tmp_path: Path, path: str) -> None:
    """B132: 200 MB without a length are cut at the limit with 413 and a closed connection; memory stays flat."""

    async def scenario(home: House, served: Served) -> None:
        _, key = await home.key()
        start = b"POST %s HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer %s\r\n" % (path.encode(), key.encode())
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        reader, writer = await asyncio.open_connection(served.host, served.port)
        writer.write(start + b"Transfer-Encoding: chunked\r\n\r\n")
        piece = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
        reply = asyncio.ensure_future(read_reply(reader))
        sent = 0
        try:
            while sent < 200_000_000 and not reply.done():
                writer.write(piece)
                await writer.drain()
                sent += 65_536
        except ConnectionError:
            pass
        answer = await reply
        assert (answer.status, answer.headers["connection"]) == (413, "close")
        assert sent < 20_000_000
        await closed(reader, 5)
        writer.close()
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # KiB; client and server in one process
        assert await _good(home, served) == 200

    on_the_wire(tmp_path, scenario)


@pytest.mark.parametrize("length", [b"1048577", b"1" + b"0" * 12, b"9" * 19])
def test_a_length_over_the_limit_is_refused_before_a_byte_of_it_comes(tmp_path: Path, length: bytes) -> None:
    """B132: what is announced too large is not waited for."""

    async def scenario(home: House, served: Served) -> None:
        reply = await asyncio.wait_for(exchange(served, head("reports", b"Content-Length: " + length)), 3)
        assert reply.status == 413
        assert await _good(home, served) == 200

    on_the_wire(tmp_path, scenario)


def test_more_bytes_than_announced_are_not_part_of_the_delivery(tmp_path: Path) -> None:
    """B132: a lying length ends the body where it says; the rest is no delivery."""

    async def scenario(home: House, served: Served) -> None:
        body = event(1)
        lying = head("reports", signed(home, body), b"Content-Length: %d" % len(body)) + body + b"and more\r\n\r\n"
        reply = await exchange(served, lying)
        assert (reply.status, reply.headers["connection"]) == (200, "close")  # its own answer, and the last one
        (row,) = await home.ledger.read(queries.deliveries, None, 10)
        kept = await home.ledger.read(queries.delivery, row["id"])
        assert kept is not None
        assert kept["body"] == body

    on_the_wire(tmp_path, scenario)


@pytest.mark.parametrize("path", [b"/webhooks/reports", b"/v1/operations", b"/livez", b"/nothing"])
def test_bodies_that_do_not_come_are_cut(tmp_path: Path, path: bytes) -> None:
    """B133: 100 bytes announced, one sent: the connection ends soon on every route, and others are served meanwhile."""

    async def scenario(home: House, served: Served) -> None:
        _, key = await home.key()
        slow = b"POST %s HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer %s\r\nContent-Length: 100\r\n\r\nx" % (path, key.encode())
        opened = [await asyncio.open_connection(served.host, served.port) for _ in range(50)]
        for _, writer in opened:
            writer.write(slow)
        assert await _good(home, served) == 200
        rests = await asyncio.wait_for(asyncio.gather(*(closed(reader, 8) for reader, _ in opened)), 9)
        if path in {b"/webhooks/reports", b"/v1/operations"}:
            assert all(rest.startswith(b"HTTP/1.1 408 ") for rest in rests)
        for _, writer in opened:
            writer.close()

    on_the_wire(tmp_path, scenario, body_seconds=0.5)


def test_dripping_a_body_does_not_prolong_it(tmp_path: Path) -> None:
    """B133: the deadline is for the whole body, not for the next byte."""

    async def scenario(home: House, served: Served) -> None:
        del home
        reader, writer = await asyncio.open_connection(served.host, served.port)
        writer.write(head("reports", b"Content-Length: 100"))
        ended = asyncio.ensure_future(closed(reader, 10))
        for _ in range(40):
            if ended.done():
                break
            writer.write(b"x")
            await asyncio.wait([ended], timeout=0.1)
        assert (await ended).startswith(b"HTTP/1.1 408 ")
        writer.close()

    on_the_wire(tmp_path, scenario, body_seconds=0.5)


def test_a_sender_that_leaves_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    """B10: half a body and a closed connection is no delivery and no error."""

    async def scenario(home: House, served: Served) -> None:
        body = event(1)
        _, writer = await asyncio.open_connection(served.host, served.port)
        writer.write(head("reports", signed(home, body), b"Content-Length: %d" % len(body)) + body[:5])
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        assert await _good(home, served) == 200
        assert len(await home.ledger.read(queries.deliveries, None, 10)) == 1
        assert home.counted["gateway.failed", ""] == 0

    on_the_wire(tmp_path, scenario)


def test_spoofed_forwarding_does_not_change_a_verdict(tmp_path: Path) -> None:
    """B150: forwarded scheme and host of a stranger do not reach the URL that signatures are checked against."""

    async def scenario(home: House, served: Served) -> None:
        body = event(1)
        spoofed = (b"X-Forwarded-For: 9.9.9.9", b"X-Forwarded-Proto: http", b"X-Forwarded-Host: evil.example")
        request = head("reports", signed(home, body), b"Content-Length: %d" % len(body), *spoofed) + body
        assert (await exchange(served, request)).status == 200

    on_the_wire(tmp_path, scenario)


def test_a_waiting_caller_that_leaves_is_forgotten(tmp_path: Path) -> None:
    """G3: a long poll whose caller has gone ends at once and holds nothing."""

    async def scenario(home: House, served: Served) -> None:
        client = await home.client()
        made = (await client.post("/v1/operations", json={"provider": "reports", "remote_job_id": "job-1"})).json()
        key = client.headers["authorization"].encode()
        reader, writer = await asyncio.open_connection(served.host, served.port)
        writer.write(b"GET %s HTTP/1.1\r\nHost: h\r\nAuthorization: %s\r\nPrefer: wait=50\r\n\r\n" % (made["links"]["self"].encode(), key))
        await asyncio.wait([asyncio.ensure_future(reader.read(1))], timeout=0.3)
        writer.close()
        served.stop.set()  # the drain waits for requests under way: it would take its whole time for this one

    started = time.monotonic()
    on_the_wire(tmp_path, scenario)
    assert time.monotonic() - started < 6


def test_a_result_whose_file_breaks_is_cut_and_not_completed(tmp_path: Path) -> None:
    """F: a failure in the middle of a download ends the connection, so that a part is never taken for the whole."""
    del tmp_path

    async def chunks() -> AsyncIterator[bytes]:
        yield b"half"
        raise OSError("disk")

    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        del receive
        await _send(Answer(content=chunks(), length=8), scope, send)

    async def run() -> bytes:
        async with running(broken, WebSettings(port=0)) as served:
            reader, writer = await asyncio.open_connection(served.host, served.port)
            writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            rest = await closed(reader, 5)
            writer.close()
            return rest

    assert asyncio.run(run()).endswith(b"\r\n\r\nhalf")


async def _good(home: House, served: Served) -> int:
    body = event("good")
    reply: Reply = await exchange(served, head("reports", signed(home, body), b"Content-Length: %d" % len(body)) + body)
    return reply.status

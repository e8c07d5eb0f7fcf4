"""Hostile requests on raw sockets against the real server: every case a rule, none a 500 (MISSION B10)."""

import asyncio
import gzip
import json
from pathlib import Path

import pytest

from gateway import bounds
from ledger import inbox
from ledger.quarantine import KEPT
from schemas.operation import SECOND
from tests.gateway.asking import adopted
from tests.gateway.house import House, event, house, signature
from tests.gateway.wire import Reply, Served, exchange, read_reply, running

TARGET = b"/webhooks/reports"


def post(body: bytes, *headers: bytes, target: bytes = TARGET, length: bool = True) -> bytes:
    lines = [b"POST " + target + b" HTTP/1.1", b"Host: h", *([b"Content-Length: %d" % len(body)] if length else []), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def genuine(home: House, body: bytes, *headers: bytes, target: bytes = TARGET, length: bool = True) -> bytes:
    made = signature(body, home.world.now() // SECOND)
    return post(body, b"X-Sig: " + made.encode(), *headers, target=target, length=length)


async def sent(home: House, data: bytes) -> Reply:
    """Return the answer to `data`, after making sure that the server still takes a genuine delivery and nothing has failed."""
    async with running(home.app, home.gate.settings.web) as served:
        reply = await exchange(served, data)
        sane = await exchange(served, genuine(home, event("sane")))
        assert sane.status == 200
    await home.app._receiver.shelf.written()
    assert not any(name == "gateway.failed" for name, _ in home.counted)
    assert reply.status < 500, reply.body
    return reply


def deep(levels: int) -> bytes:
    return b'{"id":"e","job":' + b"[" * levels + b"]" * levels + b"}"


BODIES: list[tuple[str, int, bytes]] = [
    ("empty", 400, b""),
    ("no value", 400, b" "),
    ("scalar", 200, b"1"),
    ("null", 200, b"null"),
    ("deepest allowed", 200, deep(63)),
    ("too deep", 400, deep(64)),
    ("abyss", 400, b"[" * 50_000),
    ("deep objects", 400, b'{"a":' * 50_000),
    ("duplicate key", 400, b'{"id":"a","id":"b"}'),
    ("escaped duplicate", 400, b'{"id":"a","\\u0069d":"b"}'),
    ("duplicate below", 400, b'{"id":"a","x":[{"y":1,"y":2}]}'),
    ("NaN", 400, b'{"id":NaN}'),
    ("infinity", 400, b'{"id":-Infinity}'),
    ("number beyond floats", 400, b'{"id":1e999}'),
    ("5,000 digits", 400, b'{"id":' + b"9" * 5_000 + b"}"),
    ("4,000 digits", 200, b'{"id":' + b"9" * 4_000 + b',"job":' + b"9" * 4_000 + b"}"),
    ("NUL escaped", 200, b'{"id":"a\\u0000b","type":"\\u0000","job":"j\\u0000"}'),
    ("NUL raw", 400, b'{"id":"a\x00b"}'),
    ("lone surrogate", 400, b'{"id":"\\ud800"}'),
    ("surrogate in a key", 400, b'{"\\udc00":1}'),
    ("surrogate bytes", 400, b'{"id":"\xed\xa0\x80"}'),
    ("not UTF-8", 400, b'{"id":"\xff"}'),
    ("UTF-16", 400, '{"id":"a"}'.encode("utf-16")),
    ("byte order mark", 400, b'\xef\xbb\xbf{"id":"a"}'),
    ("long texts", 200, b'{"id":"' + b"i" * 100_000 + b'","job":"' + b"j" * 100_000 + b'","type":"' + b"t" * 100_000 + b'"}'),
    ("id is an object", 200, b'{"id":{"a":1},"job":[1],"type":true,"state":1.5}'),
    ("bidi and control", 200, '{"id":"\u202eabc","type":"\u0085\u2028","job":"j"}'.encode()),
    ("comment", 400, b'{"id":1}//'),
    ("two values", 400, b'{"id":1}{"id":2}'),
]


@pytest.mark.parametrize(("status", "body"), [pytest.param(status, body, id=name) for name, status, body in BODIES])
def test_a_genuine_delivery_of_any_body_is_stored_or_kept_as_a_dead_letter(tmp_path: Path, status: int, body: bytes) -> None:
    """B10, B137, B139: depth, duplicates, NaN, huge numbers, NUL, surrogates, lengths: `200` or `400`, and a row either way."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            reply = await sent(home, genuine(home, body))
            assert reply.status == status, reply.body
            rows = await home.ledger.read(inbox.listed, status=None, provider="reports", limit=10)
            assert len(rows) == 2
            assert sum(row["status"] == "dead" for row in rows) == (status == 400)
            assert all(len(value) <= 600 for row in rows for value in row.values() if isinstance(value, str))
            assert home.counted["receiver.quarantine", "kept"] == 0

    asyncio.run(scenario())


HEADS: list[tuple[str, int, bytes]] = [
    ("no signature", 401, post(b"{}")),
    ("signature of any bytes", 401, post(b"{}", b"X-Sig: \x80\xff\xfe,v1=\xed\xa0\x80")),
    ("signature twice", 401, post(b"{}", b"X-Sig: t=1,v1=00", b"X-Sig: t=1,v1=00")),
    ("long signature", 401, post(b"{}", b"X-Sig: t=1,v1=" + b"0" * 20_000)),
    ("many signatures", 401, post(b"{}", b"X-Sig: t=1" + b",v1=00" * 2_000)),
    ("timestamp of 5,000 digits", 401, post(b"{}", b"X-Sig: t=" + b"9" * 5_000 + b",v1=" + b"0" * 64)),
    ("negative timestamp", 401, post(b"{}", b"X-Sig: t=-1,v1=" + b"0" * 64)),
    ("timestamp in other digits", 401, post(b"{}", "X-Sig: t=\u0661\u0662,v1=00".encode())),
    ("NUL in a header", 400, post(b"{}", b"X-Sig: t=1\x00,v1=00")),
    ("space before the colon", 400, post(b"{}", b"X-Sig : t=1")),
    ("folded header", 400, post(b"{}", b"X-Sig: t=1,\r\n v1=00")),
    ("header without a name", 400, post(b"{}", b": nothing")),
    ("bare line feed", 400, b"POST " + TARGET + b" HTTP/1.1\nHost: h\nContent-Length: 2\n\n{}"),
    ("length twice", 400, post(b"{}", b"Content-Length: 3")),
    ("length and chunks", 400, post(b"{}", b"Transfer-Encoding: chunked")),
    ("negative length", 400, post(b"", b"Content-Length: -1", length=False)),
    ("length with a plus", 400, post(b"{}", b"Content-Length: +2", length=False)),
    ("length in hex", 400, post(b"{}", b"Content-Length: 0x2", length=False)),
    ("chunk of a wrong size", 400, post(b"zz\r\n{}\r\n0\r\n\r\n", b"Transfer-Encoding: chunked", length=False)),
    ("chunked twice", 400, post(b"2\r\n{}\r\n0\r\n\r\n", b"Transfer-Encoding: chunked, identity", length=False)),
    ("gzip", 415, post(gzip.compress(b"{}"), b"Content-Encoding: gzip")),
    ("gzip twice", 415, post(b"{}", b"Content-Encoding: gzip, gzip")),
    ("second encoding hidden", 415, post(b"{}", b"Content-Encoding: identity", b"Content-Encoding: br")),
    ("bomb", 415, post(gzip.compress(b"0" * 5_000_000), b"Content-Encoding: GZIP")),
    ("bomb that is not declared", 401, post(gzip.compress(b"0" * 5_000_000))),
    ("unknown encoding", 415, post(b"{}", b"Content-Encoding: \xff")),
    ("encoded slash", 404, post(b"{}", target=b"/webhooks/..%2fwebhooks%2freports")),
    ("dots", 404, post(b"{}", target=b"/webhooks/../webhooks/reports")),
    ("NUL in the path", 404, post(b"{}", target=b"/webhooks/reports%00")),
    ("bytes in the path", 404, post(b"{}", target=b"/webhooks/%ff%fe")),
    ("surrogate in the path", 404, post(b"{}", target=b"/webhooks/%ed%a0%80")),
    ("long name", 404, post(b"{}", target=b"/webhooks/" + b"r" * 8_000)),
    ("no name", 404, post(b"{}", target=b"/webhooks/")),
    ("upper case", 404, post(b"{}", target=b"/webhooks/REPORTS")),
    ("absolute form", 401, post(b"{}", target=b"http://other.example/webhooks/reports")),
    ("bytes in the query", 401, post(b"{}", target=TARGET + b"?%ff&%00=%ed%a0%80&&&=")),
    ("many parameters", 401, post(b"{}", target=TARGET + b"?" + b"a&" * 5_000)),
    ("method of its own", 400, b"STEAL " + TARGET + b" HTTP/1.1\r\nHost: h\r\n\r\n"),
    ("old protocol", 400, b"POST " + TARGET + b" HTTP/3.0\r\nHost: h\r\n\r\n"),
    ("TLS on a plain port", 400, bytes.fromhex("16030100c8010000c40303") + b"\x00" * 100 + b"\r\n\r\n"),
]


@pytest.mark.parametrize(("status", "data"), [pytest.param(status, data, id=name) for name, status, data in HEADS])
def test_a_hostile_request_has_its_rule(tmp_path: Path, status: int, data: bytes) -> None:
    """B10, B133-B136: heads, framing, encodings, targets and methods: a refusal below 500, and the next sender is served."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            reply = await sent(home, data)
            assert reply.status == status, reply.body

    asyncio.run(scenario())


SECONDS = 15  # for a request on a busy machine; without a flood it takes milliseconds


async def flood(served: Served, stop: asyncio.Event, forged: bytes) -> int:
    """Send forged deliveries on one connection, one behind the other, until told to stop; return how many were refused."""
    reader, writer = await asyncio.open_connection(served.host, served.port)
    refused = 0
    while not stop.is_set():
        writer.write(forged)
        reply = await read_reply(reader)
        assert reply.status == 401
        refused += 1
    writer.close()
    return refused


def test_a_forged_flood_starves_nobody_and_fills_nothing(tmp_path: Path) -> None:
    """B10: while one endpoint is flooded, another takes its deliveries and the API answers in bounded time; the shelf stays small."""

    async def scenario() -> None:
        async with house(tmp_path) as home, running(home.app, home.gate.settings.web) as served:
            client = await home.client()
            op = await adopted(client)
            stop = asyncio.Event()
            forged = post(b"x" * 30_000, b"X-Sig: t=1800000000,v1=" + b"0" * 64, target=b"/webhooks/private")
            senders = [asyncio.create_task(flood(served, stop, forged)) for _ in range(16)]
            for number in range(20):
                home.world.pass_seconds(1)  # so that the pace by itself would let twenty more in
                async with asyncio.timeout(SECONDS):
                    assert (await exchange(served, genuine(home, event(number)))).status == 200
                async with asyncio.timeout(SECONDS):
                    assert (await client.get(op["links"]["self"])).status_code == 200
            stop.set()
            refused = sum(await asyncio.gather(*senders))
            assert refused > KEPT
            await home.app._receiver.shelf.written()
            rows = await home.ledger.read(inbox.refused, provider=None, limit=1_000)
            assert len(rows) <= KEPT
            assert len(await home.ledger.read(inbox.listed, status="applied", provider="reports", limit=100)) == 20
            assert home.counted["receiver.quarantine", "dropped"] > 0

    asyncio.run(scenario())


def test_slow_senders_of_large_bodies_do_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B10: what large bodies hold while they arrive is bounded for the house; small ones find room, and all do once it is free."""
    monkeypatch.setattr(bounds, "HELD_BYTES", 300_000)

    async def scenario() -> None:
        async with house(tmp_path) as home, running(home.app, home.gate.settings.web) as served:
            large = genuine(home, json.dumps({"id": "large", "pad": "x" * 300_000}).encode())
            held, slow = home.gate.bodies, []
            for _ in range(2):
                reader, writer = await asyncio.open_connection(served.host, served.port)
                writer.write(post(b"", b"Content-Length: 900000", length=False) + b"x" * 200_000)
                await writer.drain()
                slow.append((reader, writer))
            async with asyncio.timeout(SECONDS):
                while held.held < 2 * (200_000 - bounds.FREE_BYTES):  # noqa: ASYNC110 - the server tells nobody; the timeout bounds it
                    await asyncio.sleep(0.01)
            refused = await exchange(served, large)
            assert (refused.status, refused.headers["retry-after"]) == (503, "5")
            assert held.held <= bounds.HELD_BYTES
            assert (await exchange(served, genuine(home, event("small")))).status == 200
            for _, writer in slow:
                writer.close()
            async with asyncio.timeout(SECONDS):
                while held.held:  # noqa: ASYNC110 - as above
                    await asyncio.sleep(0.01)
            assert (await exchange(served, large)).status == 200

    asyncio.run(scenario())

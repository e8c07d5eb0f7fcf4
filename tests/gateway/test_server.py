"""The guards around uvicorn, on real sockets: head time, head size, half-read requests, connection cap, trust, address."""

import asyncio
import importlib.metadata
import inspect
import json
import logging
import stat
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http import httptools_impl

from gateway.server import GuardedProtocol, configuration, listen
from schemas.settings import WebSettings
from tests.gateway.wire import Served, closed, exchange, read_reply, running

GET = b"GET /seen HTTP/1.1\r\nHost: h\r\n\r\n"


async def seen(scope: Scope, receive: Receive, send: Send) -> None:
    """Tell what was seen, without reading the body."""
    del receive
    assert scope["type"] == "http"
    body = json.dumps({"client": scope["client"], "scheme": scope["scheme"], "path": scope["path"]}).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def web(**changes: object) -> WebSettings:
    return WebSettings(port=0, **changes)  # type: ignore[arg-type]


def test_the_uvicorn_that_the_guard_was_written_against() -> None:
    """The guard relies on these names of uvicorn 0.54; an upgrade must be read before it is taken."""
    assert importlib.metadata.version("uvicorn").startswith("0.54.")
    source = inspect.getsource(httptools_impl.HttpToolsProtocol)
    for relied_on in (
        "self.cycle.response_complete",
        "self.pipeline",
        "except httptools.HttpParserError",
        "self.send_400_response(msg)",
        "self.url += url",
        "self.headers.append((name, value))",
    ):
        assert relied_on in source, relied_on
    for method in ("connection_made", "connection_lost", "data_received", "on_message_begin", "on_headers_complete", "on_body"):
        assert getattr(GuardedProtocol, method) is not getattr(httptools_impl.HttpToolsProtocol, method)


def test_a_slow_head_is_answered_408_and_closed() -> None:
    """B133: a head that does not end within the deadline does not keep its connection."""

    async def scenario(served: Served) -> bytes:
        reader, writer = await asyncio.open_connection(served.host, served.port)
        writer.write(b"GET / HTTP/1.1\r\nX-Slow: ")
        answer = await closed(reader, 3)
        writer.close()
        return answer

    assert asyncio.run(_with(scenario, web(head_seconds=0.3))).startswith(b"HTTP/1.1 408 ")


def test_dripping_bytes_between_requests_do_not_keep_a_connection() -> None:
    """B133: empty lines after an answer start no request, so only a deadline of their own ends the wait."""

    async def scenario(served: Served) -> bool:
        reader, writer = await asyncio.open_connection(served.host, served.port)
        writer.write(GET)
        await read_reply(reader)
        ended = asyncio.ensure_future(closed(reader, 5))
        for _ in range(20):
            writer.write(b"\r\n")
            done, _ = await asyncio.wait([ended], timeout=0.1)
            if done:
                break
        writer.close()
        return ended.done() and await ended == b""

    assert asyncio.run(_with(scenario, web(head_seconds=0.4)))


def test_a_silent_connection_is_closed() -> None:
    """B133: a connection that never says anything is closed without an answer."""

    async def scenario(served: Served) -> bytes:
        reader, writer = await asyncio.open_connection(served.host, served.port)
        answer = await closed(reader, 3)
        writer.close()
        return answer

    assert asyncio.run(_with(scenario, web(head_seconds=0.2))) == b""


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nHost: h\r\nX-Big: " + b"a" * 5_000,
        b"GET / HTTP/1.1\r\nHost: h\r\nX-Big: " + b"a" * 5_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 5_000 + b" HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 1_000 + b"\r\n",
    ],
    ids=["unfinished", "one-header", "long-path", "many-headers"],
)
def test_an_oversized_head_is_answered_431(head: bytes) -> None:
    """A head over the limit is refused, complete or not, before any handler runs."""

    async def scenario(served: Served) -> int:
        return (await exchange(served, head)).status

    assert asyncio.run(_with(scenario, web(head_bytes=4_096))) == 431


def test_a_large_body_behind_a_small_head_is_no_large_head() -> None:
    """The head limit counts heads only, also when head and body come in one packet."""

    async def scenario(served: Served) -> int:
        return (await exchange(served, b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9000\r\n\r\n" + b"x" * 9_000)).status

    assert asyncio.run(_with(scenario, web(head_bytes=4_096))) == 200


def test_endless_trailers_are_cut() -> None:
    """Trailers and chunk extensions are framing that no body limit counts; they have a bound of their own."""

    async def wait_for_body(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        while (message := await receive()).get("more_body"):
            pass
        if message["type"] == "http.request":
            await seen(scope, receive, send)

    async def scenario(served: Served) -> bytes:
        reader, writer = await asyncio.open_connection(served.host, served.port)
        writer.write(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n")
        ended = asyncio.ensure_future(closed(reader, 5))
        for _ in range(100):
            if ended.done():
                break
            writer.write(b"X-Trailer: " + b"t" * 1_000 + b"\r\n")
            await asyncio.wait([ended], timeout=0.02)
        await asyncio.wait([ended], timeout=2)
        assert ended.done(), "the server still listens"
        writer.close()
        return await ended

    async def run() -> bytes:
        async with running(wait_for_body, web(head_bytes=4_096)) as served:
            return await scenario(served)

    answer = asyncio.run(run())
    assert answer == b"" or answer.startswith(b"HTTP/1.1 431 ")


def test_a_request_that_is_answered_early_does_not_hold_its_connection() -> None:
    """B133: the rest of an announced body is not waited for once the answer is out."""

    async def scenario(served: Served) -> bytes:
        reader, writer = await asyncio.open_connection(served.host, served.port)
        writer.write(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nx")
        await read_reply(reader)
        rest = await closed(reader, 2)
        writer.close()
        return rest

    assert asyncio.run(_with(scenario, web())) == b""


def test_pipelined_requests_are_answered_in_order() -> None:
    """The guard keeps what uvicorn can: two requests in one packet get two answers."""

    async def scenario(served: Served) -> list[str]:
        reader, writer = await asyncio.open_connection(served.host, served.port)
        writer.write(GET + GET.replace(b"/seen", b"/again"))
        replies = [await read_reply(reader), await read_reply(reader)]
        writer.close()
        return [json.loads(reply.body)["path"] for reply in replies]

    assert asyncio.run(_with(scenario, web())) == ["/seen", "/again"]


def test_connections_over_the_cap_are_turned_away_and_the_others_still_served() -> None:
    """B133: a full house refuses newcomers; who is in is served, and a place that is left is given again."""

    async def scenario(served: Served) -> tuple[int, int, int]:
        first_reader, first_writer = await asyncio.open_connection(served.host, served.port)
        second = await asyncio.open_connection(served.host, served.port)
        first_writer.write(GET)
        inside = (await read_reply(first_reader)).status
        outside = (await exchange(served, GET)).status
        second[1].close()
        await second[1].wait_closed()
        for _ in range(50):
            again = (await exchange(served, GET)).status
            if again == 200:
                break
        first_writer.close()
        return inside, outside, again

    assert asyncio.run(_with(scenario, web(max_connections=2))) == (200, 503, 200)


def test_forwarded_headers_are_not_believed() -> None:
    """B150: without an explicit list of proxies the peer and the scheme are what the socket says."""

    async def scenario(served: Served) -> dict[str, object]:
        spoofed = b"GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 9.9.9.9\r\nX-Forwarded-Proto: https\r\n\r\n"
        found: dict[str, object] = json.loads((await exchange(served, spoofed)).body)
        return found

    found = asyncio.run(_with(scenario, web()))
    assert isinstance(found["client"], list)
    assert found["client"][0] == "127.0.0.1"
    assert found["scheme"] == "http"


def test_a_listed_proxy_is_believed() -> None:
    """B150: the list is explicit, and it works."""

    async def scenario(served: Served) -> str:
        spoofed = b"GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 9.9.9.9\r\n\r\n"
        return str(json.loads((await exchange(served, spoofed)).body)["client"][0])

    assert asyncio.run(_with(scenario, web(trusted_proxies=("127.0.0.1",)))) == "9.9.9.9"


def test_nothing_about_the_server_is_announced_and_no_url_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """No Server header, no access log: URLs stay out of logs."""

    async def scenario(served: Served) -> dict[str, str]:
        return (await exchange(served, b"GET /secret-path?token=t0p HTTP/1.1\r\nHost: h\r\n\r\n")).headers

    with caplog.at_level("DEBUG"):
        headers = asyncio.run(_with(scenario, web()))
    assert "server" not in headers
    assert "secret-path" not in caplog.text
    assert configuration(seen, web()).access_log is False


def test_garbage_is_answered_400() -> None:
    """Bytes that are no HTTP get an answer and a closed connection."""

    async def scenario(served: Served) -> int:
        return (await exchange(served, b"\x16\x03\x01nonsense\r\n\r\n")).status

    assert asyncio.run(_with(scenario, web())) == 400


def test_a_unix_socket_is_served_and_removed(tmp_path: Path) -> None:
    """H3: `uds` serves on a socket for its user and group; a stale one is replaced, and none is left behind."""
    path = tmp_path / "gateway.sock"
    listener, _ = listen(web(uds=str(path)))
    listener.close()  # as a killed process leaves it

    async def scenario() -> tuple[int, int]:
        async with running(seen, web(uds=str(path))):
            mode = stat.S_IMODE(path.stat().st_mode)
            reader, writer = await asyncio.open_unix_connection(str(path))
            writer.write(GET)
            reply = await read_reply(reader)
            writer.close()
            return reply.status, mode

    assert asyncio.run(scenario()) == (200, 0o660)
    assert not path.exists()


def test_an_address_in_use_is_an_error_that_the_caller_sees() -> None:
    """A bound port raises OSError instead of ending the process from inside."""
    listener, address = listen(web())
    taken = WebSettings(port=int(address.rpartition(":")[2]))
    try:
        with pytest.raises(OSError, match="in use"):
            listen(taken)
    finally:
        listener.close()


async def _with(scenario, settings: WebSettings):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    async with running(seen, settings) as served:
        return await scenario(served)


def test_malformed_requests_do_not_fill_the_log() -> None:
    """B10: uvicorn's line about a request that it cannot parse is written a few times a second, however many come."""
    lines: list[logging.LogRecord] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record)

    async def scenario() -> None:
        async with running(seen, web()) as served:
            for _ in range(100):
                assert (await exchange(served, b"\x16\x03\x01garbage\r\n\r\n")).status == 400

    # At the logger itself: another server in this process may have set levels and handlers of those above it.
    requests, kept = logging.getLogger("uvicorn.error.requests"), Kept()
    level = requests.level
    requests.setLevel(logging.WARNING)
    requests.addHandler(kept)
    try:
        asyncio.run(scenario())
    finally:
        requests.removeHandler(kept)
        requests.setLevel(level)
    seconds = len({int(record.created) for record in lines})
    assert 1 <= len(lines) <= 5 * seconds

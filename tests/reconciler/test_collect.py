"""Collecting results from real servers: whole, checked and private, or not at all (F1-F4)."""

import asyncio
import hashlib
import json
import resource
import ssl
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from schemas.commands import Defer
from schemas.contract import Contract, ResultFile, ResultRule
from schemas.evidence import Collected, CollectFailed, Read, ResultGone, ResultInvalid
from schemas.operation import Expect
from schemas.states import Errand, Reading
from tests.reconciler.accounts import CONTRACT, CREDENTIAL, Bench, collecting, endless
from tests.reconciler.servers import Handler, Server, answering, header, read_request, response, serving, until

BODY = b"a,b\n1,2\n" * 50_000


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


def provider(status: dict[str, Any], files: dict[str, bytes]) -> Handler:
    """Return a provider: `status` answers the status read, `files` (path -> raw answer) the downloads; a short answer is cut."""

    async def handler(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await read_request(server, reader)
        path = request.split(b" ")[1].decode().partition("?")[0]
        known = {name: value.replace("{base}", server.url) if isinstance(value, str) else value for name, value in status.items()}
        answer = response(200, json.dumps(known).encode(), "content-type: application/json") if path.startswith("/jobs/") else files[path]
        writer.write(answer)
        await writer.drain()

    return handler


def csv(body: bytes = BODY, *headers: str) -> bytes:
    return response(200, body, "content-type: text/csv", *headers)


DONE = {"status": "done", "result_url": "{base}/files/1?signature=CANARY"}


def test_a_result_is_streamed_stored_and_described(tmp_path: Path) -> None:
    """The file is stored with size, SHA-256 and media type; declared size and checksum are held against it (F1, F2)."""
    status = {**DONE, "size": len(BODY), "sha256": hashlib.sha256(BODY).hexdigest()}

    async def scenario() -> None:
        async with serving(provider(status, {"/files/1": csv()})) as server:
            bench = Bench(tmp_path, server.url)
            command = await bench.settle(collecting(server.url), Errand.COLLECT)
            assert isinstance(command.evidence, Collected)
            (file,) = command.evidence.files
            assert (file.role, file.media_type, file.bytes, file.sha256) == ("output", "text/csv", len(BODY), status["sha256"])
            assert (tmp_path / file.key).read_bytes() == BODY
            assert [header(request, "authorization") for request in server.requests] == [f"Bearer {CREDENTIAL}"] * 2
            assert command.exchange is not None
            assert (command.exchange.url, command.exchange.response_digest) == (f"{server.url}/files/1", status["sha256"])
            assert "CANARY" not in repr(command)
            await bench.transport.aclose()

    run(scenario)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 X\r\ncontent-length: 1000\r\n\r\n" + b"x" * 400,
        b"HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        response(200, b"<!DOCTYPE html><title>Sign in</title>", "content-type: text/csv"),
        response(206, b"part", "content-range: bytes 0-3/9"),
        response(503, b"", "retry-after: 5"),
        b"",
    ],
)
def test_a_bad_transfer_is_retried_and_leaves_nothing(tmp_path: Path, answer: bytes) -> None:
    """Cut, short of the declared size, a login page, partial or failing: tried again later, no file is left (B090, B098, B099)."""

    async def scenario() -> None:
        async with serving(provider({**DONE, "size": 1_000}, {"/files/1": answer})) as server:
            bench = Bench(tmp_path, server.url)
            command = await bench.settle(collecting(server.url), Errand.COLLECT)
            assert isinstance(command.evidence, CollectFailed)
            assert bench.files() == []
            await bench.transport.aclose()

    run(scenario)


def test_a_file_that_stays_wrong_is_kept_for_inspection(tmp_path: Path) -> None:
    """After several tries a wrong checksum is believed: the file is kept and a person is asked, never success (F2)."""

    async def scenario() -> None:
        async with serving(provider(DONE, {"/files/1": csv()})) as server:
            bench = Bench(tmp_path, server.url)
            wrong = {"expect": Expect(sha256="0" * 64)}
            first = await bench.settle(collecting(server.url, **wrong), Errand.COLLECT)
            assert first.evidence == CollectFailed(error="checksum")
            assert bench.files() == []
            last = await bench.settle(collecting(server.url, collect_tries=2, **wrong), Errand.COLLECT)
            assert isinstance(last.evidence, ResultInvalid)
            assert last.evidence.code == "checksum"
            assert bench.files() == [last.evidence.files[0].key]
            await bench.transport.aclose()

    run(scenario)


def test_too_large_a_result_is_not_read_to_its_end(tmp_path: Path) -> None:
    """A result over the caller's limit is invalid at once and takes no room (F2, B093)."""

    async def scenario() -> None:
        async with serving(provider(DONE, {"/files/1": csv()})) as server:
            bench = Bench(tmp_path, server.url)
            command = await bench.settle(collecting(server.url, expect=Expect(max_bytes=1_000)), Errand.COLLECT)
            assert isinstance(command.evidence, ResultInvalid)
            assert (command.evidence.code, command.evidence.files) == ("too_large", ())
            assert bench.files() == []
            await bench.transport.aclose()

    run(scenario)


def test_a_fresh_reading_that_contradicts_is_settled_instead(tmp_path: Path) -> None:
    """Where the fresh status no longer says what the record collects for, the reading is settled and nothing is fetched."""

    async def scenario() -> None:
        async with serving(provider({**DONE, "status": "failed"}, {})) as server:
            bench = Bench(tmp_path, server.url)
            command = await bench.settle(collecting(server.url), Errand.COLLECT)
            assert isinstance(command.evidence, Read)
            assert command.evidence.facts.reading is Reading.FAILED
            assert len(server.requests) == 1
            await bench.transport.aclose()

    run(scenario)


def test_a_missing_result_is_gone(tmp_path: Path) -> None:
    """A success without a file, and a 404 on the provider's own origin, are said to be gone (B097)."""

    async def scenario() -> None:
        async with (
            serving(provider({"status": "done"}, {})) as nothing,
            serving(provider(DONE, {"/files/1": response(404, b"{}")})) as missing,
        ):
            for server in (nothing, missing):
                bench = Bench(tmp_path, server.url)
                command = await bench.settle(collecting(server.url), Errand.COLLECT)
                assert isinstance(command.evidence, ResultGone)
                assert bench.files() == []
                await bench.transport.aclose()

    run(scenario)


def test_several_files_come_together_or_not_at_all(tmp_path: Path) -> None:
    """When the second file is cut, the first is not kept; an optional file may be missing (F1)."""
    files = (ResultFile(url="body:result_url"), ResultFile(role="errors", url="body:error_url", optional=True))
    contract = replace(CONTRACT, result=ResultRule(files=files))
    status = {**DONE, "error_url": "{base}/files/2"}

    async def scenario() -> None:
        for second, kept in ((csv(b"e"), 2), (response(404, b"{}"), 1), (b"HTTP/1.1 200 X\r\ncontent-length: 9\r\n\r\nx", 0)):
            async with serving(provider(status, {"/files/1": csv(), "/files/2": second})) as server:
                directory = tmp_path / str(kept)
                bench = Bench(directory, server.url, contract=contract)
                command = await bench.settle(collecting(server.url), Errand.COLLECT)
                assert isinstance(command.evidence, Collected if kept else CollectFailed)
                assert len(bench.files()) == kept
                assert header(server.requests[1], "authorization") == ""  # these files do not ask for the credential
                await bench.transport.aclose()

    run(scenario)


def test_foreign_origins(tmp_path: Path, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> None:
    """Unlisted: refused. Listed by the operator: even private, without credential. By the contract: public only (F3, B094, B148)."""

    async def here(_: str, __: int) -> list[str]:
        return ["127.0.0.1"]

    def listing(contract_origins: tuple[str, ...]) -> Contract:
        assert CONTRACT.result is not None
        return replace(CONTRACT, result=replace(CONTRACT.result, origins=contract_origins))

    async def scenario() -> None:
        async with serving(provider({}, {"/1": csv()}), tls=server_tls) as files:
            there = f"https://localhost:{files.port}"
            async with serving(provider({"status": "done", "result_url": f"{there}/1"}, {})) as server:
                for operators, contracts, kind in (
                    ((), (), ResultGone),
                    ((), (there,), CollectFailed),
                    ((there,), (), Collected),
                ):
                    bench = Bench(tmp_path, server.url, contract=listing(contracts), result_origins=operators, tls=client_tls, resolve=here)
                    command = await bench.settle(collecting(server.url), Errand.COLLECT)
                    assert isinstance(command.evidence, kind)
                    assert len(files.requests) == (1 if kind is Collected else 0)
                    await bench.transport.aclose()
            assert header(files.requests[0], "authorization") == ""

    run(scenario)


def test_a_file_hosts_troubles_do_not_hold_the_account(tmp_path: Path) -> None:
    """C3: 429 of another origin, with a long wait, delays that file; the provider's own account is called on. Its own 429 holds it."""

    async def scenario() -> None:
        busy = response(429, b"", "retry-after: 600")
        async with serving(provider({}, {"/1": busy})) as files:
            async with serving(provider({"status": "done", "result_url": f"{files.url}/1"}, {})) as server:
                bench = Bench(tmp_path, server.url, result_origins=(files.url,))
                command = await bench.settle(collecting(server.url), Errand.COLLECT)
                await bench.transport.aclose()
                assert isinstance(command.evidence, CollectFailed)
                assert len(files.requests) == 1
                assert "jobs" in bench.pace.room(bench.world.monotonic())
            async with serving(answering(busy)) as server:
                bench = Bench(tmp_path, server.url)
                await bench.settle(collecting(server.url), Errand.COLLECT)
                await bench.transport.aclose()
                assert "jobs" not in bench.pace.room(bench.world.monotonic())

    run(scenario)


def test_a_full_disk_fails_the_try_and_nothing_else(tmp_path: Path) -> None:
    """No room for the result: this try fails, its part is removed, and the next one works (B165)."""
    body = b"x" * 3_000_000

    async def scenario() -> None:
        async with serving(provider(DONE, {"/files/1": csv(body)})) as server:
            bench = Bench(tmp_path, server.url)
            soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
            try:
                command = await bench.settle(collecting(server.url), Errand.COLLECT)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            assert command.evidence == CollectFailed(error="store_full: File too large")
            assert bench.files() == []
            command = await bench.settle(collecting(server.url), Errand.COLLECT)
            assert isinstance(command.evidence, Collected)
            await bench.transport.aclose()

    run(scenario)


def test_a_broken_one_shot_result_is_not_asked_for_again(tmp_path: Path) -> None:
    """A result that reading consumes is read once; a broken transfer of it is lost, not retried (F4)."""
    assert CONTRACT.result is not None
    contract = replace(CONTRACT, result=replace(CONTRACT.result, one_shot=True))

    async def scenario() -> None:
        async with serving(provider(DONE, {"/files/1": b"HTTP/1.1 200 X\r\ncontent-length: 9\r\n\r\nx"})) as server:
            bench = Bench(tmp_path, server.url, contract=contract)
            command = await bench.settle(collecting(server.url), Errand.COLLECT)
            assert isinstance(command.evidence, ResultGone)
            assert command.evidence.code == "one_shot_lost"
            await bench.transport.aclose()

    run(scenario)


def test_shutdown_in_mid_transfer_leaves_no_file(tmp_path: Path) -> None:
    """An interrupted transfer gives its lease back and removes its part (B090, B103)."""

    async def scenario() -> None:
        async with serving(endless) as server:
            bench = Bench(tmp_path, server.url)
            task = bench.begin(collecting(server.url), Errand.COLLECT)
            await until(lambda: bench.files() != [] and len(server.requests) == 2)
            task.cancel()
            command = await task
            assert isinstance(command, Defer)
            assert bench.files() == []
            await bench.transport.aclose()

    run(scenario)


def test_a_missing_folder_is_named_in_history_and_log(tmp_path: Path) -> None:
    """The artifact folder is gone: the try fails with its reason, the log names the folder, and the next try may succeed (B165)."""
    folder = tmp_path / "artifacts"

    async def scenario() -> None:
        async with serving(provider(DONE, {"/files/1": csv(b"row\n" * 50)})) as server:
            bench = Bench(folder, server.url)
            folder.rename(tmp_path / "away")
            with capture_logs() as logs:
                command = await bench.settle(collecting(server.url), Errand.COLLECT)
            assert command.evidence == CollectFailed(error="store_failed: No such file or directory")
            (told,) = [entry for entry in logs if entry["event"] == "reconciler.result_unstored"]
            assert told["directory"] == str(folder)
            (tmp_path / "away").rename(folder)
            assert isinstance((await bench.settle(collecting(server.url), Errand.COLLECT)).evidence, Collected)
            await bench.transport.aclose()

    run(scenario)

"""Result files from servers that cut, expire, encode and change them under way: whole at the end, or nothing (F2-F5)."""

import asyncio
import gzip
import hashlib
import json
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from artifacts.store import Store
from reconciler import receipts
from reconciler.transfer import MAX_REFRESHES, MAX_REQUESTS, Tap, TooLargeError
from schemas.contract import Contract, ItemsRule, ResultFile, ResultRule
from schemas.evidence import Collected, CollectFailed, Evidence, Items, NotSent, ResultGone, ResultInvalid
from schemas.http import AnsweredOutcome
from schemas.operation import Expect
from schemas.states import Errand, Reading
from tests.reconciler.accounts import CONTRACT, Bench, collecting
from tests.reconciler.servers import Handler, Server, header, read_request, response, serving

assert CONTRACT.result is not None
BODY = bytes(range(256)) * 4  # 1,024 bytes
ONE_SHOT = replace(CONTRACT, result=replace(CONTRACT.result, one_shot=True))
Answer = bytes | Callable[[bytes], bytes]


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


def scripted(*answers: Answer, status: dict[str, Any] | None = None, reading: str = "done") -> Handler:
    """Return a provider whose downloads are answered in turn, the last one for ever; each status read names a new link."""
    queue = list(answers)
    reads = 0

    async def handler(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal reads
        request = await read_request(server, reader)
        if request.split(b" ")[1].startswith(b"/jobs/"):
            reads += 1
            said = {"status": reading, "result_url": f"{server.url}/f/{reads}?signature=CANARY", **(status or {})}
            writer.write(response(200, json.dumps(said).encode()))
        else:
            answer = queue.pop(0) if len(queue) > 1 else queue[0]
            writer.write(answer if isinstance(answer, bytes) else answer(request))
        await writer.drain()

    return handler


def begun(length: int, *headers: str, size: int = len(BODY)) -> bytes:
    """Return a 200 that promises the whole file and breaks off."""
    return "\r\n".join(["HTTP/1.1 200 X", f"content-length: {size}", *headers, "", ""]).encode() + BODY[:length]


def rest(*headers: str, skew: int = 0, total: int = len(BODY), length: int | None = None) -> Callable[[bytes], bytes]:
    """Return a 206 with what is missing; `skew` moves it, `length` breaks it off."""

    def answer(request: bytes) -> bytes:
        start = int(header(request, "range").removeprefix("bytes=").removesuffix("-")) + skew
        part = response(206, BODY[start:], f"content-range: bytes {start}-{total - 1}/{total}", *headers)
        return part if length is None else part[: len(part) - (len(BODY) - start) + length]

    return answer


V1, V2 = 'etag: "v1"', 'etag: "v2"'
UNSIZED = b'HTTP/1.1 200 X\r\netag: "v1"\r\ntransfer-encoding: chunked\r\n\r\n400\r\n' + BODY + b"\r\n"
WHOLE = response(200, BODY, V1)


async def brought(folder: Path, handler: Handler, *, contract: Contract = CONTRACT, **changes: Any) -> tuple[Evidence, Server, Bench]:
    async with serving(handler) as server:
        bench = Bench(folder, server.url, contract=contract)
        command = await bench.settle(collecting(server.url, **changes), Errand.COLLECT)
        await bench.transport.aclose()
    assert "CANARY" not in repr(command.evidence) + repr(command.exchange)
    return command.evidence, server, bench


def downloads(server: Server) -> list[str]:
    """Return the range of each download, in order."""
    return [header(request, "range") for request in server.requests if b" /f/" in request.split(b"\r\n")[0]]


@pytest.mark.parametrize(
    ("answers", "ranges"),
    [
        ((begun(400, V1), rest(V1)), ["", "bytes=400-"]),
        ((begun(400, V1), rest(V1, length=100), rest(V1)), ["", "bytes=400-", "bytes=500-"]),
        ((begun(400, "last-modified: Sun, 06 Nov 2022 08:49:37 GMT", "date: Sun, 06 Nov 2022 09:49:37 GMT"), rest()), ["", "bytes=400-"]),
        ((begun(400, V1), WHOLE), ["", "bytes=400-"]),  # the server knows no ranges: from the beginning, over the part
        ((begun(400, V1), response(200, BODY, V2)), ["", "bytes=400-"]),  # the file has changed
        ((begun(400, V1), rest(V1, skew=-5), WHOLE), ["", "bytes=400-", ""]),
        ((begun(400, V1), rest(V2), WHOLE), ["", "bytes=400-", ""]),
        ((begun(400, V1), rest(V1, total=2_000), WHOLE), ["", "bytes=400-", ""]),
        ((UNSIZED, response(416, b"", "content-range: bytes */1024")), ["", "bytes=1024-"]),  # all had come, only its end had not
        ((begun(400, V1), response(416, b"", "content-range: bytes */9"), WHOLE), ["", "bytes=400-", ""]),
        ((begun(0, V1), WHOLE), None),
    ],
)
def test_a_cut_transfer_goes_on_or_begins_again(tmp_path: Path, answers: tuple[Answer, ...], ranges: list[str] | None) -> None:
    """206 only where it fits, 200 from zero, 416 by its size, never two files in one: the final bytes are equal (B090, B099)."""

    async def scenario() -> None:
        evidence, server, bench = await brought(tmp_path, scripted(*answers))
        if ranges is None:  # nothing had come: nothing to go on with, the next try is another errand's
            assert evidence == CollectFailed(error="cut")
            return
        assert downloads(server) == ranges
        assert isinstance(evidence, Collected)
        assert (tmp_path / evidence.files[0].key).read_bytes() == BODY
        assert evidence.files[0].sha256 == hashlib.sha256(BODY).hexdigest()
        assert len(bench.files()) == 1
        assert [header(request, "if-range") for request in server.requests if header(request, "range")] != [""]

    run(scenario)


@pytest.mark.parametrize("tag", ['etag: W/"v1"', "x-none: 1", "last-modified: Sun, 06 Nov 2022 08:49:37 GMT"])
def test_a_file_without_a_strong_validator_is_not_gone_on_with(tmp_path: Path, tag: str) -> None:
    """A weak tag, none, a date without a clock beside it: one request, and the part is gone (B099)."""

    async def scenario() -> None:
        evidence, server, bench = await brought(tmp_path, scripted(begun(400, tag), WHOLE))
        assert evidence == CollectFailed(error="cut")
        assert (downloads(server), bench.files()) == ([""], [])

    run(scenario)


def test_cuts_without_end_end(tmp_path: Path) -> None:
    """A server that always cuts is asked so often and no more; nothing is left (B090)."""

    async def scenario() -> None:
        evidence, server, bench = await brought(tmp_path, scripted(begun(1, V1), rest(V1, length=1)))
        assert evidence == CollectFailed(error="cut")
        assert (len(downloads(server)), bench.files()) == (MAX_REQUESTS, [])

    run(scenario)


def test_an_expired_link_is_refreshed_by_a_read(tmp_path: Path) -> None:
    """Expired at once, and again in the midst of going on: two status reads more, the part is kept, no file is read twice (B088)."""

    async def scenario() -> None:
        expired = response(403, b"<Error><Code>AccessDenied</Code></Error>")
        evidence, server, _ = await brought(tmp_path, scripted(expired, begun(400, V1), expired, rest(V1)))
        assert isinstance(evidence, Collected)
        assert (tmp_path / evidence.files[0].key).read_bytes() == BODY
        reads = sum(b" /jobs/" in request.split(b"\r\n")[0] for request in server.requests)
        assert reads == 1 + MAX_REFRESHES
        assert downloads(server) == ["", "", "bytes=400-", "bytes=400-"]

    run(scenario)


@pytest.mark.parametrize(("status", "kind"), [(403, CollectFailed), (404, ResultGone), (410, ResultGone)])
def test_refreshes_are_bounded(tmp_path: Path, status: int, kind: type[Evidence]) -> None:
    """A link that stays dead after fresh reads: its last word counts, and nobody asks for ever (B088)."""

    async def scenario() -> None:
        evidence, server, bench = await brought(tmp_path, scripted(response(status, b"{}")))
        assert isinstance(evidence, kind)
        assert (len(downloads(server)), bench.files()) == (1 + MAX_REFRESHES, [])

    run(scenario)


CSV = b"a,b\n1,2\n" * 100
NESTED = gzip.compress(bytes(3_000_000), mtime=0)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (response(200, gzip.compress(CSV, mtime=0), "content-encoding: gzip", "content-type: text/csv"), None),
        (response(200, gzip.compress(CSV, mtime=0), "content-encoding: gzip", V1), None),
        (response(200, gzip.compress(CSV, mtime=0)[:-9], "content-encoding: gzip"), "cut"),
        (response(200, CSV, "content-encoding: gzip"), "bad_encoding"),
        (response(200, CSV, "content-encoding: br"), "encoded"),
        (response(200, gzip.compress(NESTED, mtime=0), "content-encoding: gzip"), None),  # undone once, never twice
        (response(200, gzip.compress(bytes(9_000_000), 1, mtime=0), "content-encoding: gzip"), "too_large"),
    ],
)
def test_a_gzip_coding_is_undone_within_the_agreed_size(tmp_path: Path, answer: bytes, problem: str | None) -> None:
    """Though identity was asked for: stored as the file itself, refused when it swells, named when it is none (B093)."""

    async def scenario() -> None:
        evidence, _, bench = await brought(tmp_path, scripted(answer), expect=Expect(max_bytes=1_000_000))
        match problem:
            case None:
                assert isinstance(evidence, Collected)
                stored = (tmp_path / evidence.files[0].key).read_bytes()
                assert stored in {CSV, NESTED}
            case "too_large":
                assert isinstance(evidence, ResultInvalid)
                assert (evidence.code, evidence.files, bench.files()) == ("too_large", (), [])
            case _:
                assert (evidence, bench.files()) == (CollectFailed(error=problem), [])

    run(scenario)


def test_a_swelling_body_stops_at_the_agreed_size(tmp_path: Path) -> None:
    """A hundred thousand bytes that would become a hundred million: no more is stored than was agreed (B093)."""

    async def scenario() -> None:
        writer = await Store(tmp_path).create("art_00000001")
        tap = Tap(writer, 1_000_000)
        await tap.begin(AnsweredOutcome(status=200, headers=(("content-encoding", "gzip"),)))
        with pytest.raises(TooLargeError):
            await tap.write(gzip.compress(bytes(20_000_000), 1))
        assert writer.bytes <= 1_000_000
        await writer.abort()

    run(scenario)


# --- results that can be read once


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (begun(400, V1), ResultGone),  # cut: consumed, and never gone on with
        (response(500, b""), ResultGone),
        (b"", ResultGone),
        (response(404, b"{}"), ResultGone),
        (response(503, b"", "retry-after: 5"), NotSent),  # nothing was read
        (response(429, b""), NotSent),
        (response(403, b"{}"), NotSent),
        (WHOLE, Collected),
    ],
)
def test_a_result_that_reading_consumes_is_asked_for_once(tmp_path: Path, answer: bytes, kind: type[Evidence]) -> None:
    """One request whatever comes of it: no range, no refresh; an answer that is surely no reading lets it be tried later (F4)."""

    async def scenario() -> None:
        evidence, server, _ = await brought(tmp_path, scripted(answer), contract=ONE_SHOT)
        assert isinstance(evidence, kind)
        assert downloads(server) == [""]

    run(scenario)


def test_a_failed_status_read_consumes_nothing(tmp_path: Path) -> None:
    """The read before the download fails: the result is still there, and so is the right to read it (F4)."""

    async def refusing(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(server, reader)
        writer.write(response(503, b""))

    async def scenario() -> None:
        evidence, _, _ = await brought(tmp_path, refusing, contract=ONE_SHOT)
        assert evidence == NotSent(errand=Errand.COLLECT, error="status http_503")

    run(scenario)


def test_a_disk_without_room_is_known_before_a_result_is_consumed(tmp_path: Path) -> None:
    """A declared size that does not fit: nothing is asked for, and the history says why (F4, B165)."""

    async def scenario() -> None:
        evidence, server, _ = await brought(tmp_path, scripted(WHOLE, status={"size": 2**60}), contract=ONE_SHOT)
        assert evidence == NotSent(errand=Errand.COLLECT, error="store_full: No space left on device")
        assert downloads(server) == []

    run(scenario)


def test_a_stored_one_shot_result_is_found_again(tmp_path: Path) -> None:
    """Read and stored, and the commit was lost: the next errand finds it by its attempt and asks the provider for nothing (F4)."""

    async def scenario() -> None:
        first, _, bench = await brought(tmp_path, scripted(WHOLE), contract=ONE_SHOT)
        assert isinstance(first, Collected)
        assert len(bench.files()) == 2  # the file and its receipt
        async with serving(scripted(WHOLE)) as server:
            again = Bench(tmp_path, server.url, contract=ONE_SHOT)
            found = await again.settle(collecting(server.url, consumed_by="att_1"), Errand.COLLECT)
            assert (found.evidence, server.requests) == (first, [])
            for attempt, spoil in (("att_2", None), ("att_1", tmp_path / first.files[0].key)):
                if spoil is not None:
                    spoil.unlink()
                lost = await again.settle(collecting(server.url, consumed_by=attempt), Errand.COLLECT)
                assert isinstance(lost.evidence, ResultGone)
                assert (lost.evidence.code, server.requests) == ("one_shot_lost", [])
            (tmp_path / receipts.name("att_1")).write_bytes(b"{")
            broken = await again.settle(collecting(server.url, consumed_by="att_1"), Errand.COLLECT)
            assert broken.evidence == CollectFailed(error="store_failed: Input/output error")
            await again.transport.aclose()

    run(scenario)


# --- what is inside

_OPENAI = ItemsRule(id="custom_id", outcome="response.status_code", ok=("2xx",), error="error")
BATCH = replace(
    CONTRACT,
    status=replace(CONTRACT.status, readings={"done": Reading.SUCCEEDED, "expired": Reading.EXPIRED}) if CONTRACT.status else None,
    result=ResultRule(
        files=(
            ResultFile(url="body:result_url", format="jsonl", items=_OPENAI, optional=True),
            ResultFile(role="errors", url="body:error_url", format="jsonl", optional=True, items=replace(_OPENAI, failed=True)),
        ),
        readings=(Reading.SUCCEEDED, Reading.EXPIRED),
        total="body:total",
    ),
)


def row(name: str, status: int = 200) -> bytes:
    return json.dumps({"custom_id": name, "response": {"status_code": status, "body": {"n": name}}, "error": None}).encode() + b"\n"


def test_items_of_a_batch_are_told_with_its_result(tmp_path: Path) -> None:
    """498 of 500 succeeded and 2 failed by name: collected, counted (F5, B095)."""

    async def scenario() -> None:
        body = b"".join(row(f"i{n}", 200 if n < 498 else 400) for n in range(500))
        evidence, _, _ = await brought(tmp_path, scripted(response(200, body), status={"total": 500}), contract=BATCH)
        assert isinstance(evidence, Collected)
        assert evidence.items == Items(succeeded=498, failed=2, missing=0, failed_refs=("i498", "i499"))
        assert evidence.records == 500

    run(scenario)


def test_a_success_with_a_gap_is_tried_again_and_then_asked_about(tmp_path: Path) -> None:
    """Two items are in no file: not success; a store that lags is given some tries, then a person is asked (F2, F5)."""

    async def scenario() -> None:
        handler = scripted(response(200, row("a")), status={"total": 3})
        assert (await brought(tmp_path, handler, contract=BATCH))[0] == CollectFailed(error="items_missing")
        evidence, _, bench = await brought(tmp_path, handler, contract=BATCH, collect_tries=2)
        assert isinstance(evidence, ResultInvalid)
        assert (evidence.code, evidence.items) == ("items_missing", Items(succeeded=1, failed=0, missing=2))
        assert len(bench.files()) == 1

    run(scenario)


def test_items_of_an_expired_batch_are_kept(tmp_path: Path) -> None:
    """Expired with one of ten done: its file is fetched and counted (B087, F5)."""

    async def scenario() -> None:
        handler = scripted(response(200, row("a")), status={"total": 10}, reading="expired")
        evidence, _, _ = await brought(tmp_path, handler, contract=BATCH, ending=Reading.EXPIRED)
        assert isinstance(evidence, Collected)
        assert evidence.items == Items(succeeded=1, failed=0, missing=9)

    run(scenario)


def test_a_schema_and_a_count_are_held_against_the_stored_bytes(tmp_path: Path) -> None:
    """A document that does not fit is kept, and named by place (F2)."""

    async def scenario() -> None:
        answer = response(200, b'{"rows": [1, "CANARY"]}', "content-type: application/json")
        schema = {"properties": {"rows": {"items": {"type": "integer"}}}}
        evidence, _, bench = await brought(tmp_path, scripted(answer), expect=Expect(json_schema=schema))
        assert isinstance(evidence, ResultInvalid)
        assert (evidence.code, evidence.message) == (
            "json_schema",
            "1 of 1 do not fit the schema; the first: the document at /rows/1: type",
        )
        assert bench.files() == [evidence.files[0].key]
        evidence, _, _ = await brought(tmp_path / "again", scripted(answer), expect=Expect(records_min=2))
        assert isinstance(evidence, ResultInvalid)
        assert evidence.code == "records"

    run(scenario)


def test_demands_are_about_the_main_file(tmp_path: Path) -> None:
    """The caller's schema is not held against an error file; without the main file there is nothing that fits it (F2, B097)."""

    async def scenario() -> None:
        failed = response(200, row("b", 500))
        only_errors = {"total": 1, "result_url": None, "error_url": "{base}"}
        lenient = replace(BATCH, result=replace(BATCH.result, files=tuple(replace(f, items=None) for f in BATCH.result.files), total=""))  # type: ignore[type-var, union-attr]
        async with serving(scripted(failed, status=only_errors)) as server:
            only_errors["error_url"] = f"{server.url}/f/9"
            for contract, code in ((BATCH, "no_item_succeeded"), (lenient, "main_file_missing")):
                bench = Bench(tmp_path / code, server.url, contract=contract)
                expect = Expect(json_schema={"not": {}})
                command = await bench.settle(collecting(server.url, expect=expect), Errand.COLLECT)
                assert isinstance(command.evidence, ResultInvalid)
                assert command.evidence.code == code
                await bench.transport.aclose()

    run(scenario)

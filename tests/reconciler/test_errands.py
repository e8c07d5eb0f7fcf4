"""Errands against real servers: what each answer, silence, shutdown and fault of ours settles."""

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from schemas.commands import Claimed, Defer, Settle
from schemas.contract import Limits
from schemas.evidence import (
    CancelAmbiguous,
    CancelTaken,
    Collected,
    CreateAmbiguous,
    CreateRejected,
    JobKnown,
    JobNotFound,
    JobsConflict,
    Lapsed,
    NotSent,
    Read,
    ReadFailed,
    ResultInvalid,
)
from schemas.operation import Expect
from schemas.states import Errand, Reading, State
from tests.reconciler.accounts import CONTRACT, CREDENTIAL, Bench, operation
from tests.reconciler.servers import Server, answering, closing, header, read_request, response, serving

INLINE = replace(CONTRACT, result=None)


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


def said(status: int, value: object, *headers: str) -> bytes:
    return response(status, json.dumps(value).encode(), "content-type: application/json", *headers)


async def _silent(server: Server, reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await read_request(server, reader)
    await server.release.wait()


def test_create_carries_token_trace_and_credential_and_settles_the_job(tmp_path: Path) -> None:
    """A create is sent as recorded and its answer names the job; nothing secret is in what is committed (A4, D6, D7)."""

    async def scenario() -> None:
        async with serving(answering(said(202, {"id": "job-9", "echo": "ok"}, "x-request-id: r-1"))) as server:
            bench = Bench(tmp_path, server.url)
            command = await bench.settle(operation(server.url, state=State.CREATE_PENDING, remote_job_id=None), Errand.CREATE)
            assert command.evidence == JobKnown(remote_job_id="job-9", source="create")
            assert (command.fence, command.attempt_id, command.errand) == (7, "att_1", Errand.CREATE)
            (request,) = server.requests
            assert header(request, "idempotency-key") == "tok-1"
            assert header(request, "traceparent").startswith("00-0af7651916cd43dd8448eb211c80319c-")
            assert header(request, "authorization") == f"Bearer {CREDENTIAL}"
            assert request.endswith(b'{"rows":3}')
            assert command.exchange is not None
            assert (command.exchange.status, command.exchange.provider_request_id) == (202, "r-1")
            assert CREDENTIAL not in repr(command)
            await bench.transport.aclose()

    run(scenario)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"", CreateAmbiguous),
        (b"HTTP/1.1 201 Created\r\ncontent-length: 1000\r\n\r\n{", CreateAmbiguous),
        (response(500, b"oops"), CreateAmbiguous),
        (response(302, b"", "location: /elsewhere"), CreateAmbiguous),
        (response(200, b"<html>login</html>"), CreateAmbiguous),
        (said(422, {"error": "bad rows"}), CreateRejected),
        (said(429, {}, "retry-after: 30"), NotSent),
    ],
)
def test_create_outcomes_are_told_apart(tmp_path: Path, answer: bytes, kind: type) -> None:
    """Lost, cut, failed and odd answers are ambiguous; refusals and documented "later" are not (A6, A10, B047, B048)."""

    async def scenario() -> None:
        async with serving(closing(answer)) as server:
            bench = Bench(tmp_path, server.url)
            command = await bench.settle(operation(server.url, state=State.CREATE_PENDING, remote_job_id=None), Errand.CREATE)
            assert isinstance(command.evidence, kind)
            assert len(server.requests) == 1
            held = "jobs" not in bench.pace.room(bench.world.monotonic())
            assert held == (kind is NotSent)  # a 429 with Retry-After slows the whole account (C3)
            await bench.transport.aclose()

    run(scenario)


def test_an_acting_errand_without_an_attempt_sends_nothing(tmp_path: Path) -> None:
    """No byte leaves without a committed open attempt (A1)."""

    async def scenario() -> None:
        async with serving(answering(said(202, {"id": "job-9"}))) as server:
            bench = Bench(tmp_path, server.url)
            claimed = Claimed(operation=operation(server.url, state=State.CREATE_PENDING), errand=Errand.CREATE, fence=7)
            command = await asyncio.create_task(bench.performer.perform(claimed, 0.0, bench.world.monotonic() + 30))
            assert isinstance(command, Settle)
            assert isinstance(command.evidence, NotSent)
            assert server.requests == []

    run(scenario)


def test_another_spelling_of_the_origin_is_the_same_origin(tmp_path: Path) -> None:
    """An operator who writes the same address otherwise has not moved the provider: its jobs are read on (B148)."""

    async def scenario() -> None:
        async with serving(answering(response(200, b'{"status": "running"}'))) as server:
            bench = Bench(tmp_path, f"HTTP://127.0.0.1:{server.port}/")
            command = await bench.settle(operation(server.url), Errand.READ)
            await bench.transport.aclose()
            assert isinstance(command.evidence, Read)

    run(scenario)


def test_a_create_that_is_too_late_is_not_sent(tmp_path: Path) -> None:
    """A worker that wakes up after its send_by sends nothing and settles that (C1)."""

    async def scenario() -> None:
        async with serving(answering(said(202, {"id": "job-9"}))) as server:
            bench = Bench(tmp_path, server.url)
            command = await bench.begin(operation(server.url, state=State.CREATE_PENDING), Errand.CREATE, send_in=-0.001)
            assert isinstance(command, Settle)
            assert command.evidence == NotSent(errand=Errand.CREATE, error="too_late")
            assert server.requests == []
            await bench.transport.aclose()

    run(scenario)


def test_a_changed_origin_gets_neither_call_nor_credential(tmp_path: Path) -> None:
    """Where the configured origin is no longer the pinned one, nothing is sent to either; a known job is a contradiction (B148)."""

    async def scenario() -> None:
        async with serving(answering(said(200, {"status": "running"}))) as old, serving(answering(response(200))) as new:
            bench = Bench(tmp_path, new.url)
            for errand in (Errand.READ, Errand.CANCEL, Errand.COLLECT):
                command = await bench.settle(operation(old.url), errand)
                assert isinstance(command.evidence, JobsConflict)
                assert command.evidence.code == "origin_changed"
            command = await bench.settle(operation(old.url), Errand.CREATE)
            assert command.evidence == NotSent(errand=Errand.CREATE, error="origin_changed")
            assert old.requests == new.requests == []

    run(scenario)


def test_read_settles_what_the_provider_says(tmp_path: Path) -> None:
    """A status answer is mapped by the contract; a page and a failure are not answers (C4)."""

    async def scenario() -> None:
        answers = (said(200, {"status": "running"}), said(404, {}), response(200, b"<html>"), response(503, b"", "retry-after: 7"))
        async with serving(answering(*answers)) as server:
            bench = Bench(tmp_path, server.url)
            found = [(await bench.settle(operation(server.url), Errand.READ)).evidence for _ in answers]
            assert isinstance(found[0], Read)
            assert found[0].facts.reading is Reading.RUNNING
            assert isinstance(found[1], Read)
            assert found[1].facts.reading is Reading.ABSENT
            assert isinstance(found[2], ReadFailed)
            assert isinstance(found[3], ReadFailed)
            assert found[3].retry_after == bench.world.now() + 7_000_000
            await bench.transport.aclose()

    run(scenario)


def test_an_answer_that_is_the_result_is_stored(tmp_path: Path) -> None:
    """Without a [result] section a finished status answer is stored, byte for byte, and checked against the demand (F1, F2)."""
    body = b'{ "status": "done", "rows": [1, 2] }'

    async def scenario() -> None:
        async with serving(answering(response(200, body, "content-type: application/json"))) as server:
            bench = Bench(tmp_path, server.url, contract=INLINE)
            command = await bench.settle(operation(server.url), Errand.READ)
            assert isinstance(command.evidence, Read)
            inline = command.evidence.facts.inline
            assert isinstance(inline, Collected)
            (file,) = inline.files
            assert (tmp_path / file.key).read_bytes() == body
            assert (file.media_type, file.bytes) == ("application/json", len(body))

            demanding = operation(server.url, expect=Expect(min_bytes=1_000))
            command = await bench.settle(demanding, Errand.READ)
            assert isinstance(command.evidence, Read)
            assert isinstance(command.evidence.facts.inline, ResultInvalid)
            assert command.evidence.facts.inline.code == "too_small"
            await bench.transport.aclose()

    run(scenario)


def test_a_synchronous_success_is_stored_too(tmp_path: Path) -> None:
    """A create answer that is a finished status answer brings job and result at once (A5)."""
    assert INLINE.create is not None
    contract = replace(INLINE, create=replace(INLINE.create, answers_status=True))

    async def scenario() -> None:
        async with serving(answering(said(200, {"id": "job-3", "status": "done"}))) as server:
            bench = Bench(tmp_path, server.url, contract=contract)
            command = await bench.settle(operation(server.url, state=State.CREATE_PENDING, remote_job_id=None), Errand.CREATE)
            assert isinstance(command.evidence, JobKnown)
            assert command.evidence.status is not None
            assert isinstance(command.evidence.status.inline, Collected)
            assert len(bench.files()) == 1
            await bench.transport.aclose()

    run(scenario)


def test_recovery_walks_the_list_to_its_end(tmp_path: Path) -> None:
    """The list is walked page by page: found, absent, two jobs for one create, and a page that fails (A6, A8)."""
    mine, other = {"id": "job-5", "reference": "op_1"}, {"id": "job-4", "reference": "op_0"}
    first = said(200, {"data": [other], "next": "c1"})
    courses = [
        ((first, said(200, {"data": [mine]})), JobKnown(remote_job_id="job-5", source="recovery")),
        ((first, said(200, {"data": []})), JobNotFound()),
        ((said(200, {"data": [mine], "next": "c1"}), said(200, {"data": [{**mine, "id": "job-6"}]})), JobsConflict),
        ((first, response(500)), ReadFailed),
    ]

    async def scenario() -> None:
        for answers, expected in courses:
            async with serving(answering(*answers)) as server:
                bench = Bench(tmp_path, server.url)
                lost = operation(server.url, state=State.CREATE_UNKNOWN, remote_job_id=None, unsure_creates=1, sends=1)
                command = await bench.settle(lost, Errand.RECOVER)
                assert command.evidence == expected or (isinstance(expected, type) and isinstance(command.evidence, expected))
                assert len(server.requests) == 2
                assert b"after=c1" in server.requests[1].split(b"\r\n")[0]
                assert command.exchange is not None
                assert "after" not in command.exchange.url
                await bench.transport.aclose()

    run(scenario)


def test_lapse_makes_no_call(tmp_path: Path) -> None:
    """A clock that needs no read is declared without a call."""

    async def scenario() -> None:
        async with serving(answering(response(200))) as server:
            bench = Bench(tmp_path, server.url)
            command = await bench.settle(operation(server.url), Errand.LAPSE)
            assert command.evidence == Lapsed()
            assert server.connections == 0

    run(scenario)


def test_cancel_is_taken(tmp_path: Path) -> None:
    """A taken cancel is settled as taken, never as an end (E1)."""

    async def scenario() -> None:
        async with serving(answering(said(202, {}))) as server:
            bench = Bench(tmp_path, server.url)
            command = await bench.settle(operation(server.url, state=State.CANCEL_REQUESTED), Errand.CANCEL)
            assert command.evidence == CancelTaken()
            assert server.requests[0].startswith(b"POST /jobs/job-1/cancel ")
            await bench.transport.aclose()

    run(scenario)


@pytest.mark.parametrize(("errand", "kind"), [(Errand.CREATE, CreateAmbiguous), (Errand.CANCEL, CancelAmbiguous), (Errand.READ, Defer)])
def test_shutdown_in_mid_call_says_what_is_known(tmp_path: Path, errand: Errand, kind: type) -> None:
    """An interrupted acting call whose bytes left is ambiguous; an interrupted read gives its lease back (B103)."""

    async def scenario() -> None:
        async with serving(_silent) as server:
            bench = Bench(tmp_path, server.url)
            task = bench.begin(operation(server.url), errand)
            await asyncio.wait_for(server.seen.wait(), 5)
            task.cancel()
            command = await task
            assert isinstance(command.evidence if isinstance(command, Settle) else command, kind)
            await bench.transport.aclose()

    run(scenario)


def test_shutdown_before_the_bytes_says_not_sent(tmp_path: Path) -> None:
    """An acting call that is interrupted while it still connects surely did nothing (B103)."""

    async def scenario() -> None:
        asked = asyncio.Event()

        async def stuck(_: str, __: int) -> list[str]:
            asked.set()
            await asyncio.Event().wait()
            return []

        bench = Bench(tmp_path, "http://stuck.invalid", resolve=stuck)
        task = bench.begin(operation("http://stuck.invalid", state=State.CREATE_PENDING), Errand.CREATE)
        await asyncio.wait_for(asked.wait(), 5)
        task.cancel()
        command = await task
        assert isinstance(command, Settle)
        assert command.evidence == NotSent(errand=Errand.CREATE, error="interrupted")
        await bench.transport.aclose()

    run(scenario)


def test_a_fault_of_ours_settles_and_leaks_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """An exception in one errand becomes evidence and a log line with type and place only (B113, D6)."""
    caplog.set_level(logging.DEBUG)

    def broken(_: str) -> str:
        raise LookupError(CREDENTIAL)

    async def scenario() -> None:
        async with serving(answering(said(200, {"status": "running"}))) as server:
            bench = Bench(tmp_path, server.url)
            bench.performer._credential = broken
            command = await bench.settle(operation(server.url), Errand.READ)
            assert command.evidence == ReadFailed(layer="transport", error="internal")
            command = await bench.settle(operation(server.url, state=State.CREATE_PENDING), Errand.CREATE)
            assert command.evidence == NotSent(errand=Errand.CREATE, error="internal")

    run(scenario)
    logged = caplog.text + capsys.readouterr().out
    assert "LookupError" in logged
    assert CREDENTIAL not in logged


def test_a_silent_provider_ends_a_read_in_time(tmp_path: Path) -> None:
    """A provider that accepts and never answers costs one read its total limit, as a transport failure (B107, C4)."""
    contract = replace(CONTRACT, limits=Limits(total_seconds=0.2))

    async def scenario() -> None:
        async with serving(_silent) as server:
            bench = Bench(tmp_path, server.url, contract=contract)
            command = await bench.settle(operation(server.url), Errand.READ)
            assert command.evidence == ReadFailed(layer="transport", error="timeout")
            await bench.transport.aclose()

    run(scenario)

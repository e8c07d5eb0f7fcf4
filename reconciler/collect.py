"""The collect errand: a fresh status read, then every file streamed to the artifact room and looked into (MISSION F1-F5).

Files become visible only together: all are written, all are checked, then all are committed. Whatever ends an errand
early (a cut transfer, a lost lease, a full disk, a shutdown) leaves no file.
"""

import asyncio
import contextlib
import errno
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final

import structlog

from artifacts.store import Store, StoreError, StoreFullError, Writer
from providers import interpret, requests, results, transfers
from providers.items import Scan, Tally, verdict
from providers.json_schema import SchemaRefusedError, compiled
from providers.transfers import FileRequest
from reconciler import receipts
from reconciler.desk import Desk
from reconciler.transfer import ONE_SHOT_LOST, Fetched, fetch
from schemas.contract import ResultFile, ResultRule
from schemas.evidence import (
    Collected,
    CollectFailed,
    Evidence,
    NotSent,
    Read,
    ReadFailed,
    ResultGone,
    ResultInvalid,
    StatusFacts,
    StoredFile,
)
from schemas.http import AnsweredOutcome
from schemas.operation import Expect
from schemas.states import Errand, Reading

_HEAD_BYTES: Final = 512
_PIECE_BYTES: Final = 1_048_576
_LOOK_SECONDS: Final = 1_800.0  # that a file may take to be looked into: gigabytes of JSON lines take minutes
_log = structlog.get_logger("reconciler")
_MAX_TRIES: Final = 3  # then a file that is wrong in a way that a proxy could cause is believed to be wrong
_ANSWER: Final = ResultFile(role="output")  # the status answer as a result
_NO_RULE: Final = ResultRule()
_NOTHING: Final = Expect()

_MEANING: Final = {
    "looks_like_html": "the file is a web page, not the result",
    "media_type": "the file has another media type than agreed",
    "size_mismatch": "the file has another size than declared",
    "too_small": "the file is smaller than agreed",
    "too_large": "the file is larger than agreed",
    "checksum": "the file has another checksum than declared",
}
_Problem = tuple[str, str]  # code, message


class _Batch:
    """The writers of one errand: all committed, or nothing is left of any."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._writers: list[Writer] = []
        self._kept = False

    async def create(self, artifact_id: str) -> Writer:
        writer = await self._store.create(artifact_id)
        self._writers.append(writer)
        return writer

    async def keep(self) -> None:
        for writer in self._writers:
            await writer.commit()
        self._kept = True

    async def drop(self, writer: Writer) -> None:
        self._writers.remove(writer)
        await writer.abort()

    async def close(self) -> None:
        if self._kept:
            return
        for writer in self._writers:
            await writer.abort()
            await self._store.remove(writer.id)


@contextlib.asynccontextmanager
async def _batch(store: Store) -> AsyncIterator[_Batch]:
    batch = _Batch(store)
    try:
        yield batch
    finally:
        await batch.close()


async def inline(desk: Desk, facts: StatusFacts, answer: AnsweredOutcome) -> StatusFacts:
    """Store a status answer that is itself the result, and return the facts with it.

    Where it cannot be stored the facts come back without it: the operation then collects, and tries again.
    """
    body = interpret.inline_body(answer)
    if body is None or not interpret.wants_inline(desk.contract, facts):
        return facts
    expected = interpret.expected(desk.operation, desk.contract, _ANSWER, answer)
    try:
        async with _batch(desk.store) as batch:
            writer = await batch.create(desk.world.new_id("art_"))
            await writer.write(body)
            await writer.seal()
            code = interpret.check_file(expected, answer, size=writer.bytes, sha256=writer.sha256, head=body[:_HEAD_BYTES])
            stored = _stored(_ANSWER, writer, answer)
            judged = await _judge(desk, [(_ANSWER, writer, stored)], _told(code), None)
            await batch.keep()
    except StoreError as error:
        _note(desk, error)
        return facts
    return replace(facts, inline=judged)


async def collect(desk: Desk) -> Evidence:
    """Return what collecting brought. A fresh reading other than the recorded ending is settled instead of a result."""
    if desk.operation.consumed_by is not None:
        return await _found_again(desk, desk.operation.consumed_by)
    evidence = await _collect(desk)
    if desk.consuming and isinstance(evidence, CollectFailed):
        # Only a request that has left can have consumed the result; everything before it is tried again (F4).
        if desk.departure.sent:
            return ONE_SHOT_LOST
        return NotSent(errand=Errand.COLLECT, error=evidence.error, retry_after=evidence.retry_after)
    return evidence


async def _found_again(desk: Desk, attempt_id: str) -> Evidence:
    """Return what a lost attempt at a one-shot result had stored before it was lost; the provider is asked for nothing."""
    try:
        return await receipts.find(desk.store, attempt_id) or ONE_SHOT_LOST
    except StoreError as error:
        _note(desk, error)
        return CollectFailed(error=desk.store_fault)


async def _collect(desk: Desk) -> Evidence:
    answer = await _ended(desk)
    if not isinstance(answer, AnsweredOutcome):
        return answer
    if desk.contract.result is None:
        reading = interpret.status(answer, desk.operation, desk.contract, desk.world.now())
        assert isinstance(reading, Read)
        facts = await inline(desk, reading.facts, answer)
        return facts.inline or CollectFailed(error=desk.store_fault or "no_answer_to_store")
    found = _requests(desk, answer)
    if not isinstance(found, tuple):
        return found
    try:
        _check_room(desk, found)
        async with _batch(desk.store) as batch:
            return await _files(desk, found, batch, answer)
    except StoreError as error:
        _note(desk, error)
        return CollectFailed(error=desk.store_fault)


async def _ended(desk: Desk) -> AnsweredOutcome | Evidence:
    """Read the status. Returns its answer where it still says how the work ended, else what it says."""
    request = requests.build(Errand.READ, desk.operation, desk.contract, credential=desk.secret(), now=desk.world.now(), callback_url="")
    answer = await desk.call(request)
    reading = interpret.status(answer, desk.operation, desk.contract, desk.world.now())
    if isinstance(reading, ReadFailed):
        return CollectFailed(error=f"status {reading.error}", retry_after=reading.retry_after)
    if not isinstance(reading, Read) or reading.facts.reading is not desk.operation.ending:
        return reading
    assert isinstance(answer, AnsweredOutcome)
    return answer


def _requests(desk: Desk, answer: AnsweredOutcome) -> tuple[FileRequest, ...] | ResultGone | CollectFailed:
    origins = desk.account.settings.result_origins
    return results.collect_requests(desk.operation, desk.contract, answer, credential=desk.secret(), result_origins=origins)


async def _refreshed(desk: Desk, file: FileRequest) -> FileRequest | Evidence:
    """Read the status again for a fresh link to one file (B088)."""
    answer = await _ended(desk)
    if not isinstance(answer, AnsweredOutcome):
        return answer
    found = _requests(desk, answer)
    if not isinstance(found, tuple):
        return found
    same = next((item for item in found if item.file == file.file), None)
    return same or ResultGone(code="result_missing", message=f"the provider's answer no longer names the {file.file.role} file")


def _check_room(desk: Desk, files: tuple[FileRequest, ...]) -> None:
    """Raise StoreFullError where declared sizes do not fit: before a result that can be read once is read."""
    wanted = sum(file.expected.bytes or 0 for file in files)
    if wanted and wanted > desk.store.room():
        raise StoreFullError(errno.ENOSPC, f"no room for {wanted} bytes: free space for the artifact directory")


def _note(desk: Desk, error: StoreError) -> None:
    """Say in the log and in the operation's history why nothing can be stored; its retry is no secret of the process."""
    code = "store_full" if isinstance(error, StoreFullError) else "store_failed"
    desk.store_fault = f"{code}: {os.strerror(error.errno or 0)}"
    _log.error("reconciler.result_unstored", operation=desk.operation.id, fault=f"{code}: {error.strerror}", directory=desk.store.directory)


async def _files(desk: Desk, files: tuple[FileRequest, ...], batch: _Batch, status: AnsweredOutcome) -> Evidence:
    kept: list[tuple[ResultFile, Writer, StoredFile]] = []
    problem: _Problem | None = None
    for file in files:
        writer = await batch.create(desk.world.new_id("art_"))
        brought = await fetch(desk, file, writer, lambda file=file: _refreshed(desk, file))  # type: ignore[misc]
        if not isinstance(brought, Fetched):
            await batch.drop(writer)
            if isinstance(brought, ResultGone) and file.file.optional:
                continue
            return ONE_SHOT_LOST if desk.consuming and kept else brought
        if brought.problem == "too_large":
            return _invalid(_told("too_large"))
        kept.append((file.file, writer, _stored(file.file, writer, brought.head)))
        problem = problem or _told(brought.problem)
    if not kept:
        return ResultGone(code="result_missing", message="the provider has none of the result's files")
    total = results.total(desk.operation, desk.contract, status)
    judged = await _judge(desk, kept, problem, total)
    retried = isinstance(judged, ResultInvalid) and judged.code in transfers.RETRIED
    if retried and desk.operation.collect_tries + 1 < _MAX_TRIES and not desk.consuming:
        return CollectFailed(error=judged.code if isinstance(judged, ResultInvalid) else "")
    await batch.keep()
    if desk.consuming and desk.attempt_id is not None:
        try:
            await receipts.leave(desk.store, desk.attempt_id, judged)
        except StoreError as error:
            _note(desk, error)  # the files are here and the commit follows: the receipt is for the case that it does not
    return judged


async def _judge(
    desk: Desk, kept: list[tuple[ResultFile, Writer, StoredFile]], problem: _Problem | None, total: int | None
) -> Collected | ResultInvalid:
    """Look into the files and say whether they are what was agreed."""
    expect = desk.operation.expect
    rule = desk.contract.result or _NO_RULE
    tally = Tally()
    if problem is None:
        try:
            schema = compiled(expect.json_schema) if expect.json_schema is not None else None
        except SchemaRefusedError as error:  # taken by another version of this service
            return _invalid(("json_schema", f"the schema {error}"), tuple(stored for _, _, stored in kept))
        counts = expect.records_min is not None or expect.records_max is not None
        for file, writer, stored in kept:
            main = not rule.files or file == rule.files[0]
            scan = Scan(file, rule, tally, schema=schema if main else None, count=main and counts, media_type=stored.media_type)
            if scan.needed:
                await _look(desk, scan, writer)
    items = tally.items(total)
    succeeded = desk.operation.ending in {None, Reading.SUCCEEDED}
    problem = problem or verdict(tally, items, rule, expect, succeeded=succeeded)
    if problem is None and succeeded and expect != _NOTHING and rule.files and all(file != rule.files[0] for file, _, _ in kept):
        problem = ("main_file_missing", f"there is no {rule.files[0].role} file to hold against what was agreed")
    files = tuple(stored for _, _, stored in kept)
    records = tally.records if tally.looked else None
    if problem is None:
        return Collected(files=files, records=records, items=items)
    return ResultInvalid(code=problem[0], message=problem[1], files=files, records=records, items=items)


async def _look(desk: Desk, scan: Scan, writer: Writer) -> None:
    """Feed a written file to its scan, a piece at a time in a thread: the loop goes on, and memory holds one piece and one record."""
    since = desk.world.monotonic()
    offset = 0
    while piece := await writer.read(offset, _PIECE_BYTES):
        await asyncio.to_thread(scan.feed, piece)
        offset += len(piece)
        if desk.world.monotonic() - since > _LOOK_SECONDS:
            scan.stop("too_large_to_check", "looking into it takes too long")
            return
    await asyncio.to_thread(scan.end)


def _stored(file: ResultFile, writer: Writer, answer: AnsweredOutcome) -> StoredFile:
    kind = interpret.media_type(answer) or file.media_type or "application/octet-stream"
    return StoredFile(role=file.role, key=writer.id, media_type=kind, bytes=writer.bytes, sha256=writer.sha256)


def _told(code: str | None) -> _Problem | None:
    return None if code is None else (code, _MEANING.get(code, code))


def _invalid(problem: _Problem | None, files: tuple[StoredFile, ...] = ()) -> ResultInvalid:
    assert problem is not None
    return ResultInvalid(code=problem[0], message=problem[1], files=files)

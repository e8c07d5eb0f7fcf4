"""The collect errand: a fresh status read, then every file streamed to the artifact room and checked (MISSION F1-F3).

Files become visible only together: all are written, all are checked, then all are committed. Whatever ends an errand
early (a cut transfer, a lost lease, a full disk, a shutdown) leaves no file.
"""

import contextlib
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Final

import structlog

from artifacts.store import Store, StoreError, StoreFullError, Writer
from providers import interpret, requests, results
from providers.results import Expected, FileRequest
from reconciler.desk import Desk
from reconciler.transport import Downloaded
from schemas.contract import ResultFile
from schemas.evidence import Collected, CollectFailed, Evidence, Read, ReadFailed, ResultGone, ResultInvalid, StatusFacts, StoredFile
from schemas.http import AnsweredOutcome, HttpRequest, MaybeOutcome
from schemas.operation import SECOND
from schemas.states import Errand

_HEAD_BYTES: Final = 512
_log = structlog.get_logger("reconciler")
_MAX_TRIES: Final = 3  # then a file that is wrong in a way that a proxy could cause is believed to be wrong
_ANSWER: Final = ResultFile(role="output")  # the status answer as a result

ONE_SHOT_LOST: Final = ResultGone(code="one_shot_lost", message="the result could be read once, and that transfer broke")

_MEANING: Final = {
    "looks_like_html": "the file is a web page, not the result",
    "media_type": "the file has another media type than agreed",
    "size_mismatch": "the file has another size than declared",
    "too_small": "the file is smaller than agreed",
    "too_large": "the file is larger than agreed",
    "checksum": "the file has another checksum than declared",
}


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


@dataclass(slots=True)
class _Tap:
    """Passes a download to its writer and remembers how it begins."""

    writer: Writer
    head: bytes = field(default=b"", repr=False)

    async def write(self, chunk: bytes) -> None:
        if len(self.head) < _HEAD_BYTES:
            self.head += chunk[: _HEAD_BYTES - len(self.head)]
        await self.writer.write(chunk)


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
            await batch.keep()
    except StoreError as error:
        _note(desk, error)
        return facts
    stored = _stored(_ANSWER, writer, answer)
    problem = interpret.check_file(expected, answer, size=writer.bytes, sha256=writer.sha256, head=body[:_HEAD_BYTES])
    return replace(facts, inline=Collected(files=(stored,)) if problem is None else _invalid(problem, (stored,)))


async def collect(desk: Desk) -> Evidence:
    """Return what collecting brought. A fresh reading other than the recorded ending is settled instead of a result."""
    request = requests.build(Errand.READ, desk.operation, desk.contract, credential=desk.secret(), now=desk.world.now(), callback_url="")
    answer = await desk.call(request)
    reading = interpret.status(answer, desk.operation, desk.contract, desk.world.now())
    if isinstance(reading, ReadFailed):
        return CollectFailed(error=f"status {reading.error}", retry_after=reading.retry_after)
    if not isinstance(reading, Read) or reading.facts.reading is not desk.operation.ending:
        return reading
    assert isinstance(answer, AnsweredOutcome)
    if desk.contract.result is None:
        facts = await inline(desk, reading.facts, answer)
        return facts.inline or CollectFailed(error=desk.store_fault or "no_answer_to_store")
    origins = desk.account.settings.result_origins
    found = results.collect_requests(desk.operation, desk.contract, answer, credential=desk.secret(), result_origins=origins)
    if not isinstance(found, tuple):
        return found
    try:
        async with _batch(desk.store) as batch:
            return await _files(desk, found, batch)
    except StoreError as error:
        _note(desk, error)
        if desk.consuming and desk.departure.sent:
            return ONE_SHOT_LOST
        return CollectFailed(error=desk.store_fault)


def _note(desk: Desk, error: StoreError) -> None:
    """Say in the log and in the operation's history why nothing can be stored; its retry is no secret of the process."""
    code = "store_full" if isinstance(error, StoreFullError) else "store_failed"
    desk.store_fault = f"{code}: {os.strerror(error.errno or 0)}"
    _log.error("reconciler.result_unstored", operation=desk.operation.id, fault=f"{code}: {error.strerror}", directory=desk.store.directory)


async def _files(desk: Desk, files: tuple[FileRequest, ...], batch: _Batch) -> Evidence:
    stored: list[StoredFile] = []
    problems: list[str] = []
    for file in files:
        brought = await _fetch(desk, file, batch)
        match brought:
            case ResultGone() if file.file.optional:
                continue
            case ResultGone() | CollectFailed() | ResultInvalid():
                return brought
            case (kept, problem):
                stored.append(kept)
                problems.extend([problem] if problem is not None else [])
    if not stored:
        return ResultGone(code="result_missing", message="the provider has none of the result's files")
    if problems and problems[0] in results.RETRIED and desk.operation.collect_tries + 1 < _MAX_TRIES and not desk.consuming:
        return CollectFailed(error=problems[0])
    await batch.keep()
    return _invalid(problems[0], tuple(stored)) if problems else Collected(files=tuple(stored))


async def _fetch(
    desk: Desk, file: FileRequest, batch: _Batch
) -> tuple[StoredFile, str | None] | ResultGone | CollectFailed | ResultInvalid:
    """Download one file into the batch. Returns it with the code of what is wrong with it, or why there is none."""
    desk.spend()
    began = desk.world.now()
    writer = await batch.create(desk.world.new_id("art_"))
    tap = _Tap(writer)
    request = _bounded(desk, file.request)
    limits = desk.contract.limits
    came = await desk.account.transport.download(
        request,
        tap,
        max_bytes=request.max_bytes,
        silence_seconds=limits.total_seconds,
        send_by=desk.send_by if desk.consuming else None,
        departure=desk.departure,
    )
    if isinstance(came, Downloaded):
        head = AnsweredOutcome(status=came.status, headers=came.headers)
        await writer.seal()
        desk.note(request, head, began, sha256=writer.sha256)
        return _stored(file.file, writer, head), _problem(file.expected, head, tap)
    desk.note(request, came, began)
    await batch.drop(writer)
    if isinstance(came, MaybeOutcome) and came.error == "too_large":
        return _invalid("too_large", ())
    refused = interpret.download(came, file, desk.operation, desk.world.now())
    if isinstance(came, MaybeOutcome) and desk.consuming:
        return ONE_SHOT_LOST
    # An answer that is no file, yet no refusal, does not exist: `download` answers None only for a 200.
    return refused or CollectFailed(error="unexpected_answer")


def _bounded(desk: Desk, request: HttpRequest) -> HttpRequest:
    """Return the request bounded by the collection clock; at least a minute, since a try is owed after every wait."""
    deadline = desk.operation.collect_deadline
    left = (deadline - desk.world.now()) / SECOND if deadline is not None else request.total_seconds
    return replace(request, total_seconds=max(60.0, min(request.total_seconds, left)))


def _problem(expected: Expected, head: AnsweredOutcome, tap: _Tap) -> str | None:
    return interpret.check_file(expected, head, size=tap.writer.bytes, sha256=tap.writer.sha256, head=tap.head)


def _stored(file: ResultFile, writer: Writer, answer: AnsweredOutcome) -> StoredFile:
    kind = interpret.media_type(answer) or file.media_type or "application/octet-stream"
    return StoredFile(role=file.role, key=writer.id, media_type=kind, bytes=writer.bytes, sha256=writer.sha256)


def _invalid(code: str, files: tuple[StoredFile, ...]) -> ResultInvalid:
    return ResultInvalid(code=code, message=_MEANING.get(code, code), files=files)

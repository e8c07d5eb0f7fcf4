"""One result file on its way from a provider to the artifact room: gone on with after a cut, asked for anew when its link expired.

Bounds: so many requests and status reads for one file, the collection clock, the size as stored. A result that reading consumes
is asked for once and never gone on with (F4).
"""

import hashlib
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from artifacts.store import Writer
from providers import interpret, transfers
from providers.transfers import Came, FileRequest
from reconciler.desk import Desk
from reconciler.transport import GZIP, Downloaded
from schemas.evidence import CollectFailed, Evidence, NotSent, ResultGone
from schemas.http import AnsweredOutcome, HttpRequest, MaybeOutcome, NotSentOutcome
from schemas.operation import SECOND
from schemas.states import Errand

MAX_REQUESTS: Final = 8  # for one file in one errand, the first included
MAX_REFRESHES: Final = 2  # status reads for a fresh link (B088)
_HEAD_BYTES: Final = 512
_INFLATE_BYTES: Final = 262_144
_PARTIAL: Final = 206
_UNSATISFIABLE: Final = 416

ONE_SHOT_LOST: Final = ResultGone(code="one_shot_lost", message="the result could be read once, and that transfer broke")

Refresh = Callable[[], Awaitable[FileRequest | Evidence]]
"""Reads the status again and answers the file's new request, or what the reading says instead."""


class TooLargeError(Exception):
    """More bytes than agreed."""


class _OtherFileError(Exception):
    """A 206 that does not go on with the file that we have a part of."""


class _BadEncodingError(Exception):
    """A gzip coding that is none."""


class Tap:
    """Passes a download to its writer: undoes a gzip coding within the size that was agreed, and remembers how the file begins."""

    def __init__(self, writer: Writer, max_bytes: int) -> None:
        self.writer = writer
        self.first = b""
        self.head: AnsweredOutcome | None = None  # of the answer that began the file
        self.at = 0  # bytes that came so far
        self.mark = ""  # what If-Range may say; empty: a cut means from the beginning
        self.total: int | None = None
        self._max = max_bytes
        self._inflate: Any = None
        self._sha256: Any = None
        self._md5: Any = None

    @property
    def done(self) -> bool:
        """Return whether all of the file is here, as far as anybody has said how much that is."""
        return (self.total is None or self.at == self.total) and (self._inflate is None or bool(self._inflate.eof))

    def came(self) -> Came:
        """Return what came on the wire, for comparing it with what the head says."""
        sha256 = self._sha256.hexdigest() if self._sha256 is not None else self.writer.sha256
        return Came(bytes=self.at, sha256=sha256, md5=self._md5.hexdigest() if self._md5 is not None else "")

    async def begin(self, head: AnsweredOutcome) -> None:
        """Take a head: the file from its beginning (200), or from where it was cut (206)."""
        if head.status == _PARTIAL:
            part = transfers.continues(head, self.at, self.mark, self.total)
            if part is None:
                raise _OtherFileError
            self.total = part.total if part.total is not None else self.total
            return
        if self.at:
            await self.restart()
        self.head, self.mark = head, transfers.validator(head)
        self.total = transfers.content_length(head)
        if head.header("content-encoding").strip().lower() in GZIP:
            self._inflate = zlib.decompressobj(wbits=31)
            self._sha256 = hashlib.sha256()
        if transfers.md5_sums(head):
            self._md5 = hashlib.md5(usedforsecurity=False)

    async def restart(self) -> None:
        """Forget what came so far."""
        await self.writer.restart()
        self.first, self.at, self.mark, self.total = b"", 0, "", None
        self._inflate = self._sha256 = self._md5 = None

    async def write(self, chunk: bytes) -> None:
        """Take the next bytes of the wire."""
        self.at += len(chunk)
        for digest in (self._sha256, self._md5):
            if digest is not None:
                digest.update(chunk)
        if self._inflate is None:
            await self._store(chunk)
            return
        data = chunk
        while data:
            try:
                plain = self._inflate.decompress(data, _INFLATE_BYTES)
            except zlib.error as error:
                raise _BadEncodingError from error
            await self._store(plain)
            data = self._inflate.unconsumed_tail
            if self._inflate.eof:
                return  # what follows the end is no part of the file

    async def _store(self, plain: bytes) -> None:
        if len(self.first) < _HEAD_BYTES:
            self.first += plain[: _HEAD_BYTES - len(self.first)]
        if self.writer.bytes + len(plain) > self._max:
            raise TooLargeError  # of what is stored, however little came (B093)
        await self.writer.write(plain)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """A whole file in its writer, and what is wrong with it (a code of `check_file`), if anything."""

    file: FileRequest
    writer: Writer
    head: AnsweredOutcome
    problem: str | None


async def fetch(desk: Desk, file: FileRequest, writer: Writer, refresh: Refresh) -> Fetched | Evidence:
    """Download one file. What is not a Fetched says why there is none; the writer then holds nothing of use.

    Raises StoreError.
    """
    tap = Tap(writer, file.request.max_bytes)
    refreshes = 0
    answer: Fetched | Evidence = CollectFailed(error="too_many_cuts")
    for _ in range(MAX_REQUESTS):
        try:
            came = await _ask(desk, file, tap)
        except TooLargeError:
            return Fetched(file=file, writer=writer, head=tap.head or AnsweredOutcome(status=200), problem="too_large")
        except _BadEncodingError:
            return ONE_SHOT_LOST if desk.consuming else CollectFailed(error="bad_encoding")
        except _OtherFileError:
            await tap.restart()
            continue
        if isinstance(came, Downloaded) and tap.done:
            return await _finished(file, tap)
        if isinstance(came, MaybeOutcome) and came.error == "too_large":
            return Fetched(file=file, writer=writer, head=tap.head or AnsweredOutcome(status=200), problem="too_large")
        if desk.consuming:
            return _consumed(desk, file, came)
        match came:
            case AnsweredOutcome(status=code) if code == _UNSATISFIABLE and tap.at:
                if transfers.whole_size(came) == tap.at and tap.head is not None:
                    tap.total = tap.at
                    return await _finished(file, tap)
                await tap.restart()
            case AnsweredOutcome(status=code) if code in transfers.EXPIRED and file.file.url and refreshes < MAX_REFRESHES:
                refreshes += 1
                fresh = await refresh()
                if not isinstance(fresh, FileRequest):
                    return fresh
                file = fresh
            case AnsweredOutcome():
                # An answer that is no file, yet no refusal, does not exist: `download` answers None only for a 200.
                return interpret.download(came, file, desk.operation, desk.world.now()) or CollectFailed(error="unexpected_answer")
            case NotSentOutcome(error=error) | MaybeOutcome(error=error):
                answer = CollectFailed(error=error)
                if not tap.mark or not tap.at or _over(desk):
                    return answer
            case Downloaded():
                answer = CollectFailed(error="cut")
                if not tap.mark or _over(desk):
                    return answer
    return answer


async def _ask(desk: Desk, file: FileRequest, tap: Tap) -> Downloaded | AnsweredOutcome | MaybeOutcome | NotSentOutcome:
    desk.spend()
    began = desk.world.now()
    request = _bounded(desk, file.request)
    if tap.at and tap.mark:
        request = transfers.continued(request, tap.at, tap.mark)
    elif tap.at:
        await tap.restart()
    came = await desk.account.transport.download(
        request,
        tap,
        max_bytes=request.max_bytes,  # of this answer, which may be the whole file again; the tap bounds what is stored
        silence_seconds=desk.contract.limits.total_seconds,
        send_by=desk.send_by if desk.consuming else None,
        departure=desk.departure,
    )
    if isinstance(came, Downloaded):
        await tap.writer.seal()
        desk.note(request, AnsweredOutcome(status=came.status, headers=came.headers), began, sha256=tap.writer.sha256)
    else:
        desk.note(request, came, began)
    return came


async def _finished(file: FileRequest, tap: Tap) -> Fetched:
    await tap.writer.seal()
    assert tap.head is not None
    problem = interpret.check_file(
        file.expected, tap.head, size=tap.writer.bytes, sha256=tap.writer.sha256, head=tap.first, came=tap.came()
    )
    return Fetched(file=file, writer=tap.writer, head=tap.head, problem=problem)


def _consumed(desk: Desk, file: FileRequest, came: Downloaded | AnsweredOutcome | MaybeOutcome | NotSentOutcome) -> Evidence:
    """Return what a failed reading of a one-shot result means: surely not read, surely gone, or lost."""
    match came:
        case NotSentOutcome(error=error):
            return NotSent(errand=Errand.COLLECT, error=error)
        case AnsweredOutcome(status=code) if code in transfers.NOT_READ:
            refused = interpret.download(came, file, desk.operation, desk.world.now())
            later = refused.retry_after if isinstance(refused, CollectFailed) else None
            return NotSent(errand=Errand.COLLECT, error=f"http_{code}", retry_after=later)
        case AnsweredOutcome():
            refused = interpret.download(came, file, desk.operation, desk.world.now())
            return refused if isinstance(refused, ResultGone) else ONE_SHOT_LOST
        case MaybeOutcome() | Downloaded():
            return ONE_SHOT_LOST


def _over(desk: Desk) -> bool:
    deadline = desk.operation.collect_deadline
    return deadline is not None and desk.world.now() >= deadline


def _bounded(desk: Desk, request: HttpRequest) -> HttpRequest:
    """Return the request bounded by the collection clock; at least a minute, since a try is owed after every wait."""
    deadline = desk.operation.collect_deadline
    left = (deadline - desk.world.now()) / SECOND if deadline is not None else request.total_seconds
    return replace(request, total_seconds=max(60.0, min(request.total_seconds, left)))

"""Results: streamed from the artifact room, whole or one range, with their digest (MISSION F)."""

import asyncio
import base64
import re
from collections.abc import AsyncIterator
from typing import Final

from gateway import view
from gateway.call import Answer, Call
from gateway.operations import load, matches
from gateway.problems import ProblemError
from lifecycle.public import settled
from schemas.evidence import StoredFile
from schemas.operation import Operation
from schemas.states import FINAL, State

_RANGE: Final = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,50}")
_MEDIA_TYPE: Final = re.compile(r"[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+(?:\s*;[\x20-\x7e]*)?")


async def download(call: Call) -> Answer:
    """GET …/result: the stored bytes."""
    op = await load(call)
    _check_readable(call, op)
    file = _chosen(call, op)
    size, digest = file.bytes, file.sha256
    tag = f'"sha256:{digest}"'
    encoded = base64.b64encode(bytes.fromhex(digest)).decode()
    headers = [
        ("ETag", tag),
        ("Accept-Ranges", "bytes"),
        ("Repr-Digest", f"sha-256=:{encoded}:"),  # RFC 9530
        ("Digest", f"sha-256={encoded}"),  # RFC 3230, which older clients read
        ("Content-Disposition", f'attachment; filename="{op.id}{_suffix(file)}"'),  # a provider's bytes never run in our origin
        ("Content-Security-Policy", "sandbox; default-src 'none'"),
    ]
    if op.result_complete is False:
        headers.append(("Gateway-Result-Complete", "false"))
    known = call.headers.get("if-none-match")
    if known is not None and matches(known, tag):
        return Answer(status=304, headers=tuple(headers))
    start, length, status = 0, size, 200
    asked = _range(call, tag, size)
    if asked is not None:
        start, length = asked
        status = 206
        headers.append(("Content-Range", f"bytes {start}-{start + length - 1}/{size}"))
    media_type = file.media_type
    if not _MEDIA_TYPE.fullmatch(media_type):
        media_type = "application/octet-stream"
    chunks = await _opened(call, op, file, start, length)
    return Answer(status=status, content=chunks, headers=tuple(headers), media_type=media_type, length=length)


def _chosen(call: Call, op: Operation) -> StoredFile:
    """Return the file that `?file=ROLE` names, or the main one. Raises 404 with the roles that there are."""
    assert op.result_artifact is not None
    files = {file.role: file for file in reversed(view.files(op))}
    asked = call.parameters("file").get("file")
    if asked is None:
        return next(file for file in view.files(op) if file.key == op.result_artifact)
    if asked not in files:
        raise ProblemError("unknown_file", operation=op.id, extra={"files": sorted(files)})
    return files[asked]


def _suffix(file: StoredFile) -> str:
    """Return the file's role as the end of a file name; nothing for the main one, or a role that no name can carry."""
    return f"-{file.role}" if file.role != "output" and _NAME.fullmatch(file.role) else ""


def _check_readable(call: Call, op: Operation) -> None:
    expires_at = view.result_expires_at(op, call.gate.settings.retention)
    if expires_at is not None and call.gate.world.now() >= expires_at:
        raise ProblemError("result_expired", operation=op.id, extra={"state": op.state, "expired_at": view.time_text(expires_at)})
    if op.state in FINAL:
        if op.result_artifact is None:
            raise ProblemError("no_result", operation=op.id, extra={"state": op.state})
        return
    # What failed validation is kept for inspection by whoever may decide on it; to everybody else it is no result.
    if op.state is State.RESULT_VALIDATION_FAILED and op.result_artifact is not None and "operations:decide" in call.principal.scopes:
        return
    headers = () if settled(op) else (("Retry-After", str(view.retry_after(op, call.gate.world.now()))),)
    raise ProblemError("not_ready", f"the operation is {op.state}", operation=op.id, headers=headers, extra={"state": op.state})


def _range(call: Call, tag: str, size: int) -> tuple[int, int] | None:
    """Return (first byte, length) of a single range; None: send everything (RFC 9110 section 14.2). Raises 416."""
    found = _RANGE.fullmatch(call.headers.get("range", "").strip())
    if found is None or call.headers.get("if-range", tag) != tag:
        return None  # several ranges, other units and nonsense may be ignored, and are
    first, last = found[1], found[2]
    if not first and not last:
        return None
    if not first:
        length = min(int(last), size)
        start = size - length
    else:
        start = int(first)
        end = min(int(last), size - 1) if last else size - 1
        if last and int(last) < start:
            return None
        length = end - start + 1
    if length <= 0 or start >= size:
        raise ProblemError("range_not_satisfiable", f"the result has {size} bytes", headers=(("Content-Range", f"bytes */{size}"),))
    return start, length


async def _opened(call: Call, op: Operation, file: StoredFile, start: int, length: int) -> AsyncIterator[bytes]:
    """Return the chunks, the first of them already read: a file that is gone is known before the head is sent."""
    chunks = call.gate.open_artifact(file.key, start, length)
    try:
        first = await anext(chunks, b"")
    except FileNotFoundError:
        raise ProblemError("result_expired", operation=op.id) from None
    return _chained(first, chunks)


async def _chained(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    try:
        if first:
            yield first
        async for chunk in rest:
            yield chunk
    finally:
        close = getattr(rest, "aclose", None)
        if close is not None:
            await asyncio.shield(close())

"""Bounds on what a stranger sends: one reader per body, counted while it streams, against one total deadline."""

import asyncio
from collections.abc import Iterable
from typing import Final

from starlette.types import Message, Receive, Scope, Send

from gateway.problems import MEDIA_TYPE, ProblemError

_LINGER_SECONDS: Final = 1.0  # how long what is still being sent is read and dropped, so that our refusal is not lost to a reset


class CallerGoneError(Exception):
    """The other side closed before its request was complete; nobody waits for an answer."""


def header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes:
    """Return the first value of the lower-case `name`, or empty bytes."""
    for key, value in headers:
        if key == name:
            return value
    return b""


def refuse_encoding(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Raise 415 for any Content-Encoding but identity: inflating is where small bodies become large (B155)."""
    for key, value in headers:
        if key == b"content-encoding" and value.strip().lower() not in {b"", b"identity"}:
            raise ProblemError("unsupported_encoding", "send the body without Content-Encoding")


async def read_body(scope: Scope, receive: Receive, *, limit: int, seconds: float) -> bytes:
    """Return the whole body: at most `limit` bytes, complete within `seconds`.

    Raises ProblemError 413 as soon as more is declared or arrives, 408 at the deadline, CallerGoneError on disconnect.
    """
    declared = header(scope["headers"], b"content-length")
    # More digits than the limit could have are not converted: int() of a long text is slow.
    if declared and (not declared.isdigit() or len(declared) > len(str(limit)) or int(declared) > limit):
        raise _too_large(limit)
    try:
        async with asyncio.timeout(seconds):
            return await _collect(receive, limit)
    except TimeoutError:
        raise ProblemError(
            "body_too_slow", f"the whole body must arrive within {seconds:g} s", headers=(("Connection", "close"),)
        ) from None


async def _collect(receive: Receive, limit: int) -> bytes:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise CallerGoneError
    first: bytes = message.get("body", b"")
    if len(first) > limit:
        raise _too_large(limit)
    if not message.get("more_body", False):
        return first
    body = bytearray(first)
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise CallerGoneError
        body += message.get("body", b"")
        if len(body) > limit:
            raise _too_large(limit)
        if not message.get("more_body", False):
            return bytes(body)


def _too_large(limit: int) -> ProblemError:
    return ProblemError("body_too_large", f"at most {limit} bytes are taken", headers=(("Connection", "close"),))


async def send_problem(problem: ProblemError, receive: Receive, send: Send, *, drain: bool) -> None:
    """Answer with a problem. `drain`: the body was not read to its end; what comes is dropped for a moment first."""
    body = problem.body()
    headers = [(b"content-type", MEDIA_TYPE), (b"content-length", str(len(body)).encode())]
    headers += [(key.lower().encode("latin-1"), value.encode("latin-1", "replace")) for key, value in problem.headers]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    if drain:
        # The answer is on the wire, the connection still open: closing now would reset it under the sender's feet.
        await send({"type": "http.response.body", "body": body, "more_body": True})
        await _drop(receive)
        body = b""
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def _drop(receive: Receive) -> None:
    try:
        async with asyncio.timeout(_LINGER_SECONDS):
            while True:
                message: Message = await receive()
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return
    except TimeoutError:
        return

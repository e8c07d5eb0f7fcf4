"""Bounds on what a stranger sends: one reader per body, counted while it streams, against one total deadline."""

import asyncio
import contextlib
from collections.abc import Callable, Generator, Iterable
from typing import Final

from starlette.types import Message, Receive, Scope, Send

from gateway.problems import MEDIA_TYPE, ProblemError

_AGAIN: Final = (("Retry-After", "5"), ("Connection", "close"))
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


FREE_BYTES: Final = 65_536
"""Of every body while it arrives; what is above it counts against the house (4,096 connections: a quarter of a gigabyte)."""
HELD_BYTES: Final = 67_108_864
"""What all bodies that are still arriving may hold above `FREE_BYTES` each."""


class Bodies:
    """How much of the memory the bodies hold that are still arriving: a thousand slow senders of a megabyte are a gigabyte."""

    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held = 0

    @contextlib.contextmanager
    def arriving(self) -> Generator[Callable[[int], None], None, None]:
        """Give a function that is told how long one body is by now. It raises ProblemError 503 where the house is full.

        Small bodies always find room: a delivery is not refused because strangers hold large ones back.
        """
        mine = 0

        def grown(length: int) -> None:
            nonlocal mine
            above = max(0, length - FREE_BYTES)
            if above > mine and self.held + above - mine > HELD_BYTES:
                raise ProblemError("busy", "too much is arriving; send it again", headers=_AGAIN)
            self.held += above - mine
            mine = above

        try:
            yield grown
        finally:
            self.held -= mine


async def read_body(scope: Scope, receive: Receive, *, limit: int, seconds: float, bodies: Bodies) -> bytes:
    """Return the whole body: at most `limit` bytes, complete within `seconds`.

    Raises ProblemError 413 as soon as more is declared or arrives, 408 at the deadline, 503 where too much else is arriving;
    CallerGoneError on disconnect.
    """
    declared = header(scope["headers"], b"content-length")
    # More digits than the limit could have are not converted: int() of a long text is slow.
    if declared and (not declared.isdigit() or len(declared) > len(str(limit)) or int(declared) > limit):
        raise _too_large(limit)
    try:
        with bodies.arriving() as grown:
            async with asyncio.timeout(seconds):
                return await _collect(receive, limit, grown)
    except TimeoutError:
        raise ProblemError(
            "body_too_slow", f"the whole body must arrive within {seconds:g} s", headers=(("Connection", "close"),)
        ) from None


async def _collect(receive: Receive, limit: int, grown: Callable[[int], None]) -> bytes:
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
        grown(len(body))
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

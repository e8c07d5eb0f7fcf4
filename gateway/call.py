"""One authenticated request as a value, and its answer: what every handler takes and gives."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from starlette.types import Receive

from gateway.gate import Gate
from gateway.keys import Principal
from gateway.problems import ProblemError
from gateway.watch import Watchers

_MAX_PARAMETERS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request whose key has the route's scope. `headers` have lower-case names; `receive` only tells of a disconnect."""

    gate: Gate
    watchers: Watchers
    principal: Principal  # of a public route: nobody, without scopes
    path: Mapping[str, str]
    query: bytes
    headers: Mapping[str, str]
    body: bytes = field(repr=False)
    receive: Receive = field(repr=False)
    bound: asyncio.Timeout = field(repr=False, default_factory=lambda: asyncio.timeout(None))

    def wait_longer(self, seconds: float) -> None:
        """Put off the end of a handler that waits for something else than the database."""
        until = self.bound.when()
        if until is not None:
            self.bound.reschedule(until + seconds)

    def parameters(self, *known: str) -> dict[str, str]:
        """Return the query's parameters. Raises 400 for one that is unknown, repeated, or not UTF-8."""
        try:
            pairs = parse_qsl(self.query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MAX_PARAMETERS)
        except ValueError as error:  # UnicodeDecodeError is one
            raise ProblemError("invalid_request", "the query is not well formed") from error
        found: dict[str, str] = {}
        for name, value in pairs:
            if name not in known:
                raise ProblemError("invalid_request", f"unknown query parameter; known are {', '.join(known)}")
            if name in found or "\x00" in value:
                raise ProblemError("invalid_request", f"{name} must be given once, as text")
            found[name] = value
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What goes back. `content`: JSON value, bytes, chunks, or None for no body at all."""

    status: int = 200
    content: Any | bytes | AsyncIterator[bytes] = None
    headers: tuple[tuple[str, str], ...] = ()
    media_type: str = "application/json"
    length: int | None = None  # of chunks

    def encoded(self) -> bytes | AsyncIterator[bytes]:
        """Return the body as bytes or chunks. NaN never leaves (B136)."""
        if self.content is None:
            return b""
        if isinstance(self.content, bytes) or hasattr(self.content, "__aiter__"):
            return self.content
        return json.dumps(self.content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")


Handler = Callable[[Call], Awaitable[Answer]]

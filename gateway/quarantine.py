"""Refusals on their way into the quarantine: a bounded buffer, one task that writes it, and an alarm about a run of them.

Nobody waits for it. A refusal that finds the buffer full, its provider over its pace, or the record unavailable is counted and
dropped: it was answered already, and the provider repeats what is genuine.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Final

import structlog

from gateway.gate import Gate
from ledger.errors import LedgerError
from ledger.quarantine import BODY_BYTES
from schemas.commands import Quarantine
from schemas.delivery import InboundRequest, Refusal, Refused
from schemas.operation import Micros

WAITING: Final = 256
WAITING_BYTES: Final = 4_194_304
TOGETHER: Final = 32  # a command: a few milliseconds of the writer's time
A_SECOND: Final = 20  # of one provider
RUN: Final = 10  # refusals without a genuine delivery between them
FLOOD: Final = 100  # refusals within a minute, whatever else comes
MINUTE: Final = 60.0
_log = structlog.get_logger("gateway")


@dataclass(slots=True)
class _Pace:
    """What a provider has sent of late."""

    second: float = float("-inf")  # when the second at hand began
    kept: int = 0
    minute: float = float("-inf")
    in_minute: int = 0
    run: int = 0
    told: float = float("-inf")


class Shelf:
    """See the module. Used from one event loop."""

    __slots__ = ("_bytes", "_gate", "_paces", "_task", "_waiting")

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._waiting: deque[Refusal] = deque()
        self._bytes = 0
        self._paces: dict[str, _Pace] = {}  # by configured names only
        self._task: asyncio.Task[None] | None = None

    def take(self, provider: str, request: InboundRequest, verdict: Refused, now: Micros) -> None:
        """Put a refused request aside, or drop it. Never waits and never raises."""
        pace, at = self._pace(provider), self._gate.world.monotonic()
        if at - pace.second >= 1:
            pace.second, pace.kept = at, 0
        size = min(len(request.body), BODY_BYTES)
        if pace.kept >= A_SECOND or len(self._waiting) >= WAITING or self._bytes + size > WAITING_BYTES:
            self._count(provider, "dropped")
            return
        pace.kept += 1
        self._bytes += size
        query = b"?" + request.query if request.query else b""
        self._waiting.append(
            Refusal(
                id=self._gate.world.new_id("rfs_"),
                provider=provider,
                at=now,
                reason=str(verdict.reason),
                detail=verdict.detail,
                scheme_id=verdict.scheme_id,
                method=request.method,
                target=request.path + query,
                headers=request.headers,
                body=request.body if len(request.body) <= BODY_BYTES else None,
                bytes=len(request.body),
            )
        )
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write(), name="quarantine")

    def refused(self, provider: str, reason: str) -> None:
        """Count a refusal; a run or a flood of them is told, at most once a minute for each provider."""
        pace, at = self._pace(provider), self._gate.world.monotonic()
        if at - pace.minute >= MINUTE:
            pace.minute, pace.in_minute = at, 0
        pace.in_minute += 1
        pace.run += 1
        if (pace.run >= RUN or pace.in_minute >= FLOOD) and at - pace.told >= MINUTE:
            pace.told = at
            count = pace.run if pace.run >= RUN else pace.in_minute
            _log.warning("receiver.refusal_run", provider=provider, count=count, reason=reason)
            self._gate.count("receiver.refusal_run", {"provider": provider, "reason": reason})

    def accepted(self, provider: str) -> None:
        """Note a genuine delivery: the run is over."""
        pace = self._paces.get(provider)
        if pace is not None:
            pace.run = 0

    async def written(self) -> None:
        """Return once everything that was taken is written or dropped (tests, and whoever closes in order)."""
        while self._task is not None and not self._task.done():
            await asyncio.wait([self._task])

    def _pace(self, provider: str) -> _Pace:
        pace = self._paces.get(provider)
        if pace is None:
            pace = self._paces[provider] = _Pace()
        return pace

    async def _write(self) -> None:
        """Write until nothing waits; then end, so that nothing is left to stop at the end of the process."""
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(TOGETHER, len(self._waiting)))]
            self._bytes -= sum(min(refusal.bytes, BODY_BYTES) for refusal in batch)
            try:
                await self._gate.ledger.write(Quarantine(refusals=tuple(batch)))
            except LedgerError as error:
                _log.info("receiver.unquarantined", error=type(error).__name__, count=len(batch))
                outcome = "dropped"
            else:
                outcome = "kept"
            for refusal in batch:
                self._count(refusal.provider, outcome)

    def _count(self, provider: str, outcome: str) -> None:
        self._gate.count("receiver.quarantine", {"provider": provider, "status": outcome})

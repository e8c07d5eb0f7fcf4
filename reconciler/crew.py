"""The errands in flight in this process: claimed only where there is room, referenced until committed, drained at the end."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from ledger.errors import LedgerBusyError, LedgerError, LedgerUnavailableError
from ledger.ledger import Ledger
from reconciler.pace import Pace
from schemas.commands import Claimed, ClaimWork, Defer, Settle
from schemas.operation import SECOND
from schemas.settings import ClockworkSettings
from schemas.world import World

_log = structlog.get_logger("reconciler")

COMMIT_SECONDS: Final = 600.0  # how long an answer is held for a record that cannot take it; afterwards the lease has long been lost
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0
_KEPT_WORKERS: Final = 4
_LAST_WORDS_SECONDS: Final = 3.0  # for what cancelled errands have to say, after the drain


class Performs(Protocol):
    """Performs one errand; see `reconciler.errands.Performer`."""

    async def perform(self, claimed: Claimed, taken: float, send_by: float) -> Settle | Defer | None:
        """Do one errand and return what to commit."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """How a drain went: errands that came to their end, that were interrupted and committed, and that could not be committed."""

    finished: int
    interrupted: int
    lost: int


class Crew:
    """Claims due operations and runs their errands. `freed` is called whenever a place becomes free."""

    def __init__(
        self,
        *,
        record: Ledger,
        world: World,
        performer: Performs,
        pace: Pace,
        settings: ClockworkSettings,
        worker: str,
        freed: Callable[[], None],
    ) -> None:
        self._record = record
        self._world = world
        self._performer = performer
        self._pace = pace
        self._settings = settings
        self._worker = worker
        self._freed = freed
        self._after: Mapping[str, str] = {}
        self._calls: dict[asyncio.Task[Settle | Defer | None], Claimed] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False
        self.starved = False  # the last claim was bounded by room: a free place means more work
        self.settled = 0
        self.failed = 0

    @property
    def in_flight(self) -> int:
        """Return how many errands are under way or waiting for their commit."""
        return len(self._tasks)

    async def claim_once(self) -> int:
        """Claim as much as there is room for, start it, and return how many. Raises LedgerError."""
        now = self._world.monotonic()
        free = self._settings.workers - len(self._tasks)
        room = self._shared(self._pace.room(now), free)
        limit = min(self._settings.claim_batch, free)
        self.starved = limit <= 0 or not room
        if self.starved:
            return 0
        work = await self._record.write(
            ClaimWork(
                worker=self._worker,
                room=room,
                limit=limit,
                lease=round(self._settings.lease_seconds * SECOND),
                send_budget=round(self._settings.send_budget_seconds * SECOND),
                now=self._world.now(),
                chance=self._world.chance(),
                after=self._after,
            )
        )
        self._after = work.after
        # A claim that filled some provider's room, or all of it, may have left work behind.
        taken = [item.operation.provider for item in work.items]
        self.starved = len(taken) >= limit or any(taken.count(name) >= room[name] for name in set(taken))
        for item in work.items:
            self._start(item, now)
        return len(work.items)

    def _shared(self, room: dict[str, int], free: int) -> dict[str, int]:
        """Return the room with a few workers kept for accounts of which nothing runs: calls that hang must not take them all (B107)."""
        kept = min(_KEPT_WORKERS, len(self._pace.providers) - 1, self._settings.workers // 4)
        shared = {name: min(places, max(free - kept, 1 if self._pace.idle(name) else 0)) for name, places in room.items()}
        return {name: places for name, places in shared.items() if places > 0}

    def close(self) -> None:
        """Start nothing more: what a claim still brings is given back."""
        self._closing = True

    async def drain(self, seconds: float) -> Drained:
        """Close, wait up to `seconds` for what is under way, then interrupt it and commit what is known (B103)."""
        self.close()
        waiting = set(self._tasks)
        done, late = await asyncio.wait(waiting, timeout=max(seconds, 0.0)) if waiting else (set(), set())
        interrupted = len(late)
        for call in list(self._calls):
            call.cancel()
        lost: set[asyncio.Task[None]] = set()
        if late:
            _, lost = await asyncio.wait(late, timeout=_LAST_WORDS_SECONDS)
        for task in lost:
            task.cancel()
        if lost:
            await asyncio.wait(lost)
        return Drained(finished=len(done), interrupted=interrupted - len(lost), lost=len(lost))

    def _start(self, claimed: Claimed, taken: float) -> None:
        self._pace.start(claimed.operation.provider, taken)
        task = asyncio.create_task(self._one(claimed, taken), name=f"errand {claimed.operation.id}")
        self._tasks.add(task)  # a task that nobody holds may be collected in mid-work (B112)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failed += 1
            _log.error("reconciler.errand_lost", error=type(error).__name__)
        self._freed()

    async def _one(self, claimed: Claimed, taken: float) -> None:
        if self._closing:  # claimed while the drain began: nothing was sent, the next process may have it at once
            self._pace.finish(claimed.operation.provider)
            now = self._world.now()
            await self._commit(
                Defer(operation_id=claimed.operation.id, fence=claimed.fence, due_at=now, now=now, attempt_id=claimed.attempt_id)
            )
            return
        settings = self._settings
        send_by = taken + settings.lease_seconds - settings.send_budget_seconds - settings.send_margin_seconds
        call = asyncio.create_task(self._performer.perform(claimed, taken, send_by))
        self._calls[call] = claimed
        try:
            command = await call
        finally:
            call.cancel()  # only where this task is cancelled itself: the call must not outlive it
            del self._calls[call]
            self._pace.finish(claimed.operation.provider)
        if command is not None:
            await self._commit(command)

    async def _commit(self, command: Settle | Defer) -> None:
        """Bring an answer into the record, however long that takes within its bound: it may name a job that nobody else knows."""
        pause, since = _FIRST_PAUSE, self._world.monotonic()
        while True:
            try:
                await self._record.write(command)
            except (LedgerBusyError, LedgerUnavailableError) as error:
                if self._world.monotonic() - since > COMMIT_SECONDS:
                    _log.error("reconciler.answer_lost", operation=command.operation_id, error=type(error).__name__)
                    self.failed += 1
                    return
                await asyncio.sleep(pause * (0.5 + self._world.chance() / 2))
                pause = min(pause * 2, _LONGEST_PAUSE)
            except LedgerError as error:
                # Refused for good (or closed): the lease runs out and the operation is read again.
                _log.error("reconciler.answer_refused", operation=command.operation_id, error=type(error).__name__)
                self.failed += 1
                return
            else:
                self.settled += 1
                return

"""The writer: one thread owns the connection that writes, and commits together whatever waits of one kind (`ledger/commits.py`).

When the database refuses (full, gone), those who wait are told so and the thread lives on (B165).
"""

import asyncio
import concurrent.futures
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import structlog

from ledger.answers import Outcome, Ticket, deliver
from ledger.commits import Commits, News, Parts
from ledger.errors import LedgerBusyError, LedgerClosedError, LedgerError, LedgerUnavailableError
from ledger.kinds import KINDS, LAST
from schemas.commands import Command, Ingest, Quarantine

BATCH: Final = 256  # commands a commit: beyond it the gain per command is small and the wait of the others is not
BATCH_BYTES: Final = 8_388_608  # of delivery bodies a commit: keeps the statement and the WAL within reason
WAITING: Final = 4_096  # commands of one kind that may wait, so that a flood of one does not refuse another
HOPELESS_SECONDS: Final = 1.0  # a refusal that took so long is told to everybody who waits: one after the other they would wait for minutes

_log = structlog.get_logger("ledger")


class Writer:
    """See the module. `start` begins the thread; without it `perform` runs in the caller's (the simulation, the CLI)."""

    def __init__(
        self,
        parts: Parts,
        *,
        kinds: Sequence[type[Command]] = KINDS,
        batch: int = BATCH,
        waiting: int = WAITING,
        hopeless: float = HOPELESS_SECONDS,
    ) -> None:
        self._parts = parts
        self._batch = batch
        self._bound = waiting
        self._hopeless = hopeless
        self._queues: dict[type[Command], deque[Ticket]] = {kind: deque() for kind in kinds}
        self._ready = threading.Condition(threading.Lock())
        self._idle = False
        self._age = 0
        self._closing = False
        self._hurry = threading.Event()  # set at close: pauses end
        self.commits = Commits(parts, self._hurry)
        self._thread: threading.Thread | None = None
        self._crash: BaseException | None = None

    @property
    def started(self) -> bool:
        """Return whether the thread has been started."""
        return self._thread is not None

    @property
    def alive(self) -> bool:
        """Return whether the thread serves; False after a crash point ended it (health checks ask)."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Start the thread. Once."""
        assert self._thread is None, "started twice"
        self._thread = threading.Thread(target=self._run, name="ledger-writer", daemon=True)
        self._thread.start()

    def close(self, timeout: float) -> bool:
        """Refuse new commands, commit those that wait, end the thread. Answer False if it did not end in time."""
        with self._ready:
            self._closing = True
            self._ready.notify_all()
        self._hurry.set()
        if self._thread is not None:
            self._thread.join(timeout)
            if self._thread.is_alive():
                return False
        self.commits.close()
        return True

    @property
    def refusal(self) -> str:
        """Return how the last transaction was refused; empty: it was committed, or failed by its own fault."""
        return self.commits.refusal

    def waiting(self) -> int:
        """Return how many commands wait now."""
        return sum(len(queue) for queue in self._queues.values())

    # --- those who submit

    def submit(self, command: Command) -> "concurrent.futures.Future[Any]":
        """Queue a command from any thread. Raises LedgerBusyError, LedgerClosedError."""
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self._queue(command, future, None)
        return future

    async def write(self, command: Command) -> Any:
        """Queue a command and wait for its commit. Cancelled: it may have been committed all the same."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._queue(command, future, loop)
        return await future

    def _queue(
        self,
        command: Command,
        future: "asyncio.Future[Any] | concurrent.futures.Future[Any]",
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        queue = self._queues[type(command)]
        with self._ready:
            if self._crash is not None or self._closing:
                raise LedgerClosedError("the ledger is closed")
            if len(queue) >= self._bound:
                raise LedgerBusyError(f"{len(queue)} commands of this kind wait already")
            self._age += 1
            queue.append(Ticket(command, self._age, future, loop))
            if self._idle:
                self._idle = False
                self._ready.notify()

    # --- the thread

    def _run(self) -> None:
        while tickets := self._take():
            began = time.monotonic()
            try:
                outcomes, news = self.perform([ticket.wanted for ticket in tickets])
            except Exception as error:  # noqa: BLE001 - the thread must live on: everything else stands still without it
                _log.exception("ledger.writer_failed")
                wrapped = LedgerError(f"the writer failed ({type(error).__name__})")
                deliver((ticket, (None, wrapped)) for ticket in tickets)
                continue
            except BaseException as crash:  # noqa: BLE001 - a crash point: this thread is as dead as the process would be
                self._die(crash, tickets)
                return
            deliver(zip(tickets, outcomes, strict=True))
            self._tell(news)
            if self.refusal and self.commits.for_all and time.monotonic() - began >= self._hopeless:
                self._refuse_waiting(self.refusal)

    def _take(self) -> list[Ticket]:
        """Wait for work; return the oldest ticket and what waits of its kind, or nothing when all is done and closed."""
        with self._ready:
            while True:
                waiting = [queue for kind, queue in self._queues.items() if queue and kind not in LAST]
                waiting = waiting or [queue for queue in self._queues.values() if queue]
                if waiting:
                    break
                if self._closing:
                    return []
                self._idle = True
                self._ready.wait()
            self._idle = False
            queue = min(waiting, key=lambda tickets: tickets[0].age)
            tickets = [queue.popleft()]
            weight = _weight(tickets[0].wanted)
            while queue and len(tickets) < self._batch:
                weight += _weight(queue[0].wanted)
                if weight > BATCH_BYTES:
                    break
                tickets.append(queue.popleft())
            return tickets

    def _refuse_waiting(self, why: str) -> None:
        """Answer all that wait: what they ask for would be refused too, after as long a wait each (the kinds are asked in turn)."""
        with self._ready:
            tickets = [ticket for queue in self._queues.values() for ticket in queue]
            for queue in self._queues.values():
                queue.clear()
        deliver((ticket, (None, LedgerUnavailableError(why))) for ticket in tickets)

    def _die(self, crash: BaseException, tickets: list[Ticket]) -> None:
        with self._ready:
            self._crash = crash
            for queue in self._queues.values():
                tickets += queue
                queue.clear()
        error = LedgerClosedError("the writer has crashed")
        error.__cause__ = crash
        deliver((ticket, (None, error)) for ticket in tickets)

    def _tell(self, news: News) -> None:
        if news.changed or news.due:
            try:
                self._parts.tell(news)
            except Exception:  # noqa: BLE001 - a listener's fault is not the writer's
                _log.exception("ledger.listener_failed")

    # --- the work

    def perform(self, commands: list[Command]) -> tuple[list[Outcome], News]:
        """Commit commands of one kind: together, or where that fails one by one."""
        return self.commits.perform(commands)

    def perform_now(self, command: Command) -> Any:
        """Run one command in this thread; for a ledger whose thread has not been started."""
        if self._closing:
            raise LedgerClosedError("the ledger is closed")
        [(result, error)], news = self.perform([command])
        self._tell(news)
        if error is not None:
            raise error
        return result


def _weight(command: Command) -> int:
    match command:
        case Ingest():
            return len(command.delivery.body)
        case Quarantine():
            return sum(len(refusal.body or b"") for refusal in command.refusals)
        case _:
            return 0

"""The writer: one thread owns the connection that writes, and commits together whatever waits of one kind.

A batch that fails is rolled back and run again one command at a time, so that a bad command does not poison its
neighbours (B113, B128). A conflict with another process (serialization, deadlock, busy) is run again after a jittered
pause, bounded in number and time (B124). When the database refuses (full, gone), those who wait are told so and the
thread lives on (B165). An error at the commit itself leaves it unknown whether it happened: every command may be
submitted again.
"""

import asyncio
import concurrent.futures
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg
import sqlalchemy as sa
import structlog

from ledger.answers import Outcome, Ticket, deliver
from ledger.engine import Engines
from ledger.errors import LedgerBusyError, LedgerClosedError, LedgerError, LedgerUnavailableError, WrongKeyError
from ledger.faults import Fault, classify, tell
from ledger.kinds import CAREFUL, KINDS, LAST, Function, function_of
from ledger.transaction import Transaction
from ledger.vault import FOLLOW_SECONDS, Vault
from schemas.commands import Command, Ingest, Quarantine
from schemas.contract import Contract

BATCH: Final = 256  # commands a commit: beyond it the gain per command is small and the wait of the others is not
BATCH_BYTES: Final = 8_388_608  # of delivery bodies a commit: keeps the statement and the WAL within reason
WAITING: Final = 4_096  # commands of one kind that may wait, so that a flood of one does not refuse another
RETRIES: Final = 6
FIRST_PAUSE_SECONDS: Final = 0.01
TELL_SECONDS: Final = 60.0  # between two log lines about a database that refuses
HOPELESS_SECONDS: Final = 1.0  # a refusal that took so long is told to everybody who waits: one after the other they would wait for minutes
GIVE_UP_SECONDS: Final = 5.0  # providers stop waiting after about ten; they need room for a second delivery

_log = structlog.get_logger("ledger")


@dataclass(slots=True)
class News:
    """What a batch has committed: told to listeners."""

    changed: set[str] = field(default_factory=set)
    due: set[str] = field(default_factory=set)


def no_crash(_: str) -> None:
    """Stand at a crash point and do nothing: what production does at all of them."""


@dataclass(slots=True, kw_only=True)
class Parts:
    """What a writer works with. `chance` gives numbers in [0, 1); `crash_point` is told `<Kind>.<place>` at every step."""

    engines: Engines
    vault: Vault
    contracts: Callable[[], Mapping[str, Contract]]
    tell: Callable[[News], None]
    chance: Callable[[], float]
    crash_point: Callable[[str], None] = no_crash
    function_of: Callable[[type[Command]], Function] = function_of


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
        self._performing = threading.Lock()
        self._connection: sa.Connection | None = None
        self._thread: threading.Thread | None = None
        self._crash: BaseException | None = None
        self.refusal = ""  # how the last transaction was refused; empty: it was committed, or failed by its own fault
        self._for_all = False  # the refusal would meet every other command too; a conflict over rows of PostgreSQL would not
        self._told_at: float | None = None  # monotonic: when the log last said so
        self._followed_at = float("-inf")  # monotonic: when the key that seals was looked up last
        self._committing = False  # a commit may have been sent in the transaction at hand

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
        with self._performing:
            self._hang_up()
        return True

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
            if self.refusal and self._for_all and time.monotonic() - began >= self._hopeless:
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

    def perform_now(self, command: Command) -> Any:
        """Run one command in this thread; for a ledger whose thread has not been started."""
        if self._closing:
            raise LedgerClosedError("the ledger is closed")
        [(result, error)], news = self.perform([command])
        self._tell(news)
        if error is not None:
            raise error
        return result

    def perform(self, commands: list[Command]) -> tuple[list[Outcome], News]:
        """Commit commands of one kind: together, or where that fails one by one."""
        news = News()
        with self._performing:
            outcomes = self._perform(commands, news)
            self._note(next((str(error) for _, error in outcomes if isinstance(error, LedgerUnavailableError)), ""))
        return outcomes, news

    def _perform(self, commands: list[Command], news: News) -> list[Outcome]:
        try:
            return [(result, None) for result in self._persist(commands, news)]
        except Exception as error:  # noqa: BLE001 - it goes to the callers
            ours = self._ours(error)
            if isinstance(ours, LedgerUnavailableError):
                return [(None, ours)] * len(commands)
            if len(commands) == 1:
                return [self._carefully(commands[0], ours, news)]
        _log.warning("ledger.batch_split", kind=type(commands[0]).__name__, commands=len(commands), error=type(ours).__name__)
        outcomes: list[Outcome] = []
        for command in commands:
            try:
                outcomes += [(result, None) for result in self._persist([command], news)]
            except Exception as error:  # noqa: BLE001 - it goes to this caller alone
                ours = self._ours(error)
                if isinstance(ours, LedgerUnavailableError):
                    outcomes += [(None, ours)] * (len(commands) - len(outcomes))
                    break
                outcomes.append(self._carefully(command, ours, news))
        return outcomes

    def _carefully(self, command: Command, ours: Exception, news: News) -> Outcome:
        """Run a command that the database has refused once more, so that the row at fault is set aside; or answer its error."""
        if type(command) not in CAREFUL or not isinstance(ours.__cause__, sa.exc.IntegrityError):
            return None, ours
        try:
            (result,) = self._persist([command], news, careful=True)
        except Exception as error:  # noqa: BLE001 - it goes to this caller
            return None, self._ours(error)
        return result, None

    def _note(self, refusal: str) -> None:
        """Keep how writing went, and tell the log of a refusal at once, then every minute, and of its end."""
        now = time.monotonic()
        before, self.refusal = self.refusal, refusal
        if refusal and (self._told_at is None or now - self._told_at >= TELL_SECONDS):
            _log.error("ledger.writes_refused", fault=refusal)
            self._told_at = now
        elif before and not refusal:
            _log.warning("ledger.writes_taken_again")
            self._told_at = None

    def _refuse_if_gone(self) -> None:
        if gone := self._parts.engines.gone():
            raise LedgerUnavailableError(gone)

    def _ours(self, error: Exception) -> Exception:
        self._for_all = not self._parts.engines.postgres or classify(error) is Fault.UNAVAILABLE
        if not isinstance(error, sa.exc.SQLAlchemyError | psycopg.Error):
            return error
        ours = tell(error, self._parts.engines.place)
        ours.__cause__ = error
        return ours

    def _persist(self, commands: list[Command], news: News, *, careful: bool = False) -> Sequence[Any]:
        """Run one transaction, again after a conflict with somebody else: at most RETRIES times and GIVE_UP_SECONDS."""
        give_up = time.monotonic() + GIVE_UP_SECONDS
        pause = FIRST_PAUSE_SECONDS
        for left in range(RETRIES, -1, -1):
            try:
                return self._transact(commands, news, careful=careful)
            except (sa.exc.SQLAlchemyError, psycopg.Error) as error:
                fault = classify(error)
                if fault is Fault.UNAVAILABLE:
                    self._hang_up()
                    if _lost(error) and not self._committing and left == RETRIES:
                        continue  # it had been lost while we were idle; no commit was sent, so a new connection may try
                if fault is not Fault.CONFLICT or not left or time.monotonic() > give_up:
                    raise
            self._hurry.wait(pause * (0.5 + self._parts.chance()))
            pause *= 2
        raise AssertionError("unreachable: the last round returns or raises")

    def _transact(self, commands: list[Command], news: News, *, careful: bool) -> Sequence[Any]:
        parts = self._parts
        kind = type(commands[0])
        function = parts.function_of(kind)
        self._committing = False
        self._refuse_if_gone()
        with parts.engines.turn():
            if self._connection is None:
                self._connection = parts.engines.write.connect()
            with self._connection.begin():
                tx = Transaction(connection=self._connection, vault=parts.vault, contracts=parts.contracts(), careful=careful)
                self._follow(self._connection)
                parts.crash_point(f"{kind.__name__}.begun")
                results = function(tx, commands)
                assert len(results) == len(commands), f"{kind.__name__}: one result for each command"
                parts.crash_point(f"{kind.__name__}.before_commit")
                self._committing = True
        self._refuse_if_gone()  # committed, but into a file that nobody will find again
        parts.crash_point(f"{kind.__name__}.after_commit")
        news.changed |= tx.changed
        news.due |= tx.due
        return results

    def _follow(self, connection: sa.Connection) -> None:
        """Seal with the key that the database names: another process may have changed it. Looked up every few seconds."""
        now = time.monotonic()
        if now - self._followed_at >= FOLLOW_SECONDS:
            try:
                self._parts.vault.follow(connection)
            except WrongKeyError as error:
                raise LedgerUnavailableError(str(error)) from error
            self._followed_at = now

    def _hang_up(self) -> None:
        """Close the connection; the next transaction dials anew. A memory database lives in its one connection: kept."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        with contextlib.suppress(sa.exc.SQLAlchemyError, psycopg.Error):
            if self._parts.engines.one_connection is None:
                connection.invalidate()
            connection.close()


def _weight(command: Command) -> int:
    match command:
        case Ingest():
            return len(command.delivery.body)
        case Quarantine():
            return sum(len(refusal.body or b"") for refusal in command.refusals)
        case _:
            return 0


def _lost(error: Exception) -> bool:
    return isinstance(error, sa.exc.DBAPIError) and error.connection_invalidated

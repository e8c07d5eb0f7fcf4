"""The readers: a few threads with connections of their own, and a bound on how many may wait for them (B120).

A thread takes several waiting queries at once and answers them from one read transaction: it began after all of them
were asked. No transaction is kept while nobody asks, so that the WAL cannot grow behind one (B117).
"""

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from ledger.answers import Outcome, Ticket, deliver
from ledger.engine import Engines
from ledger.errors import LedgerBusyError, LedgerClosedError, LedgerUnavailableError
from ledger.transaction import View
from ledger.vault import Vault

THREADS: Final = 4
WAITING: Final = 1_024  # reads that may wait: about a second's worth
TOGETHER: Final = 16
HOPELESS_SECONDS: Final = 1.0  # a refusal that took so long is told to everybody who waits

Query = Callable[[View], Any]


class Readers:
    """See the module."""

    def __init__(
        self, engines: Engines, vault: Vault, *, threads: int = THREADS, waiting: int = WAITING, hopeless: float = HOPELESS_SECONDS
    ) -> None:
        self._engines = engines
        self._vault = vault
        self._bound = waiting
        self._hopeless = hopeless
        self._tickets: deque[Ticket] = deque()
        self._ready = threading.Condition(threading.Lock())
        self._closing = False
        self._threads = [threading.Thread(target=self._run, name=f"ledger-reader-{number}", daemon=True) for number in range(threads)]

    def start(self) -> None:
        """Start the threads. Once."""
        for thread in self._threads:
            thread.start()

    def close(self, timeout: float) -> None:
        """Answer those who wait, then end the threads, all of them within `timeout` seconds."""
        with self._ready:
            self._closing = True
            self._ready.notify_all()
        end = time.monotonic() + timeout
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(0.0, end - time.monotonic()))

    async def read(self, query: Query) -> Any:
        """Answer `query` from a read transaction of its own or shared with others. Raises LedgerBusyError."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        with self._ready:
            if self._closing:
                raise LedgerClosedError("the ledger is closed")
            if len(self._tickets) >= self._bound:
                raise LedgerBusyError(f"{len(self._tickets)} reads wait already")
            self._tickets.append(Ticket(query, 0, future, loop))
            self._ready.notify()
        return await future

    def read_now(self, query: Query) -> Any:
        """Answer `query` in this thread."""
        with self._engines.look() as connection:
            return query(View(connection=connection, vault=self._vault))

    def _run(self) -> None:
        while tickets := self._take():
            answered: list[tuple[Ticket, Outcome]] = []
            began = time.monotonic()
            while len(answered) < len(tickets):
                self._answer(tickets, answered)
            deliver(answered)
            last = answered[-1][1][1]
            if isinstance(last, LedgerUnavailableError) and time.monotonic() - began >= self._hopeless:
                self._refuse_waiting(str(last))

    def _refuse_waiting(self, why: str) -> None:
        with self._ready:
            tickets = list(self._tickets)
            self._tickets.clear()
        deliver((ticket, (None, LedgerUnavailableError(why))) for ticket in tickets)

    def _take(self) -> list[Ticket]:
        with self._ready:
            while not self._tickets and not self._closing:
                self._ready.wait()
            # Share what waits between the threads, so that one slow query does not hold up all the others.
            share = min(TOGETHER, len(self._tickets), 1 + len(self._tickets) // len(self._threads))
            return [self._tickets.popleft() for _ in range(share)]

    def _answer(self, tickets: list[Ticket], answered: list[tuple[Ticket, Outcome]]) -> None:
        """Answer from where `answered` ends; a failing query ends the transaction, the next begins another one."""
        try:
            with self._engines.look() as connection:
                view = View(connection=connection, vault=self._vault)
                for ticket in tickets[len(answered) :]:
                    if ticket.future.cancelled():
                        answered.append((ticket, (None, asyncio.CancelledError())))
                        continue
                    answered.append((ticket, (ticket.wanted(view), None)))
        except LedgerUnavailableError as error:  # it would be the same for the others, after as long a wait
            answered += [(ticket, (None, error)) for ticket in tickets[len(answered) :]]
        except Exception as error:  # noqa: BLE001 - it goes to the caller whose query it was
            with contextlib.suppress(IndexError):  # all were answered and only the end of the transaction failed
                answered.append((tickets[len(answered)], (None, error)))

"""Commits: a set of commands of one kind as one transaction, or one by one where that fails; and how the database takes it.

A batch that fails is rolled back and run again one command at a time, so that a bad command does not poison its
neighbours (B113, B128). A conflict with another process (serialization, deadlock, busy) is run again after a jittered
pause, bounded in number and time (B124). An error at the commit itself leaves it unknown whether it happened: every
command may be submitted again.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg
import sqlalchemy as sa
import structlog

from ledger.answers import Outcome
from ledger.engine import Engines
from ledger.errors import LedgerUnavailableError, WrongKeyError
from ledger.faults import Fault, classify, tell
from ledger.kinds import CAREFUL, Function, function_of
from ledger.transaction import Transaction
from ledger.vault import FOLLOW_SECONDS, Vault
from schemas.commands import Command
from schemas.contract import Contract

RETRIES: Final = 6
FIRST_PAUSE_SECONDS: Final = 0.01
TELL_SECONDS: Final = 60.0  # between two log lines about a database that refuses
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


class Commits:
    """Who works on the connection that writes: one at a time. `hurry`, once set, ends the pauses between tries."""

    def __init__(self, parts: Parts, hurry: threading.Event) -> None:
        self._parts = parts
        self._hurry = hurry
        self._performing = threading.Lock()
        self.connection: sa.Connection | None = None
        self.refusal = ""  # how the last transaction was refused; empty: it was committed, or failed by its own fault
        self.for_all = False  # the refusal would meet every other command too; a conflict over rows of PostgreSQL would not
        self._told_at: float | None = None  # monotonic: when the log last said so
        self.followed_at = float("-inf")  # monotonic: when the key that seals was looked up last
        self._committing = False  # a commit may have been sent in the transaction at hand

    def close(self) -> None:
        """Let go of the connection, after the transaction at hand."""
        with self._performing:
            self._hang_up()

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
        self.for_all = not self._parts.engines.postgres or classify(error) is Fault.UNAVAILABLE
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
            if self.connection is None:
                self.connection = parts.engines.write.connect()
            with self.connection.begin():
                tx = Transaction(connection=self.connection, vault=parts.vault, contracts=parts.contracts(), careful=careful)
                self._follow(self.connection)
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
        if now - self.followed_at >= FOLLOW_SECONDS:
            try:
                self._parts.vault.follow(connection)
            except WrongKeyError as error:
                raise LedgerUnavailableError(str(error)) from error
            self.followed_at = now

    def _hang_up(self) -> None:
        """Close the connection; the next transaction dials anew. A memory database lives in its one connection: kept."""
        connection, self.connection = self.connection, None
        if connection is None:
            return
        with contextlib.suppress(sa.exc.SQLAlchemyError, psycopg.Error):
            if self._parts.engines.one_connection is None:
                connection.invalidate()
            connection.close()


def _lost(error: Exception) -> bool:
    return isinstance(error, sa.exc.DBAPIError) and error.connection_invalidated

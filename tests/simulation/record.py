"""The record of one story: the real ledger functions on SQLite in memory, transaction by transaction, with crashes around commits.

One migrated database is the template; each seed starts from a copy of its pages. The engine is opened once for a test
process, because a new one would compile every statement again.
"""

import contextlib
import functools
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import sqlalchemy as sa

from ledger.engine import Engines, open_engines
from ledger.errors import LedgerError
from ledger.migrate import migrate
from ledger.transaction import Transaction, View
from ledger.vault import Vault
from schemas.contract import Contract
from tests.simulation.world import World

VAULT: Final = Vault(bytes(range(32)))
_UNIQUE: Final = re.compile(r",\s*CONSTRAINT uq_deliveries\w+ UNIQUE \(provider, dedup_key\)")
Function = Callable[[Transaction, list[Any]], list[Any]]
Intruder = Callable[[Transaction], None]


class Crash(BaseException):
    """The process dies here."""


@functools.cache
def _template() -> Engines:
    engines = open_engines("sqlite://")
    migrate(engines)
    return engines


@functools.cache
def _stage() -> Engines:
    return open_engines("sqlite://")


def _driver(engines: Engines) -> Any:
    return engines.write.raw_connection().driver_connection


class Record:
    """One database and what stands around its commits. `after` is called after each commit, with what it may have changed."""

    def __init__(self, world: World, contracts: dict[str, Contract], *, unique_deliveries: bool = True) -> None:
        self.world = world
        self.contracts = contracts
        self.engines = _stage()
        self.raw = _driver(self.engines)
        _driver(_template()).backup(self.raw)
        if not unique_deliveries:
            self._forget_uniqueness()
        self.after: Callable[[str, list[Any]], None] = lambda _kind, _commands: None
        self.begins: Callable[[], None] = lambda: None
        self.intruder: Intruder | None = None
        self.conflicts = 0

    def _forget_uniqueness(self) -> None:
        """Make the table of deliveries again without its unique key."""
        (text,) = self.raw.execute("SELECT sql FROM sqlite_master WHERE name = 'deliveries'").fetchone()
        without, count = _UNIQUE.subn("", text)
        assert count == 1, "the unique key of deliveries is not where it was"
        self.raw.execute("DROP TABLE deliveries")
        self.raw.execute(without)

    def transact(self, kind: str, function: Function, commands: list[Any], *, crash: float = 0.0) -> tuple[list[Any], bool]:
        """Run one transaction. Returns the answers and whether the process dies right after the commit.

        Raises Crash when it dies right before: nothing is written then.
        """
        dies_before, dies_after = self.world.hit(crash), self.world.hit(crash)
        answers = self._run(function, commands, dies_before=dies_before)
        self.after(kind, commands)
        return answers, dies_after

    @contextlib.contextmanager
    def look(self) -> Iterator[View]:
        """Open a view for the audits."""
        with self.engines.look() as connection:
            yield View(connection=connection, vault=VAULT)

    def _run(self, function: Function, commands: list[Any], *, dies_before: bool) -> list[Any]:
        try:
            return self._once(function, commands, dies_before=dies_before, intruder=self.intruder)
        except LedgerError:
            if self.intruder is None:
                raise
            self.conflicts += 1  # somebody else wrote in between: run the whole transaction again
            return self._once(function, commands, dies_before=dies_before, intruder=None)

    def _once(self, function: Function, commands: list[Any], *, dies_before: bool, intruder: Intruder | None) -> list[Any]:
        self.begins()
        with self.engines.begin() as connection:
            tx = Transaction(connection, VAULT, self.contracts)
            answers = function(tx, commands) if intruder is None else self._intruded(tx, function, commands, intruder)
            if dies_before:
                raise Crash
        return answers

    def _intruded(self, tx: Transaction, function: Function, commands: list[Any], intruder: Intruder) -> list[Any]:
        """Let somebody else write between the reading and the writing of a transaction, as if rows could not be locked."""
        armed = [True]

        def before(_conn: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
            if armed[0] and statement.startswith(("INSERT INTO history", "UPDATE operations")):
                armed[0] = False
                intruder(tx)

        sa.event.listen(tx.connection, "before_cursor_execute", before)
        try:
            return function(tx, commands)
        finally:
            sa.event.remove(tx.connection, "before_cursor_execute", before)

"""The record as the other rooms see it: commands are written, queries are read, listeners are told what changed."""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar, overload

from ledger.backlog import tend
from ledger.commits import News, Parts, no_crash
from ledger.engine import Engines, open_engines
from ledger.migrate import check
from ledger.migrate import migrate as bring_up_to_date
from ledger.readers import Readers
from ledger.transaction import View
from ledger.vault import Vault
from ledger.wakeups import ClockWakeups, FileWakeups, PostgresWakeups
from ledger.writer import Writer
from schemas.commands import (
    AddKey,
    ApiKey,
    Beat,
    ClaimedWork,
    ClaimWork,
    Command,
    Defer,
    Ingest,
    Ingested,
    Petition,
    Petitioned,
    Quarantine,
    Register,
    Registered,
    Renew,
    Replay,
    Replayed,
    RevokeKey,
    Settle,
    Settled,
    Sweep,
    Swept,
)  # fmt: skip
from schemas.contract import Contract
from schemas.receiving import AddSecret, ClaimFetches, EndSecret, Fetch, HandshakeNoted, NoteHandshake, SettleFetch, WantKey
from schemas.sweeping import ClaimWalks, SettleWalk, Walk, WalkSettled
from schemas.upkeep import Checkpoint, Checkpointed, Expire, Expired, Rewrap, Rewrapped, Switch

CLOSE_SECONDS: Final = 8.0
P = ParamSpec("P")
T = TypeVar("T")

ChangeListener = Callable[[frozenset[str] | None], None]
"""Told the ids that changed, or None: any may have. Called in a thread of the ledger: be quick, hand over to your loop."""
DueListener = Callable[[], None]
"""Told that errands may be due. Called in a thread of the ledger."""


class Ledger:
    """One open record. `open` it, `start` it (web, reconciler) or use `write_now` and `read_now` alone (command line)."""

    def __init__(
        self,
        engines: Engines,
        vault: Vault,
        contracts: Mapping[str, Contract],
        *,
        chance: Callable[[], float],
        crash_point: Callable[[str], None] = no_crash,
    ) -> None:
        self.engines = engines
        self.vault = vault
        self.contracts = contracts  # replaced whole on a reload: a transaction sees the old or the new, never half
        self._change_listeners: tuple[ChangeListener, ...] = ()
        self._due_listeners: tuple[DueListener, ...] = ()
        self._listening = threading.Lock()
        parts = Parts(
            engines=engines, vault=vault, contracts=lambda: self.contracts, tell=self._tell, chance=chance, crash_point=crash_point
        )
        self._writer = Writer(parts)
        self._readers = Readers(engines, vault)
        self._wakeups: PostgresWakeups | FileWakeups | ClockWakeups | None = None

    @classmethod
    def open(
        cls,
        url: str,
        *,
        vault: Vault,
        contracts: Mapping[str, Contract],
        migrate: bool = True,
        chance: Callable[[], float] = lambda: 0.5,
        crash_point: Callable[[str], None] = no_crash,
        application_name: str = "gateway",
        pooled: bool = False,
    ) -> Self:
        """Connect, bring the schema up to date (or only check it) and prove the master key. `pooled` as in `open_engines`.

        Raises ConfigurationError (wrong address or key, schema too new, or too old without `migrate`) and
        LedgerUnavailableError.
        """
        engines = open_engines(url, application_name=application_name, pooled=pooled)
        try:
            if migrate:
                bring_up_to_date(engines)
            else:
                check(engines)
            with engines.begin() as connection:
                vault.prove(connection)
        except BaseException:
            engines.close()
            raise
        return cls(engines, vault, contracts, chance=chance, crash_point=crash_point)

    def start(self, *, several_processes: bool | None = None) -> None:
        """Start the threads. `several_processes`: hear of others' commits (None: on PostgreSQL only)."""
        self.engines.hold()
        self._writer.start()
        self._readers.start()
        if self.engines.postgres and several_processes is not False:
            self._wakeups = ClockWakeups(self._heard) if self.engines.pooled else PostgresWakeups(self.engines, self._heard)
        elif self.engines.path is not None and several_processes:
            self._wakeups = FileWakeups(self.engines, self._heard)
        if self._wakeups is not None:
            self._wakeups.start()

    def close(self, timeout: float = CLOSE_SECONDS) -> bool:
        """Commit what waits, answer what is asked, close: all within `timeout`. Answers False when the writer did not end in time."""
        end = time.monotonic() + timeout
        drained = self._writer.close(timeout)
        self._readers.close(max(0.0, end - time.monotonic()))
        if self._wakeups is not None:
            self._wakeups.close(max(0.0, end - time.monotonic()))
        self.engines.close()
        return drained

    @property
    def alive(self) -> bool:
        """Return whether the writer serves (for readiness)."""
        return self._writer.alive

    def trouble(self) -> str:
        """Return why nothing is written: the file is gone, or the last transaction was refused. Empty: all is well."""
        return self.engines.gone() or self._writer.refusal

    def waiting(self) -> int:
        """Return how many commands wait for the writer."""
        return self._writer.waiting()

    # --- writing

    @overload
    async def write(self, command: Register) -> Registered: ...
    @overload
    async def write(self, command: Ingest) -> Ingested: ...
    @overload
    async def write(self, command: Petition) -> Petitioned: ...
    @overload
    async def write(self, command: Replay) -> Replayed: ...
    @overload
    async def write(self, command: ClaimWork) -> ClaimedWork: ...
    @overload
    async def write(self, command: Settle) -> Settled: ...
    @overload
    async def write(self, command: Sweep) -> Swept: ...
    @overload
    async def write(self, command: AddKey) -> ApiKey: ...
    @overload
    async def write(self, command: Beat | Quarantine) -> None: ...
    @overload
    async def write(self, command: AddSecret | EndSecret) -> str | None: ...
    @overload
    async def write(self, command: NoteHandshake) -> HandshakeNoted: ...
    @overload
    async def write(self, command: ClaimFetches) -> tuple[Fetch, ...]: ...
    @overload
    async def write(self, command: ClaimWalks) -> Walk | None: ...
    @overload
    async def write(self, command: SettleWalk) -> WalkSettled: ...
    @overload
    async def write(self, command: Expire) -> Expired: ...
    @overload
    async def write(self, command: Rewrap) -> Rewrapped: ...
    @overload
    async def write(self, command: Switch) -> str: ...
    @overload
    async def write(self, command: Checkpoint) -> Checkpointed: ...
    @overload
    async def write(self, command: Defer | Renew | RevokeKey | WantKey | SettleFetch) -> bool: ...
    async def write(self, command: Command) -> Any:
        """Return the answer to `command` after its commit. Needs `start`.

        Raises LedgerBusyError (nothing written), LedgerUnavailableError (unknown only if the commit itself was cut),
        LedgerClosedError. Cancelled: it may have been committed all the same.
        """
        return await self._writer.write(command)

    @overload
    def write_now(self, command: Register) -> Registered: ...
    @overload
    def write_now(self, command: Ingest) -> Ingested: ...
    @overload
    def write_now(self, command: Petition) -> Petitioned: ...
    @overload
    def write_now(self, command: Replay) -> Replayed: ...
    @overload
    def write_now(self, command: ClaimWork) -> ClaimedWork: ...
    @overload
    def write_now(self, command: Settle) -> Settled: ...
    @overload
    def write_now(self, command: Sweep) -> Swept: ...
    @overload
    def write_now(self, command: AddKey) -> ApiKey: ...
    @overload
    def write_now(self, command: Beat | Quarantine) -> None: ...
    @overload
    def write_now(self, command: AddSecret | EndSecret) -> str | None: ...
    @overload
    def write_now(self, command: NoteHandshake) -> HandshakeNoted: ...
    @overload
    def write_now(self, command: ClaimFetches) -> tuple[Fetch, ...]: ...
    @overload
    def write_now(self, command: ClaimWalks) -> Walk | None: ...
    @overload
    def write_now(self, command: SettleWalk) -> WalkSettled: ...
    @overload
    def write_now(self, command: Expire) -> Expired: ...
    @overload
    def write_now(self, command: Rewrap) -> Rewrapped: ...
    @overload
    def write_now(self, command: Switch) -> str: ...
    @overload
    def write_now(self, command: Checkpoint) -> Checkpointed: ...
    @overload
    def write_now(self, command: Defer | Renew | RevokeKey | WantKey | SettleFetch) -> bool: ...
    def write_now(self, command: Command) -> Any:
        """Return the answer to `command` after its commit; in this thread unless the ledger has been started."""
        if self._writer.started:
            return self._writer.submit(command).result()
        return self._writer.perform_now(command)

    # --- reading

    async def read(self, query: Callable[Concatenate[View, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what a query of `ledger/queries.py` finds. Needs `start`. Raises LedgerBusyError, LedgerUnavailableError."""
        answer: T = await self._readers.read(lambda view: query(view, *args, **kwargs))
        return answer

    def read_now(self, query: Callable[Concatenate[View, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what a query finds, in this thread."""
        answer: T = self._readers.read_now(lambda view: query(view, *args, **kwargs))
        return answer

    async def tend(self) -> dict[str, int]:
        """Empty a WAL file that has grown, where no reader is in the way. Raises LedgerError."""
        return await asyncio.to_thread(tend, self.engines)

    # --- listening

    def on_change(self, listener: ChangeListener) -> Callable[[], None]:
        """Tell `listener` after every commit that changed operations, here or elsewhere. Returns how to stop."""
        with self._listening:
            self._change_listeners += (listener,)
        return lambda: self._forget(listener)

    def on_due(self, listener: DueListener) -> Callable[[], None]:
        """Tell `listener` after every commit that made errands due. Returns how to stop."""
        with self._listening:
            self._due_listeners += (listener,)
        return lambda: self._forget(listener)

    def _forget(self, listener: ChangeListener | DueListener) -> None:
        with self._listening:
            self._change_listeners = tuple(known for known in self._change_listeners if known is not listener)
            self._due_listeners = tuple(known for known in self._due_listeners if known is not listener)

    def _tell(self, news: News) -> None:
        if self._wakeups is not None:
            self._wakeups.publish(news.changed, due=bool(news.due))
        self._heard(frozenset(news.changed), bool(news.due))

    def _heard(self, changed: frozenset[str] | None, due: bool) -> None:  # noqa: FBT001 - a callback's shape
        if changed is None or changed:
            for told in self._change_listeners:
                told(changed)
        if due:
            for woken in self._due_listeners:
                woken()

"""What the reconciler asks of the ledger: the facade's calls that it uses, and nothing else."""

from collections.abc import Awaitable, Callable
from typing import Protocol, overload

from schemas.commands import Beat, Claimed, ClaimedWork, ClaimWork, Defer, Renew, Settle, Settled, Sweep, Swept


class Record(Protocol):
    """The ledger as the reconciler sees it. Raises LedgerError: what was asked may or may not have been committed."""

    @overload
    async def write(self, command: ClaimWork) -> ClaimedWork: ...
    @overload
    async def write(self, command: Settle) -> Settled: ...
    @overload
    async def write(self, command: Renew) -> bool: ...
    @overload
    async def write(self, command: Sweep) -> Swept: ...
    @overload
    async def write(self, command: Defer) -> object: ...
    @overload
    async def write(self, command: Beat) -> object: ...

    def on_due(self, callback: Callable[[], None]) -> object:
        """Call `callback`, from any thread, when something may be due."""
        ...


Perform = Callable[[Claimed, float], Awaitable[Settle | Defer | None]]

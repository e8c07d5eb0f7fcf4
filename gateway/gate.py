"""What the HTTP edge is given: the ledger, the configured endpoints, settings, time and chance, and where results lie."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from gateway.bounds import Bodies
from gateway.counts import Metrics
from gateway.lines import Lines
from ledger.ledger import Ledger
from providers.verification import NO_KEYS, KeyStore, Verifier
from schemas.contract import Contract
from schemas.delivery import Secret
from schemas.settings import ProviderSettings, Settings
from schemas.world import World

ArtifactOpener = Callable[[str, int, int], AsyncIterator[bytes]]
"""(key, first byte, number of bytes) -> the bytes in chunks. Raises FileNotFoundError before the first chunk."""

Counter = Callable[[str, Mapping[str, str]], None]
"""(name, labels): one more of it. Labels are closed sets: configured names, statuses, reasons."""


async def unrefreshed() -> None:
    """Look for no stored secrets or published keys."""


def nothing_late() -> Sequence[str]:
    """Know of no duty."""
    return ()


def uncounted(_name: str, _labels: Mapping[str, str]) -> None:
    """Count nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One configured provider account. `verifier` None: no usable secret, so nothing is accepted (B010)."""

    name: str
    contract: Contract
    settings: ProviderSettings
    verifier: Verifier | None
    secrets: tuple[Secret, ...] = ()  # the usable ones: handshakes answer with them
    params: Mapping[str, str] = field(default_factory=dict)  # the account's constants, resolved
    keys: KeyStore = NO_KEYS  # published keys that have been fetched

    @property
    def origin(self) -> str:
        """Return the origin that new operations are pinned to."""
        return self.settings.base_url or self.contract.origin

    def serves(self, owner: str) -> bool:
        """Return whether this owner may use the provider."""
        return not self.settings.owners or owner in self.settings.owners


class Endpoints:
    """The configured endpoints. A reload replaces the whole mapping by one assignment: all of it or nothing."""

    __slots__ = ("_current", "_news")

    def __init__(self, current: Mapping[str, Endpoint]) -> None:
        self._current = dict(current)
        self._news = asyncio.Event()

    def get(self, name: str) -> Endpoint | None:
        """Return the endpoint of that name."""
        return self._current.get(name)

    def replace(self, current: Mapping[str, Endpoint]) -> None:
        """Put these in place of all former ones; requests under way keep what they looked up. From the loop."""
        self._current = dict(current)
        former, self._news = self._news, asyncio.Event()
        former.set()

    async def replaced(self) -> None:
        """Wait for the next replacement."""
        await self._news.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Everything that `create_app` needs."""

    ledger: Ledger
    endpoints: Endpoints
    settings: Settings
    world: World
    open_artifact: ArtifactOpener
    count: Counter = field(default=uncounted)
    metrics: Metrics = field(default_factory=Metrics)
    refresh: Callable[[], Awaitable[None]] = unrefreshed  # read stored secrets and published keys anew, now
    expects_reconciler: bool = False  # it runs in this process: readyz demands fresh heartbeats
    lines: Lines = field(default_factory=Lines)  # of the log about strangers
    bodies: Bodies = field(default_factory=Bodies)  # what arrives now
    late: Callable[[], Sequence[str]] = nothing_late  # duties of this process that have not gone well for too long
    closing: asyncio.Event = field(default_factory=asyncio.Event)  # set at shutdown: waiting callers are answered at once

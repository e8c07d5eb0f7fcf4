"""Leases that this process holds: renewed by fence while their errands last (ARCHITECTURE, The way of a due operation; MISSION C1)."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from ledger.errors import LedgerError
from ledger.ledger import Ledger
from schemas.commands import Claimed, Renew
from schemas.operation import SECOND
from schemas.world import World

_log = structlog.get_logger("reconciler")

RENEW_AFTER: Final = 1 / 3  # of the lease: two renewals may fail before it ends


@dataclass(slots=True)
class _Held:
    claimed: Claimed
    since: float  # monotonic: taken before the claim, or the last renewal, was submitted
    lost: Callable[[], None]


class Leases:
    """The leases in flight. `renew_once` is driven by a tick of a sixth of the lease, so that none is older than a half."""

    def __init__(self, record: Ledger, world: World, *, lease_seconds: float) -> None:
        self._record = record
        self._world = world
        self._lease = lease_seconds
        self._held: dict[str, _Held] = {}

    def hold(self, claimed: Claimed, since: float, lost: Callable[[], None]) -> None:
        """Keep a lease until `release`; `lost` is called once when it cannot be kept."""
        self._held[claimed.operation.id] = _Held(claimed, since, lost)

    def release(self, claimed: Claimed) -> None:
        """Keep it no longer. A newer lease on the same operation stays."""
        held = self._held.get(claimed.operation.id)
        if held is not None and held.claimed.fence == claimed.fence:
            del self._held[claimed.operation.id]

    async def renew_once(self) -> dict[str, int]:
        """Renew what has used up a third of its time, and give up what is lost. Returns counts."""
        now = self._world.monotonic()
        due = [held for held in self._held.values() if now - held.since >= self._lease * RENEW_AFTER]
        answers = await asyncio.gather(*(self._renew(held) for held in due))
        return {"renewed": answers.count(True), "lost": answers.count(False)}

    async def _renew(self, held: _Held) -> bool | None:
        since = self._world.monotonic()
        operation = held.claimed.operation
        command = Renew(operation_id=operation.id, fence=held.claimed.fence, lease=round(self._lease * SECOND), now=self._world.now())
        try:
            kept = await self._record.write(command)
        except LedgerError as error:
            _log.warning("reconciler.renewal_failed", operation=operation.id, error=type(error).__name__)
            if self._world.monotonic() - held.since < self._lease:
                return None  # there is time for another try
            kept = False
        if kept:
            held.since = since
            return True
        if self._held.get(operation.id) is held:
            del self._held[operation.id]
            _log.warning("reconciler.lease_lost", operation=operation.id, errand=held.claimed.errand.value)
            held.lost()
        return False

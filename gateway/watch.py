"""Callers who wait for an operation to change: woken in process, by the ledger, after the commit."""

import asyncio
from collections.abc import Iterable

from ledger.ledger import Ledger


class Watchers:
    """Events by operation id. Everything runs on the event loop; a change that nobody waits for costs one look-up."""

    __slots__ = ("_waiting",)

    def __init__(self, ledger: Ledger) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = {}
        ledger.on_change(self._changed)

    def _changed(self, ids: Iterable[str]) -> None:
        if self._waiting:
            for operation in ids:
                for event in self._waiting.get(operation, ()):
                    event.set()

    def add(self, operation: str) -> asyncio.Event:
        """Return an event that is set by the next change. Add it before reading, so that no change is missed."""
        event = asyncio.Event()
        self._waiting.setdefault(operation, set()).add(event)
        return event

    def remove(self, operation: str, event: asyncio.Event) -> None:
        """Forget the event."""
        events = self._waiting.get(operation)
        if events is not None:
            events.discard(event)
            if not events:
                del self._waiting[operation]

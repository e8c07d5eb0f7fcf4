"""Callers who wait for an operation to change: woken in process, by the ledger, after the commit."""

import asyncio

from ledger.ledger import Ledger


class Watchers:
    """Events by operation id. Waiters live on one event loop; the ledger tells of changes from a thread of its own."""

    __slots__ = ("_loop", "_waiting")

    def __init__(self, ledger: Ledger) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        ledger.on_change(self._changed)

    def add(self, operation: str) -> asyncio.Event:
        """Return an event that is set by the next change. Add it before reading, so that no change is missed."""
        self._loop = asyncio.get_running_loop()
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

    def _changed(self, ids: frozenset[str] | None) -> None:
        # In the ledger's thread. Whoever adds itself after this look reads after the commit that it tells of. A hop into
        # the loop costs more than a look-up, so there is none for operations that nobody waits for.
        waiting, loop = self._waiting, self._loop
        if not waiting or loop is None or loop.is_closed():
            return
        wanted = None if ids is None else tuple(operation for operation in ids if operation in waiting)
        if wanted is None or wanted:
            loop.call_soon_threadsafe(self._wake, wanted)

    def _wake(self, ids: tuple[str, ...] | None) -> None:
        for operation in tuple(self._waiting) if ids is None else ids:
            for event in self._waiting.get(operation, ()):
                event.set()

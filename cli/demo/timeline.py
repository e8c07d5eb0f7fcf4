"""The timelines: history rows of the script's operations as they are committed, told to whoever shows them.

The ledger names the operations whose version has grown; of a row that changes nothing for callers (a delivery, a note) only
a due errand tells, so that wakes the look at all of them.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from ledger import queries
from ledger.ledger import Ledger
from schemas.operation import Micros

_PAUSE_SECONDS: Final = 0.05  # what is committed meanwhile is shown together, instead of reading for each commit
Row = Mapping[str, Any]
Shows = Callable[[str, Micros, Row], None]
"""Told of (act's name, microseconds since the beginning, history row)."""


class Timeline:
    """Follows operations. `run` is its task; `follow` and the ledger's commits wake it."""

    def __init__(self, ledger: Ledger, shows: Shows, *, began: Micros) -> None:
        self._ledger = ledger
        self._shows = shows
        self._began = began
        self._names: dict[str, str] = {}
        self._seen: dict[str, int] = {}
        self._changed: set[str] = set()
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._forget = (ledger.on_change(self._heard), ledger.on_due(lambda: self._heard(None)))

    def follow(self, name: str, operation: str) -> None:
        """Show this operation from its first row on."""
        self._names[operation] = name
        self._note(frozenset({operation}))

    async def run(self) -> None:
        """Show rows until cancelled."""
        try:
            while True:
                await self._wake.wait()
                await self.catch_up()
                await asyncio.sleep(_PAUSE_SECONDS)
        finally:
            for forget in self._forget:
                forget()

    async def catch_up(self) -> None:
        """Show every row that is committed and not shown yet, in the order of their times."""
        self._wake.clear()
        changed, self._changed = self._changed, set()
        fresh: list[tuple[str, Row]] = []
        for operation in sorted(changed):
            rows = await self._ledger.read(queries.history, operation, self._seen.get(operation, 0))
            fresh.extend((operation, row) for row in rows if row["seq"] > self._seen.get(operation, 0))
            if rows:
                self._seen[operation] = max(self._seen.get(operation, 0), rows[-1]["seq"])
        for operation, row in sorted(fresh, key=lambda found: (found[1]["at"], found[0], found[1]["seq"])):
            self._shows(self._names[operation], row["at"] - self._began, row)

    def _heard(self, ids: frozenset[str] | None) -> None:
        # In the ledger's thread. None: anything may have changed.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._note, ids)

    def _note(self, ids: frozenset[str] | None) -> None:
        self._changed |= self._names.keys() if ids is None else ids & self._names.keys()
        if self._changed:
            self._wake.set()

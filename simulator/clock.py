"""The simulator's time: the injected world's, which a test or a person may push forward, and what is due on it."""

import asyncio
import heapq
from collections.abc import Awaitable, Callable
from itertools import count

from schemas.operation import SECOND, Micros
from schemas.world import World

_LONGEST_WAIT = 3_600.0  # seconds; a wait is taken up again after it, so that huge fault values stay legal
_FURTHEST: Micros = 3_000_000_000 * SECOND


class Clock:
    """The world's clock plus what it was pushed forward. Whoever waits on it wakes when it is pushed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._pushed: Micros = 0
        self._moved = asyncio.Event()

    def now(self) -> Micros:
        """Return microseconds UTC."""
        return self._world.now() + self._pushed

    def advance(self, seconds: float) -> None:
        """Push the clock forward, in all by at most _FURTHEST: times must stay writable as dates."""
        self._pushed = min(self._pushed + int(seconds * SECOND), _FURTHEST)
        self.nudge()

    def nudge(self) -> None:
        """Wake everybody who waits; each looks at the clock again."""
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    async def until(self, due: Micros) -> None:
        """Return at `due`."""
        while (left := due - self.now()) > 0:
            await self.pause(left)

    async def pause(self, left: Micros) -> None:
        """Return after `left` microseconds, or when the clock was pushed or somebody nudged, whichever comes first."""
        moved = self._moved
        try:
            async with asyncio.timeout(min(left / SECOND, _LONGEST_WAIT)):
                await moved.wait()
        except TimeoutError:
            return


Action = Callable[[], Awaitable[None]]


class Schedule:
    """Actions by time. Bounded: what does not fit is refused and `add` says so."""

    def __init__(self, clock: Clock, *, max_pending: int, max_at_once: int) -> None:
        self._clock = clock
        self._max_pending = max_pending
        self._heap: list[tuple[Micros, int, Action]] = []
        self._order = count()
        self._running: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(max_at_once)

    def add(self, due: Micros, action: Action) -> bool:
        """Run `action` at `due`. False: there are too many already."""
        if len(self._heap) + len(self._running) >= self._max_pending:
            return False
        heapq.heappush(self._heap, (due, next(self._order), action))
        if self._heap[0][2] is action:
            self._clock.nudge()
        return True

    async def run(self) -> None:
        """Run what is due until cancelled; cancelling ends the actions too."""
        try:
            while True:
                now = self._clock.now()
                while self._heap and self._heap[0][0] <= now:
                    self._start(heapq.heappop(self._heap)[2])
                left = self._heap[0][0] - self._clock.now() if self._heap else int(_LONGEST_WAIT * SECOND)
                if left > 0:
                    await self._clock.pause(left)
        finally:
            for task in self._running:
                task.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)

    def _start(self, action: Action) -> None:
        async def bounded() -> None:
            async with self._room:
                await action()

        task = asyncio.get_running_loop().create_task(bounded())
        self._running.add(task)
        task.add_done_callback(self._running.discard)

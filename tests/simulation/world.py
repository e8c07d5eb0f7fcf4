"""The simulated world: one virtual clock, one source of chance, ids in order, and a queue of what happens next.

Time moves only when the scheduler takes the next event. Nothing here, or in any other file of this folder, asks the
machine for a time, an id or a random number: one seed is one story, to be told again word for word.
"""

import heapq
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, Final

from schemas.operation import SECOND, Micros

EPOCH: Final = 1_700_000_000 * SECOND
_TRACE_LINES: Final = 4_000


class BrokenInvariantError(AssertionError):
    """A checker found an invariant broken. `checker` names it as in tests/simulation/checkers.py."""

    def __init__(self, checker: str, message: str) -> None:
        super().__init__(f"[{checker}] {message}")
        self.checker = checker


class World:
    """Time, ids and chance of one seed. It has the form of `schemas.world.World`."""

    def __init__(self, seed: int | str) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.time: Micros = EPOCH
        self.calm = False  # True: no more faults, so that everything must settle
        self.trace: deque[tuple[Micros, str, tuple[Any, ...]]] = deque(maxlen=_TRACE_LINES)
        self._queue: list[tuple[Micros, int, Callable[[], None], bool]] = []
        self._quiet = 0
        self._count = 0

    def now(self) -> Micros:
        return self.time

    def monotonic(self) -> float:
        return (self.time - EPOCH) / SECOND

    def new_id(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}_{self._count:032x}"

    def new_token(self) -> str:
        self._count += 1
        return f"tok-{self._count:027d}"

    def chance(self) -> float:
        return self.random.random()

    # --- the queue

    def at(self, time: Micros, what: Callable[[], None], *, quiet: bool = False) -> None:
        """Let `what` happen at `time`; at the same moment in the order of asking. `quiet`: no story waits for it."""
        self._count += 1
        self._quiet += quiet
        heapq.heappush(self._queue, (max(time, self.time), self._count, what, quiet))

    def after(self, seconds: float, what: Callable[[], None], *, quiet: bool = False) -> None:
        self.at(self.time + round(seconds * SECOND), what, quiet=quiet)

    def next_at(self) -> Micros | None:
        return self._queue[0][0] if self._queue else None

    def pending(self) -> bool:
        """Return whether anything is still to happen that a story waits for."""
        return len(self._queue) > self._quiet

    def take(self) -> Callable[[], None]:
        time, _, what, quiet = heapq.heappop(self._queue)
        self._quiet -= quiet
        self.time = max(self.time, time)
        return what

    # --- chance

    def hit(self, probability: float) -> bool:
        """Return whether a fault of this probability strikes; never once the world is calm."""
        return not self.calm and self.random.random() < probability

    def between(self, low: float, high: float) -> float:
        return self.random.uniform(low, high)

    # --- the story

    def tell(self, form: str, *values: Any) -> None:
        """Note one line of the story; it is only put into words when somebody reads it."""
        self.trace.append((self.time, form, values))

    def story(self, lines: int | None = None) -> list[str]:
        told = list(self.trace)[-lines:] if lines is not None else list(self.trace)
        return [f"{(time - EPOCH) / SECOND:12.6f}  {form % values if values else form}" for time, form, values in told]

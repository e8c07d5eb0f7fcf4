"""A world for tests: real monotonic time, or time that a test moves; ids in order."""

import itertools
import time
from dataclasses import dataclass, field

NOW = 1_767_225_600_000_000


@dataclass(slots=True)
class StillWorld:
    """Time, ids and chance that a test decides. `shift` moves the monotonic clock, `moment` is the wall clock."""

    moment: int = NOW
    shift: float = 0.0
    numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    def now(self) -> int:
        return self.moment

    def monotonic(self) -> float:
        return time.monotonic() + self.shift

    def new_id(self, prefix: str) -> str:
        return f"{prefix}{next(self.numbers):032x}"

    def new_token(self) -> str:
        return f"token-{next(self.numbers):032x}"

    def chance(self) -> float:
        return 0.5


@dataclass(slots=True)
class MovingWorld(StillWorld):
    """A world whose wall clock goes with the real monotonic one."""

    began: float = field(default_factory=time.monotonic)

    def now(self) -> int:
        return self.moment + int((time.monotonic() - self.began + self.shift) * 1_000_000)


@dataclass(slots=True)
class SteppedWorld(MovingWorld):
    """A world in which no time passes but what the test adds to `shift`."""

    def monotonic(self) -> float:
        return self.shift

    def now(self) -> int:
        return self.moment + int(self.shift * 1_000_000)

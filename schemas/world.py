"""Time, ids and chance as arguments. `cli/world.py` is the only real one; tests and the simulation bring their own."""

from typing import Protocol

from schemas.operation import Micros


class World(Protocol):
    """Where a process gets its time, ids and chance from."""

    def now(self) -> Micros:
        """Return the wall clock: microseconds UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds of a clock that never steps; for pacing and `send_by`."""
        ...

    def new_id(self, prefix: str) -> str:
        """Return the prefix and the 32 hex digits of a UUIDv7, as in `op_0198…`."""
        ...

    def new_token(self) -> str:
        """Return an unguessable text of at least 128 bits, of letters, digits, `-` and `_`."""
        ...

    def chance(self) -> float:
        """Return a number in [0, 1)."""
        ...

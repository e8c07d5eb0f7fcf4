"""The real clock, ids, tokens and chance: the one place of the house that takes them from the machine."""

import os
import secrets
import time
from typing import Final

from schemas.operation import Micros

_NANOS_PER_MICRO: Final = 1_000
_MICROS_PER_MILLI: Final = 1_000
_TOKEN_BYTES: Final = 24  # 192 bits; 128 are asked for (MISSION A4)
_ID_ENTROPY: Final = 10  # bytes of chance in an id
_AT_ONCE: Final = 256
# CLOCK_BOOTTIME is Linux's; elsewhere (macOS) CLOCK_MONOTONIC counts the sleep itself.
_STEADY: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_CHANCE_BITS: Final = 53  # what a float holds exactly


class RealWorld:
    """`schemas.world.World` by the machine's own means. Safe to share between threads."""

    __slots__ = ("_entropy",)

    def __init__(self) -> None:
        # Taken from the system many at a time: each call of the system gives the interpreter's lock away, and a busy
        # thread returns it only after its whole interval. Popping from a list is atomic.
        self._entropy: list[bytes] = []
        os.register_at_fork(after_in_child=self._entropy.clear)

    def now(self) -> Micros:
        """Return the wall clock: microseconds UTC."""
        return time.time_ns() // _NANOS_PER_MICRO  # noqa: TID251 - this is the file that the ban points to

    def monotonic(self) -> float:
        """Return seconds of a clock that never steps, and that goes on while the machine is suspended.

        `time.monotonic` of Linux stands still then: a worker that was put to sleep between its claim and its send would
        believe in a lease that has long run out.
        """
        return time.clock_gettime(_STEADY)

    def new_id(self, prefix: str) -> str:
        """Return the prefix and the 32 hex digits of a UUIDv7 of this moment."""
        return f"{prefix}{uuid7(self.now(), self._ten_bytes()):032x}"

    def _ten_bytes(self) -> bytes:
        try:
            return self._entropy.pop()
        except IndexError:
            fresh = secrets.token_bytes(_ID_ENTROPY * _AT_ONCE)
            self._entropy.extend(fresh[start : start + _ID_ENTROPY] for start in range(_ID_ENTROPY, len(fresh), _ID_ENTROPY))
            return fresh[:_ID_ENTROPY]

    def new_token(self) -> str:
        """Return 192 random bits as 32 letters, digits, `-` and `_`."""
        return secrets.token_urlsafe(_TOKEN_BYTES)

    def chance(self) -> float:
        """Return a number in [0, 1)."""
        return secrets.randbits(_CHANCE_BITS) / (1 << _CHANCE_BITS)


def uuid7(now: Micros, entropy: bytes) -> int:
    """Return a UUIDv7 as a number: 48 bits of milliseconds, version, 12 bits, variant, 62 bits (RFC 9562, section 5.7).

    `entropy` is 10 bytes, of which 74 bits are used. Ids of different milliseconds sort by time.
    """
    millis = now // _MICROS_PER_MILLI
    assert 0 <= millis < 1 << 48, "a time outside what UUIDv7 can say"
    chance = int.from_bytes(entropy, "big")
    return millis << 80 | 0x7 << 76 | (chance >> 62 & 0xFFF) << 64 | 0b10 << 62 | chance & (1 << 62) - 1

"""The real clock, ids, tokens and chance: the one place of the house that takes them from the machine."""

import secrets
import time
from typing import Final

from schemas.operation import Micros

_NANOS_PER_MICRO: Final = 1_000
_MICROS_PER_MILLI: Final = 1_000
_TOKEN_BYTES: Final = 24  # 192 bits; 128 are asked for (MISSION A4)
_CHANCE_BITS: Final = 53  # what a float holds exactly


class RealWorld:
    """`schemas.world.World` by the machine's own means. Stateless, safe to share between threads."""

    __slots__ = ()

    def now(self) -> Micros:
        """Return the wall clock: microseconds UTC."""
        return time.time_ns() // _NANOS_PER_MICRO  # noqa: TID251 - this is the file that the ban points to

    def monotonic(self) -> float:
        """Return seconds of a clock that never steps."""
        return time.monotonic()

    def new_id(self, prefix: str) -> str:
        """Return the prefix and the 32 hex digits of a UUIDv7 of this moment."""
        return f"{prefix}{uuid7(self.now(), secrets.token_bytes(10)):032x}"

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

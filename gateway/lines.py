"""Lines of the log about what strangers send: a few a second of each kind and provider, for the log lies on the disk too (MISSION B10)."""

from dataclasses import dataclass
from typing import Final

A_SECOND: Final = 20
"""Lines of one event about one provider."""


@dataclass(slots=True)
class _Pace:
    second: float = float("-inf")  # when the second at hand began
    lines: int = 0
    left_out: int = 0


class Lines:
    """What has been written of late. Keys are events and configured names only. Used from one event loop."""

    __slots__ = ("_paces",)

    def __init__(self) -> None:
        self._paces: dict[tuple[str, str], _Pace] = {}

    def room(self, event: str, provider: str, at: float) -> dict[str, int] | None:
        """Return what a line says besides (`left_out`: how many went without one since the last), or None: it goes without too.

        `at` are monotonic seconds.
        """
        pace = self._paces.setdefault((event, provider), _Pace())
        if at - pace.second >= 1:
            pace.second, pace.lines = at, 0
        if pace.lines >= A_SECOND:
            pace.left_out += 1
            return None
        pace.lines += 1
        left_out, pace.left_out = pace.left_out, 0
        return {"left_out": left_out} if left_out else {}

"""An alarm about event ids that come again with other bytes: a provider that reuses them, a contract that names no id, or a forger."""

from dataclasses import dataclass
from typing import Final

import structlog

from gateway.gate import Gate

USUAL: Final = 5  # conflicts of a provider within a minute: more are told
MINUTE: Final = 60.0
_log = structlog.get_logger("gateway")


@dataclass(slots=True)
class _Minute:
    """The minute at hand of one provider."""

    began: float
    count: int = 0
    told: float = float("-inf")


class Conflicts:
    """See the module. Used from one event loop; as many entries as providers that ever had one."""

    __slots__ = ("_gate", "_minutes")

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._minutes: dict[str, _Minute] = {}  # by configured names only

    def noted(self, provider: str) -> None:
        """Count a conflict; more than `USUAL` within a minute are told, at most once a minute for each provider."""
        at = self._gate.world.monotonic()
        minute = self._minutes.setdefault(provider, _Minute(began=at))
        if at - minute.began >= MINUTE:
            minute.began, minute.count = at, 0
        minute.count += 1
        if minute.count > USUAL and at - minute.told >= MINUTE:
            minute.told = at
            _log.warning("receiver.conflict_run", provider=provider, count=minute.count)
            self._gate.count("receiver.conflict_run", {"provider": provider})

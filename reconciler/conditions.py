"""How the accounts do, told to other processes by heartbeats, and how many processes there are to share their limits (C3).

The heartbeat of the duty `pace` counts, for each account that is not simply well, `NAME.STATE` (seconds until it is called again)
and `NAME.failures`.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ledger.beats import PACE, PACE_FRESH, PAUSES
from reconciler.pace import Pace
from schemas.operation import SECOND, Micros

DUTY: Final = PACE
FRESH: Final[Micros] = PACE_FRESH
"""How old a process's word may be. One that has ended is counted so long; the others are slower meanwhile, never faster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What one process last said of one account."""

    process: str
    state: str  # "open", "trying" or "held"; an account that is well is not told of
    failures: int
    paused_seconds: int  # from now on


def counts(pace: Pace, now: float) -> dict[str, int]:
    """Return what the heartbeat says of the accounts."""
    told: dict[str, int] = {}
    for provider in pace.providers:
        found = pace.condition(provider, now)
        if found.state in PAUSES:
            told |= {f"{provider}.{found.state}": math.ceil(found.paused_seconds), f"{provider}.failures": found.failures}
    return told


def processes(beats: Iterable[Mapping[str, Any]], now: Micros) -> frozenset[str]:
    """Return the processes that run a reconciler, by their latest heartbeats."""
    return frozenset(beat["process"] for beat in beats if beat["duty"] == DUTY and now - beat["last_at"] <= FRESH)


def told(beats: Iterable[Mapping[str, Any]], now: Micros) -> dict[str, list[Told]]:
    """Return what the running processes say of the accounts that are not well, by provider."""
    found: dict[str, list[Told]] = {}
    for beat in beats:
        if beat["duty"] != DUTY or now - beat["last_at"] > FRESH:
            continue
        for key, seconds in beat["counts"].items():
            provider, _, state = key.partition(".")
            if state in PAUSES:
                left = max(0, seconds - (now - beat["last_at"]) // SECOND)
                failures = beat["counts"].get(f"{provider}.failures", 0)
                found.setdefault(provider, []).append(Told(process=beat["process"], state=state, failures=failures, paused_seconds=left))
    return found

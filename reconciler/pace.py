"""How fast each provider account may be called: concurrency, rate, and its own "later" (MISSION C3).

Nothing here reads a clock: `now` is monotonic seconds, so that a stepping wall clock neither floods nor starves a provider (B106).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from schemas.contract import Limits

MAX_HOLD_SECONDS: Final = 3_600.0  # a provider's Retry-After stops us at most this long; then one errand asks again


@dataclass(slots=True)
class _Account:
    concurrency: int
    rate: float
    burst: float
    tokens: float
    at: float
    in_flight: int = 0
    held_until: float = 0.0


class Pace:
    """The pace of every configured provider account. One in a process; each process paces for itself."""

    def __init__(self, limits: Mapping[str, Limits], *, now: float) -> None:
        self._accounts = {
            name: _Account(
                concurrency=max(1, limit.concurrency),
                rate=max(limit.rate_per_second, 0.001),
                # One second's worth at once: what a provider that counts per second allows.
                burst=max(1.0, limit.rate_per_second),
                tokens=max(1.0, limit.rate_per_second),
                at=now,
            )
            for name, limit in limits.items()
        }

    def room(self, now: float) -> dict[str, int]:
        """Return how many errands of each provider may start now; providers without room are absent."""
        found = {}
        for name, account in self._accounts.items():
            _refill(account, now)
            free = min(account.concurrency - account.in_flight, int(account.tokens))
            if free > 0 and now >= account.held_until:
                found[name] = free
        return found

    def opens_in(self, now: float) -> float | None:
        """Return the seconds until time alone makes room at some account that has none, or None where only a finished errand does."""
        waits = []
        for account in self._accounts.values():
            _refill(account, now)
            if account.in_flight >= account.concurrency:
                continue
            wait = max(account.held_until - now, (1.0 - account.tokens) / account.rate)
            if wait > 0:
                waits.append(wait)
        return min(waits, default=None)

    def start(self, provider: str, now: float) -> None:
        """Count an errand that starts: one place and one call."""
        account = self._accounts[provider]
        _refill(account, now)
        account.in_flight += 1
        account.tokens -= 1.0

    def spend(self, provider: str, now: float) -> None:
        """Count a further call of a running errand (a page, a file): it is made, and later errands wait for it."""
        account = self._accounts[provider]
        _refill(account, now)
        account.tokens -= 1.0

    def finish(self, provider: str) -> None:
        """Give an errand's place back."""
        account = self._accounts[provider]
        assert account.in_flight > 0, "an errand finished that never started"
        account.in_flight -= 1

    def hold(self, provider: str, seconds: float, now: float) -> None:
        """Start nothing at this account for `seconds` (bounded): it said "later" for the whole account, not for one operation."""
        account = self._accounts[provider]
        account.held_until = max(account.held_until, now + min(max(seconds, 0.0), MAX_HOLD_SECONDS))
        # After a hold the rate starts from one call, not from a saved-up burst: no thundering herd.
        account.at = account.held_until
        account.tokens = min(account.tokens, 1.0)


def _refill(account: _Account, now: float) -> None:
    if now > account.at:
        account.tokens = min(account.burst, account.tokens + (now - account.at) * account.rate)
        account.at = now

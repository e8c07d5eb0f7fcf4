"""How fast each provider account may be called: concurrency, rate, its own "later", and a circuit (MISSION C3).

Nothing here reads a clock: `now` is monotonic seconds, so that a stepping wall clock neither floods nor starves a provider (B106).

The circuit of an account opens after a run of calls that brought no answer, or a server error, on more than one operation.
While it is open nothing is called; after a pause a few calls are tried. One that is answered closes it, all that fail open
it for longer. Whatever was held comes back slowly: one call at a time, and twice as many after each one that is answered.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import structlog

from schemas.contract import Limits
from schemas.http import AnsweredOutcome, Outcome

MAX_HOLD_SECONDS: Final = 3_600.0  # a provider's Retry-After stops us at most this long; then one errand asks again
ABSURD_SECONDS: Final = 86_400.0  # who names a day or more is believed for that operation (capped), not for all others (B066)
RUN: Final = 8  # failures in a row that open a circuit …
OPERATIONS: Final = 2  # … on so many operations: one that always fails has its own back-off, and says nothing of the account
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 60.0  # seconds of an open circuit, doubled by every trial that fails
TRIALS: Final = 4  # part of the concurrency that a trial may use: enough to get through deadlines while a provider is gone
_SLOW_DOWN: Final = frozenset({403, 429, 503})  # with a time to come back at, these speak for the whole account
_SERVER_ERROR: Final = 500
# Outcomes that are ours, or about one file: they say nothing of the account's health.
_OURS: Final = frozenset(
    {
        "too_late", "invalid_url", "invalid_request", "forbidden_address", "forbidden_scheme", "stopped", "credential_rotated",
        "too_large", "encoded",
    }
)  # fmt: skip
_log = structlog.get_logger("reconciler")


@dataclass(slots=True)
class _Account:
    limits: Limits
    concurrency: int
    rate: float
    tokens: float
    at: float
    window: int  # calls at once: all, or few while the account comes back
    in_flight: int = 0
    held_until: float = 0.0
    failures: int = 0  # in a row
    failing: set[str] = field(default_factory=set)  # the operations of that run, as many as are needed
    trips: int = 0  # openings in a row

    @property
    def burst(self) -> float:
        """Return what may be saved up: one second's worth, which a provider that counts per second allows."""
        return max(1.0, self.rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """How an account does, for people. `paused_seconds`: until anything is called again; 0: now."""

    state: str  # "closed": all is well; "open": it is not called; "trying": a few calls are; "held": it asked to wait
    failures: int
    paused_seconds: float
    in_flight: int
    window: int


class Pace:
    """The pace of every configured provider account. One in a process; `share` divides it between processes."""

    def __init__(self, limits: Mapping[str, Limits], *, now: float) -> None:
        self._processes = 1
        self._accounts = {
            name: _Account(
                limits=limit,
                concurrency=max(1, limit.concurrency),
                rate=max(limit.rate_per_second, 0.001),
                tokens=max(1.0, limit.rate_per_second),
                at=now,
                window=max(1, limit.concurrency),
            )
            for name, limit in limits.items()
        }

    def share(self, processes: int, now: float) -> None:
        """Take this process's part of every account's limits, which are the account's and not the process's; of each at least one call."""
        if processes == self._processes or processes < 1:
            return
        self._processes = processes
        for account in self._accounts.values():
            _refill(account, now)
            account.concurrency = max(1, account.limits.concurrency // processes)
            account.rate = max(account.limits.rate_per_second / processes, 0.001)
            account.tokens = min(account.tokens, account.burst)
            account.window = min(account.window, account.concurrency)

    def room(self, now: float) -> dict[str, int]:
        """Return how many errands of each provider may start now; providers without room are absent."""
        found = {}
        for name, account in self._accounts.items():
            _refill(account, now)
            free = min(_places(account) - account.in_flight, int(account.tokens))
            if free > 0 and now >= account.held_until:
                found[name] = free
        return found

    def opens_in(self, now: float) -> float | None:
        """Return the seconds until time alone makes room at some account that has none, or None where only a finished errand does."""
        waits = []
        for account in self._accounts.values():
            _refill(account, now)
            if account.in_flight >= _places(account):
                continue
            wait = max(account.held_until - now, (1.0 - account.tokens) / account.rate)
            if wait > 0:
                waits.append(wait)
        return min(waits, default=None)

    def idle(self, provider: str) -> bool:
        """Return whether nothing of this account is under way."""
        return self._accounts[provider].in_flight == 0

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
        until = now + min(max(seconds, 0.0), MAX_HOLD_SECONDS)
        if until <= account.held_until:
            return
        _pause(account, until)
        _log.info("reconciler.account_held", provider=provider, seconds=round(until - now, 1))

    def heard(self, provider: str, operation: str, outcome: Outcome, *, now: float, chance: float, wait: float | None = None) -> None:
        """Take note of how a call to the account's origin went. `wait`: the seconds that its answer asks for."""
        account = self._accounts[provider]
        if isinstance(outcome, AnsweredOutcome) and outcome.status in _SLOW_DOWN and wait and wait < ABSURD_SECONDS:
            self.hold(provider, wait, now)
            return
        if isinstance(outcome, AnsweredOutcome) and outcome.status < _SERVER_ERROR:
            self._well(provider, account, slower=outcome.status == 429)  # noqa: PLR2004 - Too Many Requests, without a time
        elif isinstance(outcome, AnsweredOutcome) or outcome.error not in _OURS:
            self._failed(provider, account, operation, outcome, now=now, chance=chance)

    def condition(self, provider: str, now: float) -> Condition:
        """Return how an account does."""
        account = self._accounts[provider]
        paused = max(0.0, account.held_until - now)
        state = ("open" if paused else "trying") if account.trips else "held" if paused else "closed"
        return Condition(
            state=state, failures=account.failures, paused_seconds=paused, in_flight=account.in_flight, window=_places(account)
        )

    @property
    def providers(self) -> tuple[str, ...]:
        """Return the names of all accounts."""
        return tuple(self._accounts)

    def _well(self, provider: str, account: _Account, *, slower: bool) -> None:
        if account.trips:
            _log.info("reconciler.circuit_closed", provider=provider, failures=account.failures)
            account.window = 1
        account.failures, account.trips = 0, 0
        account.failing.clear()
        account.window = max(1, account.window // 2) if slower else min(account.concurrency, account.window * 2)

    def _failed(self, provider: str, account: _Account, operation: str, outcome: Outcome, *, now: float, chance: float) -> None:
        account.failures += 1
        if len(account.failing) < OPERATIONS:
            account.failing.add(operation)
        if account.failures < RUN or len(account.failing) < OPERATIONS or now < account.held_until:
            return  # what was under way when the circuit opened does not open it further
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(account.trips, 16)) * (0.5 + chance / 2)
        account.trips += 1
        _pause(account, now + pause)
        word = f"http_{outcome.status}" if isinstance(outcome, AnsweredOutcome) else outcome.error
        _log.warning("reconciler.circuit_opened", provider=provider, failures=account.failures, seconds=round(pause, 1), error=word)


def _places(account: _Account) -> int:
    """Return how many calls may be under way at once."""
    if account.trips:  # a trial: more of them the longer the account has been gone, so that every deadline gets its read
        return max(1, min(1 << min(account.trips - 1, 16), account.concurrency // TRIALS))
    return account.window


def _pause(account: _Account, until: float) -> None:
    account.held_until = until
    # Afterwards the rate starts from one call, not from a saved-up burst, and so does the concurrency: no thundering herd.
    account.at = max(account.at, until)
    account.tokens = min(account.tokens, 1.0)
    account.window = 1


def _refill(account: _Account, now: float) -> None:
    if now > account.at:
        account.tokens = min(account.burst, account.tokens + (now - account.at) * account.rate)
        account.at = now

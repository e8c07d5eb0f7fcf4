"""The circuit of a provider account, its slow return, and its limits shared between processes; by a clock that the test moves (C3)."""

import pytest

from reconciler import conditions
from reconciler.pace import FIRST_PAUSE, LONGEST_PAUSE, RUN, Pace
from schemas.contract import Limits
from schemas.http import AnsweredOutcome, MaybeOutcome, NotSentOutcome, Outcome
from schemas.operation import SECOND

REFUSED, SILENT = NotSentOutcome(error="refused"), MaybeOutcome(error="timeout")
FINE, BUSY = AnsweredOutcome(status=200), AnsweredOutcome(status=429)


def _pace(concurrency: int = 16, rate: float = 100.0) -> Pace:
    limits = Limits(concurrency=concurrency, rate_per_second=rate)
    return Pace({"a": limits, "b": limits}, now=0.0)


def _hear(pace: Pace, *outcomes: Outcome, now: float = 0.0, chance: float = 1.0, wait: float | None = None) -> None:
    for number, outcome in enumerate(outcomes):
        pace.heard("a", f"op_{number % 3}", outcome, now=now, chance=chance, wait=wait)


@pytest.mark.parametrize(
    "outcome", [REFUSED, SILENT, AnsweredOutcome(status=500), AnsweredOutcome(status=503), MaybeOutcome(error="protocol")]
)
def test_a_run_of_failures_opens_the_circuit(outcome: Outcome) -> None:
    """C3: transport failures, nonsense and server errors in a row stop the calls to that account, and to no other."""
    pace = _pace()
    _hear(pace, *[outcome] * (RUN - 1))
    assert pace.room(0.0) == {"a": 16, "b": 16}
    _hear(pace, outcome)
    assert pace.room(0.0) == {"b": 16}
    condition = pace.condition("a", 0.0)
    assert (condition.state, condition.failures, condition.paused_seconds) == ("open", RUN, FIRST_PAUSE)
    assert pace.opens_in(0.0) == FIRST_PAUSE
    assert pace.condition("b", 0.0).state == "closed"


def test_an_answer_ends_a_run() -> None:
    """C3: failures between answers are single operations' troubles."""
    pace = _pace()
    for _ in range(20):
        _hear(pace, *[REFUSED] * (RUN - 1), AnsweredOutcome(status=404))
    assert pace.room(0.0) == {"a": 16, "b": 16}


def test_one_operation_alone_opens_no_circuit() -> None:
    """C3: a job that always gives a server error has its own back-off; the others of its account are not held up by it."""
    pace = _pace()
    for _ in range(RUN * 3):
        pace.heard("a", "op_poison", AnsweredOutcome(status=500), now=0.0, chance=0.5)
    assert pace.condition("a", 0.0).state == "closed"
    pace.heard("a", "op_other", AnsweredOutcome(status=500), now=0.0, chance=0.5)
    assert pace.condition("a", 0.0).state == "open"


@pytest.mark.parametrize(
    "error", ["too_late", "invalid_url", "forbidden_address", "forbidden_scheme", "invalid_request", "too_large", "encoded"]
)
def test_what_is_ours_does_not_count(error: str) -> None:
    """C3: a call that we did not make, or one answer that does not fit, says nothing of the account."""
    pace = _pace()
    _hear(pace, *[NotSentOutcome(error=error)] * RUN * 2, *[MaybeOutcome(error=error)] * RUN * 2)
    assert pace.condition("a", 0.0).failures == 0


def test_a_trial_that_fails_doubles_the_pause_up_to_a_minute() -> None:
    """C3: after each pause a few calls are tried, more of them the longer it lasts; the pause grows to its bound and no further."""
    pace, now = _pace(), 0.0
    _hear(pace, *[REFUSED] * RUN)
    pauses, trials = [], []
    for _ in range(9):
        condition = pace.condition("a", now)
        pauses.append(condition.paused_seconds)
        now += condition.paused_seconds
        assert pace.condition("a", now).state == "trying"
        now += 1.0  # a second of tokens
        trials.append(pace.room(now)["a"])
        _hear(pace, *[REFUSED] * trials[-1], now=now)
        assert "a" not in pace.room(now)
    assert pauses == [2.0, 4.0, 8.0, 16.0, 32.0, *[LONGEST_PAUSE] * 4]
    assert trials == [1, 2, 4, 4, 4, 4, 4, 4, 4]


def test_pauses_are_spread_by_chance() -> None:
    """B073: processes that lost the same provider in the same instant do not all try it again in the same instant."""
    found = set()
    for chance in (0.0, 0.25, 0.5, 0.99):
        pace = _pace()
        _hear(pace, *[REFUSED] * RUN, chance=chance)
        found.add(pace.condition("a", 0.0).paused_seconds)
    assert len(found) == 4
    assert min(found) >= FIRST_PAUSE / 2
    assert max(found) <= FIRST_PAUSE


def test_a_trial_that_is_answered_closes_the_circuit_and_the_load_comes_back_slowly() -> None:
    """C3: one call, then twice as many after each answer, up to the contract's concurrency."""
    pace = _pace()
    _hear(pace, *[REFUSED] * RUN)
    now = FIRST_PAUSE
    rooms = []
    for _ in range(7):
        now += 1.0
        rooms.append(pace.room(now)["a"])
        _hear(pace, FINE, now=now)
    assert rooms == [1, 2, 4, 8, 16, 16, 16]
    assert pace.condition("a", now).state == "closed"


def test_a_rate_limit_without_a_time_halves_what_runs_at_once() -> None:
    """C3: 429 without Retry-After is no outage; the account is called with fewer calls at once until answers come again."""
    pace = _pace()
    rooms = []
    for outcome in (BUSY, BUSY, FINE, BUSY, BUSY, BUSY, BUSY, BUSY):
        _hear(pace, outcome)
        rooms.append(pace.room(0.0)["a"])
    assert rooms == [8, 4, 8, 4, 2, 1, 1, 1]
    assert pace.condition("a", 0.0).state == "closed"


@pytest.mark.parametrize("status", [429, 503, 403])
def test_an_account_that_asks_to_wait_is_held_and_comes_back_slowly(status: int) -> None:
    """C3, B067: a wait holds that account for as long as asked, is no failure, and is followed by one call, not by a burst."""
    pace = _pace()
    _hear(pace, *[AnsweredOutcome(status=status)] * RUN * 2, wait=30.0)
    assert pace.condition("a", 0.0).state == "held"
    assert pace.room(29.9) == {"b": 16}
    assert pace.room(30.0) == {"a": 1, "b": 16}
    assert pace.room(40.0) == {"a": 1, "b": 16}, "one call, however long the rate has been saved up meanwhile"
    assert pace.condition("a", 30.0).failures == 0


def test_a_wait_of_nothing_does_not_hide_an_outage() -> None:
    """B064: 503 with `Retry-After: 0` is a failure like any other."""
    pace = _pace()
    _hear(pace, *[AnsweredOutcome(status=503)] * RUN, wait=0.0)
    assert pace.condition("a", 0.0).state == "open"


@pytest.mark.parametrize("status", [429, 503])
def test_an_absurd_wait_is_the_operations_alone(status: int) -> None:
    """B066: one answer that names a day or more is capped for its operation; the others of the account are called on."""
    pace = _pace()
    _hear(pace, AnsweredOutcome(status=status), wait=86_400.0)
    assert pace.condition("a", 0.0).state == "closed"
    assert pace.room(0.0)["a"] >= 8
    _hear(pace, AnsweredOutcome(status=status), wait=86_399.0)
    assert pace.condition("a", 0.0).state == "held"


def test_late_failures_of_the_same_outage_count_once() -> None:
    """C3: calls that were under way when the circuit opened do not open it further."""
    pace = _pace()
    _hear(pace, *[SILENT] * (RUN + 16))
    assert pace.condition("a", 0.0).paused_seconds == FIRST_PAUSE


def test_processes_share_the_limits_of_an_account() -> None:
    """C3: concurrency and rate are the account's: each of several processes takes its part, at least one call, and all of it when alone."""
    pace = _pace(concurrency=8, rate=40.0)
    pace.share(4, 0.0)
    assert pace.room(0.0)["a"] == 2
    for _ in range(2):
        pace.start("a", 0.0)
        pace.finish("a")
    for _ in range(8):
        pace.spend("a", 0.0)
    assert "a" not in pace.room(0.05)
    assert pace.room(0.1)["a"] == 1
    pace.share(100, 0.1)
    assert pace.room(10.0)["a"] == 1
    pace.share(1, 10.0)
    _hear(pace, *[FINE] * 4)
    assert pace.room(20.0)["a"] == 8


def test_what_processes_tell_of_accounts_is_read_back() -> None:
    """C3: heartbeats carry what is not well, with the seconds that are left; silent processes are not believed, nor counted."""
    pace = _pace()
    _hear(pace, *[REFUSED] * RUN)
    pace.hold("b", 100.0, 0.0)
    counts = conditions.counts(pace, 0.0)
    now = 1_000 * SECOND
    beats = [
        {"duty": "pace", "process": "p1", "last_at": now - SECOND, "counts": {**counts, "runs": 3}},
        {"duty": "pace", "process": "p2", "last_at": now, "counts": {"runs": 9}},
        {"duty": "pace", "process": "gone", "last_at": now - 61 * SECOND, "counts": counts},
        {"duty": "work", "process": "other", "last_at": now, "counts": {"a.open": 5}},
    ]
    assert conditions.processes(beats, now) == {"p1", "p2"}
    assert conditions.told(beats, now) == {
        "a": [conditions.Told(process="p1", state="open", failures=RUN, paused_seconds=1)],
        "b": [conditions.Told(process="p1", state="held", failures=0, paused_seconds=99)],
    }
    assert conditions.counts(_pace(), 0.0) == {}

"""Pace: concurrency, rate and holds of each provider account, by a clock that the test moves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.pace import MAX_HOLD_SECONDS, Pace
from schemas.contract import Limits


def _pace(concurrency: int = 4, rate: float = 10.0) -> Pace:
    limits = Limits(concurrency=concurrency, rate_per_second=rate)
    return Pace({"a": limits, "b": limits}, now=100.0)


def test_concurrency_bounds_what_is_in_flight() -> None:
    """No more errands than the contract's concurrency run at once; a finished one gives its place back (C3)."""
    pace = _pace(concurrency=2)
    for _ in range(2):
        pace.start("a", 100.0)
    assert pace.room(100.0) == {"b": 2}
    pace.finish("a")
    assert pace.room(100.0) == {"a": 1, "b": 2}


def test_rate_bounds_calls_over_time() -> None:
    """After a burst of one second's worth, calls come back at the rate; nothing is saved up beyond the burst (C3)."""
    pace = _pace(concurrency=100, rate=10.0)
    for _ in range(10):
        pace.start("a", 100.0)
    assert "a" not in pace.room(100.0)
    assert pace.opens_in(100.0) == pytest.approx(0.1)
    assert pace.room(100.35)["a"] == 3
    assert pace.room(9_999.0)["a"] == 10


def test_further_calls_of_an_errand_are_paid_later() -> None:
    """Pages and files of one errand are not held up, but later errands wait until the rate has caught up."""
    pace = _pace(concurrency=100, rate=10.0)
    pace.start("a", 100.0)
    for _ in range(19):
        pace.spend("a", 100.0)
    assert "a" not in pace.room(101.0)
    assert pace.room(101.11)["a"] == 1


def test_a_hold_slows_one_account_and_no_other() -> None:
    """429 with Retry-After stops that account until then, starts it again gently, and leaves others alone (C3)."""
    pace = _pace(concurrency=8, rate=10.0)
    pace.hold("a", 30.0, 100.0)
    assert pace.room(129.9) == {"b": 8}
    assert pace.opens_in(129.9) == pytest.approx(0.1)
    assert pace.room(130.0) == {"a": 1, "b": 8}


def test_holds_are_bounded_and_never_shortened() -> None:
    """An absurd Retry-After stops an account for an hour at most; a shorter later one does not cut a longer one (C3)."""
    pace = _pace()
    pace.hold("a", 1e12, 100.0)
    pace.hold("a", -5.0, 100.0)
    pace.hold("a", 1.0, 100.0)
    assert "a" not in pace.room(100.0 + MAX_HOLD_SECONDS - 1)
    assert "a" in pace.room(100.0 + MAX_HOLD_SECONDS)


def test_nothing_opens_by_time_where_every_place_is_taken() -> None:
    """Where only finished errands make room, no moment is named."""
    pace = Pace({"a": Limits(concurrency=1)}, now=0.0)
    pace.start("a", 0.0)
    assert pace.opens_in(0.0) is None


@given(
    concurrency=st.integers(1, 5),
    rate=st.floats(0.5, 20),
    moves=st.lists(st.one_of(st.just("start"), st.just("finish"), st.floats(0, 3)), max_size=80),
)
def test_any_course_keeps_both_bounds(concurrency: int, rate: float, moves: list[str | float]) -> None:
    """Starting only where there is room never exceeds the concurrency, nor rate x time + burst (C3)."""
    pace = Pace({"a": Limits(concurrency=concurrency, rate_per_second=rate)}, now=0.0)
    now, flying, started = 0.0, 0, 0
    for move in moves:
        if isinstance(move, float):
            now += move
        elif move == "finish" and flying:
            pace.finish("a")
            flying -= 1
        elif move == "start" and pace.room(now):
            pace.start("a", now)
            flying, started = flying + 1, started + 1
        assert flying <= concurrency
        assert started <= max(1.0, rate) + rate * now + 1e-6

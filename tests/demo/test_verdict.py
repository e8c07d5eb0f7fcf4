"""The verdict misses nothing: each thing that the script says is compared, and a difference in it alone is told."""

import hashlib
from typing import Any

import pytest

from cli.demo.script import Expected
from cli.demo.verdict import callback_differences, fact_differences, history_differences, read_differences, result_differences
from schemas.states import CancelOutcome

MADE = b"row\n1\n"
TOLD = {"complete": True, "items": {"succeeded": 498, "failed": 2}, "sha256": hashlib.sha256(MADE).hexdigest(), "accepted_by": None}
VIEW: dict[str, Any] = {"state": "succeeded", "status": "succeeded", "error": None, "cancel": None, "question": None, "result": TOLD}


def test_an_operation_as_scripted_has_no_difference() -> None:
    """The comparison itself invents nothing."""
    assert not list(fact_differences(Expected(), VIEW, 1))
    assert not list(result_differences(Expected(items=(498, 2)), TOLD, MADE, MADE))
    assert not list(result_differences(Expected(result=None), None, b"", b""))
    assert not list(callback_differences(Expected(), [200]))
    assert not list(read_differences(Expected(reads=2, downloads=1), 3, 1))
    assert not list(read_differences(Expected(), 0, 7))
    assert not list(history_differences(Expected(codes=("a",), deliveries=0), [{"code": "a", "cause": "reading"}]))


@pytest.mark.parametrize(
    ("change", "jobs", "name"),
    [
        ({"state": "failed"}, 1, "state"),
        ({"status": "running"}, 1, "status"),
        ({"error": {"code": "late"}}, 1, "error"),
        ({"cancel": {"outcome": "taken"}}, 1, "cancel.outcome"),
        ({"question": {"kind": "incident"}}, 1, "open question"),
        ({"result": {**TOLD, "accepted_by": "pat"}}, 1, "accepted by a person"),
        ({}, 2, "remote jobs"),
        ({}, 0, "remote jobs"),
    ],
)
def test_each_fact_alone_is_told(change: dict[str, Any], jobs: int, name: str) -> None:
    """Issue 2 point 12: state, public status, error code and the number of remote jobs are compared, and more."""
    differences = list(fact_differences(Expected(), {**VIEW, **change}, jobs))
    assert [text.partition(":")[0] for text in differences] == [name]


def test_a_cancel_that_came_to_something_else_is_told() -> None:
    """E2, E4: what became of a cancel is part of the script."""
    wanted = Expected(cancel=CancelOutcome.REFUSED)
    assert list(fact_differences(wanted, {**VIEW, "cancel": {"outcome": "lost_race"}}, 1))
    assert not list(fact_differences(wanted, {**VIEW, "cancel": {"outcome": "refused"}}, 1))


@pytest.mark.parametrize(
    ("told", "content", "made"),
    [
        (TOLD, b"row\n2\n", MADE),
        (TOLD, MADE, b"row\n2\n"),
        ({**TOLD, "sha256": "0" * 64}, MADE, MADE),
        ({**TOLD, "complete": False}, MADE, MADE),
        ({**TOLD, "items": {"succeeded": 499, "failed": 1}}, MADE, MADE),
        ({**TOLD, "sha256": hashlib.sha256(b"").hexdigest()}, b"", b""),
        (None, b"", MADE),
    ],
)
def test_another_result_is_told(told: dict[str, Any] | None, content: bytes, made: bytes) -> None:
    """F1: what the agent downloads is, by its SHA-256, what the provider made and what the record says."""
    assert len(list(result_differences(Expected(items=(498, 2)), told, content, made))) == 1


def test_an_unwanted_result_is_told() -> None:
    """A failed operation has none."""
    assert list(result_differences(Expected(result=None), TOLD, MADE, MADE))


@pytest.mark.parametrize("tries", [[], [401], [200, 200], [None]])
def test_other_answers_to_callbacks_are_told(tries: list[int | None]) -> None:
    """B1, B4: how many callbacks were tried and how each was answered is compared."""
    assert list(callback_differences(Expected(), tries))


def test_what_the_history_lacks_is_told() -> None:
    """D4: the way matters, not only the end."""
    assert list(history_differences(Expected(codes=("recovered",)), [{"code": "accepted", "cause": "reading"}]))
    assert list(history_differences(Expected(deliveries=1), [{"code": "delivery", "cause": "delivery", "cause_id": name} for name in "ab"]))
    assert not list(history_differences(Expected(deliveries=1), [{"code": "delivery", "cause": "delivery", "cause_id": "a"}] * 2))


def test_a_result_that_was_fetched_twice_is_told() -> None:
    """F4: how often the provider was asked for a result that may be read once is compared; so are the reads."""
    assert list(read_differences(Expected(downloads=1), 1, 2)) == ["downloads: expected 1, got 2"]
    assert list(read_differences(Expected(reads=2), 1, 0)) == ["reads: expected at least 2, got 1"]

"""Status answers of real APIs: outcomes behind a terminal word, an HTTP status as the state, progress in other scales (C4, C5)."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.interpret import status
from schemas.contract import Contract, OutcomeRule, StatusRule
from schemas.evidence import JobsConflict, Read, ReadFailed, StatusFacts
from schemas.operation import SECOND
from schemas.states import ENDED_READINGS, Mode, Reading
from tests.providers.job_values import HTML, NOW, an_operation, answer, json_values


def contract(**rule: Any) -> Contract:
    return Contract(name="c", digest="d", status=StatusRule(**rule))


def facts(contract_: Contract, code: int = 200, body: Any = None, **headers: str) -> StatusFacts:
    found = status(answer(code, body, **headers), an_operation(), contract_, NOW)
    assert isinstance(found, Read), found
    return found.facts


FAL = contract(
    readings={"IN_QUEUE": Reading.QUEUED},
    outcome=(OutcomeRule(words=("COMPLETED",), at="body:error", present=Reading.FAILED, absent=Reading.SUCCEEDED),),
    error="body:error",
)
BATCH = contract(
    state="body:processing_status",
    readings={"in_progress": Reading.RUNNING},
    outcome=(
        OutcomeRule(words=("ended",), at="body:request_counts.succeeded", present=Reading.SUCCEEDED),
        OutcomeRule(words=("ended",), at="body:request_counts.errored", present=Reading.FAILED),
        OutcomeRule(words=("ended",), at="body:request_counts.canceled", present=Reading.CANCELLED),
        OutcomeRule(words=("ended",), at="body:request_counts.expired", present=Reading.EXPIRED),
    ),
)
RUNS = contract(
    readings={"queued": Reading.QUEUED, "in_progress": Reading.RUNNING},
    outcome=(
        OutcomeRule(
            words=("completed",),
            at="body:conclusion",
            readings={"success": Reading.SUCCEEDED, "failure": Reading.FAILED, "timed_out": Reading.FAILED, "cancelled": Reading.CANCELLED},
        ),
    ),
)
OPERATIONS = contract(
    state="body:done || `false`",
    readings={"false": Reading.RUNNING},
    outcome=(
        OutcomeRule(words=("true",), at="body:error.code", readings={"1": Reading.CANCELLED}, present=Reading.FAILED),
        OutcomeRule(words=("true",), at="body:response", present=Reading.SUCCEEDED),
    ),
    error="body:error",
)


@pytest.mark.parametrize(
    ("rules", "body", "reading", "shown"),
    [
        (FAL, {"status": "IN_QUEUE", "error": "x"}, Reading.QUEUED, "IN_QUEUE"),
        (FAL, {"status": "COMPLETED"}, Reading.SUCCEEDED, "COMPLETED"),
        (FAL, {"status": "COMPLETED", "error": None}, Reading.SUCCEEDED, "COMPLETED"),
        (FAL, {"status": "COMPLETED", "error": "out of memory"}, Reading.FAILED, "COMPLETED/out of memory"),
        (FAL, {"status": "COMPLETED", "error": {"type": "x"}}, Reading.FAILED, "COMPLETED"),
        (BATCH, {"processing_status": "in_progress", "request_counts": {"succeeded": 1}}, Reading.RUNNING, "in_progress"),
        (BATCH, {"processing_status": "ended", "request_counts": {"succeeded": 498, "errored": 2}}, Reading.SUCCEEDED, "ended/498"),
        (BATCH, {"processing_status": "ended", "request_counts": {"succeeded": 0, "errored": 2}}, Reading.FAILED, "ended/2"),
        (BATCH, {"processing_status": "ended", "request_counts": {"errored": 0, "canceled": 3}}, Reading.CANCELLED, "ended/3"),
        (BATCH, {"processing_status": "ended", "request_counts": {"expired": 3}}, Reading.EXPIRED, "ended/3"),
        (BATCH, {"processing_status": "ended", "request_counts": {}}, Reading.UNKNOWN, "ended"),
        (BATCH, {"processing_status": "ended"}, Reading.UNKNOWN, "ended"),
        (RUNS, {"status": "completed", "conclusion": "success"}, Reading.SUCCEEDED, "completed/success"),
        (RUNS, {"status": "completed", "conclusion": "timed_out"}, Reading.FAILED, "completed/timed_out"),
        (RUNS, {"status": "completed", "conclusion": "Success"}, Reading.UNKNOWN, "completed"),
        (RUNS, {"status": "completed", "conclusion": "stale"}, Reading.UNKNOWN, "completed"),
        (RUNS, {"status": "completed", "conclusion": None}, Reading.UNKNOWN, "completed"),
        (RUNS, {"status": "completed"}, Reading.UNKNOWN, "completed"),
        (RUNS, {"status": "in_progress", "conclusion": "success"}, Reading.RUNNING, "in_progress"),
        (OPERATIONS, {"name": "o/1"}, Reading.RUNNING, "false"),
        (OPERATIONS, {"name": "o/1", "done": False}, Reading.RUNNING, "false"),
        (OPERATIONS, {"done": True, "response": {"@type": "x"}}, Reading.SUCCEEDED, "true"),
        (OPERATIONS, {"done": True, "error": {"code": 1, "message": "cancelled"}}, Reading.CANCELLED, "true/1"),
        (OPERATIONS, {"done": True, "error": {"code": 13, "message": "boom"}}, Reading.FAILED, "true/13"),
        (OPERATIONS, {"done": True}, Reading.UNKNOWN, "true"),
    ],
)
def test_a_second_place_decides_how_it_ended(rules: Contract, body: Any, reading: Reading, shown: str) -> None:
    """C4, B071: the word and its outcome are both shown; what no rule explains is unknown and no end."""
    found = facts(rules, body=body)
    assert (found.reading, found.remote_state) == (reading, shown)


@given(second=json_values, word=st.sampled_from(["completed", "Completed", "done", ""]))
def test_no_second_word_outside_the_table_is_an_end(second: Any, word: str) -> None:
    """B071: whatever a provider says there."""
    found = status(answer(200, {"status": word, "conclusion": second}), an_operation(), RUNS, NOW)
    if isinstance(found, Read) and found.facts.reading in ENDED_READINGS:
        assert word == "completed"
        assert second in ("success", "failure", "timed_out", "cancelled")


POLL = contract(
    state="", http_readings={"202": Reading.RUNNING, "200": Reading.SUCCEEDED, "409": Reading.FAILED}, ok=(), error="body:error"
)


@pytest.mark.parametrize(
    ("code", "body", "reading"),
    [
        (202, None, Reading.RUNNING),
        (202, b"not json", Reading.RUNNING),
        (200, {"result": 1}, Reading.SUCCEEDED),
        (404, None, Reading.ABSENT),
    ],
)
def test_an_http_status_may_be_the_state(code: int, body: Any, reading: Reading) -> None:
    """C4: 202 until done, then 200; the body is not needed for it."""
    found = facts(POLL, code, body)
    assert (found.reading, found.remote_state) == (reading, f"http_{code}")


def test_a_status_that_is_a_failure_keeps_its_words() -> None:
    """A10: the explanation is the contract's place."""
    found = facts(POLL, 409, {"error": {"code": "InvalidImage", "message": "too small"}})
    assert (found.reading, found.error_code, found.error_message) == (Reading.FAILED, "InvalidImage", "too small")


@pytest.mark.parametrize("outcome", [answer(200, HTML), answer(202, HTML, content_type="text/html"), answer(500), answer(302), answer(204)])
def test_a_page_or_another_status_is_still_no_answer(outcome: Any) -> None:
    """B069: a login page with 200 is not a finished job."""
    assert isinstance(status(outcome, an_operation(), POLL, NOW), ReadFailed)


def test_the_status_can_be_the_state_for_some_answers_and_the_body_for_others() -> None:
    """C4: 202 alone, and words in a 200."""
    both = contract(http_readings={"202": Reading.QUEUED}, readings={"COMPLETED": Reading.SUCCEEDED})
    assert facts(both, 202, {"status": "COMPLETED"}).reading is Reading.QUEUED
    assert facts(both, 200, {"status": "COMPLETED"}).reading is Reading.SUCCEEDED


@pytest.mark.parametrize(
    ("value", "scale", "shown"),
    [
        (45, 100.0, 0.45), ("45", 100.0, 0.45), ("45%", 100.0, 0.45), (" 45.5% ", 100.0, 0.455), (0.5, 1.0, 0.5), (130, 100.0, 1.0),
        (-5, 100.0, 0.0), (7, 14.0, 0.5), ("half", 100.0, None), ("1e3", 100.0, None), (True, 1.0, None), (None, 1.0, None),
        ([5], 1.0, None), (10**400, 1.0, None),
    ],
)  # fmt: skip
def test_progress_is_shown_in_one_scale_and_never_outside_of_it(value: Any, scale: float, shown: float | None) -> None:
    """C5: by the contract's scale, cut to 0 and 1; what is no number is not said."""
    rules = contract(readings={"running": Reading.RUNNING}, progress="body:progress", progress_scale=scale)
    assert facts(rules, body={"status": "running", "progress": value}).progress == shown


def test_a_retry_after_of_an_answer_is_when_it_is_worth_asking_again() -> None:
    """C3, B067: also of a 200 and a 202, not only of a refusal."""
    for code in (200, 202):
        found = status(answer(code, {"x": 1}, retry_after="30"), an_operation(), POLL, NOW)
        assert isinstance(found, Read)
        assert found.next_after == NOW + 30 * SECOND


MARKED = contract(readings={"done": Reading.SUCCEEDED}, match="body:metadata.operation")


@pytest.mark.parametrize(
    ("mark", "ours"), [("op_0198", True), (None, True), ("", True), ({}, True), ("op_0199", False), ("op_0198 ", False)]
)
def test_a_job_with_another_operations_mark_is_not_ours(mark: Any, *, ours: bool) -> None:
    """A8, B061: what a pointer or an old id leads to is judged by its own echo; none at all speaks neither way."""
    found = status(answer(200, {"status": "done", "metadata": {"operation": mark}}), an_operation(), MARKED, NOW)
    assert isinstance(found, Read) is ours
    if not ours:
        assert isinstance(found, JobsConflict)
        assert found.code == "job_not_ours"


def test_the_mark_of_an_adopted_job_is_its_own_affair() -> None:
    """A11: a job that another service made carries that service's mark."""
    adopted = replace(an_operation(), mode=Mode.ADOPT)
    assert isinstance(status(answer(200, {"status": "done", "metadata": {"operation": "theirs"}}), adopted, MARKED, NOW), Read)

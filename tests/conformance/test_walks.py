"""The two-way sweep in the record: what a walk may conclude, on both databases (C9)."""

from typing import Any

import pytest

from ledger.engine import Engines
from ledger.transaction import View
from ledger.vault import Vault
from ledger.walks import KEPT_SECONDS, MAX_FAILURES, claim_walks, findings, settle_walks, walks
from schemas.evidence import JobKnown
from schemas.operation import SECOND
from schemas.states import Errand, Mode, Reading
from schemas.sweeping import ClaimWalks, Listed, SettleWalk, Walk, WalkSettled
from tests.conformance.house import NOW, Record, intent, reading

HOUR = 3_600
GRACE = 600 * SECOND


@pytest.fixture
def record(engines: Engines, vault: Vault) -> Record:
    return Record(engines=engines, vault=vault)


def claim(record: Record, after: int = 0) -> Walk | None:
    return record.tx(claim_walks, ClaimWalks(pauses={"reports": HOUR}, lease=60 * SECOND, now=NOW + after * SECOND))[0]


def settle(record: Record, walk: Walk, outcome: Any, *items: Listed, after: int = 0, **more: Any) -> WalkSettled:
    due = NOW + (after + more.pop("pause", HOUR)) * SECOND
    command = SettleWalk(
        walk=walk, outcome=outcome, items=items, due_at=due, grace=GRACE, overlap=HOUR * SECOND, now=NOW + after * SECOND, **more
    )  # fmt: skip
    return record.tx(settle_walks, command)[0]


def job(name: str, reference: str = "", age: int | None = HOUR, after: int = 0) -> Listed:
    return Listed(remote_job_id=name, reference=reference, made_at=None if age is None else NOW + (after - age) * SECOND)


def found(record: Record, *, resolved: bool = False) -> list[tuple[str, str, str]]:
    with record.engines.read.begin() as connection:
        rows = findings(View(connection, record.vault), None, 100, resolved=resolved)
    return sorted((row["kind"], row["remote_job_id"], row["operation"]) for row in rows)


def whole(record: Record, *items: Listed, after: int = 0) -> WalkSettled:
    """Walk a list of one page."""
    walk = claim(record, after)
    assert walk is not None
    return settle(record, walk, "end", *items, after=after)


def test_a_job_without_a_record_is_a_leak_until_somebody_adopts_it(record: Record) -> None:
    """C9: reported once, listed until its job has an owner, kept a month longer; jobs on record are none."""
    record.accept(1, "job-1")
    answer = whole(record, job("job-1"), job("job-x"))
    assert dict(answer.new) == {"leak": 1}
    assert found(record) == [("leak", "job-x", "")]
    assert dict(whole(record, job("job-1"), job("job-x"), after=2 * HOUR).new) == {}
    record.register(intent(2, mode=Mode.ADOPT, remote_job_id="job-x"))
    whole(record, job("job-1"), job("job-x"), after=4 * HOUR)
    assert found(record) == []
    assert found(record, resolved=True) == [("leak", "job-x", "")]
    whole(record, job("job-1"), job("job-x"), after=5 * HOUR + KEPT_SECONDS)
    assert found(record, resolved=True) == []


@pytest.mark.parametrize("by", ["id", "token"])
def test_a_second_job_of_an_operation_is_a_duplicate(record: Record, by: str) -> None:
    """C9, A8: a job whose echo names an operation that has another job."""
    record.accept(1, "job-1")
    echo = intent(1).id if by == "id" else intent(1).idempotency_token
    assert dict(whole(record, job("job-1", echo), job("job-1b", echo)).new) == {"duplicate": 1}
    assert found(record) == [("duplicate", "job-1b", intent(1).id)]


def test_what_may_still_find_its_other_half_is_not_reported(record: Record) -> None:
    """C9: a young job's create answer may be on its way, and an open create looks its own job up."""
    record.register(intent(1))
    assert dict(whole(record, job("job-1", intent(1).id), job("job-young", age=60)).new) == {}
    assert found(record) == []
    assert dict(whole(record, job("job-young", age=2 * HOUR, after=2 * HOUR), after=2 * HOUR).new) == {"leak": 1}


def test_a_job_without_a_time_is_reported_when_it_is_seen_again(record: Record) -> None:
    """C9: where the list says no times, the first sight counts."""
    assert dict(whole(record, job("job-x", age=None)).new) == {}
    assert dict(whole(record, job("job-x", age=None), after=HOUR).new) == {"leak": 1}


def test_a_job_of_an_operation_that_ended_without_one_is_a_leak_that_names_it(record: Record) -> None:
    """C9: we said that nothing was created, and here it is."""
    from schemas.evidence import CreateRejected

    record.register(intent(1))
    (create,) = record.claim()
    record.settle(create, CreateRejected(code="http_422", status=422))
    whole(record, job("job-1", intent(1).id))
    assert found(record) == [("leak", "job-1", intent(1).id)]


def test_a_record_whose_job_is_not_listed_is_missing_until_it_is_or_ends(record: Record) -> None:
    """C9: only a whole walk says so; a listed job or an ended operation resolves it."""
    record.accept(1, "job-1")
    record.accept(2, "job-2")
    walk = claim(record, HOUR)
    assert walk is not None
    assert dict(settle(record, walk, "cut", job("job-9", age=HOUR), after=HOUR, error="list too long").new) == {"leak": 1}
    assert ("missing", "job-1", intent(1).id) not in found(record)
    whole(record, after=2 * HOUR)
    assert [kind for kind, _, _ in found(record)].count("missing") == 2
    read = next(item for item in record.claim(after=60 * SECOND) if item.operation.id == intent(2).id)
    record.settle(read, reading(Reading.FAILED, has_result=False), after=60 * SECOND)
    whole(record, job("job-1", after=4 * HOUR), after=4 * HOUR)
    assert [item for item in found(record) if item[0] == "missing"] == []


def test_a_list_of_another_kind_of_jobs_says_nothing_about_this_one(record: Record) -> None:
    """C9: only operations of the kinds that are listed can be missing; a finding of a former contract is closed."""
    record.accept(1, "job-1")
    assert whole(record, after=HOUR).new == {"missing": 1}
    walk = claim(record, 2 * HOUR)
    assert walk is not None
    assert settle(record, walk, "end", after=2 * HOUR, actions=("another",)).new == {}
    assert found(record) == []
    walk = claim(record, 3 * HOUR)
    assert walk is not None
    assert settle(record, walk, "end", after=3 * HOUR, actions=("another", intent(1).action)).new == {"missing": 1}


def test_a_walk_back_to_the_watermark_says_nothing_about_older_jobs(record: Record) -> None:
    """C9: a newest-first list that was walked in part: what lies behind its reach is not missing, what lies within is."""
    record.now = NOW
    record.accept(1, "job-old")
    record.now = NOW + 10 * HOUR * SECOND
    record.accept(2, "job-new")
    record.register(intent(3, mode=Mode.ADOPT, remote_job_id="job-adopted"))
    whole(record, job("job-old"), job("job-a", age=0, after=9 * HOUR), after=9 * HOUR)  # the watermark
    answer = whole(record, job("job-b", age=0, after=9 * HOUR), after=12 * HOUR)
    assert answer.new["missing"] == 1
    assert [item for item in found(record) if item[0] == "missing"] == [("missing", "job-new", intent(2).id)]


def test_a_walk_goes_on_where_it_was_and_its_former_holder_counts_for_nothing(record: Record) -> None:
    """C1, C9: the cursor stands in the record; a lease that was taken over writes nothing."""
    first = claim(record)
    assert first is not None
    settle(record, first, "more", job("job-1"), cursor="c1", pause=60)
    assert claim(record) is None  # leased
    second = claim(record, 60)
    assert second is not None
    assert (second.cursor, second.pages, second.began_at) == ("c1", 1, NOW)
    assert settle(record, first, "end", job("job-2"), after=60) == WalkSettled(kept=False, new={})
    assert settle(record, second, "end", after=60).kept
    assert found(record) == [("leak", "job-1", "")]
    third = claim(record, 2 * HOUR)
    assert third is not None
    assert (third.cursor, third.watermark) == ("", NOW - HOUR * SECOND)


def test_a_cursor_that_keeps_failing_is_given_up_and_a_pause_counts_as_no_failure(record: Record) -> None:
    """C9: an expired cursor does not stop the sweep for ever."""
    walk = claim(record)
    assert walk is not None
    settle(record, walk, "more", cursor="c1", pause=0)
    for failures in range(MAX_FAILURES):
        walk = claim(record)
        assert walk is not None
        assert (walk.cursor, walk.failures) == ("c1", failures)
        settle(record, walk, "paused", pause=0)
        walk = claim(record)
        assert walk is not None
        settle(record, walk, "failed", error="http_400", pause=0)
    walk = claim(record)
    assert walk is not None
    assert (walk.cursor, walk.failures) == ("", 0)
    with record.engines.read.begin() as connection:
        assert walks(View(connection, record.vault))[0]["error"] == "http_400"


def test_findings_are_bounded(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    """B115: an account that others share fills no disk; what is beyond is counted."""
    monkeypatch.setattr("ledger.walks.MAX_OPEN", 2)
    answer = whole(record, job("a"), job("b"), job("c"))
    assert dict(answer.new) == {"leak": 2, "beyond_bound": 1}


def test_the_sweep_moves_nothing(record: Record) -> None:
    """C9: operations and their histories are the same before and after whatever it finds."""
    record.accept(1, "job-1")
    before = record.claim(after=60 * SECOND)
    whole(record, job("job-1b", intent(1).id), after=HOUR)
    assert [item.errand for item in before] == [Errand.READ]
    settled = record.settle(before[0], JobKnown(remote_job_id="job-1", source="recovery"), after=60 * SECOND)
    assert settled.operation.history_seq == before[0].operation.history_seq
    assert record.faults() == []

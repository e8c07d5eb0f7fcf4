"""The record of a result on both databases: what it consists of, how long it is kept, and who may have consumed it (F1, F4-F6)."""

from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from ledger import tables
from ledger.engine import Engines
from ledger.history import read_changes
from ledger.petition import petition
from ledger.rows import from_row
from ledger.vault import Vault
from schemas.commands import Claimed, Petition
from schemas.evidence import Answered, Collected, CollectFailed, Items, JobKnown, NotSent, ResultGone, ResultInvalid, StoredFile
from schemas.operation import SECOND, Expect, Operation
from schemas.states import Answer, Errand, Question, Reading, State
from tests.conformance.house import LEASE, NOW, REPORTS, Record, intent, reading

assert REPORTS.result is not None
ONE_SHOT = replace(REPORTS, result=replace(REPORTS.result, one_shot=True))
FILES = (
    StoredFile(role="output", key="art_1", media_type="application/jsonl", bytes=3, sha256="0" * 64),
    StoredFile(role="errors", key="art_2", media_type="application/jsonl", bytes=5, sha256="1" * 64),
)
ITEMS = Items(succeeded=498, failed=2, missing=0, duplicates=1, unreadable=1, failed_refs=("invoice-17", "line 3"))
SHORT = replace(ITEMS, missing=2)
OP = intent(1).id


@pytest.fixture
def record(engines: Engines, vault: Vault) -> Record:
    return Record(engines, vault)


def collecting(record: Record, lease: int = LEASE, **changes: Any) -> Claimed:
    """Register, accept and end one operation, and lease its collection."""
    record.register(intent(1, **changes))
    (item,) = record.claim()
    record.settle(item, JobKnown(remote_job_id="job-1", source="create"))
    record.settle(record.claim(after=60 * SECOND)[0], reading(Reading.SUCCEEDED), after=60 * SECOND)
    (item,) = record.claim(after=61 * SECOND, lease=lease)
    assert item.errand is Errand.COLLECT
    return item


def operation(record: Record) -> Operation:
    with record.engines.read.begin() as connection:
        return from_row(connection.execute(sa.select(tables.operations)).one(), record.vault)


def answer(record: Record, given: Answer, question: Question) -> str:
    op = operation(record)
    assert op.question_id is not None
    evidence = Answered(by="ada", question_id=op.question_id, question=question, answer=given, reason="seen")
    command = Petition(operation_id=OP, owner="acme", actor="ada", evidence=evidence, now=record.now + 200 * SECOND, chance=0.5)
    return record.tx(petition, command)[0].outcome


def test_a_result_with_its_items_is_on_record(record: Record) -> None:
    """Counts and files are folded, names of items are sealed and in the erasable text alone (F5)."""
    done = Collected(files=FILES, records=500, items=ITEMS)
    record.settle(collecting(record), done, after=61 * SECOND)
    op = operation(record)
    assert (op.state, op.result_complete, op.failed_refs) == (State.SUCCEEDED, True, ITEMS.failed_refs)
    assert op.result_facts is not None
    assert op.result_facts["items"] == {"succeeded": 498, "failed": 2, "missing": 0, "duplicates": 1, "unreadable": 1}
    assert op.result_facts["records"] == 500
    assert [file["key"] for file in op.result_facts["files"]] == ["art_1", "art_2"]
    with record.engines.read.begin() as connection:
        rows = connection.execute(sa.select(tables.history).order_by(tables.history.c.seq)).all()
        raw = connection.execute(sa.select(tables.operations.c.failed_refs)).scalar_one()
    assert read_changes(rows[-1].changes)["result_facts"] == op.result_facts
    assert b"invoice-17" not in b"".join([raw, *(row.changes for row in rows)])
    assert not record.faults()


def test_a_success_with_missing_items_is_not_complete(record: Record) -> None:
    """Where the contract lets items be missing, the record says that they are (F5)."""
    record.settle(collecting(record), Collected(files=FILES, items=replace(ITEMS, missing=3)), after=61 * SECOND)
    op = operation(record)
    assert (op.state, op.result_complete) == (State.SUCCEEDED, False)
    assert not record.faults()


def test_what_is_expected_survives_the_record(record: Record) -> None:
    """Schema and number of records come back as they were asked for (F2)."""
    expect = Expect(json_schema={"type": "object", "properties": {"n": {"maximum": 1.5}}}, records_min=1, records_max=9)
    collecting(record, expect=expect)
    assert operation(record).expect == expect


def test_a_lost_reading_of_a_one_shot_result_is_looked_for_and_not_repeated(record: Record) -> None:
    """An open attempt that is not ours: the next errand only looks into our own store, found or lost (F4)."""
    record.contracts["reports"] = ONE_SHOT
    lost = collecting(record, lease=1)
    assert lost.attempt_id is not None  # committed before any byte
    (second,) = record.claim("w2", after=63 * SECOND)
    assert (second.errand, second.attempt_id, second.operation.consumed_by) == (Errand.COLLECT, None, lost.attempt_id)
    assert second.operation.state is State.RESULT_COLLECTING
    found = record.settle(second, Collected(files=FILES), after=110 * SECOND).operation
    assert (found.state, found.result_artifact) == (State.SUCCEEDED, "art_1")
    assert not record.faults()


def test_a_lost_one_shot_result_is_a_question_and_a_late_worker_answers_it(record: Record) -> None:
    """Not found: a person is asked. The worker that was only slow brings it after all, and the operation has its end (F4)."""
    record.contracts["reports"] = ONE_SHOT
    slow = collecting(record, lease=1)
    (second,) = record.claim("w2", after=63 * SECOND)
    gone = record.settle(second, ResultGone(code="one_shot_lost", message="not here"), after=110 * SECOND).operation
    assert (gone.state, gone.error_code) == (State.RESULT_UNAVAILABLE, "one_shot_lost")
    late = record.settle(slow, Collected(files=FILES), after=120 * SECOND).operation
    assert (late.state, late.error_code, late.question_id, late.result_artifact) == (State.SUCCEEDED, None, None, "art_1")
    assert not record.faults()


def test_a_person_may_have_a_lost_one_shot_result_read_again(record: Record) -> None:
    """Lost and not found: `retry` is a decision to read at the provider again, under an attempt of its own (F4)."""
    record.contracts["reports"] = ONE_SHOT
    collecting(record, lease=1)
    (second,) = record.claim("w2", after=63 * SECOND)
    record.settle(second, ResultGone(code="one_shot_lost", message="not here"), after=110 * SECOND)
    assert answer(record, Answer.RETRY, Question.RESULT_UNAVAILABLE) == "applied"
    (third,) = record.claim(after=201 * SECOND)
    assert (third.errand, third.operation.consumed_by) == (Errand.COLLECT, None)
    assert third.attempt_id is not None
    assert not record.faults()


def test_what_consumed_nothing_may_be_tried_again(record: Record) -> None:
    """Not sent, or refused before reading: the attempt is closed and a new one opened; a person's retry reads anew (F4)."""
    record.contracts["reports"] = ONE_SHOT
    first = collecting(record)
    record.settle(first, NotSent(errand=Errand.COLLECT, error="http_503"), after=61 * SECOND)
    (again,) = record.claim(after=100 * SECOND)
    assert again.attempt_id not in {None, first.attempt_id}
    record.settle(again, ResultGone(code="one_shot_lost", message="cut"), after=100 * SECOND)
    assert answer(record, Answer.RETRY, Question.RESULT_UNAVAILABLE) == "applied"
    (third,) = record.claim(after=201 * SECOND)
    assert (third.errand, third.operation.consumed_by) == (Errand.COLLECT, None)
    assert third.attempt_id is not None
    assert not record.faults()


@pytest.mark.parametrize(
    ("given", "state", "error"),
    [
        (Answer.ACCEPT_RESULT, State.SUCCEEDED, None),
        (Answer.REJECT, State.FAILED, "result_rejected"),
        (Answer.RETRY, State.RESULT_COLLECTING, None),
        (Answer.ABANDON, State.ABANDONED, "items_missing"),
    ],
)
def test_a_person_answers_for_a_result_that_does_not_fit(record: Record, given: Answer, state: State, error: str | None) -> None:
    """What failed validation is kept with its counts; every answer leads where the table says (F2)."""
    invalid = ResultInvalid(code="items_missing", message="2 items are in none of the files", files=FILES, items=SHORT)
    record.settle(collecting(record), invalid, after=61 * SECOND)
    parked = operation(record)
    assert (parked.state, parked.error_code) == (State.RESULT_VALIDATION_FAILED, "items_missing")
    assert parked.result_facts is not None
    assert answer(record, given, Question.RESULT_VALIDATION_FAILED) == "applied"
    op = operation(record)
    assert (op.state, op.error_code) == (state, error)
    assert op.accepted_by == ("ada" if given is Answer.ACCEPT_RESULT else None)
    assert op.result_complete is (False if given is Answer.ACCEPT_RESULT else None)  # accepted as it is: two items stay missing
    assert not record.faults()


def test_collecting_ends_with_its_clock(record: Record) -> None:
    """Failures until the earlier of the caller's and the provider's time are over: a question, not a silence (F1, F6)."""
    assert REPORTS.result is not None
    record.contracts["reports"] = replace(REPORTS, result=replace(REPORTS.result, retention_seconds=100))
    item = collecting(record)
    assert item.operation.collect_deadline == NOW + 160 * SECOND  # the provider's 100 s, not the caller's 600
    record.settle(item, CollectFailed(error="timeout"), after=62 * SECOND)
    (item,) = record.claim(after=162 * SECOND)
    op = record.settle(item, CollectFailed(error="timeout"), after=162 * SECOND).operation
    assert (op.state, op.error_code) == (State.RESULT_UNAVAILABLE, "collect_deadline")
    assert not record.faults()

"""Items of a batch: each is counted once, and none is passed over in silence (F2, F5)."""

import gzip
import json
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from providers.items import MAX_REFS, Scan, Tally, verdict
from providers.json_schema import compiled
from schemas.contract import ItemsRule, ResultFile, ResultRule
from schemas.evidence import Items
from schemas.operation import Expect

OUTPUT = ResultFile(format="jsonl", items=ItemsRule(id="custom_id", outcome="response.status_code", ok=("2xx",), error="error"))
ERRORS = ResultFile(role="errors", format="jsonl", items=ItemsRule(id="custom_id", error="error", failed=True))
RULE = ResultRule(files=(OUTPUT, ERRORS))


def lines(*values: Any) -> bytes:
    return b"".join(value if isinstance(value, bytes) else json.dumps(value).encode() + b"\n" for value in values)


def good(name: Any, status: Any = 200) -> dict[str, Any]:
    return {"custom_id": name, "response": {"status_code": status, "body": {"value": 1}}, "error": None}


def told(files: Sequence[tuple[ResultFile, bytes]], *, rule: ResultRule = RULE, expect: Expect | None = None, piece: int = 7) -> Tally:
    """Return the tally of some files, fed in small pieces."""
    expect = expect or Expect()
    schema = compiled(expect.json_schema) if expect.json_schema is not None else None
    counts = expect.records_min is not None or expect.records_max is not None
    tally = Tally()
    for index, (file, data) in enumerate(files):
        main = index == 0
        scan = Scan(file, rule, tally, schema=schema if main else None, count=main and counts, media_type=file.media_type)
        for start in range(0, len(data), piece):
            scan.feed(data[start : start + piece])
        scan.end()
    return tally


def judged(
    tally: Tally, total: int | None = None, *, rule: ResultRule = RULE, expect: Expect | None = None, done: bool = True
) -> str | None:
    found = verdict(tally, tally.items(total), rule, expect or Expect(), succeeded=done)
    return found[0] if found is not None else None


def test_rows_inside_a_good_answer_are_judged_one_by_one() -> None:
    """Good, an inner 400 with `error: null`, an error, a second record, one that names nobody: exact counts (B095)."""
    failed = {"custom_id": "c", "response": None, "error": {"code": "rate", "message": "slow down"}}
    tally = told([(OUTPUT, lines(good("a"), good("b", 400), failed, good("a"), {"response": {"status_code": 200}}))])
    wanted = Items(succeeded=1, failed=3, missing=1, duplicates=1, unreadable=1, failed_refs=("b", "c", "line 5"))
    assert tally.items(5) == wanted
    assert tally.records == 4
    assert judged(tally, 5) == "items_missing"
    assert judged(tally, 5, rule=replace(RULE, missing_items="accept")) is None
    assert judged(tally, 4, rule=replace(RULE, failed_items="refuse")) == "items_failed"
    assert judged(tally, 4) is None


def test_items_are_counted_over_two_files() -> None:
    """498 succeeded in one file, 2 failed in the other; an item in both is told once (F5)."""
    output = lines(*(good(f"item-{number}") for number in range(498)))
    errors = lines(*({"custom_id": name, "error": {"message": "no"}} for name in ("item-498", "item-499", "item-3")))
    tally = told([(OUTPUT, output), (ERRORS, errors)], piece=1000)
    wanted = Items(succeeded=498, failed=2, missing=0, duplicates=1, unreadable=0, failed_refs=("item-498", "item-499"))
    assert tally.items(500) == wanted
    assert judged(tally, 500) is None


def test_a_batch_in_which_nothing_succeeded_is_no_success() -> None:
    """Completed, no output, all rows in the error file: invalid, with the reason that the error file gives (B097)."""
    errors = lines(*({"custom_id": f"i{n}", "error": {"code": "quota", "message": "no credit"}} for n in range(9)))
    tally = told([(ERRORS, errors)])
    assert verdict(tally, tally.items(9), RULE, Expect(), succeeded=True) == (
        "no_item_succeeded",
        "all 9 items failed; the first: quota: no credit",
    )


def test_an_unfinished_batch_is_told_and_not_judged() -> None:
    """Ten items, one done when it expired: one succeeded and nine are missing, which is no fault of the result (B087)."""
    tally = told([(OUTPUT, lines(good("a")))])
    assert tally.items(10) == Items(succeeded=1, failed=0, missing=9)
    assert judged(tally, 10, done=False) is None
    assert judged(tally, 10) == "items_missing"


@pytest.mark.parametrize(
    ("last", "code", "failed"),
    [
        (b'{"custom_id": "b", "resp', "truncated", 1),  # B090: whole for HTTP, and its end is missing
        (b"nonsense\n", None, 1),
        (b'{"custom_id": "b", "custom_id": "c"}\n', None, 1),
        (b'{"custom_id": NaN}\n', None, 1),
        (b'{"custom_id": "' + b"x" * 3_000 + b'"}\n', None, 1),
        (b"\xff\xfe\n", None, 1),
        (b"\n\n", None, 0),
        (json.dumps(good("b")).encode(), None, 0),  # no line end at the end is no cut
    ],
)
def test_an_unreadable_record_is_a_failed_item(last: bytes, code: str | None, failed: int) -> None:
    """Named by its line, never a gap; only a last line without an end is a cut file (F2, F5)."""
    rule = replace(RULE, max_record_bytes=2_000)
    tally = told([(OUTPUT, lines(good("a")) + last)], rule=rule)
    assert (tally.failed, tally.unreadable) == (failed, failed)
    assert tally.refs == ["line 2"] * failed
    assert judged(tally) == code


def test_csv_and_arrays_have_items_too() -> None:
    """The same outcomes from CSV columns and from an array inside a JSON document (F5)."""
    columns = ItemsRule(id="the id", outcome="state", ok=("done",))
    sheet = ResultFile(format="csv", items=columns)
    tally = told([(sheet, b'the id,state,note\r\n1,done,"two\r\nlines"\r\n2,broken,\r\n3,done\r\n4,done,x\r\n')])
    assert tally.items(4) == Items(succeeded=2, failed=2, missing=0, unreadable=1, failed_refs=("2", "line 5"))
    array = ResultFile(format="json", records="data.results", items=ItemsRule(id="id", outcome="ok", ok=("true",)))
    document = {"data": {"meta": [1], "results": [{"id": 1, "ok": True}, {"id": 2, "ok": False}, {"id": 3}]}}
    tally = told([(array, json.dumps(document).encode())])
    assert tally.items(None) == Items(succeeded=1, failed=2, missing=0, failed_refs=("2", "3"))


@pytest.mark.parametrize(
    ("form", "data", "code"),
    [
        ("json", b'{"data": [{"id": 1}, {"i', "truncated"),
        ("json", b"<html><body>Sign in</body></html>", "unreadable"),
        ("json", b'{"error": {"message": "try later"}}', "unreadable"),  # a JSON error in place of the file
        ("json", b'{"data": ' + b"[" * 100 + b"]" * 100 + b"}", "unreadable"),
        ("json", b'{"data": ["' + b"x" * 200_000 + b'"]}', "unreadable"),
        ("json", b"", "truncated"),
        ("csv", b"", "unreadable"),
        ("csv", b"a,a\n1,2\n", "unreadable"),
        ("csv", b'a,b\n1,"2\n', "truncated"),
        ("csv", b"a,b\n1,2\n3", "truncated"),
        ("jsonl", b'{"error": {"message": "try later"}', "truncated"),
    ],
)
def test_a_file_of_another_kind_is_named(form: Any, data: bytes, code: str) -> None:
    """Cut, a page, an error document, nested without end, one record of any size: a code, never an exception (F2, B069, B098)."""
    file = ResultFile(format=form, records="data" if form == "json" else "")
    assert judged(told([(file, data)], rule=replace(RULE, max_record_bytes=100_000), piece=1_000)) == code


def test_a_compressed_file_is_inflated_within_its_bound() -> None:
    """Counted as if it were plain; 20 MB out of 90 kB are refused at the bound; a cut and a broken one are named (B093)."""
    packed = replace(OUTPUT, compression="gzip")
    plain = lines(good("a"), good("b", 500))
    rule = replace(RULE, max_inflated_bytes=1_000_000)
    assert told([(packed, gzip.compress(plain))]).items(2) == Items(succeeded=1, failed=1, missing=0, failed_refs=("b",))
    assert told([(packed, gzip.compress(lines(good("a"))) + gzip.compress(lines(good("c"))))]).succeeded == 2
    bomb = told([(packed, gzip.compress(bytes(20_000_000), 1))], rule=rule, piece=4_096)
    assert judged(bomb) == "inflated_too_large"
    assert judged(told([(packed, gzip.compress(plain)[:-9])])) == "truncated"
    assert judged(told([(packed, plain)])) == "unreadable"


SCHEMA = {"type": "object", "required": ["value"], "properties": {"value": {"type": "integer"}}}


def test_the_schema_is_about_each_good_record() -> None:
    """The value that the contract names, of items that succeeded; the message names the place and repeats no value (F2)."""
    assert OUTPUT.items is not None
    file = replace(OUTPUT, items=replace(OUTPUT.items, value="response.body"))
    bad = {**good("b"), "response": {"status_code": 200, "body": {"value": "CANARY"}}}
    failed = {"custom_id": "c", "error": {"message": "no"}}
    expect = Expect(json_schema=SCHEMA)
    assert judged(told([(file, lines(good("a"), failed))], expect=expect)) is None
    tally = told([(file, lines(good("a"), bad, failed))], expect=expect)
    assert verdict(tally, tally.items(None), RULE, expect, succeeded=True) == (
        "json_schema",
        "1 of 3 do not fit the schema; the first: b at /value: type",
    )


@pytest.mark.parametrize(
    ("kind", "data", "code"),
    [
        ("application/json", b'{"value": 1}', None),
        ("application/json", b'{"value": "x"}', "json_schema"),
        ("application/problem+json", b'{"value": "x"}', "json_schema"),
        ("application/x-ndjson", b'{"value": 1}\n{"value": 2}\n', None),
        ("application/jsonl", b'{"value": 1}\n{"value": null}\n', "json_schema"),
        ("application/jsonl", b'{"value": 1}\nnonsense\n', "unreadable_records"),
        ("text/csv", b"value\n1\n", "unreadable"),
        ("application/json", b'{"value": 1', "unreadable"),
        ("application/json", b'{"value": 1, "x": "' + b"x" * 5_000 + b'"}', "too_large_to_check"),
    ],
)
def test_the_schema_is_about_a_document_or_its_lines(kind: str, data: bytes, code: str | None) -> None:
    """A file that the contract leaves opaque is one JSON document, or JSON lines by its media type (F2)."""
    file = ResultFile(media_type=kind)
    rule = ResultRule(files=(file,), max_record_bytes=4_000)
    expect = Expect(json_schema=SCHEMA)
    assert judged(told([(file, data)], rule=rule, expect=expect), rule=rule, expect=expect) == code


@pytest.mark.parametrize(
    ("kind", "data", "low", "high", "code"),
    [
        ("application/jsonl", b"1\n2\n3\n", 3, 3, None),
        ("application/jsonl", b"1\n2\n3\n", 4, None, "records"),
        ("application/jsonl", b"1\n2\n3\n", None, 2, "records"),
        ("text/csv", b"a,b\n1,2\n3,4\n", 2, 2, None),  # the head line is no record
        ("text/csv", b'a,b\n1,"2\n3"\n', 1, 1, None),
        ("application/json", b"[1, 2]", 2, None, None),
        ("application/json", b'{"a": 1}', 1, 1, None),
        ("application/octet-stream", b"??", 1, 1, "records"),
    ],
)
def test_records_are_counted(kind: str, data: bytes, low: int | None, high: int | None, code: str | None) -> None:
    """Exactly, at least, at most; what cannot be counted does not fit what was agreed (F2)."""
    file = ResultFile(media_type=kind)
    expect = Expect(records_min=low, records_max=high)
    assert judged(told([(file, data)], expect=expect), expect=expect) == code


def test_a_million_failures_are_twenty_names() -> None:
    """Names of failed items are bounded, and their text too: memory stays flat (F5)."""
    tally = told([(ERRORS, lines(*({"custom_id": f"{n}-{'x' * 500}"} for n in range(300))))], piece=5_000)
    assert tally.failed == 300
    assert len(tally.refs) == MAX_REFS
    assert max(map(len, tally.refs)) <= 100


@pytest.mark.parametrize("form", ["jsonl", "json", "csv"])
def test_memory_stays_flat(form: Any) -> None:
    """Eight megabytes of records are looked into with less than one held at a time (F3, F5)."""
    file = replace(OUTPUT, format=form, items=ItemsRule(id="id", error="error"))
    row = {"id": "", "error": None, "text": "x" * 4_000}
    tally = Tally()
    tracemalloc.start()
    try:
        scan = Scan(file, RULE, tally, schema=None, count=False, media_type="")
        scan.feed(b"id,error,text\n" if form == "csv" else b"[" if form == "json" else b"")
        for number in range(2_000):
            text = json.dumps({**row, "id": f"{number}"}).encode()
            line = f"{number},,{'x' * 4_000}\n".encode() if form == "csv" else text + (b"\n" if form == "jsonl" else b",")
            scan.feed(line if form != "json" or number < 1_999 else text + b"]")
        scan.end()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (tally.succeeded, tally.failed, tally.faults) == (2_000, 0, [])
    assert peak < 1_500_000

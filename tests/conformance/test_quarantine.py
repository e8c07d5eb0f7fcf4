"""The quarantine in the record, on both databases: sealed, bounded, and behind everything else."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from ledger import inbox
from ledger.engine import Engines
from ledger.ledger import Ledger
from ledger.quarantine import BODY_BYTES, KEPT
from ledger.tables_receiving import refusals
from schemas.commands import Quarantine
from schemas.delivery import Refusal
from tests.conformance.conftest import LIMIT
from tests.conformance.test_writer import Bench, _write_all, beat, key

SECRET_TEXT = b"canary-in-a-forged-body"


def refusal(number: int, *, provider: str = "reports", reason: str = "wrong_signature", **changes: Any) -> Refusal:
    values: dict[str, Any] = {
        "id": f"rfs_{number:032d}",
        "provider": provider,
        "at": 1_000 + number,
        "reason": reason,
        "detail": "no configured secret made it",
        "scheme_id": "v1",
        "method": "POST",
        "target": b"/webhooks/reports?canary",
        "headers": ((b"x-sig", SECRET_TEXT), (b"x-raw", b"\x00\xff")),
        "body": SECRET_TEXT + b"\x00\xff",
        "bytes": len(SECRET_TEXT) + 2,
    }
    return Refusal(**{**values, **changes})


def put(ledger: Ledger, *items: Refusal) -> None:
    ledger.write_now(Quarantine(refusals=items))


def test_a_refusal_comes_back_as_it_came_and_lies_sealed(ledger: Ledger) -> None:
    """B12: bytes as received; in the database nothing of target, headers and body can be read."""
    put(ledger, refusal(1))
    put(ledger, refusal(1))  # the same command again, after a lost answer
    kept = ledger.read_now(inbox.refusal, refusal(1).id)
    assert kept is not None
    assert (kept["body"], kept["target"]) == (refusal(1).body, b"/webhooks/reports?canary")
    assert kept["headers"] == b"x-sig: " + SECRET_TEXT + b"\r\nx-raw: \x00\xff"
    with ledger.engines.look() as connection:
        (row,) = connection.execute(sa.select(refusals)).mappings()
    assert not any(b"canary" in value for value in row.values() if isinstance(value, bytes))
    assert ledger.read_now(inbox.refusal, "rfs_unknown") is None


def test_the_shelf_is_bounded_for_each_provider_and_reason(ledger: Ledger) -> None:
    """B10: a flood of one reason leaves the newest `KEPT` of it, and touches neither other reasons nor other providers."""
    put(ledger, refusal(1, reason="too_old"), refusal(2, provider="other"))
    flood = [refusal(number) for number in range(10, 10 + 3 * KEPT)]
    for start in range(0, len(flood), 32):
        put(ledger, *flood[start : start + 32])
    rows = ledger.read_now(inbox.refused, provider=None, limit=1_000)
    assert [row["id"] for row in rows if row["reason"] == "wrong_signature" and row["provider"] == "reports"] == [
        item.id for item in reversed(flood[-KEPT:])
    ]
    assert {row["id"] for row in rows if row["id"] < refusal(10).id} == {refusal(1).id, refusal(2).id}
    assert ledger.read_now(inbox.refusals_since, flood[-2].at) == {"reports": {"wrong_signature": 2}}


def test_what_is_too_large_is_told_and_not_kept(ledger: Ledger) -> None:
    """B10: NULL says that the body was too large; an empty body is an empty body."""
    put(
        ledger,
        refusal(1, body=b"x" * (BODY_BYTES + 1), bytes=BODY_BYTES + 1),
        refusal(2, body=None, bytes=99_999_999),
        refusal(3, body=b""),
    )
    found = [ledger.read_now(inbox.refusal, refusal(number).id) for number in (1, 2, 3)]
    assert [row and row["body"] for row in found] == [None, None, b""]


def test_pages_go_on_behind_the_last_row(ledger: Ledger) -> None:
    """Newest first, by (time, id)."""
    put(ledger, *(refusal(number) for number in range(1, 6)))
    first = ledger.read_now(inbox.refused, provider="reports", limit=3)
    rest = ledger.read_now(inbox.refused, provider="reports", limit=3, after=(first[-1]["at"], first[-1]["id"]))
    assert [row["at"] for row in [*first, *rest]] == [1_005, 1_004, 1_003, 1_002, 1_001]


@pytest.fixture
def bench(engines: Engines) -> Iterator[Bench]:
    made = Bench(engines)
    yield made
    made.hold.set()
    made.writer.close(LIMIT)


def test_everything_else_goes_first(bench: Bench) -> None:
    """B10: what strangers can cause at will waits until nobody else does, whatever its age."""
    bench.writer.start()
    asyncio.run(_write_all(bench, [Quarantine(refusals=(refusal(1),)), key(1), beat("a"), key(2)]))
    commits = [point for point in bench.points if point.endswith("after_commit")]
    assert commits == ["Beat.after_commit", "AddKey.after_commit", "Beat.after_commit", "Quarantine.after_commit"]

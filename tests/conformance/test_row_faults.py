"""One row at fault is set aside with its reason, everything else goes on, and it heals, on both databases (B113, B115)."""

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from ledger import fetches, queries, rowfaults, secrets
from ledger.audit import Fault, verify
from ledger.engine import Engines
from ledger.ledger import Ledger
from ledger.queries import OperationFilter
from ledger.tables import deliveries, history_texts, operations
from ledger.tables_upkeep import row_faults
from ledger.transaction import View
from ledger.vault import Vault
from schemas.commands import ClaimWork, Ingest, Petition, Register, Sweep
from schemas.evidence import CancelAsked
from schemas.operation import SECOND, Micros
from schemas.receiving import AddSecret
from schemas.upkeep import Expire, Stage
from tests.conformance.conftest import Database
from tests.conformance.house import LEASE, NOW, REPORTS, delivery, intent
from tests.conformance.test_soundness import unguarded

ALL = OperationFilter(owner=None)


def _seal(engines: Engines, row: str) -> None:
    with engines.begin() as connection:
        connection.execute(sa.update(operations).where(operations.c.id == row).values(request=b"\x02 not sealed"))


def _json(engines: Engines, row: str) -> None:
    with engines.begin() as connection:
        connection.execute(sa.update(operations).where(operations.c.id == row).values(expect=b"{"))


def _word(engines: Engines, row: str) -> None:
    with engines.begin() as connection:
        connection.execute(sa.update(operations).where(operations.c.id == row).values(reading="dreaming"))


def _constraint(engines: Engines, row: str) -> None:
    unguarded(engines, f"UPDATE operations SET due_at = {NOW}, question_id = 'q' WHERE id = '{row}'")  # noqa: S608 - an id of ours


BREAKERS = [_seal, _json, _word, _constraint]
Breaker = Callable[[Engines, str], None]


@pytest.fixture
def ledger(empty_database: Database, vault: Vault) -> Any:
    """Open a record of its own with a hundred due operations: these tests break rows and the schema's guards."""
    opened = Ledger.open(empty_database.url, vault=vault, contracts={"reports": REPORTS}, migrate=True)
    for number in range(20):
        opened.write_now(Register(intent=intent(number), now=NOW))
    yield opened
    opened.close()


def claim(ledger: Ledger, now: Micros = NOW) -> set[str]:
    command = ClaimWork(worker="w", room={"reports": 100}, limit=100, lease=LEASE, send_budget=10 * SECOND, now=now, chance=0.5)
    return {item.operation.id for item in ledger.write_now(command).items}


def faults(ledger: Ledger) -> dict[str, str]:
    return {row["row"]: row["reason"] for row in ledger.read_now(rowfaults.left_alone)}


def audited(view: View) -> list[Fault]:
    return [item for item in verify(view) if isinstance(item, Fault)]


@pytest.mark.parametrize("breaks", BREAKERS, ids=lambda item: item.__name__.strip("_"))
def test_everything_else_goes_on(ledger: Ledger, breaks: Breaker) -> None:
    """Claim, delivery, sweep, listing and audit pass the row by; it is named with a reason, tried again later, and heals."""
    bad, good = intent(0).id, {intent(number).id for number in range(1, 20)}
    with ledger.engines.look() as connection:
        whole = connection.execute(sa.select(operations).where(operations.c.id == bad)).mappings().one()
    breaks(ledger.engines, bad)
    assert claim(ledger) == good
    assert list(faults(ledger)) == [bad]
    assert faults(ledger)[bad] != ""
    assert claim(ledger, NOW + SECOND) == set()
    assert [row["times"] for row in ledger.read_now(rowfaults.left_alone)] == [1]  # it is left alone, though it may be due
    told = ledger.write_now(Ingest(delivery=delivery(1, client_reference=bad), now=NOW))
    assert told.delivery_id == delivery(1).id  # acknowledged is stored
    assert ledger.write_now(Ingest(delivery=delivery(2, client_reference=intent(1).id), now=NOW)).status == "accepted"
    for part in ("receipts", "unclaimed", "silent", "beats", "faults"):
        ledger.write_now(Sweep(now=NOW + 40 * SECOND, limit=100, chance=0.5, part=part))
    page = ledger.read_now(queries.operations, ALL, 5)
    assert len(page) == 5
    everything = ledger.read_now(queries.operations, ALL, 100)
    readable = breaks is _constraint
    assert {op.id for op in everything} == (good | {bad} if readable else good)
    assert everything.unreadable == ([] if readable else [bad])
    assert [fault.operation for fault in ledger.read_now(audited)] == [bad]
    for table in (operations,):
        with ledger.engines.begin() as connection:
            fixed = {name: whole[name] for name in ("request", "expect", "reading", "question_id")}
            connection.execute(sa.update(table).where(table.c.id == bad).values({**fixed, "due_at": NOW + 1}))
    later = NOW + 7_200 * SECOND
    counts = ledger.write_now(Sweep(now=later, limit=100, chance=0.5, part="faults")).counts
    assert counts == {"rows_healed": 1, "rows_left_alone": 0}
    ledger.write_now(Sweep(now=later, limit=100, chance=0.5, part="receipts"))
    with ledger.engines.look() as connection:
        statuses = connection.execute(sa.select(deliveries.c.status).where(deliveries.c.operation == bad)).scalars().all()
    assert statuses == ["applied"]
    assert bad in claim(ledger, later + SECOND)


def test_it_is_tried_ever_more_seldom(ledger: Ledger) -> None:
    """Each failure doubles the time that the row is left alone, up to an hour."""
    _seal(ledger.engines, intent(0).id)
    now, pauses = NOW, []
    for _ in range(9):
        claim(ledger, now)
        with ledger.engines.look() as connection:
            until = connection.execute(sa.select(row_faults.c.until)).scalar_one()
        pauses.append((until - now) // SECOND)
        now = until
    assert pauses == [60, 120, 240, 480, 960, 1_920, 3_600, 3_600, 3_600]


def test_a_listing_goes_past_a_page_of_unreadable_rows(ledger: Ledger) -> None:
    """More unreadable rows than a page stand first: those behind them are shown, and all of the others are named."""
    for number in range(8, 20):
        _word(ledger.engines, intent(number).id)
    page = ledger.read_now(queries.operations, ALL, 4)
    assert [op.id for op in page] == [intent(number).id for number in (7, 6, 5, 4)]
    assert len(page.unreadable) == 12


def test_retention_gets_past_a_row_that_cannot_be_written(ledger: Ledger) -> None:
    """An ended operation that breaks a constraint does not hold up the batch around it (SQLite looks at changed columns only)."""
    for number in range(3):
        asked = CancelAsked(by="ann", reason="", expected_effect="")
        ledger.write_now(Petition(operation_id=intent(number).id, owner=None, actor="ann", evidence=asked, now=NOW, chance=0.5))
    bad = intent(1).id
    unguarded(ledger.engines, f"UPDATE operations SET due_at = 1, question_id = 'q' WHERE id = '{bad}'")  # noqa: S608 - an id of ours
    late = NOW + 90_000 * SECOND
    done = ledger.write_now(Expire(stage=Stage.REQUESTS, before=late, memory=late, now=late, limit=10))
    strict = ledger.engines.postgres
    assert done.counts["requests_emptied"] == (2 if strict else 3)
    assert list(faults(ledger)) == ([bad] if strict else [])


def test_words_and_secrets_that_do_not_open_hide_no_others(ledger: Ledger) -> None:
    """A history is read on past words that do not open; one stored secret that does not open leaves the others in use."""
    for number in (1, 2):
        asked = CancelAsked(by="ann", reason="not needed", expected_effect="nothing")
        ledger.write_now(Petition(operation_id=intent(number).id, owner=None, actor="ann", evidence=asked, now=NOW, chance=0.5))
        ledger.write_now(
            AddSecret(
                id=f"sec_{number}", name=f"s{number}", provider="reports", purpose="webhook", value=b"v", source="added", now=NOW, by="ann"
            )
        )
    with ledger.engines.begin() as connection:
        connection.execute(sa.update(history_texts).where(history_texts.c.operation == intent(1).id).values(text=b"?"))
        connection.execute(sa.text("UPDATE secrets SET value = :value WHERE id = 'sec_1'"), {"value": b"?"})
    words = [row["text"] for row in ledger.read_now(queries.history, intent(1).id)]
    assert queries.UNREADABLE in words
    assert [secret.id for secret in ledger.read_now(secrets.stored_secrets)] == ["sec_2"]
    assert [fault.fault for fault in ledger.read_now(audited)] == ["the text does not open"]
    assert ledger.read_now(fetches.published_keys) == []

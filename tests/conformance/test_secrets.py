"""Stored secrets as a lifecycle, on both databases (B11)."""

from dataclasses import replace

import pytest
import sqlalchemy as sa

from ledger import tables
from ledger.engine import Engines
from ledger.secrets import add_secrets, end_secrets, stored_secrets, uses
from ledger.tables_receiving import secrets
from ledger.transaction import View
from ledger.vault import Vault
from schemas.delivery import Delivery
from schemas.operation import SECOND
from schemas.receiving import AddSecret, EndSecret, SecretUse, StoredSecret
from tests.conformance.house import NOW, Record, delivery

VALUE = b"whsec_canary-91f2"
ADD = AddSecret(id="sec_1", name="reports-1", provider="reports", purpose="webhook", value=VALUE, by="operator:ada", now=NOW)


@pytest.fixture
def record(engines: Engines, vault: Vault) -> Record:
    return Record(engines, vault)


def signed(number: int, secret: str = "sec_1", provider: str = "reports") -> Delivery:
    return replace(delivery(number, "job-1", provider=provider), secret_id=secret)


def stored(record: Record) -> list[StoredSecret]:
    with record.engines.read.begin() as connection:
        return stored_secrets(View(connection, record.vault))


def used(record: Record) -> list[SecretUse]:
    with record.engines.read.begin() as connection:
        return uses(View(connection, record.vault))


def kept(record: Record) -> int:
    with record.engines.read.begin() as connection:
        return int(connection.execute(sa.select(sa.func.count()).select_from(tables.deliveries)).scalar_one())


def test_a_secret_is_sealed_and_its_name_is_its_own(record: Record) -> None:
    """B11, B142: the value is nowhere in the row; a second secret of the name is refused and the first stays."""
    assert record.tx(add_secrets, ADD, replace(ADD, id="sec_2", name="reports-2")) == ["sec_1", "sec_2"]
    assert record.tx(add_secrets, replace(ADD, id="sec_3", value=b"other")) == [None]
    with record.engines.read.begin() as connection:
        row = connection.execute(sa.select(secrets).where(secrets.c.id == "sec_1")).one()
    assert not any(VALUE in bytes(value) for value in row if isinstance(value, bytes | memoryview))
    assert [(each.name, each.value) for each in stored(record)] == [("reports-1", VALUE), ("reports-2", VALUE)]
    assert "canary" not in repr(stored(record)) + repr(ADD)


def test_a_revoked_secret_stores_nothing_from_the_next_transaction_on(record: Record) -> None:
    """B11: the process that verified may not know yet; the transaction does, in whatever batch, and for repeats too."""
    record.tx(add_secrets, ADD, replace(ADD, id="sec_2", name="reports-2"))
    assert [answer.status for answer in record.ingest(signed(1))] == ["unmatched"]
    assert record.tx(end_secrets, EndSecret(name="reports-1", now=NOW)) == ["sec_1"]
    answers = record.ingest(signed(1), signed(2), signed(3, "sec_2"), signed(4, "env:REPORTS"))
    assert [answer.status for answer in answers] == ["revoked", "revoked", "unmatched", "unmatched"]
    assert [answer.delivery_id for answer in answers] == [signed(number).id for number in (1, 2, 3, 4)]
    assert kept(record) == 3


def test_a_retired_secret_serves_until_its_end(record: Record) -> None:
    """B11: an overlap, and after it the same refusal; an end is never moved back, and a revocation keeps its first time."""
    record.tx(add_secrets, ADD)
    record.tx(end_secrets, EndSecret(name="reports-1", now=NOW, not_after=NOW + 60 * SECOND))
    assert record.ingest(signed(1))[0].status == "unmatched"
    record.now = NOW + 60 * SECOND
    assert record.ingest(signed(2))[0].status == "revoked"
    record.tx(end_secrets, EndSecret(name="reports-1", now=NOW, not_after=NOW + 600 * SECOND))
    assert record.ingest(signed(2))[0].status == "revoked"
    for now in (NOW + 7, NOW + 9):
        record.tx(end_secrets, EndSecret(name="reports-1", now=now))
    (secret,) = stored(record)
    assert (secret.not_after, secret.revoked_at) == (NOW + 60 * SECOND, NOW + 7)
    assert not secret.usable(NOW)


def test_a_secret_that_ends_before_it_begins_just_ends(record: Record) -> None:
    """B11: the period's rule of the table is not broken by an early retirement."""
    record.tx(add_secrets, replace(ADD, not_before=NOW + 100))
    assert not stored(record)[0].usable(NOW + 99)
    assert stored(record)[0].usable(NOW + 100)
    assert record.tx(end_secrets, EndSecret(name="reports-1", now=NOW, not_after=NOW + 50)) == ["sec_1"]
    assert not stored(record)[0].usable(NOW + 100)
    assert record.tx(end_secrets, EndSecret(name="unknown", now=NOW)) == [None]


def test_which_secret_matched_is_recorded_once_a_batch(record: Record) -> None:
    """B11: in the transaction of the delivery; elements of one request count once, unsigned ones not at all."""
    first, second = signed(1, "env:A"), replace(signed(2, "env:A"), received_at=NOW + 5)
    element = replace(signed(3, "env:A"), parent=first.id)
    record.ingest(first, second, element, signed(4, ""), signed(5, "env:A", "other"))
    assert used(record) == [
        SecretUse(provider="other", secret_id="env:A", first_used_at=NOW, last_used_at=NOW, uses=1),
        SecretUse(provider="reports", secret_id="env:A", first_used_at=NOW, last_used_at=NOW + 5, uses=2),
    ]
    record.ingest(replace(signed(6, "env:A"), received_at=NOW + 3))
    assert (used(record)[1].last_used_at, used(record)[1].uses) == (NOW + 5, 3)

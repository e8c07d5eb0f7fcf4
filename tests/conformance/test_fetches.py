"""Handshakes and published keys in the record, on both databases: audited, owed, bounded (B9, B154)."""

from dataclasses import replace

import pytest
import sqlalchemy as sa

from ledger.engine import Engines
from ledger.fetches import (
    COOL_DOWN_SECONDS,
    MAX_DOCUMENTS,
    REFRESH_SECONDS,
    claim_fetches,
    fetch_is_due,
    handshakes_of,
    published_keys,
    settle_fetches,
    want_keys,
)
from ledger.handshakes import KEPT, note_handshakes
from ledger.secrets import add_secrets, end_secrets, stored_secrets
from ledger.tables_receiving import handshakes
from ledger.transaction import View
from ledger.vault import Vault
from schemas.delivery import HandshakeAnswer
from schemas.operation import SECOND, Micros
from schemas.receiving import AddSecret, ClaimFetches, EndSecret, Fetch, NoteHandshake, SettleFetch, WantKey
from tests.conformance.house import NOW, Record

URL = "https://keys.example/set.json"
COOL = COOL_DOWN_SECONDS * SECOND
CONFIRM = "https://sns.example/?Token=canary-77"


@pytest.fixture
def record(engines: Engines, vault: Vault) -> Record:
    return Record(engines, vault)


def want(record: Record, url: str = URL, *, at: Micros = NOW) -> bool:
    return bool(record.tx(want_keys, WantKey(provider="reports", url=url, now=at))[0])


def claim(record: Record, *, at: Micros = NOW) -> tuple[Fetch, ...]:
    command = ClaimFetches(providers=("reports",), limit=MAX_DOCUMENTS, lease=30 * SECOND, now=at)
    return record.tx(claim_fetches, command)[0]


def settle(record: Record, fetch: Fetch, document: bytes | None = None, *, at: Micros = NOW, due: Micros | None = None) -> bool:
    outcome = "" if document is not None else "http_500"
    return bool(record.tx(settle_fetches, SettleFetch(fetch=fetch, now=at, outcome=outcome, document=document, due_at=due))[0])


def documents(record: Record) -> dict[str, bytes]:
    with record.engines.read.begin() as connection:
        return {found.url: found.document for found in published_keys(View(connection, record.vault))}


def due(record: Record, at: Micros) -> bool:
    with record.engines.read.begin() as connection:
        return fetch_is_due(View(connection, record.vault), ["reports"], at)


def noted(number: int, **changes: object) -> NoteHandshake:
    answer = HandshakeAnswer(kind="json_echo", status=200)
    return replace(NoteHandshake(id=f"hsk_{number:05d}", provider="reports", answer=answer, now=NOW + number), **changes)  # type: ignore[arg-type]


def captured(number: int) -> NoteHandshake:
    secret = AddSecret(
        id=f"sec_{number}",
        name=f"c-{number}",
        provider="reports",
        purpose="webhook",
        value=b"handed",
        by="provider",
        now=NOW,
        source="captured",
    )
    return noted(number, captured=secret)


def test_an_address_is_fetched_once_in_a_cool_down_whatever_is_sent(record: Record) -> None:
    """B154: a thousand wants are one fetch; after the outcome no other one is owed before the cool-down is over."""
    commands = [WantKey(provider="reports", url=URL, now=NOW)] * 1_000
    assert set(record.tx(want_keys, *commands)) == {True}
    (fetch,) = claim(record)
    assert claim(record) == ()  # single flight: it is leased
    assert settle(record, fetch, b"{}")
    assert not want(record, at=NOW + COOL - 1)
    assert claim(record, at=NOW + COOL - 1) == ()
    assert want(record, at=NOW + COOL)
    assert len(claim(record, at=NOW + COOL)) == 1


def test_addresses_are_bounded_and_known_documents_outlive_a_flood(record: Record) -> None:
    """B154: invented addresses fill the room for a cool-down, never beyond it, and push out no document that is in use."""
    want(record)
    settle(record, claim(record)[0], b"good")
    granted = [want(record, f"https://keys.example/{number}.pem", at=NOW + COOL) for number in range(100)]
    assert granted.count(True) == MAX_DOCUMENTS - 1
    for fetch in claim(record, at=NOW + COOL):
        settle(record, fetch)
    assert not want(record, "https://keys.example/new.pem", at=NOW + COOL + 1)
    assert want(record, "https://keys.example/new.pem", at=NOW + 2 * COOL)
    assert documents(record) == {URL: b"good"}


def test_the_old_document_stays_until_another_one_replaces_it(record: Record) -> None:
    """Key sets: a failed fetch takes nothing away; a lease that was lost writes nothing."""
    want(record)
    first = claim(record)[0]
    assert settle(record, first, b"old")
    want(record, at=NOW + COOL)
    second = claim(record, at=NOW + COOL)[0]
    assert settle(record, second, None, due=NOW + COOL + SECOND)
    assert documents(record) == {URL: b"old"}
    third = claim(record, at=NOW + COOL + SECOND)[0]
    assert not settle(record, second, b"late")
    assert settle(record, third, b"new")
    assert documents(record) == {URL: b"new"}


def test_a_document_in_use_is_fetched_anew(record: Record) -> None:
    """A key that the provider withdraws ends here too: without a want the document is due after its time."""
    want(record)
    settle(record, claim(record)[0], b"old")
    later = NOW + REFRESH_SECONDS * SECOND
    assert not due(record, later - 1)
    assert due(record, later)
    (fetch,) = claim(record, at=later)
    settle(record, fetch, None, at=later)
    assert claim(record, at=later + COOL - 1) == ()
    assert len(claim(record, at=later + COOL)) == 1


def test_a_confirmation_is_owed_until_it_has_its_outcome(record: Record) -> None:
    """B9, B142: the address is sealed, fetched by one at a time, and forgotten when nothing more is owed."""
    answer = HandshakeAnswer(kind="fetch_url", status=200, fetch_url=CONFIRM)
    assert record.tx(note_handshakes, noted(1, answer=answer)) == ["noted"]
    assert due(record, NOW + 1)
    (fetch,) = claim(record, at=NOW + 1)
    assert (fetch.url, fetch.tries, fetch.handshake) == (CONFIRM, 1, "hsk_00001")
    assert "canary" not in repr(fetch)
    with record.engines.read.begin() as connection:
        sealed = connection.execute(sa.select(handshakes.c.fetch_url)).scalar_one()
        assert b"canary" not in bytes(sealed)
    assert settle(record, fetch, None, at=NOW + 1, due=NOW + 5)
    (again,) = claim(record, at=NOW + 5)
    assert record.tx(settle_fetches, SettleFetch(fetch=again, now=NOW + 5, outcome="")) == [True]
    with record.engines.read.begin() as connection:
        (row,) = handshakes_of(View(connection, record.vault), "reports")
        assert connection.execute(sa.select(handshakes.c.fetch_url)).scalar_one() is None
    assert (row["outcome"], row["tries"], row["due_at"]) == ("confirmed", 2, None)
    assert not due(record, NOW + 10**9)


def test_handshakes_of_a_flood_are_bounded(record: Record) -> None:
    """B10: some come before any signature; the newest are kept, and what is owed is never forgotten."""
    answer = HandshakeAnswer(kind="fetch_url", status=200, fetch_url=CONFIRM)
    record.tx(note_handshakes, noted(0, answer=answer))
    for start in range(1, KEPT + 200, 200):
        record.tx(note_handshakes, *(noted(number) for number in range(start, start + 200)))
    with record.engines.read.begin() as connection:
        rows = connection.execute(sa.select(sa.func.count()).select_from(handshakes)).scalar_one()
    assert rows == KEPT + 1
    assert len(claim(record, at=NOW + 1)) == 1


def test_a_captured_secret_never_replaces_one(record: Record) -> None:
    """B154: of two strangers the first gives the secret, also within one batch; a revoked one makes room again."""
    assert record.tx(note_handshakes, captured(1), captured(2)) == ["noted", "not_captured"]
    assert record.tx(note_handshakes, captured(3)) == ["not_captured"]
    with record.engines.read.begin() as connection:
        view = View(connection, record.vault)
        assert [(found.id, found.source) for found in stored_secrets(view)] == [("sec_1", "captured")]
        assert len(handshakes_of(view, "reports")) == 1
    record.tx(end_secrets, EndSecret(name="c-1", now=NOW))
    assert record.tx(note_handshakes, captured(4)) == ["noted"]


def test_a_handshake_signed_with_a_revoked_secret_is_not_noted(record: Record) -> None:
    """B11: a revocation holds for handshakes as for deliveries, in every process."""
    add = captured(1).captured
    assert add is not None
    record.tx(add_secrets, add)
    record.tx(end_secrets, EndSecret(name=add.name, now=NOW))
    assert record.tx(note_handshakes, noted(1, secret_id=add.id), noted(2)) == ["revoked", "noted"]

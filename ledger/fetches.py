"""What the reconciler fetches for verification: published keys, and the confirmations that handshakes owe (B2, B9).

Strangers can make us want: so an address is fetched at most once in a cool-down, whatever they send, the number of addresses of
a provider is bounded, and a document stays in use until another one that can be read has replaced it.
"""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
import structlog
from sqlalchemy.dialects import postgresql, sqlite

from ledger.errors import VaultError
from ledger.tables_receiving import handshakes, key_documents
from ledger.transaction import RECEIVING, Transaction, View
from schemas.operation import SECOND, Micros
from schemas.receiving import ClaimFetches, Fetch, KeyDocument, SettleFetch, WantKey

_log = structlog.get_logger("ledger")
COOL_DOWN_SECONDS = 60
"""An address is not wanted again within this."""
REFRESH_SECONDS = 3_600
"""A document in use is fetched anew after this, so that a key that its provider has withdrawn ends here too."""
MAX_DOCUMENTS = 16
"""Addresses of one provider. Beyond it the longest unwanted one makes room whose document cannot be had (any more)."""
GONE_SECONDS = 86_400
"""A document that could not be fetched anew for so long makes room too."""
MAX_ERROR = 200
_c = key_documents.c


def want_keys(tx: Transaction, commands: Sequence[WantKey]) -> list[bool]:
    """Owe a fetch for each address, within the cool-down and the bound. Answers whether one is owed now."""
    answers: dict[tuple[str, str], bool] = {}
    for command in sorted(commands, key=lambda item: (item.provider, item.url)):
        key = (command.provider, command.url)
        if key not in answers:
            answers[key] = _want(tx, command)
    return [answers[command.provider, command.url] for command in commands]


def _want(tx: Transaction, command: WantKey) -> bool:
    mine = (_c.provider == command.provider) & (_c.url == command.url)
    row = tx.connection.execute(sa.select(_c.wanted_at, _c.due_at).where(mine).with_for_update()).one_or_none()
    cool = command.now - COOL_DOWN_SECONDS * SECOND
    if row is not None:
        if row.due_at is not None:
            return True
        if row.wanted_at > cool:
            return False
        tx.connection.execute(sa.update(key_documents).where(mine).values(wanted_at=command.now, tries=0, due_at=command.now))
    else:
        if not _room(tx, command, cool):
            return False
        insert = (postgresql.insert if tx.postgres else sqlite.insert)(key_documents).on_conflict_do_nothing()
        values = {
            "provider": command.provider,
            "url": command.url,
            "wanted_at": command.now,
            "tries": 0,
            "due_at": command.now,
            "error": "",
        }
        tx.connection.execute(insert, values)
    tx.changed.add(RECEIVING)
    return True


def _room(tx: Transaction, command: WantKey, cool: Micros) -> bool:
    known = tx.connection.execute(sa.select(sa.func.count()).where(_c.provider == command.provider)).scalar_one()
    if known < MAX_DOCUMENTS:
        return True
    useless = _c.document.is_(None) | (_c.fetched_at <= command.now - GONE_SECONDS * SECOND)
    idle = (_c.provider == command.provider) & _c.due_at.is_(None) & (_c.wanted_at <= cool) & useless
    oldest = tx.connection.execute(sa.select(_c.url).where(idle).order_by(_c.wanted_at).limit(1)).scalar_one_or_none()
    if oldest is None:
        return False
    tx.connection.execute(sa.delete(key_documents).where(_c.provider == command.provider, _c.url == oldest))
    return True


def claim_fetches(tx: Transaction, commands: Sequence[ClaimFetches]) -> list[tuple[Fetch, ...]]:
    """Lease what is due: whoever else asks within the lease does not get it (single flight in all processes)."""
    return [(*_claim_keys(tx, command), *_claim_handshakes(tx, command)) for command in commands]


def _claim_keys(tx: Transaction, command: ClaimFetches) -> list[Fetch]:
    old = _c.due_at.is_(None) & _c.document.is_not(None) & (_c.fetched_at <= command.now - REFRESH_SECONDS * SECOND)
    calm = _c.wanted_at <= command.now - COOL_DOWN_SECONDS * SECOND
    query = (
        sa.select(_c.provider, _c.url, _c.tries, _c.due_at)
        .where(_c.provider.in_(command.providers), (_c.due_at <= command.now) | (old & calm))
        .order_by(_c.provider, _c.url)
        .limit(command.limit)
        .with_for_update()
    )
    fetches = []
    for row in tx.connection.execute(query).all():
        tries = row.tries + 1 if row.due_at is not None else 1
        mine = (_c.provider == row.provider) & (_c.url == row.url)
        values: dict[str, Any] = {"tries": tries, "due_at": command.now + command.lease}
        if row.due_at is None:
            values["wanted_at"] = command.now
        tx.connection.execute(sa.update(key_documents).where(mine).values(values))
        fetches.append(Fetch(subject="keys", provider=row.provider, url=row.url, tries=tries))
    return fetches


def _claim_handshakes(tx: Transaction, command: ClaimFetches) -> list[Fetch]:
    h = handshakes.c
    query = (
        sa.select(h.id, h.provider, h.fetch_url, h.tries)
        .where(h.provider.in_(command.providers), h.due_at <= command.now)
        .order_by(h.id)
        .limit(command.limit)
        .with_for_update()
    )
    fetches = []
    for row in tx.connection.execute(query).all():
        tries = row.tries + 1
        tx.connection.execute(sa.update(handshakes).where(h.id == row.id).values(tries=tries, due_at=command.now + command.lease))
        try:
            url = tx.vault.unseal("handshakes", "fetch_url", row.id, row.fetch_url).decode()
        except VaultError as error:  # it can never be confirmed: the others are
            _log.error("ledger.handshake_unreadable", provider=row.provider, fault=str(error))
            tx.connection.execute(sa.update(handshakes).where(h.id == row.id).values(due_at=None, outcome="unreadable"))
            continue
        fetches.append(Fetch(subject="handshake", provider=row.provider, url=url, tries=tries, handshake=row.id))
    return fetches


def settle_fetches(tx: Transaction, commands: Sequence[SettleFetch]) -> list[bool]:
    """Record outcomes by their fences. A document is replaced by another one only; a used confirmation is not kept."""
    answers: dict[int, bool] = {}
    for command in sorted(commands, key=lambda item: (item.fetch.subject, item.fetch.provider, item.fetch.handshake or item.fetch.url)):
        fetch = command.fetch
        values: dict[str, Any] = {"due_at": command.due_at}
        if fetch.subject == "handshake":
            values["outcome"] = (command.outcome or "confirmed")[:MAX_ERROR]
            if command.due_at is None:
                values["fetch_url"] = None
            where = (handshakes.c.id == fetch.handshake) & (handshakes.c.tries == fetch.tries)
            result = tx.connection.execute(sa.update(handshakes).where(where).values(values))
        else:
            values["error"] = command.outcome[:MAX_ERROR]
            if command.document is not None:
                place = _place(fetch.provider, fetch.url)
                values.update(document=tx.vault.seal("key_documents", "document", place, command.document), fetched_at=command.now)
            where = (_c.provider == fetch.provider) & (_c.url == fetch.url) & (_c.tries == fetch.tries)
            result = tx.connection.execute(sa.update(key_documents).where(where).values(values))
            tx.changed.add(RECEIVING)
        answers[id(command)] = result.rowcount == 1
    return [answers[id(command)] for command in commands]


def _place(provider: str, url: str) -> str:
    return f"{provider}:{url}"


# --- queries


def fetch_is_due(view: View, providers: Sequence[str], now: Micros) -> bool:
    """Return whether anything is to be fetched: looked at often, so that nothing is written where nothing is due."""
    old = _c.due_at.is_(None) & _c.document.is_not(None) & (_c.fetched_at <= now - REFRESH_SECONDS * SECOND)
    keys = sa.select(_c.url).where(_c.provider.in_(providers), (_c.due_at <= now) | old).limit(1)
    confirmations = sa.select(handshakes.c.id).where(handshakes.c.provider.in_(providers), handshakes.c.due_at <= now).limit(1)
    return any(view.connection.execute(query).one_or_none() is not None for query in (keys, confirmations))


def key_states(view: View) -> list[tuple[str, str, Micros]]:
    """Return (provider, address, fetched at) of every document that is there: by it a process sees what has changed."""
    query = sa.select(_c.provider, _c.url, _c.fetched_at).where(_c.document.is_not(None)).order_by(_c.provider, _c.url)
    return [(row.provider, row.url, row.fetched_at) for row in view.connection.execute(query)]


def published_keys(view: View) -> list[KeyDocument]:
    """Return every document that is there."""
    query = sa.select(_c.provider, _c.url, _c.document, _c.fetched_at).where(_c.document.is_not(None))
    found = []
    for row in view.connection.execute(query.order_by(_c.provider, _c.url)):
        try:
            document = view.vault.unseal("key_documents", "document", _place(row.provider, row.url), row.document)
        except VaultError as error:  # it is fetched anew; the others serve
            _log.error("ledger.key_unreadable", provider=row.provider, fault=str(error))
        else:
            found.append(KeyDocument(provider=row.provider, url=row.url, document=document, fetched_at=row.fetched_at))
    return found


def handshakes_of(view: View, provider: str, limit: int = 100) -> list[dict[str, Any]]:
    """Return a provider's newest handshakes, the newest first, without what they owe."""
    h = handshakes.c
    shown = (h.id, h.kind, h.at, h.accepted, h.reason, h.due_at, h.tries, h.outcome)
    query = sa.select(*shown).where(h.provider == provider).order_by(h.at.desc(), h.id.desc()).limit(max(0, min(limit, 1_000)))
    return [dict(row) for row in view.connection.execute(query).mappings()]

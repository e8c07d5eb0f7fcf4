"""Fetches for verification: published keys and the confirmations that handshakes owe (B2, B9, B154).

Whatever is fetched here was named by somebody else, so: https, public addresses, no redirect, bounded in bytes, seconds and
tries; and no credential, unless the contract says how its own address is asked for one key by its id (`keysource.post`).
What is owed stands in the record; a lease there makes each fetch the only one in all processes.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog

from ledger.fetches import fetch_is_due
from ledger.ledger import Ledger
from providers.key_requests import KeyRequest
from providers.verification import KeyStore
from reconciler.transport import Transport
from schemas.http import AnsweredOutcome, HttpRequest, MaybeOutcome, NotSentOutcome, Outcome
from schemas.operation import SECOND, Micros
from schemas.receiving import ClaimFetches, Fetch, SettleFetch
from schemas.world import World

FETCH_SECONDS: Final = 1.0
"""How often it is looked whether anything is owed; a delivery may be waiting for its key."""
AT_ONCE: Final = 8
LEASE_SECONDS: Final = 30
MAX_BYTES: Final = 131_072  # of a key set or a certificate chain
_CONNECT_SECONDS, _TOTAL_SECONDS = 3.0, 8.0
_PAUSES: Final[Mapping[str, tuple[int, ...]]] = {"keys": (1, 5), "handshake": (5, 60, 600, 3_600)}
"""Seconds before the next try of each subject, as long as there are any."""
_LATER: Final = frozenset({408, 425, 429})
_OK, _NOT_OK, _BROKEN = 200, 300, 500
_log = structlog.get_logger("reconciler")


class Fetcher:
    """Fetches what is owed to these providers. `transport` is its own, closed with it."""

    def __init__(
        self,
        *,
        record: Ledger,
        world: World,
        transport: Transport,
        providers: Sequence[str],
        asks: Mapping[str, Callable[[str], KeyRequest | None]] | None = None,
    ) -> None:
        self._record = record
        self._world = world
        self._transport = transport
        self._providers = tuple(sorted(providers))
        self._asks = dict(asks or {})

    async def run_once(self) -> Mapping[str, int]:
        """Fetch what is due, at most AT_ONCE of each subject, and return counts. Raises LedgerError."""
        now = self._world.now()
        if not self._providers or not await self._record.read(fetch_is_due, self._providers, now):
            return {}
        claim = ClaimFetches(providers=self._providers, limit=AT_ONCE, lease=LEASE_SECONDS * SECOND, now=now)
        fetches = await self._record.write(claim)
        outcomes = await asyncio.gather(*(self._one(fetch) for fetch in fetches))
        return {"fetched": outcomes.count(True), "failed": outcomes.count(False)}

    async def aclose(self) -> None:
        """Close its connections."""
        await self._transport.aclose()

    async def _one(self, fetch: Fetch) -> bool:
        ask = self._asks.get(fetch.provider) if fetch.subject == "keys" else None
        asked = KeyRequest(method="GET", url=fetch.url) if ask is None else ask(fetch.url)
        if asked is None:
            await self._settle(fetch, "no_constant", again=False, document=None)
            return False
        request = HttpRequest(
            method=asked.method,
            url=asked.url,
            headers=asked.headers,
            body=asked.body,
            max_bytes=MAX_BYTES,
            connect_seconds=_CONNECT_SECONDS,
            total_seconds=_TOTAL_SECONDS,
            allow_private=False,
        )
        outcome = await self._transport.perform(request)
        word, again, document = _judged(fetch, outcome)
        await self._settle(fetch, word, again=again, document=document)
        return not word

    async def _settle(self, fetch: Fetch, word: str, *, again: bool, document: bytes | None) -> None:
        now = self._world.now()
        settle = SettleFetch(fetch=fetch, now=now, outcome=word, document=document, due_at=_next(fetch, now) if again else None)
        await self._record.write(settle)
        _log.info("reconciler.fetched", provider=fetch.provider, subject=fetch.subject, tries=fetch.tries, outcome=word or "ok")


def _judged(fetch: Fetch, outcome: Outcome) -> tuple[str, bool, bytes | None]:
    """Return what is wrong (empty: nothing), whether another try may help, and the document."""
    match outcome:
        case NotSentOutcome(error=error) | MaybeOutcome(error=error):
            return error, True, None
        case AnsweredOutcome(status=status, body=body) if _OK <= status < _NOT_OK:
            if fetch.subject == "handshake":
                return "", False, None
            return ("", False, body) if readable(fetch.url, body) else ("unreadable", False, None)
        case AnsweredOutcome(status=status):
            return f"http_{status}", status >= _BROKEN or status in _LATER, None


def readable(url: str, document: bytes) -> bool:
    """Return whether a document is a key set with a key, or a certificate chain: nothing else replaces the former one."""
    store = KeyStore({url: document})
    return bool(store.key_set(url, "")) or store.chain(url) is not None


def _next(fetch: Fetch, now: Micros) -> Micros | None:
    pauses = _PAUSES[fetch.subject]
    return now + pauses[fetch.tries - 1] * SECOND if fetch.tries <= len(pauses) else None

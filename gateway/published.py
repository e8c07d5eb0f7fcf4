"""Published keys at the receiver: what is missing is wanted from the reconciler, waited for briefly, else `503` (B2)."""

import asyncio
from typing import Final

import structlog

from gateway.gate import Endpoint, Gate
from gateway.problems import ProblemError
from ledger.errors import LedgerError
from schemas.delivery import InboundRequest, Reason, Refused, Verdict, WantedKey
from schemas.operation import Micros
from schemas.receiving import WantKey

WAIT_SECONDS: Final = 2.0
"""How long a delivery waits for its key where the reconciler runs in this process."""
MAX_WAITING: Final = 64
"""Deliveries that wait at once: strangers can name keys that nobody has."""
_ASK_AGAIN_SECONDS: Final = 1.0  # within this the record is not asked again for the same address
_MAX_ASKED: Final = 1_024
_RETRY: Final = (("Retry-After", "5"),)
_log = structlog.get_logger("gateway")


class PublishedKeys:
    """Wants keys for the endpoints of one gate."""

    __slots__ = ("_asked", "_gate", "_waiting")

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._asked: dict[tuple[str, str], tuple[float, bool]] = {}
        self._waiting = 0

    async def settle(self, endpoint: Endpoint, request: InboundRequest, verdict: Verdict, now: Micros) -> Verdict:
        """Return a verdict that needs no key any more. Raises ProblemError 503 where the key is not there in time."""
        wanted = _wanted(verdict)
        if wanted is None:
            return verdict
        if await self._want(endpoint.name, wanted.url, now) and self._gate.expects_reconciler and self._waiting < MAX_WAITING:
            self._waiting += 1
            try:
                verdict = await self._wait(endpoint, request, verdict, now)
            finally:
                self._waiting -= 1
        if _wanted(verdict) is not None:
            raise ProblemError("key_unavailable", "the key is being fetched; send it again", headers=_RETRY)
        return verdict

    async def _wait(self, endpoint: Endpoint, request: InboundRequest, verdict: Verdict, now: Micros) -> Verdict:
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                seen: Endpoint | None = endpoint
                while _wanted(verdict) is not None:
                    found = self._gate.endpoints.get(endpoint.name)
                    if found is seen:  # looked at before waiting: the key may have come while we asked for it
                        await self._gate.endpoints.replaced()
                        continue
                    if found is None or found.verifier is None:
                        break
                    seen, verdict = found, found.verifier.verify(request, now, found.keys)
        except TimeoutError:
            pass
        return verdict

    async def _want(self, provider: str, url: str, now: Micros) -> bool:
        clock = self._gate.world.monotonic()
        at, owed = self._asked.get((provider, url), (clock - _ASK_AGAIN_SECONDS, False))
        if clock - at < _ASK_AGAIN_SECONDS:
            return owed
        try:
            owed = await self._gate.ledger.write(WantKey(provider=provider, url=url, now=now))
        except LedgerError as error:
            _log.warning("receiver.unstored", error=type(error).__name__)
            return False
        if len(self._asked) >= _MAX_ASKED:
            self._asked.clear()
        self._asked[provider, url] = (clock, owed)
        return owed


def _wanted(verdict: Verdict) -> WantedKey | None:
    """Return the key that can be fetched; None: no key is missing, or only an operator can give it."""
    if isinstance(verdict, Refused) and verdict.reason is Reason.KEY_UNAVAILABLE and verdict.wanted is not None and verdict.wanted.url:
        return verdict.wanted
    return None

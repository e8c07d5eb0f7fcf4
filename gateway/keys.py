"""API keys: who is asking, and for which scopes. The key is hashed on arrival; it is never stored, logged or compared as text."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gateway.problems import ProblemError
from ledger import queries
from ledger.ledger import Ledger
from schemas.commands import RevokeKey
from schemas.operation import Micros
from schemas.world import World

SCOPES: Final = (
    "operations:create",
    "operations:adopt",
    "operations:read",
    "operations:cancel",
    "operations:decide",
    "operations:download",
    "deliveries:replay",
)
"""Scopes that this edge asks for."""

_TTL_SECONDS: Final = 0.5  # a revocation in another process holds within a second
_ENTRIES: Final = 1024
_KEY_BYTES: Final = 256  # ours have about 80; longer ones are not hashed
_CHALLENGE: Final = (("WWW-Authenticate", 'Bearer realm="gateway"'),)


def new_key(world: World) -> tuple[str, str, bytes]:
    """Return (id, the key's text to be shown once, its SHA-256 to be stored)."""
    key_id = world.new_id("key_")
    text = f"rgk_{key_id.removeprefix('key_')}_{world.new_token()}"
    return key_id, text, hashlib.sha256(text.encode()).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Whose key it is and what it may do."""

    key_id: str
    owner: str
    subject: str
    scopes: frozenset[str]

    def require(self, scope: str) -> None:
        """Raise 403 `missing_scope` unless the key has the scope."""
        if scope not in self.scopes:
            raise ProblemError("missing_scope", f"this needs the scope {scope}", extra={"scope": scope})


class Keyring:
    """Finds the principal of a request, through a small cache that forgets within half a second."""

    __slots__ = ("_cache", "_generation", "_ledger", "_world")

    def __init__(self, ledger: Ledger, world: World) -> None:
        self._ledger = ledger
        self._world = world
        self._cache: dict[bytes, tuple[float, Principal]] = {}
        self._generation = 0

    async def principal(self, headers: Iterable[tuple[bytes, bytes]]) -> Principal:
        """Return who asks. Raises ProblemError 401."""
        given = [value for name, value in headers if name == b"authorization"]
        if len(given) > 1:  # whoever stands before us may have looked at another one of them
            raise ProblemError("unauthenticated", "send one Authorization header", headers=_CHALLENGE)
        scheme, _, text = (given[0] if given else b"").partition(b" ")
        text = text.strip()
        if scheme.lower() != b"bearer" or not text.startswith(b"rgk_") or len(text) > _KEY_BYTES:
            raise ProblemError("unauthenticated", "send Authorization: Bearer rgk_…", headers=_CHALLENGE)
        digest = hashlib.sha256(text).digest()
        asked = self._world.monotonic()
        hit = self._cache.get(digest)
        if hit is not None and asked < hit[0]:
            return hit[1]
        generation = self._generation
        principal = await self._look_up(digest)
        if generation == self._generation:  # else a key was revoked while we read: this answer serves one request only
            if len(self._cache) >= _ENTRIES:
                self._cache.clear()
            # The age counts from before the read: what was read may have been revoked elsewhere since.
            self._cache[digest] = (asked + _TTL_SECONDS, principal)
        return principal

    async def revoke(self, key_id: str, now: Micros) -> bool:
        """Revoke a key; the next request with it fails in this process, and within a second in every other."""
        try:
            return await self._ledger.write(RevokeKey(id=key_id, now=now))
        finally:
            self._generation += 1
            self._cache.clear()

    async def _look_up(self, digest: bytes) -> Principal:
        stored = await self._ledger.read(queries.api_key, digest)
        if stored is None or stored.revoked_at is not None:
            self._cache.pop(digest, None)
            raise ProblemError("unauthenticated", "the key is unknown or has been revoked", headers=_CHALLENGE)
        return Principal(key_id=stored.id, owner=stored.owner, subject=stored.subject, scopes=frozenset(stored.scopes))

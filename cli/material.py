"""What verification needs besides the configuration: stored secrets and published keys, at most a second old (B11, B2).

A revocation does not wait for this: the transaction that stores a delivery looks itself.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import structlog

from ledger.errors import LedgerError, SecretMissingError
from ledger.fetches import key_states, published_keys
from ledger.ledger import Ledger
from ledger.secrets import stored_secrets
from ledger.transaction import RECEIVING, View
from ledger.vault import resolve
from providers.verification import NO_KEYS, KeyStore
from schemas.operation import Micros
from schemas.receiving import SecretPurpose, StoredSecret
from schemas.settings import ProviderSettings
from schemas.world import World

AGE_SECONDS: Final = 1.0
"""How old what is known may be, where no commit has told of a change."""
QUIET_SECONDS: Final = 60.0  # between two lines of the log about one outage
VAULT: Final = "vault:"
_log = structlog.get_logger("house")


@dataclass(frozen=True, slots=True)
class Stored:
    """The stored secrets as they were read."""

    secrets: tuple[StoredSecret, ...] = ()

    def usable(self, provider: str, purpose: SecretPurpose, now: Micros) -> list[StoredSecret]:
        """Return the secrets that a provider account may use now."""
        return [secret for secret in self.secrets if secret.provider == provider and secret.purpose == purpose and secret.usable(now)]

    def resolve(self, reference: str, provider: str, purpose: SecretPurpose, now: Micros) -> StoredSecret:
        """Return the secret behind `vault:NAME`. Raises SecretMissingError, which names the cure.

        A credential that has been retired or revoked is followed by the newest usable one of its provider: names are never
        used twice, and a rotation must not need another configuration.
        """
        name = reference.removeprefix(VAULT)
        found = next((secret for secret in self.secrets if secret.name == name), None)
        if found is None:
            raise SecretMissingError(
                f"{reference} is not stored; run: gateway secrets add {name} --provider {provider} --purpose {purpose}"
            )
        if found.provider != provider or found.purpose != purpose:
            raise SecretMissingError(f"{reference} is the {found.purpose} secret of {found.provider}, not a {purpose} secret of {provider}")
        if not found.usable(now) and purpose == "credential" and (next_ones := self.usable(provider, purpose, now)):
            return max(next_ones, key=lambda secret: (secret.created_at, secret.id))
        if not found.usable(now):
            raise SecretMissingError(f"{reference} is not usable now; see gateway secrets list")
        return found


def credential(reference: str, provider: str, stored: Stored, now: Micros) -> bytes:
    """Return the value behind any reference of a credential. Raises SecretMissingError."""
    return stored.resolve(reference, provider, "credential", now).value if reference.startswith(VAULT) else resolve(reference)


def credentials(providers: Mapping[str, ProviderSettings], material: "Material", world: World) -> Callable[[str], str | None]:
    """Return how the reconciler gets an account's credential: read anew for each errand, so that a rotated one counts at once.

    Raises SecretMissingError where one is configured and missing: the errand is not sent, rather than sent without it.
    """
    references = {name: provider.credential for name, provider in providers.items()}

    def found(provider: str) -> str | None:
        reference = references.get(provider)
        return None if reference is None else credential(reference, provider, material.stored, world.now()).decode("utf-8", "replace")

    return found


def renewer(material: "Material", world: World) -> Callable[[], Awaitable[None]]:
    """Return how stored credentials are read anew when a provider refuses one; at most once in a second, however many refuse."""
    last = -AGE_SECONDS

    async def renew() -> None:
        nonlocal last
        if world.monotonic() - last < AGE_SECONDS:
            return
        last = world.monotonic()
        try:
            await material.reread()
        except LedgerError as error:
            _log.warning("house.material_stale", error=type(error).__name__, fault=str(error))

    return renew


class Material:
    """The secrets and keys of one process. `refresh` reads them anew; `follow` keeps them fresh until it is cancelled."""

    def __init__(self, ledger: Ledger, world: World) -> None:
        self._ledger = ledger
        self._world = world
        self._lock = asyncio.Lock()
        self._seen: Any = None
        self._states: Any = None
        self._keys: dict[str, KeyStore] = {}
        self.stored = Stored()

    def load(self) -> None:
        """Read everything, in this thread: before anything serves, and for commands. Raises LedgerError."""
        states = self._ledger.read_now(key_states)
        self._take(self._ledger.read_now(stored_secrets), states, self._ledger.read_now(published_keys))

    def keys(self, provider: str) -> KeyStore:
        """Return the published keys of a provider."""
        return self._keys.get(provider, NO_KEYS)

    async def refresh(self) -> bool:
        """Read anew and return whether anything counts differently now. Raises LedgerError."""
        async with self._lock:
            secrets, states = await self._ledger.read(_look)
            documents = await self._ledger.read(published_keys) if states != self._states else None
            return self._take(secrets, states, documents)

    async def reread(self) -> None:
        """Read the stored secrets anew, in between: what counts differently is still found, and told, by `refresh`. Raises LedgerError."""
        self.stored = Stored(tuple(await self._ledger.read(stored_secrets)))

    async def follow(self, changed: Callable[[], None]) -> None:
        """Refresh after every commit that may concern it, and every second; call `changed` when anything counts differently."""
        loop, news = asyncio.get_running_loop(), asyncio.Event()

        def heard(ids: frozenset[str] | None) -> None:
            if ids is not None and RECEIVING in ids and not loop.is_closed():
                loop.call_soon_threadsafe(news.set)

        forget = self._ledger.on_change(heard)
        told: float | None = None  # when the log last said that this fails: not every second of an outage
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(news.wait(), AGE_SECONDS)
                news.clear()
                try:
                    if await self.refresh():
                        changed()
                    told = None
                except Exception as error:  # noqa: BLE001 - what is known still serves, the record answers for revocations, and the next look may do better
                    now = self._world.monotonic()
                    if told is None or now - told >= QUIET_SECONDS:
                        told = now
                        fault = str(error) if isinstance(error, LedgerError) else ""
                        _log.warning("house.material_stale", error=type(error).__name__, fault=fault)
        finally:
            forget()

    def _take(self, secrets: Iterable[StoredSecret], states: Any, documents: Any) -> bool:
        now = self._world.now()
        self.stored = Stored(tuple(secrets))
        seen = (states, [secret.id for secret in self.stored.secrets if secret.usable(now)])
        if documents is not None:
            by_provider: dict[str, dict[str, bytes]] = {}
            for found in documents:
                by_provider.setdefault(found.provider, {})[found.url] = found.document
            self._keys = {provider: KeyStore(known) for provider, known in by_provider.items()}
            self._states = states
        changed: bool = seen != self._seen
        self._seen = seen
        return changed


def _look(view: View) -> tuple[list[StoredSecret], list[tuple[str, str, Micros]]]:
    return stored_secrets(view), key_states(view)

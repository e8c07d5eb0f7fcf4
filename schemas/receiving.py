"""What belongs to verification beside deliveries: stored secrets, handshakes, published keys. Commands of the ledger's writer."""

from dataclasses import dataclass, field
from typing import Literal

from schemas.delivery import HandshakeAnswer
from schemas.operation import Micros

SecretPurpose = Literal["webhook", "credential"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSecret:
    """A secret of the encrypted store. Usable from `not_before` until before `not_after`, unless it has been revoked."""

    id: str  # sec_…; may be logged
    name: str
    provider: str
    purpose: SecretPurpose
    value: bytes = field(repr=False)
    source: Literal["added", "captured"]
    created_at: Micros
    created_by: str
    not_before: Micros | None = None
    not_after: Micros | None = None
    revoked_at: Micros | None = None

    def usable(self, now: Micros) -> bool:
        """Return whether it may verify or authenticate at `now`."""
        begun = self.not_before is None or self.not_before <= now
        return begun and (self.not_after is None or now < self.not_after) and self.revoked_at is None


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretUse:
    """When a secret (or the reference of one) matched genuine deliveries of a provider."""

    provider: str
    secret_id: str
    first_used_at: Micros
    last_used_at: Micros
    uses: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AddSecret:
    """Seal and store a secret. Answers its id, or None: the name is taken, perhaps by one that has ended."""

    id: str
    name: str
    provider: str
    purpose: SecretPurpose
    value: bytes = field(repr=False)
    by: str
    now: Micros
    source: Literal["added", "captured"] = "added"
    not_before: Micros | None = None
    not_after: Micros | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndSecret:
    """Retire a secret at `not_after` (never later than it would have ended), or with None revoke it now, for good.

    Answers its id, or None for an unknown name.
    """

    name: str
    now: Micros
    not_after: Micros | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteHandshake:
    """Audit an answered handshake, with what it owes: a fetch, or the secret that was handed over."""

    id: str  # hsk_…
    provider: str
    answer: HandshakeAnswer
    now: Micros
    secret_id: str = ""  # which secret proved the request genuine
    captured: AddSecret | None = None


HandshakeNoted = Literal["noted", "revoked", "not_captured"]
"""`revoked`: the secret that signed it is not valid any more. `not_captured`: the account has a secret. Both: nothing was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantKey:
    """Ask for a published key document. Answers whether a fetch is owed: False within the cool-down, or with too many wanted."""

    provider: str
    url: str  # the contract's own, or one that has passed its rules
    now: Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """One leased fetch: of a key document, or of a handshake's confirmation. `tries` counts this one and is its fence."""

    subject: Literal["keys", "handshake"]
    provider: str
    url: str = field(repr=False)
    tries: int
    handshake: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimFetches:
    """Lease what is to be fetched for these providers. Answers a tuple of Fetch."""

    providers: tuple[str, ...]
    limit: int
    lease: Micros
    now: Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleFetch:
    """Record what a fetch brought. `document` replaces the former one; `due_at`: another try. Answers False: lease lost."""

    fetch: Fetch
    now: Micros
    outcome: str  # a word; empty: as wanted
    document: bytes | None = field(default=None, repr=False)
    due_at: Micros | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyDocument:
    """A published document as it was fetched last."""

    provider: str
    url: str
    document: bytes = field(repr=False)
    fetched_at: Micros

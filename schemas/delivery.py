"""A delivery: one HTTP request from a provider (or one element of its array body), exact bytes."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from schemas.operation import Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class InboundRequest:
    """What arrived, before anything is believed. Header names are lower-case, order and repeats kept; bytes are as received."""

    method: str
    path: bytes  # raw, percent-encoded
    query: bytes  # raw
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes = field(repr=False)
    public_url: str = ""  # the configured public address of this endpoint, without query


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """One usable verification secret or public key. `id` may be logged and stored; `value` never."""

    id: str
    value: bytes = field(repr=False)


class Reason(StrEnum):
    """Why a delivery was refused. Stable words: metrics and problem details use them."""

    NO_SECRET = "no_secret"  # noqa: S105 - a word for its absence
    MISSING_SIGNATURE = "missing_signature"
    MALFORMED_SIGNATURE = "malformed_signature"
    WRONG_SIGNATURE = "wrong_signature"
    MISSING_TIMESTAMP = "missing_timestamp"
    MALFORMED_TIMESTAMP = "malformed_timestamp"
    TOO_OLD = "too_old"
    IN_FUTURE = "in_future"
    MISSING_FIELD = "missing_field"
    MALFORMED_BODY = "malformed_body"
    UNSUPPORTED = "unsupported"
    KEY_UNAVAILABLE = "key_unavailable"  # a published key that we have not fetched yet: ask again later (`Refused.wanted`)
    KEY_REFUSED = "key_refused"  # expired, of another kind, or from an address that the contract does not allow
    WRONG_CLAIM = "wrong_claim"  # the token is genuine and meant for another receiver, sender or address


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedKey:
    """A published key that is not at hand. Both texts are bounded; `url` is the contract's or has passed its rules."""

    url: str  # of the key set or certificate; empty: a key that only an operator can give
    kid: str = ""  # as the sender named it; empty: any key of the set


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The bytes are the provider's."""

    scheme_id: str
    secret_id: str
    signed_at: Micros | None = None
    signed: bytes = field(default=b"", repr=False)  # the exact bytes that the signature covers


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Not accepted. `genuine`: the signature is right and only the time is not (B8: one budgeted read)."""

    reason: Reason
    detail: str = ""  # for people; never a secret, never a signature
    genuine: bool = False
    secret_id: str = ""
    scheme_id: str = ""
    signed: bytes = field(default=b"", repr=False)
    signed_at: Micros | None = None  # of a genuine one
    wanted: WantedKey | None = None  # with KEY_UNAVAILABLE: what to fetch before the provider repeats the delivery


Verdict = Verified | Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A request that was not accepted as genuine, as it is kept for a diagnosis and nothing else (B12)."""

    id: str  # rfs_…
    provider: str
    at: Micros
    reason: str
    detail: str
    scheme_id: str
    method: str
    target: bytes = field(repr=False)  # raw path and query
    headers: tuple[tuple[bytes, bytes], ...] = field(repr=False)
    body: bytes | None = field(repr=False)  # None: too large to keep
    bytes: int  # of the body that came


@dataclass(frozen=True, slots=True, kw_only=True)
class HandshakeAnswer:
    """What a handshake is answered with. Audited, and never an event."""

    kind: str
    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = field(default=b"", repr=False)  # text/plain or JSON, never markup
    accepted: bool = True  # False: a handshake by its form, refused for `reason`
    reason: str = ""
    fetch_url: str = field(default="", repr=False)  # to be fetched once by the reconciler; it carries the provider's token
    capture: bytes = field(default=b"", repr=False)  # a secret that was handed over: to be sealed, shown by its id only
    answered_at: Micros = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What a delivery (or one element of it) says it is about: all of it hints. Texts are bounded and free of NUL."""

    dedup_key: str  # "id:<sha256 hex>" or "digest:<sha256 hex>": bounded whatever the provider sends
    content_sha256: str  # hex, of the body or element: tells a duplicate from a conflict
    event_id: str = ""
    event_type: str = ""
    remote_job_id: str = ""
    client_reference: str = ""
    claimed_state: str = ""
    provider_time: Micros | None = None
    element: int = 0
    readable: bool = True  # False: dead letter; stored, explained, no effect
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One event of a verified request, ready to be stored."""

    id: str  # dlv_…
    provider: str
    received_at: Micros
    event: Event
    secret_id: str
    scheme_id: str
    body: bytes = field(repr=False)  # exact bytes of the whole request; empty on elements after the first
    headers: tuple[tuple[bytes, bytes], ...] = field(default=(), repr=False)
    parent: str = ""  # the delivery that holds the body of an array
    replayed_by: str = ""  # who had a kept refusal, which is genuine by now, taken in (B8)
    standing: Literal["fresh", "stale"] = "fresh"


DeliveryStatus = Literal["accepted", "duplicate", "conflict", "unmatched", "ignored", "revoked"]
"""`revoked`: nothing was stored, for the secret that signed it is not valid any more."""

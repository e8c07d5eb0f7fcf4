"""Commands of the ledger's writer: closed kinds, and what each answers. Submitting one is the only way to change the record."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from schemas.delivery import Delivery, DeliveryStatus, Event, Refusal
from schemas.evidence import Evidence
from schemas.http import Exchange
from schemas.operation import Expect, Micros, Operation
from schemas.receiving import AddSecret, ClaimFetches, EndSecret, NoteHandshake, SettleFetch, WantKey
from schemas.states import Errand, Mode
from schemas.sweeping import ClaimWalks, SettleWalk
from schemas.upkeep import Checkpoint, Expire, Rewrap, Switch


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """What a caller wants, checked at the edge. Ids, token and trace id are made by the edge's injected source."""

    id: str
    owner: str
    subject: str
    provider: str
    action: str
    mode: Mode
    origin: str
    contract_digest: str
    idempotency_token: str
    trace_id: str
    request_fingerprint: str
    create_seconds: int
    result_seconds: int
    cancel_seconds: int
    collect_seconds: int
    approval_seconds: int = 0  # > 0: a person approves first
    approval_by: tuple[str, ...] = ()
    authorized_by: str | None = None
    idempotency_key: str | None = None
    reference: str | None = None
    supersedes: str | None = None
    resumes: str | None = None
    remote_job_id: str | None = None  # adopt
    request: bytes | None = field(default=None, repr=False)
    metadata: Mapping[str, str] = field(default_factory=dict, repr=False)
    expect: Expect = field(default_factory=Expect)


@dataclass(frozen=True, slots=True, kw_only=True)
class Register:
    """Record an intent. Same owner and key and fingerprint: the same operation (A3)."""

    intent: Intent
    now: Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """`key_reused`: the key stands for another request. `job_taken`: the job id belongs to somebody else (opaque).

    `unknown_link`: no such operation for this owner (resumes: of this provider). `already_superseded`: it has a successor.
    `not_final`: what is to be resumed has not ended.
    """

    outcome: Literal["created", "replayed", "key_reused", "key_expired", "job_taken", "unknown_link", "already_superseded", "not_final"]
    operation: Operation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingest:
    """Store a verified delivery, apply it to its operation, or keep it as an orphan (B3-B6)."""

    delivery: Delivery
    now: Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingested:
    """What became of it. `duplicate` and `conflict` name the delivery that was stored first."""

    delivery_id: str
    status: DeliveryStatus
    operation_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """Keep refused requests, sealed, for a diagnosis; the oldest make room. Written when nothing else waits (B10, B12)."""

    refusals: tuple[Refusal, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """Apply a stored delivery again, as today's contract reads its bytes. `owner` None: an operator, any delivery."""

    delivery_id: str
    owner: str | None
    actor: str
    event: Event
    verified: bool  # its signature was found right again, at the time of its receipt
    now: Micros
    chance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What became of it. `not_found`: not there, or attached to no operation of this owner. `unreadable`: nothing has changed."""

    outcome: Literal["accepted", "unmatched", "ignored", "unreadable", "not_found"]
    operation_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Petition:
    """A person's or caller's evidence: cancel, refresh, answer, report. `owner` None: an operator, any owner."""

    operation_id: str
    owner: str | None
    actor: str
    evidence: Evidence
    now: Micros
    chance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Petitioned:
    """`refused` carries the decision's code, e.g. `already_final`, `question_changed`, `budget`."""

    outcome: Literal["applied", "refused", "not_found"]
    code: str = ""
    detail: str = ""
    operation: Operation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimWork:
    """Lease due operations for this worker, fairly over providers and owners, and open attempts for acting errands.

    `room` says how many operations of each provider the pace allows now; providers that are absent are not claimed.
    """

    worker: str
    room: Mapping[str, int]
    limit: int
    lease: Micros
    send_budget: Micros  # how long a send may take at most after its first byte's check
    now: Micros
    chance: float
    after: Mapping[str, str] = field(default_factory=dict)  # of each provider the owner whose turn was last; of "" the provider


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """One leased errand. For acting errands `attempt_id` is committed and open; only then may a byte be sent."""

    operation: Operation
    errand: Errand
    fence: int
    attempt_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedWork:
    """The answer to ClaimWork. `after` continues the fair round."""

    items: tuple[Claimed, ...]
    after: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settle:
    """Commit what an errand brought. A stale fence: the evidence still counts, the rescheduling does not."""

    operation_id: str
    fence: int
    errand: Errand
    evidence: Evidence
    started_at: Micros
    now: Micros
    chance: float
    actor: str
    attempt_id: str | None = None
    exchange: Exchange | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """`stale`: another worker holds the lease by now."""

    operation: Operation
    stale: bool = False
    refused: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Defer:
    """Give a lease back without having made the call (pace, shutdown). An open attempt is closed as not sent."""

    operation_id: str
    fence: int
    due_at: Micros
    now: Micros
    attempt_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Renew:
    """Extend a lease by fence. Answers False when it is lost."""

    operation_id: str
    fence: int
    lease: Micros
    now: Micros


SweepPart = Literal["all", "receipts", "unclaimed", "silent", "beats", "faults"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Drive on what was left: orphans, unprocessed receipts, silent operations, rows set aside. Bounded by `limit`.

    `stepped`: the clock may have been set back; leases longer than `longest_lease` are nobody's then.
    """

    now: Micros
    limit: int
    chance: float
    part: SweepPart = "all"
    stepped: bool = False
    longest_lease: Micros = 3_600_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """Counts of what a sweep did."""

    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """A duty's heartbeat: when it last ran, and with what counts."""

    duty: str
    process: str
    now: Micros
    ok: bool
    counts: Mapping[str, int] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddKey:
    """Store an API key's hash. The key itself is shown once by the command line and kept nowhere."""

    id: str
    key_sha256: bytes = field(repr=False)
    owner: str
    subject: str
    scopes: tuple[str, ...]
    now: Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeKey:
    """Revoke an API key; it fails on the next request. Answers False for an unknown id."""

    id: str
    now: Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A stored key as `keys list` shows it."""

    id: str
    owner: str
    subject: str
    scopes: tuple[str, ...]
    created_at: Micros
    revoked_at: Micros | None


Command = (
    Register | Ingest | Quarantine | Replay | Petition | ClaimWork | Settle | Defer | Renew | Sweep | Beat | AddKey | RevokeKey
    | AddSecret | EndSecret | NoteHandshake | WantKey | ClaimFetches | SettleFetch | ClaimWalks | SettleWalk
    | Expire | Rewrap | Switch | Checkpoint
)  # fmt: skip

HistoryRow = Mapping[str, Any]

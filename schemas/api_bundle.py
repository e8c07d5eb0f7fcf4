"""Models of the escalation bundle: what an owner hands to the provider's support, or to an auditor (MISSION E4, D7)."""

from typing import Any

from pydantic import Field

from schemas.api import HistoryRowView, OperationView, Shown, Time


class AccountView(Shown):
    """Where the work was asked for, and under which names the provider knows it."""

    provider: str
    origin: str
    contract_digest: str
    action: str
    mode: str
    remote_job_id: str | None
    idempotency_token: str = Field(description="the same on every send of the create: the provider can look it up")
    trace_id: str
    request_ids: list[str] = Field(description="the provider's own ids of our calls, oldest first")


class AttemptView(Shown):
    """One try of an errand that acts; it was on record before its bytes."""

    id: str
    errand: str
    number: int
    worker: str
    opened_at: Time
    sent_before: Time = Field(description="no byte of it left later than this")
    closed_at: Time | None
    outcome: str
    error: str


class ExchangeView(Shown):
    """One call as it was recorded: no credential, no query of the address, a redacted beginning of the answer."""

    id: str
    errand: str
    attempt: str | None
    method: str
    url: str
    started_at: Time
    finished_at: Time
    outcome: str
    status: int | None
    error: str
    request_id: str
    response_sha256: str
    response_start: str | None


class ObservationView(Shown):
    """One thing that the provider said, and how often in a row."""

    number: int
    reading: str
    remote_state: str
    progress: float | None
    provider_time: Time | None
    first_at: Time
    last_at: Time
    count: int


class DeliverySummaryView(Shown):
    """A callback that belongs to the operation, without its body and headers."""

    id: str
    event_id: str
    event_type: str
    claimed_state: str
    received_at: Time
    provider_time: Time | None
    status: str
    standing: str
    duplicates: int


class ArtifactView(Shown):
    """A stored file of the result."""

    id: str
    role: str
    media_type: str
    bytes: int
    sha256: str
    created_at: Time


class LinkView(Shown):
    """One link of the hash chain: with the history row of the same `seq` it is all that the chain hashes."""

    seq: int
    at: int = Field(description="microseconds since 1970, UTC")
    changes: str = Field(description="the very text that is hashed")
    text_sha256: str = Field(description="SHA-256 of a secret salt and the row's text; empty where there is none")
    previous: str
    hash: str


class ProofView(Shown):
    """The head of the history's chain, and how to verify the rows up to it without us."""

    head: str
    seq: int
    how: list[str]
    chain: list[LinkView]


class BundleView(Shown):
    """Everything on record about one operation. The same record gives the same bytes."""

    format: str
    operation: OperationView
    account: AccountView
    history: list[HistoryRowView]
    attempts: list[AttemptView]
    exchanges: list[ExchangeView]
    observations: list[ObservationView]
    deliveries: list[DeliverySummaryView]
    artifacts: list[ArtifactView]
    omitted: dict[str, Any] = Field(description="how many older ones of each kind are left out; only kinds with some")
    proof: ProofView

"""The operation: the durable record of one piece of long-running work. Times are integers of microseconds UTC."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from schemas.states import Cause, Errand, Mode, Question, Reading, State

Micros = int
SECOND: Micros = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """What the caller demands of the result (MISSION F2). None: not demanded."""

    media_type: str | None = None
    max_bytes: int | None = None
    min_bytes: int | None = None
    sha256: str | None = None  # lower-case hex
    json_schema: Mapping[str, Any] | None = None  # of the JSON document, or of each record of JSON lines
    records_min: int | None = None
    records_max: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation as committed. The three groups below differ in who may write them.

    *Identity* is written once. *Folded* fields change only by history rows: folding the history gives them (D4).
    *Working* fields serve the clockwork; they may change without a history row.
    """

    # identity
    id: str
    owner: str
    subject: str
    provider: str
    contract_digest: str
    origin: str
    action: str
    mode: Mode
    idempotency_token: str
    trace_id: str
    request_fingerprint: str  # "sha256:<hex>"
    created_at: Micros
    create_seconds: int
    result_seconds: int
    cancel_seconds: int
    collect_seconds: int
    approval_seconds: int = 0
    authorized_by: str | None = None
    approval_by: tuple[str, ...] = ()
    idempotency_key: str | None = None
    reference: str | None = None
    supersedes: str | None = None
    resumes: str | None = None
    request: bytes | None = field(default=None, repr=False)  # canonical JSON
    metadata: Mapping[str, str] = field(default_factory=dict, repr=False)
    expect: Expect = field(default_factory=Expect)

    # folded
    state: State
    reading: Reading | None = None
    remote_state: str | None = None  # the provider's own word, bounded
    remote_job_id: str | None = None
    ending: Reading | None = None  # the reading that led to result_collecting
    ending_cause: Cause | None = None
    ending_cause_id: str | None = None
    create_deadline: Micros | None = None
    result_deadline: Micros | None = None
    cancel_deadline: Micros | None = None
    collect_deadline: Micros | None = None
    approval_deadline: Micros | None = None
    cancel_requested_at: Micros | None = None
    cancel_by: str | None = None
    cancel_outcome: str | None = None
    result_artifact: str | None = None  # id of the main artifact
    result_media_type: str | None = None
    result_bytes: int | None = None
    result_sha256: str | None = None
    result_complete: bool | None = None
    result_facts: Mapping[str, Any] | None = None  # records, items, files, where there is more than one plain file
    accepted_by: str | None = None
    question_id: str | None = None
    question_kind: Question | None = None
    question_until: Micros | None = None
    incident_id: str | None = None
    error_code: str | None = None
    unverified: bool = False  # the last deadline was declared without the provider answering
    superseded_by: str | None = None
    effects: str | None = None  # JSON object of texts: what the ended job did, by its provider's last word
    waits_for: str | None = None  # a predecessor that must have ended first; nothing has been sent

    # working
    revision: int = 0  # grows with every write: compare-and-set
    version: int = 1  # grows when something that callers act on changes: the ETag
    updated_at: Micros = 0
    verified_at: Micros | None = None  # last authoritative read that was answered
    progress: float | None = None
    provider_time: Micros | None = None
    error_message: str | None = field(default=None, repr=False)
    cancel_reason: str | None = field(default=None, repr=False)
    cancel_effect: str | None = field(default=None, repr=False)
    due_at: Micros | None = None
    watch_until: Micros | None = None
    hinted_at: Micros | None = None
    hints: int = 0
    granted_reads: int = 0  # reads that a parked operation may still make
    lease_owner: str | None = None
    lease_fence: int = 0
    lease_until: Micros | None = None
    open_attempt: str | None = None
    open_errand: Errand | None = None
    unsure_creates: int = 0  # create attempts that may have been executed
    sends: int = 0  # create attempts opened so far
    first_sent_at: Micros | None = None  # start of the provider's idempotency window
    sent_before: Micros | None = None  # no byte of any create attempt so far leaves later than this
    cancel_sent_at: Micros | None = None
    token_spent: str | None = None  # why a resend protects nothing: `replayed_…`, a stored error (B055), or one not stored
    remembered: Mapping[str, str] = field(default_factory=dict, repr=False)  # what the create answer said beside the job id
    accepted_at: Micros | None = None  # when the job id became known: start of the not-found grace
    absences: int = 0  # proven-late "not found" answers in a row
    recreates: int = 0  # creates sent once more because looking had proven that there was nothing
    read_failures: int = 0  # reads in a row without an answer
    last_read_error: str | None = None
    last_read_at: Micros | None = None  # start of the last read attempted, answered or not
    steady_reads: int = 0  # answered reads in a row that changed nothing: the back-off
    collect_tries: int = 0
    consumed_by: str | None = None  # the lost attempt that may have read a result that can be read once (F4)
    failed_refs: tuple[str, ...] = field(default=(), repr=False)  # names of failed items, the first few (F5)
    observation_digest: str | None = None
    observations: int = 0  # number of the latest observation
    history_seq: int = 0
    history_hash: bytes = b""
    verdict_seq: int | None = None
    verdict_cause: Cause | None = None


FOLDED = (
    "state", "reading", "remote_state", "remote_job_id", "ending", "ending_cause", "ending_cause_id",
    "create_deadline", "result_deadline", "cancel_deadline", "collect_deadline", "approval_deadline",
    "cancel_requested_at", "cancel_by", "cancel_outcome",
    "result_artifact", "result_media_type", "result_bytes", "result_sha256", "result_complete",
    "result_facts", "accepted_by",
    "question_id", "question_kind", "question_until", "incident_id", "error_code", "unverified", "superseded_by",
    "waits_for", "effects",
)  # fmt: skip
"""Names of the folded fields: history rows carry their changes, and nothing else changes them."""

IDENTITY = ("owner", "subject", "provider", "origin", "trace_id", "authorized_by")
"""Names of the fields that the first history row says once and for all: whose it is, and who wanted it (D6). Rows of 0.1 lack them."""

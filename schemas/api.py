"""Models of the HTTP edge: what bodies are taken and what answers look like. Pydantic lives here and in `gateway/` only."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from schemas.states import Answer, Cause, PublicStatus, Question, State

MAX_SECONDS = 7_776_000  # 90 days
MAX_TEXT = 2_000

_PLAIN = r"^[^\x00-\x1f\x7f]*$"  # one line, and no NUL: PostgreSQL cannot store one in text

Name = Annotated[str, Field(min_length=1, max_length=200, pattern=_PLAIN)]
Label = Annotated[str, Field(min_length=1, max_length=512, pattern=_PLAIN)]
Words = Annotated[str, Field(max_length=MAX_TEXT)]
Seconds = Annotated[int, Field(ge=1, le=MAX_SECONDS)]
Time = Annotated[str, Field(description="RFC 3339, UTC", json_schema_extra={"format": "date-time"})]


class Body(BaseModel):
    """A request body: strict types, no unknown field."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class DeadlinesBody(Body):
    """Clocks of the operation; those that are not given are the contract's."""

    create_seconds: Seconds | None = None
    result_seconds: Seconds | None = None
    cancel_seconds: Seconds | None = None
    collect_seconds: Seconds | None = None


class RecordsBody(Body):
    """How many records the result must have, inclusive."""

    min: Annotated[int, Field(ge=0, le=2**53 - 1)] | None = None
    max: Annotated[int, Field(ge=0, le=2**53 - 1)] | None = None


class ExpectBody(Body):
    """What the result must be like; else the operation is parked with `result_validation_failed`."""

    media_type: Annotated[str, Field(max_length=200, pattern=r"^[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+$")] | None = None
    max_bytes: Annotated[int, Field(ge=0, le=2**53 - 1)] | None = None
    min_bytes: Annotated[int, Field(ge=0, le=2**53 - 1)] | None = None
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    json_schema: dict[str, Any] | None = Field(
        default=None, description="draft 2020-12, of the JSON document or of each record; $ref only into the schema itself"
    )
    records: Annotated[int, Field(ge=0, le=2**53 - 1)] | RecordsBody | None = Field(
        default=None, description="how many records there must be: a number, or bounds"
    )


class ApprovalBody(Body):
    """A person must approve before anything is sent. `by` empty: anybody with `operations:decide`."""

    by: Annotated[list[Name], Field(max_length=20)] = Field(default_factory=list)
    within_seconds: Seconds = 86_400


class CreateBody(Body):
    """A new operation: `request` (we send it), `request` with `create: external` (you send it), or `remote_job_id` (adopt)."""

    provider: Name
    action: Name | None = None
    request: dict[str, Any] | None = None
    create: Literal["external"] | None = None
    remote_job_id: Label | None = None
    reference: Label | None = None
    authorized_by: Label | None = None
    deadlines: DeadlinesBody | None = None
    expect: ExpectBody | None = None
    approval: ApprovalBody | None = None
    supersedes: Name | None = Field(default=None, description="an operation that is ended first; this one is sent when it is final")
    resumes: Name | None = Field(default=None, description="an operation that has ended, which this one takes up again")
    notify: Name | None = Field(default=None, description="not available yet")
    metadata: Annotated[
        dict[Annotated[str, Field(min_length=1, max_length=64)], Annotated[str, Field(max_length=1_000)]], Field(max_length=50)
    ] = Field(default_factory=dict)


class CancelBody(Body):
    """Why the work should stop, and what effect is expected of it."""

    reason: Words = ""
    expected_effect: Words = ""


class DecisionBody(Body):
    """A person's answer to the open question."""

    question: Name
    answer: Annotated[Answer, Field(strict=False)]
    reason: Words = ""
    remote_job_id: Label | None = None
    result_seconds: Seconds | None = None
    cancel_seconds: Seconds | None = None
    collect_seconds: Seconds | None = None
    accept_duplicate_risk: bool = False


class OutcomeBody(Body):
    """What became of the create that the service made itself."""

    outcome: Literal["accepted", "rejected", "unknown", "not_sent"]
    remote_job_id: Label | None = None
    message: Words = ""


class Shown(BaseModel):
    """An answer. Fields are always present; clients ignore those that they do not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ErrorView(Shown):
    """Why the operation did not succeed."""

    code: str
    message: str | None


class RemoteView(Shown):
    """What the provider says, in its own words. `progress` as reported: no promise. `failed_reads` in a row say that it is silent."""

    job_id: str | None
    state: str | None
    progress: float | None
    provider_time: Time | None
    observed_at: Time | None
    failed_reads: int
    read_error: str | None


class DeadlinesView(Shown):
    """The five clocks: agreed seconds, and the times at which those that run will end."""

    create_seconds: int
    result_seconds: int
    cancel_seconds: int
    collect_seconds: int
    create_at: Time | None
    result_at: Time | None
    cancel_at: Time | None
    collect_at: Time | None
    approval_at: Time | None
    unverified: bool = Field(description="the last deadline passed without an answer from the provider")


class CancelView(Shown):
    """The cancel request and what became of it."""

    requested_at: Time
    by: str | None
    reason: str | None
    outcome: str | None
    effect: str | None


class ItemsView(Shown):
    """Outcomes of the items of a batch. Each item is counted once, in one of the first three."""

    succeeded: int
    failed: int
    missing: int
    duplicates: int = Field(description="records about an item that another record had told of")
    unreadable: int = Field(description="of the failed ones: records that could not be read or name no item")
    failed_refs: list[str] = Field(description="names of failed items, the first 20; the files have them all")


class FileView(Shown):
    """One file of the result."""

    role: str
    media_type: str
    bytes: int
    sha256: str
    url: str


class ResultView(Shown):
    """The stored result. `complete` false: a partial one, or none could be saved (then `url` is null)."""

    media_type: str | None
    bytes: int | None
    sha256: str | None
    complete: bool | None
    accepted_by: str | None
    records: int | None
    items: ItemsView | None
    files: list[FileView]
    expires_at: Time | None
    url: str | None


class QuestionView(Shown):
    """What a person is asked, and the answers that are taken."""

    id: str
    kind: Question
    answers: list[Answer]
    until: Time | None


class LinksView(Shown):
    """Where to go on."""

    self: str
    history: str
    refresh: str
    cancel: str
    decision: str
    result: str
    bundle: str


class OperationView(Shown):
    """An operation as its owner sees it."""

    id: str
    provider: str
    action: str
    status: PublicStatus
    state: State
    settled: bool = Field(description="final or parked: stop polling")
    final: bool
    stage: str
    message: str
    error: ErrorView | None
    remote: RemoteView
    created_at: Time
    updated_at: Time
    verified_at: Time | None
    next_check_at: Time | None
    deadlines: DeadlinesView
    cancel: CancelView | None
    result: ResultView | None
    question: QuestionView | None
    effects: dict[str, str] | None = Field(description="what the ended job did, paid or left behind, as its provider said at the end")
    incident: str | None
    reference: str | None
    authorized_by: str | None
    idempotency_key: str | None
    idempotency_token: str | None = Field(description="only for external creates: send it to the provider")
    request_fingerprint: str
    trace_id: str
    supersedes: str | None
    superseded_by: str | None
    resumes: str | None
    expires_at: Time | None
    metadata: dict[str, str]
    version: int
    links: LinksView


class OperationsView(Shown):
    """One page of operations, newest first. `unreadable`: ids of stored ones that cannot be shown. `next_cursor` null: the last page."""

    operations: list[OperationView]
    unreadable: list[str]
    next_cursor: str | None


class HistoryRowView(Shown):
    """One append-only row."""

    seq: int
    at: Time
    actor: str
    from_state: str | None
    to_state: State
    cause: Cause
    cause_id: str
    code: str
    text: str | None
    meaning: str | None = Field(description="what the code means, in a sentence; null for a provider's own code")
    erased: bool = Field(description="there was a text, and it has been erased; the chain still verifies")
    changes: dict[str, Any]
    hash: str


class HistoryView(Shown):
    """One page of history, oldest first."""

    operation: str
    history: list[HistoryRowView]
    next_cursor: str | None


class OpenQuestionView(Shown):
    """An open question and the operation that waits for it."""

    operation: str
    provider: str
    status: PublicStatus
    state: State
    message: str
    reference: str | None
    request_fingerprint: str
    question: QuestionView


class QuestionsView(Shown):
    """Open questions of this owner, oldest first. `more`: there are further ones."""

    questions: list[OpenQuestionView]
    more: bool


class DeliveryView(Shown):
    """What became of a callback."""

    status: Literal["accepted", "duplicate", "conflict", "unmatched", "ignored"]
    delivery: str | None = None
    deliveries: list["DeliveryView"] | None = None


class ReplayView(Shown):
    """What became of a delivery that was applied again."""

    delivery: str
    status: Literal["accepted", "unmatched", "ignored", "unreadable"]
    operation: str | None
    verified: bool = Field(description="its signature was found right again; false: only at its receipt, with a secret that is gone")


class HealthView(Shown):
    """Whether the service lives or is ready, and which check says otherwise."""

    status: Literal["ok", "unready"]
    checks: dict[str, str]


class ProblemView(BaseModel):
    """application/problem+json; further members by code."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    operation: str | None = None

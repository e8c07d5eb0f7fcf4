"""Evidence: everything that can be learned about an operation. All of it takes the same way: decide, then fold.

Each class names its kind, so that the table in `lifecycle/table.py` can be total over states x kinds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Literal

from schemas.operation import Micros
from schemas.states import Answer, Errand, Question, Reading, State


class Kind(StrEnum):
    """The kinds of evidence: the columns of the table."""

    CANCEL_ASKED = "cancel_asked"
    REFRESH_ASKED = "refresh_asked"
    ANSWERED = "answered"
    REPORTED = "reported"
    HINTED = "hinted"
    LAPSED = "lapsed"
    ATTEMPT_LOST = "attempt_lost"
    NOT_SENT = "not_sent"
    CREATE_AMBIGUOUS = "create_ambiguous"
    CREATE_REJECTED = "create_rejected"
    JOB_KNOWN = "job_known"
    JOB_NOT_FOUND = "job_not_found"
    JOBS_CONFLICT = "jobs_conflict"
    READ = "read"
    READ_FAILED = "read_failed"
    CANCEL_TAKEN = "cancel_taken"
    CANCEL_REFUSED = "cancel_refused"
    CANCEL_AMBIGUOUS = "cancel_ambiguous"
    COLLECTED = "collected"
    RESULT_INVALID = "result_invalid"
    RESULT_GONE = "result_gone"
    COLLECT_FAILED = "collect_failed"
    SUCCEEDED_BY = "succeeded_by"
    PREDECESSOR_SEEN = "predecessor_seen"


# --- from people and callers


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelAsked:
    """A caller wants the work to stop (E1)."""

    kind: ClassVar[Kind] = Kind.CANCEL_ASKED
    by: str
    reason: str = ""
    expected_effect: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshAsked:
    """A caller wants a read now (G8)."""

    kind: ClassVar[Kind] = Kind.REFRESH_ASKED
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A named person answered the open question."""

    kind: ClassVar[Kind] = Kind.ANSWERED
    by: str
    question_id: str
    question: Question
    answer: Answer
    reason: str = ""
    remote_job_id: str | None = None
    seconds: int | None = None  # result_seconds, cancel_seconds or collect_seconds of the answer
    accept_duplicate_risk: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """A service reports the outcome of the create that it made itself (A11)."""

    kind: ClassVar[Kind] = Kind.REPORTED
    by: str
    outcome: Literal["accepted", "rejected", "unknown", "not_sent"]
    remote_job_id: str | None = None
    message: str = ""


# --- from linked operations


@dataclass(frozen=True, slots=True, kw_only=True)
class SucceededBy:
    """Another operation was registered that supersedes this one (A3), or resumes it (D1)."""

    kind: ClassVar[Kind] = Kind.SUCCEEDED_BY
    by: str
    operation: str
    how: Literal["supersedes", "resumes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PredecessorSeen:
    """How the operation stands that must have ended before this one is sent (A3). Looked up by the ledger."""

    kind: ClassVar[Kind] = Kind.PREDECESSOR_SEEN
    operation: str
    state: State


# --- from callbacks and clocks


@dataclass(frozen=True, slots=True, kw_only=True)
class Hinted:
    """A verified delivery mentions this operation. A hint: it schedules a read and nothing more (B5)."""

    kind: ClassVar[Kind] = Kind.HINTED
    delivery_id: str
    event_type: str = ""
    claimed_state: str = ""
    conflict: bool = False  # the same event id came with other bytes
    note: str = ""  # e.g. "stale but genuine"
    names_job: str = ""  # the job that it names beside our own reference, signed, and owned by nobody else (set by the ledger)
    unsigned: bool = False  # the signature does not bind the body: anybody could have sent it, so its read is budgeted (B8)
    replayed: bool = False  # a person wanted it applied again: that is always written down


@dataclass(frozen=True, slots=True, kw_only=True)
class Lapsed:
    """Time has passed and no provider call is owed: a clock that needs no read may be declared."""

    kind: ClassVar[Kind] = Kind.LAPSED


# --- from attempts


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLost:
    """A worker found an open attempt that is not its own: its bytes may have been sent."""

    kind: ClassVar[Kind] = Kind.ATTEMPT_LOST
    attempt_id: str
    errand: Errand
    sent_before: Micros  # no byte of it leaves later


@dataclass(frozen=True, slots=True, kw_only=True)
class NotSent:
    """An attempt surely did not execute: no byte left, or the provider's documented "try later" answer."""

    kind: ClassVar[Kind] = Kind.NOT_SENT
    errand: Errand
    error: str
    retry_after: Micros | None = None  # absolute time before which the provider does not want to hear from us
    was_lost: bool = False  # the attempt had been declared lost: one doubt less (set by the ledger)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateAmbiguous:
    """The create may or may not have executed."""

    kind: ClassVar[Kind] = Kind.CREATE_AMBIGUOUS
    error: str
    message: str = ""
    retry_after: Micros | None = None
    spent: bool = False  # the answer shows that our token protects no resend any more: see `Operation.token_spent`
    sent_before: Micros | None = None  # as in AttemptLost: a broken connection says nothing about when it executes (set by the ledger)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateRejected:
    """The provider refused the create for good."""

    kind: ClassVar[Kind] = Kind.CREATE_REJECTED
    code: str
    message: str = ""
    status: int = 0  # the HTTP status of the refusal: 401 and 403 speak of us, not of an earlier try
    was_lost: bool = False  # as in NotSent


# --- results


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A result file that is durably stored under `key` in the artifact room."""

    role: str
    key: str
    media_type: str
    bytes: int
    sha256: str  # lower-case hex


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """Outcomes of a batch's items. Each item is counted once: in `succeeded`, `failed` or `missing`.

    `duplicates` counts records about an item that another record had told of; `unreadable` counts those of the failed ones
    whose record could not be read or names no item.
    """

    succeeded: int
    failed: int
    missing: int
    duplicates: int = 0
    unreadable: int = 0
    failed_refs: tuple[str, ...] = ()  # names of failed items, the first few; "line 17" for a record that names none


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The result is stored and meets the agreement."""

    kind: ClassVar[Kind] = Kind.COLLECTED
    files: tuple[StoredFile, ...]
    complete: bool = True
    records: int | None = None  # None: nobody asked for the file to be looked into
    items: Items | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultInvalid:
    """The result was obtained and does not meet the agreement; what was obtained is kept."""

    kind: ClassVar[Kind] = Kind.RESULT_INVALID
    code: str
    message: str = ""
    files: tuple[StoredFile, ...] = ()
    records: int | None = None
    items: Items | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultGone:
    """The provider says, definitely, that there is nothing to fetch (any more)."""

    kind: ClassVar[Kind] = Kind.RESULT_GONE
    code: str
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectFailed:
    """The transfer failed for now; it will be tried again until the collection clock runs out."""

    kind: ClassVar[Kind] = Kind.COLLECT_FAILED
    error: str
    retry_after: Micros | None = None


Collection = Collected | ResultInvalid | ResultGone | CollectFailed


def result_facts(outcome: Collected | ResultInvalid) -> dict[str, Any] | None:
    """Return what the record and its history keep of a result, as JSON values: `records`, `items` (counts), `files`.

    None for one plain file: the record's own fields say all there is.
    """
    items = outcome.items
    if outcome.records is None and items is None and [file.role for file in outcome.files] == ["output"]:
        return None
    return {
        "records": outcome.records,
        "items": None if items is None else {name: getattr(items, name) for name in COUNTS},
        "files": [
            {"role": file.role, "key": file.key, "media_type": file.media_type, "bytes": file.bytes, "sha256": file.sha256}
            for file in outcome.files
        ],
    }


COUNTS = ("succeeded", "failed", "missing", "duplicates", "unreadable")
"""The counts of `Items`."""


# --- what the provider says


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusFacts:
    """What one status answer says, mapped by the contract."""

    reading: Reading
    remote_state: str = ""  # verbatim, bounded to 200 characters
    progress: float | None = None
    provider_time: Micros | None = None
    error_code: str = ""
    error_message: str = ""
    has_result: bool = True  # False: this ending has nothing to fetch
    effects: tuple[tuple[str, str], ...] = ()  # what an ended job did, paid or left behind, by the contract's names
    inline: Collected | ResultInvalid | None = None  # the answer itself was the result and has been stored


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKnown:
    """The provider names the job that our create made."""

    kind: ClassVar[Kind] = Kind.JOB_KNOWN
    remote_job_id: str
    source: Literal["create", "recovery"]
    status: StatusFacts | None = None  # the answer was a status answer too
    remembered: Mapping[str, str] = field(default_factory=dict, repr=False)  # by `create.remember`
    next_after: Micros | None = None  # as in Read


@dataclass(frozen=True, slots=True, kw_only=True)
class JobNotFound:
    """A recovery lookup was answered and does not know our create. Proof only when late and repeated (A6)."""

    kind: ClassVar[Kind] = Kind.JOB_NOT_FOUND


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsConflict:
    """A contradiction: more than one job for one token, somebody else's job, or a pinned origin that has changed (A8)."""

    kind: ClassVar[Kind] = Kind.JOBS_CONFLICT
    remote_job_ids: tuple[str, ...] = ()
    message: str = ""
    code: str = "jobs_conflict"  # or "origin_changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """An authoritative status read was answered, and the answer is of the contract's form (C4, third layer)."""

    kind: ClassVar[Kind] = Kind.READ
    facts: StatusFacts
    digest: str = ""  # SHA-256 (hex) of what the answer says
    observation_id: str = ""
    next_after: Micros | None = None  # before this time the provider has nothing new to say (`Retry-After` of an answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFailed:
    """A read or lookup brought no usable answer: transport failure or protocol nonsense (C4, first two layers)."""

    kind: ClassVar[Kind] = Kind.READ_FAILED
    layer: Literal["transport", "protocol"]
    error: str
    retry_after: Micros | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelTaken:
    """The provider took the cancel request. How it ends is for reads to say."""

    kind: ClassVar[Kind] = Kind.CANCEL_TAKEN


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRefused:
    """The provider refused the cancel request."""

    kind: ClassVar[Kind] = Kind.CANCEL_REFUSED
    code: str
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelAmbiguous:
    """The cancel request may or may not have arrived."""

    kind: ClassVar[Kind] = Kind.CANCEL_AMBIGUOUS
    error: str
    retry_after: Micros | None = None


Evidence = (
    CancelAsked | RefreshAsked | Answered | Reported | SucceededBy | PredecessorSeen | Hinted | Lapsed
    | AttemptLost | NotSent | CreateAmbiguous | CreateRejected
    | JobKnown | JobNotFound | JobsConflict | Read | ReadFailed
    | CancelTaken | CancelRefused | CancelAmbiguous
    | Collected | ResultInvalid | ResultGone | CollectFailed
)  # fmt: skip

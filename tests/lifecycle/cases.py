"""Operations in every state, evidence of every kind, and a contract that can do everything: the material of the grid."""

from dataclasses import replace
from typing import Any

from lifecycle.questions import ASKS
from schemas.contract import (
    CancelRule,
    Contract,
    CreateRule,
    RecoveryRule,
    ResultFile,
    ResultRule,
    StatusRule,
    TokenRule,
)
from schemas.evidence import (
    Answered,
    AttemptLost,
    CancelAmbiguous,
    CancelAsked,
    CancelRefused,
    CancelTaken,
    Collected,
    CollectFailed,
    CreateAmbiguous,
    CreateRejected,
    Evidence,
    Hinted,
    JobKnown,
    JobNotFound,
    JobsConflict,
    Lapsed,
    NotSent,
    PredecessorSeen,
    Read,
    ReadFailed,
    RefreshAsked,
    Reported,
    ResultGone,
    ResultInvalid,
    StatusFacts,
    StoredFile,
    SucceededBy,
)
from schemas.operation import SECOND, Operation
from schemas.states import FINAL, PARKED, Answer, CancelOutcome, Cause, Errand, Mode, Question, Reading, State

NOW = 1_800_000_000 * SECOND
JOB = "job_1"

CONTRACT = Contract(
    name="everything",
    digest="d" * 64,
    create=CreateRule(token=TokenRule(place="header", name="Idempotency-Key", window_seconds=86_400)),
    recovery=RecoveryRule(strategies=("resend",), replay_guaranteed=True, visibility_seconds=30),
    status=StatusRule(),
    cancel=CancelRule(),
    result=ResultRule(
        files=(ResultFile(url="body:url"),),
        readings=(Reading.SUCCEEDED, Reading.EXPIRED, Reading.CANCELLED),
    ),
)
LOOKUP = replace(CONTRACT, recovery=RecoveryRule(strategies=("lookup",), visibility_seconds=30, path="/jobs", match="reference"))
NO_RECOVERY = replace(CONTRACT, recovery=RecoveryRule())
NO_CANCEL = replace(CONTRACT, cancel=None)
ONE_SHOT = replace(CONTRACT, result=ResultRule(files=(ResultFile(url="body:url"),), one_shot=True))

_WITH_JOB = frozenset(State) - {
    State.AWAITING_APPROVAL,
    State.CREATE_PENDING,
    State.AWAITING_OUTCOME,
    State.CREATE_UNKNOWN,
    State.CREATE_UNRESOLVED,
    State.WITHDRAWN,
}
_VERDICT = {
    State.SUCCEEDED: Cause.READING,
    State.FAILED: Cause.READING,
    State.CANCELLED: Cause.READING,
    State.WITHDRAWN: Cause.REQUEST,
    State.ABANDONED: Cause.DECISION,
}


def operation(state: State, **changes: Any) -> Operation:
    """Return a plausible operation in `state`; all deadlines are an hour away."""
    hour = NOW + 3_600 * SECOND
    values: dict[str, Any] = {
        "id": "op_1",
        "owner": "acme",
        "subject": "agent",
        "provider": "reports",
        "contract_digest": "d" * 64,
        "origin": "https://api.example",
        "action": "create",
        "mode": Mode.EXTERNAL if state is State.AWAITING_OUTCOME else Mode.SEND,
        "idempotency_token": "token-1",
        "trace_id": "0" * 31 + "1",
        "request_fingerprint": "sha256:" + "0" * 64,
        "created_at": NOW - 600 * SECOND,
        "create_seconds": 900,
        "result_seconds": 3_600,
        "cancel_seconds": 300,
        "collect_seconds": 600,
        "state": state,
        "create_deadline": hour,
        "result_deadline": hour,
        "history_seq": 3,
        "history_hash": b"h" * 32,
        "updated_at": NOW - 60 * SECOND,
        "due_at": NOW,
    }
    if state in _WITH_JOB:
        values.update(remote_job_id=JOB, accepted_at=NOW - 300 * SECOND, reading=Reading.RUNNING, remote_state="running")
    if state in {State.CANCEL_REQUESTED, State.CANCELLING, State.CANCELLATION_UNCONFIRMED}:
        values.update(cancel_deadline=hour, cancel_requested_at=NOW - SECOND, cancel_by="agent", cancel_outcome=CancelOutcome.REQUESTED)
    if state is State.CREATE_UNKNOWN:
        values.update(unsure_creates=1, sent_before=NOW - 300 * SECOND, first_sent_at=NOW - 300 * SECOND)
    if state in {State.RESULT_COLLECTING, State.RESULT_UNAVAILABLE, State.RESULT_VALIDATION_FAILED, State.SUCCEEDED}:
        values.update(
            ending=Reading.SUCCEEDED, ending_cause=Cause.READING, ending_cause_id="obs_1", collect_deadline=hour,
            reading=Reading.SUCCEEDED, remote_state="done",
        )  # fmt: skip
    if state is State.RESULT_VALIDATION_FAILED:
        values.update(result_artifact="art_1")
    if state in ASKS:
        values.update(question_id="q_1", question_kind=ASKS[state])
    if state is State.AWAITING_APPROVAL:
        values.update(approval_deadline=hour, question_until=hour, due_at=hour, create_deadline=None, result_deadline=None)
    if state in PARKED or state in FINAL:
        values.update(due_at=None)
    if state in FINAL:
        values.update(verdict_seq=3, verdict_cause=_VERDICT[state])
    values.update(changes)
    return Operation(**values)


def read(reading: Reading, word: str = "", **facts: Any) -> Read:
    """Return a reading with a digest of its own."""
    return Read(facts=StatusFacts(reading=reading, remote_state=word or reading, **facts), digest=f"{reading}{word}")


FILE = StoredFile(role="output", key="art_1", media_type="text/csv", bytes=3, sha256="0" * 64)
EVIDENCE: dict[str, Evidence] = {
    "cancel asked": CancelAsked(by="agent"),
    "refresh asked": RefreshAsked(by="agent"),
    "reported accepted": Reported(by="svc", outcome="accepted", remote_job_id=JOB),
    "reported rejected": Reported(by="svc", outcome="rejected", message="no"),
    "reported unknown": Reported(by="svc", outcome="unknown"),
    "reported not sent": Reported(by="svc", outcome="not_sent"),
    "superseded": SucceededBy(by="agent", operation="op_2", how="supersedes"),
    "resumed": SucceededBy(by="agent", operation="op_2", how="resumes"),
    "predecessor over": PredecessorSeen(operation="op_0", state=State.CANCELLED),
    "hinted": Hinted(delivery_id="dlv_1", event_type="job.succeeded", claimed_state="succeeded"),
    "job named": Hinted(delivery_id="dlv_1", event_type="job.started", names_job=JOB),
    "lapsed": Lapsed(),
    "create lost": AttemptLost(attempt_id="att_1", errand=Errand.CREATE, sent_before=NOW),
    "cancel lost": AttemptLost(attempt_id="att_1", errand=Errand.CANCEL, sent_before=NOW),
    "create not sent": NotSent(errand=Errand.CREATE, error="connect_refused"),
    "cancel not sent": NotSent(errand=Errand.CANCEL, error="connect_refused"),
    "create ambiguous": CreateAmbiguous(error="read_timeout"),
    "create rejected": CreateRejected(code="http_422", message="bad", status=422),
    "job known": JobKnown(remote_job_id=JOB, source="create"),
    "other job known": JobKnown(remote_job_id="job_2", source="create"),
    "job running": JobKnown(remote_job_id=JOB, source="create", status=StatusFacts(reading=Reading.RUNNING)),
    "job done at once": JobKnown(
        remote_job_id=JOB,
        source="create",
        status=StatusFacts(reading=Reading.SUCCEEDED, inline=Collected(files=(FILE,))),
    ),
    "job not found": JobNotFound(),
    "jobs conflict": JobsConflict(remote_job_ids=("job_1", "job_2")),
    "queued": read(Reading.QUEUED),
    "running": read(Reading.RUNNING, "working"),
    "succeeded": read(Reading.SUCCEEDED),
    "failed": read(Reading.FAILED, has_result=False, error_code="oom"),
    "cancelled": read(Reading.CANCELLED, has_result=False),
    "expired": read(Reading.EXPIRED, has_result=False),
    "absent": read(Reading.ABSENT),
    "unknown word": read(Reading.UNKNOWN, "archived_v2"),
    "read failed": ReadFailed(layer="transport", error="read_timeout"),
    "cancel taken": CancelTaken(),
    "cancel refused": CancelRefused(code="http_409", message="too late"),
    "cancel ambiguous": CancelAmbiguous(error="read_timeout"),
    "collected": Collected(files=(FILE,)),
    "result invalid": ResultInvalid(code="checksum", files=(FILE,)),
    "result gone": ResultGone(code="http_410"),
    "collect failed": CollectFailed(error="cut"),
}


def answer(question: Question, answer_: Answer, **more: Any) -> Answered:
    """Return an answer to the open question of `operation`."""
    values: dict[str, Any] = {"by": "boss", "question_id": "q_1", "question": question, "answer": answer_, "reason": "because"}
    return Answered(**{**values, **more})

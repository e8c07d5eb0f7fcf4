"""Values that the tests of requests, interpretation and recovery share: an operation, two contracts, answers."""

import json
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from schemas.contract import CancelRule, Contract, CreateRule, RecoveryRule, ResultFile, ResultRule, StatusRule, TokenRule
from schemas.http import AnsweredOutcome
from schemas.operation import SECOND, Operation
from schemas.states import Mode, Reading, State

NOW = 1_790_000_000 * SECOND
TRACE = "0af7651916cd43dd8448eb211c80319c"
HTML = b"<!DOCTYPE html><html><body>Please log in</body></html>"

REPORTS = Contract(
    name="reports",
    digest="d",
    origin="https://reports.example",
    trace_header="X-Trace-Id",
    create=CreateRule(
        path="/v1/reports",
        token=TokenRule(place="header", name="Idempotency-Key", window_seconds=86_400),
        add=(("client_reference", "{operation}"),),
        answers_status=True,
        error="body:error",
    ),
    recovery=RecoveryRule(
        strategies=("resend", "lookup"),
        replay_guaranteed=True,
        visibility_seconds=5,
        path="/v1/reports?client_reference={operation}",
        match="client_reference",
    ),
    status=StatusRule(
        path="/v1/reports/{remote_job_id}",
        readings={
            "queued": Reading.QUEUED,
            "running": Reading.RUNNING,
            "succeeded": Reading.SUCCEEDED,
            "failed": Reading.FAILED,
            "cancelled": Reading.CANCELLED,
            "expired": Reading.EXPIRED,
        },
        job_id="body:id",
        progress="body:progress",
        provider_time="body:updated_at",
        error="body:error",
    ),
    cancel=CancelRule(path="/v1/reports/{remote_job_id}/cancel"),
    result=ResultRule(
        files=(ResultFile(url="body:result.url", media_type="text/csv", bytes="body:result.bytes", sha256="body:result.sha256"),),
    ),
)

BATCHES = Contract(
    name="batches",
    digest="d",
    origin="https://batches.example",
    create=CreateRule(path="/v1/batches", add=(("metadata.gateway_operation", "{operation}"),)),
    recovery=RecoveryRule(
        strategies=("list",),
        visibility_seconds=5,
        path="/v1/batches?limit=2",
        match="metadata.gateway_operation",
        next="body:has_more && last_id || null",
        max_pages=3,
    ),
    status=StatusRule(
        path="/v1/batches/{remote_job_id}",
        readings={"in_progress": Reading.RUNNING, "completed": Reading.SUCCEEDED, "expired": Reading.EXPIRED, "failed": Reading.FAILED},
        job_id="body:id",
    ),
    result=ResultRule(
        files=(
            ResultFile(role="output", path="/v1/files/{result.output}/content", authenticated=True),
            ResultFile(role="errors", path="/v1/files/{result.errors}/content", authenticated=True, optional=True),
        ),
        readings=(Reading.SUCCEEDED, Reading.EXPIRED),
        values={"output": "body:output_file_id", "errors": "body:error_file_id"},
    ),
)

_OPERATION = Operation(
    id="op_0198",
    owner="acme",
    subject="agent",
    provider="reports",
    contract_digest="d",
    origin="https://reports.example",
    action="create",
    mode=Mode.SEND,
    idempotency_token="tok_0123456789abcdef0123456789",
    trace_id=TRACE,
    request_fingerprint="sha256:0",
    created_at=NOW - 60 * SECOND,
    create_seconds=900,
    result_seconds=3_600,
    cancel_seconds=900,
    collect_seconds=3_600,
    request=b'{"month":"2026-01","rows":3}',
    state=State.OBSERVING,
    remote_job_id="rep_1",
)


def an_operation(**changes: Any) -> Operation:
    return replace(_OPERATION, **changes)


def answer(status: int, body: Any = None, **headers: str) -> AnsweredOutcome:
    """Return an answer: bytes as they are, other values as JSON; header names with `_` for `-`."""
    raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    return AnsweredOutcome(status=status, headers=tuple((name.replace("_", "-"), value) for name, value in headers.items()), body=raw)


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)

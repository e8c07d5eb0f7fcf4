"""The first row: from a checked intent to the record."""

from schemas.commands import Intent
from schemas.decision import Step
from schemas.operation import IDENTITY, SECOND, Micros, Operation
from schemas.states import Cause, Mode, Question, State


def begin(intent: Intent, now: Micros, *, waits_for: str | None = None) -> tuple[Operation, Step]:
    """Return the operation as it is first committed and its first history row.

    Clocks for create and result start when the work may start: not while an approval or a predecessor's end is awaited
    (ARCHITECTURE, Time). `waits_for`: the operation that must have ended before this one is sent (A3).
    """
    state = _first_state(intent)
    create_deadline = now + intent.create_seconds * SECOND
    result_deadline = now + intent.result_seconds * SECOND
    approval_deadline = now + intent.approval_seconds * SECOND
    changes: dict[str, object] = {}
    match state:
        case State.AWAITING_APPROVAL:
            changes.update(
                approval_deadline=approval_deadline,
                question_id=f"q_{intent.id.removeprefix('op_')}_1",
                question_kind=Question.APPROVAL,
                question_until=approval_deadline,
            )
        case State.ACCEPTED:
            changes.update(remote_job_id=intent.remote_job_id, result_deadline=result_deadline)
        case _ if waits_for is None:
            changes.update(create_deadline=create_deadline, result_deadline=result_deadline)
        case _:
            pass
    if waits_for is not None:
        changes["waits_for"] = waits_for
    due_at = {State.AWAITING_APPROVAL: approval_deadline, State.AWAITING_OUTCOME: create_deadline}.get(state, now)
    operation = Operation(
        id=intent.id,
        owner=intent.owner,
        subject=intent.subject,
        provider=intent.provider,
        contract_digest=intent.contract_digest,
        origin=intent.origin,
        action=intent.action,
        mode=intent.mode,
        idempotency_token=intent.idempotency_token,
        trace_id=intent.trace_id,
        request_fingerprint=intent.request_fingerprint,
        created_at=now,
        create_seconds=intent.create_seconds,
        result_seconds=intent.result_seconds,
        cancel_seconds=intent.cancel_seconds,
        collect_seconds=intent.collect_seconds,
        approval_seconds=intent.approval_seconds,
        authorized_by=intent.authorized_by,
        approval_by=intent.approval_by,
        idempotency_key=intent.idempotency_key,
        reference=intent.reference,
        supersedes=intent.supersedes,
        resumes=intent.resumes,
        request=intent.request,
        metadata=intent.metadata,
        expect=intent.expect,
        state=state,
        updated_at=now,
        due_at=due_at,
        accepted_at=now if state is State.ACCEPTED else None,
        **changes,  # type: ignore[arg-type] # names and types are those of the folded fields above
    )
    code = {Mode.SEND: "registered", Mode.EXTERNAL: "registered_external", Mode.ADOPT: "adopted"}[intent.mode]
    whose = {name: value for name in IDENTITY if (value := getattr(operation, name)) is not None}
    step = Step(to=state, cause=Cause.REQUEST, cause_id=intent.request_fingerprint, code=code, changes={**changes, **whose})
    return operation, step


def _first_state(intent: Intent) -> State:
    if intent.mode is Mode.ADOPT:
        return State.ACCEPTED
    if intent.approval_seconds > 0:
        return State.AWAITING_APPROVAL
    return State.CREATE_PENDING if intent.mode is Mode.SEND else State.AWAITING_OUTCOME

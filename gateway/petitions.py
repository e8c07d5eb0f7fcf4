"""What callers and people ask of an operation: refresh, cancel, decide, report. Recorded as evidence; judged by `lifecycle`."""

from typing import Any, Final

from gateway import cursors, fields, view
from gateway.call import Answer, Call
from gateway.operations import identity, load, not_found
from gateway.problems import PROBLEMS, ProblemError
from ledger import queries
from lifecycle.public import message, public_status
from schemas.api import CancelBody, DecisionBody, OutcomeBody
from schemas.commands import Petition, Petitioned
from schemas.evidence import Answered, CancelAsked, Evidence, RefreshAsked, Reported
from schemas.operation import Operation
from schemas.states import Answer as Word

_SECONDS: Final = {Word.RESUME: "result_seconds", Word.WAIT: "cancel_seconds", Word.RETRY: "collect_seconds"}


async def refresh(call: Call) -> Answer:
    """POST …/refresh: ask for a read now, within the budget."""
    if call.body.strip() not in {b"", b"{}"}:
        raise fields.invalid(("body", "a refresh takes none"))
    return _accepted(call, await _petition(call, RefreshAsked(by=call.principal.subject)))


async def cancel(call: Call) -> Answer:
    """POST …/cancel: record the wish to stop; `cancel.outcome` tells what becomes of it."""
    body = fields.parse(CancelBody, call.body, optional=True)
    evidence = CancelAsked(by=call.principal.subject, reason=body.reason, expected_effect=body.expected_effect)
    return _accepted(call, await _petition(call, evidence))


async def decide(call: Call) -> Answer:
    """POST …/decision: answer the open question. The first answer counts."""
    body = fields.parse(DecisionBody, call.body)
    if body.remote_job_id is not None:
        call.principal.require("operations:adopt")
    op = await load(call)
    if op.question_id != body.question or op.question_kind is None:
        raise ProblemError("question_changed", operation=op.id, extra={"state": op.state, "question": view.question(op)})
    evidence = Answered(
        by=call.principal.subject,
        question_id=body.question,
        question=op.question_kind,
        answer=body.answer,
        reason=body.reason,
        remote_job_id=body.remote_job_id,
        seconds=_seconds(body),
        accept_duplicate_risk=body.accept_duplicate_risk,
    )
    return _settled(await _petition(call, evidence), call)


async def report(call: Call) -> Answer:
    """PUT …/create-outcome: a service says what became of the create that it made itself (A11)."""
    body = fields.parse(OutcomeBody, call.body)
    if body.remote_job_id is not None:
        call.principal.require("operations:adopt")
    if (body.outcome == "accepted") != (body.remote_job_id is not None):
        raise fields.invalid(("remote_job_id", "belongs to the outcome accepted, and only to it"))
    evidence = Reported(by=call.principal.subject, outcome=body.outcome, remote_job_id=body.remote_job_id, message=body.message)
    return _settled(await _petition(call, evidence), call)


async def questions(call: Call) -> Answer:
    """GET /v1/questions: what people of this owner are asked, oldest first."""
    asked = call.parameters("limit")
    limit = cursors.limit(asked.get("limit"), default=100, most=200)
    found = await call.gate.ledger.read(queries.questions, call.principal.owner, limit + 1)
    shown = [
        {
            "operation": op.id,
            "provider": op.provider,
            "status": public_status(op),
            "state": op.state,
            "message": message(op),
            "reference": op.reference,
            "request_fingerprint": op.request_fingerprint,
            "question": view.question(op),
        }
        for op in found[:limit]
    ]
    return Answer(content={"questions": shown, "more": len(found) > limit})


def _seconds(body: DecisionBody) -> int | None:
    """Return the new clock of the answer. Raises 422 for a clock that the answer does not set."""
    wanted = _SECONDS.get(body.answer)
    for name in _SECONDS.values():
        if name != wanted and getattr(body, name) is not None:
            raise fields.invalid((name, f"does not belong to the answer {body.answer}"))
    return None if wanted is None else getattr(body, wanted)


async def _petition(call: Call, evidence: Evidence) -> Operation:
    """Commit the evidence and return the operation after it. Raises the refusal as a problem."""
    world = call.gate.world
    petition = Petition(
        operation_id=identity(call),
        owner=call.principal.owner,
        actor=call.principal.subject,
        evidence=evidence,
        now=world.now(),
        chance=world.chance(),
    )
    petitioned: Petitioned = await call.gate.ledger.write(petition)
    call.gate.count("operations.petitioned", {"kind": evidence.kind, "outcome": petitioned.outcome})
    if petitioned.outcome == "not_found" or petitioned.operation is None:
        raise not_found()
    if petitioned.outcome == "refused":
        raise _refusal(petitioned, petitioned.operation)
    return petitioned.operation


def _refusal(petitioned: Petitioned, op: Operation) -> ProblemError:
    code = petitioned.code if petitioned.code in PROBLEMS else "refused"
    headers: tuple[tuple[str, str], ...] = ()
    detail = petitioned.detail
    if code == "budget":
        seconds = detail if detail.isascii() and detail.isdigit() else "5"
        headers, detail = (("Retry-After", seconds),), f"ask again in {seconds} s"
    extra: dict[str, Any] = {"state": op.state, "reason": petitioned.code}
    if code == "question_changed":
        extra["question"] = view.question(op)
    return ProblemError(code, detail, operation=op.id, headers=headers, extra=extra)


def _accepted(call: Call, op: Operation) -> Answer:
    headers = (("Location", f"/v1/operations/{op.id}"), *view.polling_headers(op, call.gate.world.now()))
    return Answer(status=202, content=view.operation(op, call.gate.settings.retention), headers=headers)


def _settled(op: Operation, call: Call) -> Answer:
    return Answer(content=view.operation(op, call.gate.settings.retention), headers=tuple(view.polling_headers(op, call.gate.world.now())))

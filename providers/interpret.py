"""Answers to evidence: what a provider's answer to a create, read or cancel means, by its contract. Pure and total.

Three layers are kept apart (C4): the transport failed; the answer is no answer of the contract's form (HTML, empty, cut,
wrong type, an error status); the answer says something. Only the third can move an operation's state. For acting calls the
question is another one: surely not executed, definitely refused, known, or ambiguous; in doubt it is ambiguous (A6).
"""

import re
from typing import Any, Final

from providers.answers import (
    MAX_REMEMBERED,
    explanation,
    find,
    is_page,
    job_id_text,
    looks_like_html,
    media_type,
    read_json,
    remember,
    retry_after,
    sanitise,
)
from providers.exchanges import record
from providers.failures import SERVER_ERRORS, failure, is_stored, redirect
from providers.places import TemplateError, render
from providers.results import expected, has_result
from providers.statuses import facts_of, inline_body, status, wants_inline
from providers.targets import fields
from providers.transfers import check_file, download
from schemas.contract import Contract
from schemas.evidence import (
    CancelAmbiguous,
    CancelRefused,
    CancelTaken,
    CreateAmbiguous,
    CreateRejected,
    JobKnown,
    NotSent,
)
from schemas.http import AnsweredOutcome, MaybeOutcome, NotSentOutcome, Outcome
from schemas.operation import Micros, Operation
from schemas.states import Errand, State

__all__ = [
    "cancel",
    "check_file",
    "create",
    "download",
    "expected",
    "has_result",
    "inline_body",
    "looks_like_html",
    "media_type",
    "record",
    "refuses_for_good",
    "retry_after",
    "sanitise",
    "status",
    "wants_inline",
]

# Judged by providers before they look at our token: on a resend they say nothing about the create that is in doubt.
_BEFORE_TOKENS: Final = (401, 402, 403)
_CONFLICTS: Final = range(400, 500)

# --- create


def create(
    outcome: Outcome, operation: Operation, contract: Contract, now: Micros
) -> NotSent | CreateAmbiguous | CreateRejected | JobKnown:
    """Return what the outcome of a create call says.

    Redirects (B060), 408, 409 (B061: the job that it points at is found by recovery, not believed), 425, 5xx (B048) and
    everything that the contract does not name are ambiguous. A replayed server error is called `replayed_http_…` (B055). While
    an earlier send is in doubt, a refused credential is no refusal of that send.
    """
    match outcome:
        case NotSentOutcome(error=error):
            return NotSent(errand=Errand.CREATE, error=sanitise(error))
        case MaybeOutcome(error=error, detail=detail):
            return CreateAmbiguous(error=sanitise(error), message=sanitise(detail))
        case AnsweredOutcome(status=code):
            pass
    rule = contract.create
    if rule is None:
        return CreateAmbiguous(error="no_create_rule", message="the contract has no create request")
    if code in rule.accepted:
        return _accepted(outcome, operation, contract, now)
    if original := _original(outcome, contract):
        return JobKnown(remote_job_id=original, source="create")
    provider_code, message = explanation(outcome, rule.error)
    meaning = rule.codes.get(provider_code, "")
    if meaning == "not_executed" or (not meaning and code in rule.not_executed):
        return NotSent(errand=Errand.CREATE, error=provider_code if meaning else f"http_{code}", retry_after=retry_after(outcome, now))
    before_tokens = operation.state is State.CREATE_UNKNOWN and code in _BEFORE_TOKENS
    if (meaning == "rejected" or (not meaning and code in rule.rejected)) and not before_tokens:
        return CreateRejected(code=provider_code or f"http_{code}", message=message, status=code)
    return CreateAmbiguous(
        error=failure(outcome, contract),
        message=message or redirect(outcome),
        retry_after=retry_after(outcome, now),
        spent=code in SERVER_ERRORS and (rule.token.repeats == "success" or is_stored(outcome, contract)),
    )


def _accepted(answer: AnsweredOutcome, operation: Operation, contract: Contract, now: Micros) -> CreateAmbiguous | JobKnown:
    rule = contract.create
    assert rule is not None  # the caller has looked
    body = read_json(answer)
    found = _named_job(answer, body.value, operation, contract)
    job_id = job_id_text(found)
    if not job_id:
        error = f"{body.problem}_answer" if body.problem else "no_job_id" if found is None else "unusable_job_id"
        return CreateAmbiguous(error=error, message="the provider accepted the request, but its answer does not name a job")
    facts = None
    if rule.answers_status and contract.status is not None and not body.problem:
        facts = facts_of(answer, body.value, contract, contract.status)
    remembered = remember(contract, answer=answer, body=body.value)
    return JobKnown(remote_job_id=job_id, source="create", status=facts, remembered=remembered, next_after=retry_after(answer, now))


def _named_job(answer: AnsweredOutcome, body: Any, operation: Operation, contract: Contract) -> Any:
    """Return what stands for the job's id: a place of the answer, a part of what stands there, or the name that we chose."""
    rule = contract.create
    assert rule is not None
    if rule.job_id.startswith("{"):
        try:
            return render(rule.job_id, fields(operation, contract), in_path=False)
        except TemplateError:
            return None
    found = find(rule.job_id, answer, body)
    if not rule.job_id_re or not isinstance(found, str):
        return found
    part = re.search(rule.job_id_re, found[:MAX_REMEMBERED])
    return part[1] if part is not None else None


def _original(answer: AnsweredOutcome, contract: Contract) -> str:
    """Return the job that a conflict points at: the one that our token made. Only where the contract says that it does so."""
    rule = contract.create.token if contract.create is not None else None
    if rule is None or rule.repeats != "conflict" or answer.status not in _CONFLICTS:
        return ""
    return job_id_text(find(rule.original, answer, read_json(answer).value))


# --- cancel


def cancel(
    outcome: Outcome, operation: Operation, contract: Contract, now: Micros
) -> NotSent | CancelTaken | CancelRefused | CancelAmbiguous:
    """Return what the outcome of a cancel call says. None of it ends an operation; a read tells (B080)."""
    del operation
    match outcome:
        case NotSentOutcome(error=error):
            return NotSent(errand=Errand.CANCEL, error=sanitise(error))
        case MaybeOutcome(error=error):
            return CancelAmbiguous(error=sanitise(error))
        case AnsweredOutcome(status=code):
            pass
    rule = contract.cancel
    if rule is None:
        return CancelRefused(code="unsupported", message="the contract has no cancel request")
    if code in rule.not_executed:
        return NotSent(errand=Errand.CANCEL, error=f"http_{code}", retry_after=retry_after(outcome, now))
    if is_page(outcome):
        return CancelAmbiguous(error=f"html_{code}", retry_after=retry_after(outcome, now))
    if code in rule.accepted:
        return CancelTaken()
    if code in rule.refused:
        provider_code, message = explanation(outcome, "")
        return CancelRefused(code=provider_code or f"http_{code}", message=message)
    return CancelAmbiguous(error=failure(outcome, contract), retry_after=retry_after(outcome, now))


def refuses_for_good(code: int, errand: Errand, contract: Contract) -> bool:
    """Say whether a status says of a create or cancel, by its contract, that it was not executed."""
    match errand:
        case Errand.CREATE if contract.create is not None:
            return code in contract.create.rejected or code in contract.create.not_executed
        case Errand.CANCEL if contract.cancel is not None:
            # 401: not applied for want of valid credentials (RFC 9110 section 15.5.2)
            return code == 401 or code in contract.cancel.refused or code in contract.cancel.not_executed  # noqa: PLR2004 - named above
        case _:
            return False

"""Answers to evidence: what a provider's answer to a create, read or cancel means, by its contract. Pure and total.

Three layers are kept apart (C4): the transport failed; the answer is no answer of the contract's form (HTML, empty, cut,
wrong type, an error status); the answer says something. Only the third can move an operation's state. For acting calls the
question is another one: surely not executed, definitely refused, known, or ambiguous; in doubt it is ambiguous (A6).
"""

import hashlib
from typing import Final

from providers.answers import (
    explained,
    explanation,
    find,
    finite,
    instant,
    is_page,
    job_id_text,
    looks_like_html,
    media_type,
    read_json,
    read_object,
    retry_after,
    sanitise,
)
from providers.exchanges import record
from providers.places import as_text
from providers.results import check_file, download, expected, has_result
from schemas.contract import Contract, StatusRule
from schemas.evidence import (
    CancelAmbiguous,
    CancelRefused,
    CancelTaken,
    CreateAmbiguous,
    CreateRejected,
    JobKnown,
    JobsConflict,
    NotSent,
    Read,
    ReadFailed,
    StatusFacts,
)
from schemas.http import AnsweredOutcome, MaybeOutcome, NotSentOutcome, Outcome
from schemas.jsontext import canonical
from schemas.operation import Micros, Operation
from schemas.states import Errand, Reading, State

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

MAX_STATE: Final = 200  # characters of a provider's state word that are kept

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
        return _accepted(outcome, contract)
    if code in rule.not_executed:
        return NotSent(errand=Errand.CREATE, error=f"http_{code}", retry_after=retry_after(outcome, now))
    provider_code, message = explanation(outcome, rule.error)
    if code in rule.rejected and not (operation.state is State.CREATE_UNKNOWN and code in _BEFORE_TOKENS):
        return CreateRejected(code=provider_code or f"http_{code}", message=message)
    return CreateAmbiguous(error=_failure(outcome), message=message or _redirect(outcome), retry_after=retry_after(outcome, now))


def _accepted(answer: AnsweredOutcome, contract: Contract) -> CreateAmbiguous | JobKnown:
    rule = contract.create
    assert rule is not None  # the caller has looked
    body = read_json(answer)
    found = find(rule.job_id, answer, body.value)
    job_id = job_id_text(found)
    if not job_id:
        error = f"{body.problem}_answer" if body.problem else "no_job_id" if found is None else "unusable_job_id"
        return CreateAmbiguous(error=error, message="the provider accepted the request, but its answer does not name a job")
    facts = None
    if rule.answers_status and contract.status is not None and not body.problem:
        facts = _facts(answer, body.value, contract, contract.status)
    return JobKnown(remote_job_id=job_id, source="create", status=facts)


# --- status


def status(outcome: Outcome, operation: Operation, contract: Contract, now: Micros) -> Read | ReadFailed | JobsConflict:
    """Return what the outcome of a status read says.

    An unknown word is an answer (reading UNKNOWN, the word kept, B071); a state that is missing or no text is none.
    """
    match outcome:
        case NotSentOutcome(error=error) | MaybeOutcome(error=error):
            return ReadFailed(layer="transport", error=sanitise(error))
        case AnsweredOutcome(status=code):
            pass
    rule = contract.status
    if rule is None:
        return ReadFailed(layer="protocol", error="no_status_rule")
    if code not in rule.ok and code not in rule.not_found:
        return ReadFailed(layer="protocol", error=_failure(outcome), retry_after=retry_after(outcome, now))
    if is_page(outcome):
        return ReadFailed(layer="protocol", error="html", retry_after=retry_after(outcome, now))
    if code in rule.not_found:
        return _read(StatusFacts(reading=Reading.ABSENT, remote_state=f"http_{code}", has_result=False))
    body = read_object(outcome)
    if body.problem:
        return ReadFailed(layer="protocol", error=body.problem)
    if rule.job_id:
        named = job_id_text(find(rule.job_id, outcome, body.value))
        asked = operation.remote_job_id or ""
        if not named:
            return ReadFailed(layer="protocol", error="no_job_id")
        if named != asked:
            return JobsConflict(remote_job_ids=(asked, named), message="asked about one job, the provider answered about another")
    facts = _facts(outcome, body.value, contract, rule)
    return ReadFailed(layer="protocol", error="no_state") if facts is None else _read(facts)


def inline_body(outcome: Outcome) -> bytes | None:
    """Return the bytes of an answer that is itself the result (a contract without [result]), or None."""
    match outcome:
        case AnsweredOutcome(body=body) if not read_object(outcome).problem:
            return body
        case _:
            return None


def wants_inline(contract: Contract, facts: StatusFacts | None) -> bool:
    """Say whether the answer with these facts is the result: the caller stores `inline_body` and sets `facts.inline`."""
    return contract.result is None and facts is not None and facts.reading is Reading.SUCCEEDED


def _facts(answer: AnsweredOutcome, body: object, contract: Contract, rule: StatusRule) -> StatusFacts | None:
    """Return what a readable body says, or None where it names no state in words."""
    word = find(rule.state, answer, body)
    if not isinstance(word, str):
        return None
    reading = rule.readings.get(word, Reading.UNKNOWN)
    code, message = explained(find(rule.error, answer, body))
    return StatusFacts(
        reading=reading,
        remote_state=as_text(word, MAX_STATE),
        progress=finite(find(rule.progress, answer, body)),
        provider_time=instant(find(rule.provider_time, answer, body)),
        error_code=code,
        error_message=message,
        has_result=has_result(contract, reading, answer),
    )


def _read(facts: StatusFacts) -> Read:
    said = [
        facts.reading.value,
        facts.remote_state,
        repr(facts.progress),
        repr(facts.provider_time),
        facts.error_code,
        facts.error_message,
        facts.has_result,
    ]
    return Read(facts=facts, digest=hashlib.sha256(canonical(said)).hexdigest())


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
    return CancelAmbiguous(error=_failure(outcome), retry_after=retry_after(outcome, now))


def refuses_for_good(code: int, errand: Errand, contract: Contract) -> bool:
    """Say whether a status says of a create or cancel, by its contract, that it was not executed."""
    match errand:
        case Errand.CREATE if contract.create is not None:
            return code in contract.create.rejected or code in contract.create.not_executed
        case Errand.CANCEL if contract.cancel is not None:
            # 401: not applied for want of valid credentials (RFC 9110 section 15.5.2)
            return code == _CREDENTIAL[0] or code in contract.cancel.refused or code in contract.cancel.not_executed
        case _:
            return False


# --- what is common


_CREDENTIAL = (401, 403)
# Judged by providers before they look at our token: on a resend they say nothing about the create that is in doubt.
_BEFORE_TOKENS = (401, 402, 403)
_REDIRECTS = range(300, 400)
_SERVER_ERRORS = range(500, 600)


def _failure(answer: AnsweredOutcome) -> str:
    """Return a stable word for an answer whose status is none that the contract expects."""
    if answer.status in _CREDENTIAL:
        return "credential"
    if answer.status in _REDIRECTS:
        return f"redirect_{answer.status}"
    replayed = any(answer.header(name).strip().lower() == "true" for name in ("idempotent-replayed", "idempotency-replayed"))
    if replayed and answer.status in _SERVER_ERRORS:
        return f"replayed_http_{answer.status}"
    return f"http_{answer.status}"


def _redirect(answer: AnsweredOutcome) -> str:
    if answer.status not in _REDIRECTS:
        return ""
    return f"the provider redirects to {sanitise(answer.header('location'), 200) or 'nowhere'}; redirects are not followed: check base_url"


def read_failure(answer: AnsweredOutcome, now: Micros) -> ReadFailed:
    """Return the protocol failure of an answer whose status a read did not expect."""
    return ReadFailed(layer="protocol", error="html" if is_page(answer) else _failure(answer), retry_after=retry_after(answer, now))

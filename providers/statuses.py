"""Status answers: what the provider's words mean by the contract, and which of them are no answer at all (C4).

Three layers are kept apart: the transport failed; the answer is none of the contract's form; the answer says something. A word
outside the contract's tables says something, but never an end (B071).
"""

import hashlib
import re
from typing import Any, Final

from providers.answers import (
    MAX_REMEMBERED,
    explained,
    find,
    finite,
    instant,
    is_page,
    job_id_text,
    read_json,
    read_object,
    retry_after,
    sanitise,
)
from providers.failures import failure
from providers.places import TemplateError, as_text, render
from providers.results import has_result
from providers.targets import fields
from schemas.contract import Contract, StatusRule
from schemas.evidence import JobsConflict, Read, ReadFailed, StatusFacts
from schemas.http import AnsweredOutcome, MaybeOutcome, NotSentOutcome, Outcome
from schemas.jsontext import canonical
from schemas.operation import Micros, Operation
from schemas.states import ENDED_READINGS, Mode, Reading

MAX_STATE: Final = 200  # characters of a provider's state word that are kept
_NUMBER = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,15})?%?")


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
    by_itself = rule.http_readings.get(str(code))
    if by_itself is None and code not in rule.ok and code not in rule.not_found:
        return ReadFailed(layer="protocol", error=failure(outcome, contract), retry_after=retry_after(outcome, now))
    if is_page(outcome):
        return ReadFailed(layer="protocol", error="html", retry_after=retry_after(outcome, now))
    later = retry_after(outcome, now)
    if by_itself is not None:
        return _read(_by_status(outcome, contract, rule, by_itself), later)
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
    if not _is_ours(find(rule.match, outcome, body.value), operation, contract):
        return JobsConflict(
            remote_job_ids=(operation.remote_job_id or "",), message="the job carries another operation's mark", code="job_not_ours"
        )
    facts = facts_of(outcome, body.value, contract, rule)
    return ReadFailed(layer="protocol", error="no_state") if facts is None else _read(facts, later)


def _is_ours(echo: Any, operation: Operation, contract: Contract) -> bool:
    """Say whether a job's echo speaks for us. None at all speaks neither way; jobs of other services carry their own."""
    rule, said = contract.status, as_text(echo, MAX_REMEMBERED)
    if rule is None or not said or operation.mode is not Mode.SEND:
        return True
    try:
        return said == render(rule.equals, fields(operation, contract), in_path=False)
    except TemplateError:
        return True


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


def _by_status(answer: AnsweredOutcome, contract: Contract, rule: StatusRule, reading: Reading) -> StatusFacts:
    """Return what an HTTP status says by itself; a body beside it is not needed, and adds only what there is."""
    body = read_json(answer).value
    code, message = explained(find(rule.error, answer, body))
    return StatusFacts(
        reading=reading,
        remote_state=f"http_{answer.status}",
        progress=_progress(find(rule.progress, answer, body), rule),
        provider_time=instant(find(rule.provider_time, answer, body)),
        error_code=code,
        error_message=message,
        has_result=has_result(contract, reading, answer),
    )


def facts_of(answer: AnsweredOutcome, body: object, contract: Contract, rule: StatusRule) -> StatusFacts | None:
    """Return what a readable body says, or None where it names no state."""
    word = _word(find(rule.state, answer, body))
    if word is None:
        return None
    reading, more = _outcome(word, answer, body, rule)
    code, message = explained(find(rule.error, answer, body))
    return StatusFacts(
        reading=reading,
        remote_state=as_text(f"{word}/{more}" if more else word, MAX_STATE),
        progress=_progress(find(rule.progress, answer, body), rule),
        provider_time=instant(find(rule.provider_time, answer, body)),
        error_code=code,
        error_message=message,
        has_result=has_result(contract, reading, answer),
        effects=_effects(answer, body, rule) if reading in ENDED_READINGS else (),
    )


def _effects(answer: AnsweredOutcome, body: object, rule: StatusRule) -> tuple[tuple[str, str], ...]:
    """Return what the final answer says that the job did (E5), in the contract's order; what is not said is left out."""
    said = ((name, _plain(find(place, answer, body))) for name, place in rule.effects.items())
    return tuple((name, text) for name, text in said if text)


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return repr(value) if finite(value) is not None else ""
    return sanitise(as_text(value, MAX_STATE), MAX_STATE)


def _word(value: Any) -> str | None:
    """Return a state in words; yes and no are words too (`done: true`). Nothing else is one, numbers neither (B071)."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else None


def _outcome(word: str, answer: AnsweredOutcome, body: object, rule: StatusRule) -> tuple[Reading, str]:
    """Return the reading of a word, and the second word that decided it: a terminal word may hide how it ended.

    Where a rule is asked for the word, the table has no say any more: what no rule explains is unknown, and so no end.
    """
    asked = [item for item in rule.outcome if word in item.words]
    for item in asked:
        found = find(item.at, answer, body)
        second = as_text(_word(found) if isinstance(found, bool | str) else found, MAX_STATE)
        if (reading := item.readings.get(second)) is not None:
            return reading, second
        empty = found is None or found is False or found in ("", 0) or found in ([], {})
        if (reading := item.absent if empty else item.present) is not None:
            return reading, "" if empty else second
    return (Reading.UNKNOWN, "") if asked else (rule.readings.get(word, Reading.UNKNOWN), "")


def _progress(value: Any, rule: StatusRule) -> float | None:
    """Return the progress as a share of one, by the contract's scale; what lies outside is cut to its end (C5)."""
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        value = float(value.strip().removesuffix("%"))
    number = finite(value)
    return None if number is None else min(1.0, max(0.0, number / rule.progress_scale))


def _read(facts: StatusFacts, next_after: Micros | None = None) -> Read:
    said = [
        facts.reading.value,
        facts.remote_state,
        repr(facts.progress),
        repr(facts.provider_time),
        facts.error_code,
        facts.error_message,
        facts.has_result,
    ]
    return Read(facts=facts, digest=hashlib.sha256(canonical(said)).hexdigest(), next_after=next_after)

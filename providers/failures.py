"""Answers that are none of those which a contract expects: the stable word for each, and whether it is a stored one."""

from typing import Final

from providers.answers import find, is_page, read_json, retry_after, sanitise
from schemas.contract import Contract
from schemas.evidence import ReadFailed
from schemas.http import AnsweredOutcome
from schemas.operation import Micros

_CREDENTIAL: Final = (401, 403)
_REDIRECTS: Final = range(300, 400)
SERVER_ERRORS: Final = range(500, 600)


def failure(answer: AnsweredOutcome, contract: Contract) -> str:
    """Return a stable word for an answer whose status is none that the contract expects."""
    if answer.status in _CREDENTIAL:
        return "credential"
    if answer.status in _REDIRECTS:
        return f"redirect_{answer.status}"
    if answer.status in SERVER_ERRORS and is_stored(answer, contract):
        return f"replayed_http_{answer.status}"
    return f"http_{answer.status}"


def redirect(answer: AnsweredOutcome) -> str:
    """Return what to mend where the provider redirects, or the empty text (B060)."""
    if answer.status not in _REDIRECTS:
        return ""
    return f"the provider redirects to {sanitise(answer.header('location'), 200) or 'nowhere'}; redirects are not followed: check base_url"


def read_failure(answer: AnsweredOutcome, contract: Contract, now: Micros) -> ReadFailed:
    """Return the protocol failure of an answer whose status a read did not expect."""
    return ReadFailed(
        layer="protocol", error="html" if is_page(answer) else failure(answer, contract), retry_after=retry_after(answer, now)
    )


def is_stored(answer: AnsweredOutcome, contract: Contract) -> bool:
    """Say whether the provider says that this is its stored answer to our token, which it gives for ever (B055)."""
    rule = contract.create.token if contract.create is not None else None
    if rule is not None and rule.replayed:
        said = find(rule.replayed, answer, read_json(answer).value)
        return said is True or (isinstance(said, str) and said.strip().lower() == "true")
    return any(answer.header(name).strip().lower() == "true" for name in ("idempotent-replayed", "idempotency-replayed"))

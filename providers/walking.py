"""The provider's list of jobs, page by page, as the two-way sweep reads it (C9). Only reads: nothing here acts on a job."""

from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from providers.answers import find, instant, job_id_text, read_json
from providers.failures import read_failure
from providers.origins import address
from providers.places import as_id, as_text, compile_place, template_fields
from providers.requests import USER_AGENT, UnbuildableError, auth_header, with_query
from providers.targets import home
from schemas.contract import Contract, ListRule
from schemas.evidence import ReadFailed
from schemas.http import AnsweredOutcome, HttpRequest, MaybeOutcome, NotSentOutcome, Outcome
from schemas.operation import Micros
from schemas.sweeping import Listed

MAX_ITEMS: Final = 1_000  # of one page that are looked at; a longer one is refused, not cut: what is cut would look missing
_MAX_CURSOR: Final = 2_048
_MAX_REFERENCE: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page: its jobs, and the next page's cursor (empty: this was the last one)."""

    items: tuple[Listed, ...]
    cursor: str = ""


def list_rule(contract: Contract) -> ListRule | None:
    """Return how this provider lists its jobs: its [list], or the list of its [recovery] where one GET without fields pages by a cursor."""
    if contract.list is not None:
        return contract.list
    recovery = contract.recovery
    if "list" not in recovery.strategies or template_fields(recovery.path) or recovery.method != "GET" or recovery.paging != "cursor":
        return None
    return ListRule(
        path=recovery.path,
        items=recovery.items,
        job_id=recovery.job_id,
        reference=recovery.match,
        time=recovery.created,
        newest_first=bool(recovery.created),
        next=recovery.next,
        next_param=recovery.next_param,
    )


def page_request(rule: ListRule, contract: Contract, origin: str, cursor: str, *, credential: str | None) -> HttpRequest:
    """Return the request of one page, always on the configured origin. Raises UnbuildableError."""
    base = address(origin)
    if base is None or "?" in base.url:
        raise UnbuildableError("unusable_origin", "the provider's origin is no http or https address")
    secret = auth_header(contract, credential)
    path = with_query(rule.path, rule.next_param, cursor) if cursor else rule.path
    usual = (("Accept", "application/json"), ("Accept-Encoding", "identity"), ("User-Agent", USER_AGENT))
    named = {name.lower() for name in contract.headers}
    return HttpRequest(
        method="GET",
        url=base.url.rstrip("/") + path,
        headers=(*(pair for pair in usual if pair[0].lower() not in named), *contract.headers.items(), *secret),
        secret_headers=tuple(name for name, _ in secret),
        max_bytes=contract.limits.answer_bytes,
        connect_seconds=contract.limits.connect_seconds,
        total_seconds=contract.limits.total_seconds,
    )


def read_page(outcome: Outcome, rule: ListRule, contract: Contract, origin: str, now: Micros) -> Page | ReadFailed:
    """Return what one page says. Anything but a whole, readable page is a failed read: silence proves nothing."""
    match outcome:
        case NotSentOutcome(error=error) | MaybeOutcome(error=error):
            return ReadFailed(layer="transport", error=error[:200])
        case AnsweredOutcome(status=code):
            pass
    if code != 200:  # noqa: PLR2004 - nothing else carries a list
        return read_failure(outcome, contract, now)
    body = read_json(outcome)
    if body.problem:
        return ReadFailed(layer="protocol", error=body.problem)
    items: Any = find(rule.items, outcome, body.value)
    if not isinstance(items, list):
        return _failed("no_items")
    if len(items) > MAX_ITEMS:
        return _failed("page_too_long")
    listed: list[Listed] = []
    for item in items:
        job_id = job_id_text(_at(rule.job_id, item)) if isinstance(item, dict) else ""
        if not job_id:
            return _failed("unreadable_item")
        listed.append(
            Listed(
                remote_job_id=job_id,
                reference=as_id(_at(rule.reference, item), _MAX_REFERENCE) if rule.reference else "",
                made_at=instant(_at(rule.time, item)) if rule.time else None,
            )
        )
    cursor = _cursor(find(rule.next, outcome, body.value) if rule.next else None, rule, origin)
    return cursor if isinstance(cursor, ReadFailed) else Page(items=tuple(listed), cursor=cursor)


def _at(expression: str, item: dict[str, Any]) -> Any:
    return compile_place(f"body:{expression}").find(body=item)


def _cursor(value: Any, rule: ListRule, origin: str) -> str | ReadFailed:
    """Return the next cursor. A link is never followed: only its cursor is taken, and only from the provider's own origin."""
    if value is None or value is False or value == "":
        return ""
    text = value if isinstance(value, str) else as_text(value)
    if "://" in text[:16] or text.startswith("//"):
        text = _from_link(text, rule, origin)
        if not text:
            return _failed("foreign next link")
    if not text or len(text) > _MAX_CURSOR or as_text(text, _MAX_CURSOR) != text:
        return _failed("unusable cursor")
    return text


def _from_link(link: str, rule: ListRule, origin: str) -> str:
    try:
        return parse_qs(urlsplit(link).query, max_num_fields=50).get(rule.next_param, [""])[0] if home(link, origin) else ""
    except ValueError:
        return ""


def _failed(error: str) -> ReadFailed:
    return ReadFailed(layer="protocol", error=error)

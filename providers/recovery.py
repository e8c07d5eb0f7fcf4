"""Recovery of a create whose outcome is unknown: what lookups and lists say (A6). Which is safe when: `lifecycle/recovery.py`.

Nothing is proven by silence: "not found" needs an answer that could have named the job, walked to its end. An answer that
is cut, too long or nonsense is a failed read, and never an absence.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from providers.answers import find, is_page, job_id_text, read_json, retry_after, sanitise
from providers.interpret import read_failure
from providers.origins import origin_of
from providers.places import TemplateError, as_id, as_text, compile_place, render
from providers.requests import UnbuildableError, call, fields, path_of, with_query
from schemas.contract import Contract, RecoveryRule
from schemas.evidence import JobKnown, JobNotFound, JobsConflict, ReadFailed
from schemas.http import AnsweredOutcome, HttpRequest, MaybeOutcome, NotSentOutcome, Outcome
from schemas.operation import Micros, Operation
from schemas.states import Errand

Found = JobKnown | JobNotFound | JobsConflict | ReadFailed

_MAX_CURSOR: Final = 2_048
_MAX_CONFLICT: Final = 10  # job ids that a conflict names


def _needle(operation: Operation, rule: RecoveryRule) -> str:
    """Return the text that our job's echo equals, or the empty text where the operation has none (no reference)."""
    try:
        return render(rule.equals, fields(operation), in_path=False)
    except TemplateError:
        return ""


def first_page(operation: Operation, contract: Contract, *, credential: str | None, now: Micros) -> HttpRequest:
    """Return the lookup, or the first page of the list. Raises UnbuildableError."""
    del now
    return call("GET", path_of(contract.recovery.path, fields(operation)), operation, contract, Errand.RECOVER, credential=credential)


def next_page(operation: Operation, contract: Contract, cursor: str, *, credential: str | None) -> HttpRequest:
    """Return the list's page after `cursor`, always on the pinned origin. Raises UnbuildableError."""
    path = with_query(path_of(contract.recovery.path, fields(operation)), contract.recovery.next_param, cursor)
    return call("GET", path, operation, contract, Errand.RECOVER, credential=credential)


def interpret_lookup(outcome: Outcome, operation: Operation, contract: Contract, now: Micros) -> Found:
    """Return what the answer to a lookup says. With `items` it is a one-page list, else the answer is the job itself."""
    page = _page(outcome, operation, contract, now, lookup=True)
    if not isinstance(page, _Page):
        return page
    if page.cursor and not page.matches:
        return _failed("lookup answer is not complete")
    return _verdict(page.matches)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListWalk:
    """A walk through the provider's list, page by page. `request` is the page to fetch next; `step` takes its answer."""

    operation: Operation
    contract: Contract
    request: HttpRequest
    credential: str | None = field(default=None, repr=False)
    pages: int = 0
    cursors: frozenset[str] = frozenset()
    matches: tuple[str, ...] = ()

    @classmethod
    def start(cls, operation: Operation, contract: Contract, *, credential: str | None, now: Micros) -> "ListWalk":
        """Return the walk at its first page. Raises UnbuildableError."""
        request = first_page(operation, contract, credential=credential, now=now)
        return cls(operation=operation, contract=contract, request=request, credential=credential)

    def step(self, outcome: Outcome, now: Micros) -> "ListWalk | Found":
        """Return the walk at its next page, or the evidence at its end.

        It goes on after a match, since a second job would be a conflict (A8); a list that is too long to finish still
        yields the one that was found, and never an absence.
        """
        page = _page(outcome, self.operation, self.contract, now, lookup=False)
        if not isinstance(page, _Page):
            return page
        matches = tuple(dict.fromkeys((*self.matches, *page.matches)))
        if not page.cursor:
            return _verdict(matches)
        if page.cursor in self.cursors:
            return _failed("list makes no progress")
        pages = self.pages + 1
        if pages >= self.contract.recovery.max_pages:
            return _verdict(matches) if matches else _failed("list too long")
        try:
            request = next_page(self.operation, self.contract, page.cursor, credential=self.credential)
        except UnbuildableError as error:
            return _failed(error.code)
        return replace(self, request=request, pages=pages, cursors=self.cursors | {page.cursor}, matches=matches)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    matches: tuple[str, ...]
    cursor: str = ""


def _page(outcome: Outcome, operation: Operation, contract: Contract, now: Micros, *, lookup: bool) -> _Page | JobNotFound | ReadFailed:
    match outcome:
        case NotSentOutcome(error=error) | MaybeOutcome(error=error):
            return ReadFailed(layer="transport", error=sanitise(error))
        case AnsweredOutcome(status=code):
            pass
    rule = contract.recovery
    if lookup and code in rule.not_found and not is_page(outcome):
        return JobNotFound()
    if code != 200:  # noqa: PLR2004 - nothing else carries a list or a job
        return read_failure(outcome, now)
    body = read_json(outcome)
    if body.problem:
        return ReadFailed(layer="protocol", error=body.problem, retry_after=retry_after(outcome, now))
    items: Any = find(rule.items, outcome, body.value) if rule.items else [body.value]
    if not isinstance(items, list):
        return _failed("no_items")
    matches = _matches(items, operation, rule)
    if isinstance(matches, ReadFailed):
        return matches
    cursor = _cursor(find(rule.next, outcome, body.value), operation, rule)
    return cursor if isinstance(cursor, ReadFailed) else _Page(matches=matches, cursor=cursor)


def _matches(items: list[Any], operation: Operation, rule: RecoveryRule) -> tuple[str, ...] | ReadFailed:
    """Return the distinct ids of our jobs. An item that cannot be read might be ours: the answer proves nothing then."""
    needle = _needle(operation, rule)
    found: list[str] = []
    for item in items:
        if not isinstance(item, dict):
            return _failed("unreadable_item")
        if rule.match and (not needle or as_id(_at(rule.match, item), len(needle)) != needle):
            continue
        job_id = job_id_text(_at(rule.job_id, item))
        if not job_id:
            return _failed("unusable_job_id")
        found.append(job_id)
    return tuple(dict.fromkeys(found))


def _at(expression: str, item: dict[str, Any]) -> Any:
    try:
        return compile_place(f"body:{expression}").find(body=item)
    except ValueError:
        return None  # the loader refuses such a contract


def _cursor(value: Any, operation: Operation, rule: RecoveryRule) -> str | ReadFailed:
    """Return the next page's cursor, empty at the end. A link is never followed: only its cursor is taken, and only from home."""
    if value is None or value is False or value == "":
        return ""
    text = value if isinstance(value, str) else as_text(value)
    if "://" in text[:16] or text.startswith("//"):
        text = _from_link(text, operation, rule)
        if not text:
            return _failed("foreign next link")
    if not text or len(text) > _MAX_CURSOR or as_text(text, _MAX_CURSOR) != text:
        return _failed("unusable cursor")
    return text


def _from_link(link: str, operation: Operation, rule: RecoveryRule) -> str:
    home = origin_of(operation.origin)
    if not home or origin_of(link) != home:
        return ""
    try:
        return parse_qs(urlsplit(link).query, max_num_fields=50).get(rule.next_param, [""])[0]
    except ValueError:
        return ""


def _verdict(matches: tuple[str, ...]) -> JobKnown | JobNotFound | JobsConflict:
    match matches:
        case ():
            return JobNotFound()
        case (only,):
            return JobKnown(remote_job_id=only, source="recovery")
        case _:
            return JobsConflict(remote_job_ids=matches[:_MAX_CONFLICT], message="the provider names several jobs for one create")


def _failed(error: str) -> ReadFailed:
    return ReadFailed(layer="protocol", error=error)

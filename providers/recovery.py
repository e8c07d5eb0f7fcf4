"""Recovery of a create whose outcome is unknown: what lookups and lists say (A6). Which is safe when: `lifecycle/recovery.py`.

Nothing is proven by silence: "not found" needs an answer that could have named the job, walked to its end. An answer that
is cut, too long or nonsense is a failed read, and never an absence.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import parse_qs, urljoin, urlsplit

from providers.answers import find, instant, is_page, job_id_text, read_json, remember, retry_after, sanitise
from providers.failures import read_failure
from providers.places import TemplateError, as_id, as_text, compile_place, render, template_fields
from providers.requests import UnbuildableError, body_of, call, fields, path_of, with_query
from providers.targets import Target, home
from schemas.contract import Contract, RecoveryRule
from schemas.evidence import JobKnown, JobNotFound, JobsConflict, ReadFailed
from schemas.http import AnsweredOutcome, HttpRequest, MaybeOutcome, NotSentOutcome, Outcome
from schemas.operation import SECOND, Micros, Operation
from schemas.states import Errand

Found = JobKnown | JobNotFound | JobsConflict | ReadFailed

_MAX_CURSOR: Final = 2_048
_MAX_HEADER: Final = 8_192
_BY_LINK: Final = frozenset({"link", "header"})
_SKEW: Final = 300 * SECOND  # a provider's clock may be this far from ours before an item counts as older than our send
_URL_TEXT = re.compile(r"[\x21-\x7e]+")
_LINK = re.compile(r"<(?P<target>[^<>]*)>(?P<rest>[^<]*)")
_REL = re.compile(r"(?i);\s*rel\s*=\s*(?:\"(?P<quoted>[^\"]*)\"|(?P<plain>[^\s\",;]+))")
_MAX_CONFLICT: Final = 10  # job ids that a conflict names


def _needle(operation: Operation, contract: Contract) -> str:
    """Return the text that our job's echo equals, or the empty text where the operation has none (no reference)."""
    try:
        return render(contract.recovery.equals, fields(operation, contract), in_path=False)
    except TemplateError:
        return ""


def first_page(operation: Operation, contract: Contract, *, credential: str | None, now: Micros) -> HttpRequest:
    """Return the lookup, or the first page of the list. Raises UnbuildableError."""
    del now
    return _request(operation, contract, _path(operation, contract), credential)


def next_page(operation: Operation, contract: Contract, cursor: str, *, credential: str | None) -> HttpRequest:
    """Return the list's page after `cursor` (a cursor, a number or a whole link), always on the pinned origin. Raises UnbuildableError."""
    rule = contract.recovery
    if rule.paging in _BY_LINK:
        return _request(operation, contract, Target(url=cursor), credential)
    return _request(operation, contract, with_query(_path(operation, contract), rule.next_param, cursor), credential)


def _path(operation: Operation, contract: Contract) -> str:
    return path_of(contract.recovery.path, fields(operation, contract))


def _request(operation: Operation, contract: Contract, where: str | Target, credential: str | None) -> HttpRequest:
    rule = contract.recovery
    headers, body = body_of(rule.send, "json", fields(operation, contract))
    return call(rule.method, where, operation, contract, Errand.RECOVER, credential=credential, headers=headers, body=body)


def interpret_lookup(outcome: Outcome, operation: Operation, contract: Contract, now: Micros) -> Found:
    """Return what the answer to a lookup says. With `items` it is a one-page list, else the answer is the job itself."""
    page = _page(outcome, operation, contract, now, lookup=True)
    if not isinstance(page, _Page):
        return page
    if page.more and not page.matches:
        return _failed("lookup answer is not complete")
    return _verdict(page.matches, page.remembered)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListWalk:
    """A walk through the provider's list, page by page. `request` is the page to fetch next; `step` takes its answer."""

    operation: Operation
    contract: Contract
    request: HttpRequest
    credential: str | None = field(default=None, repr=False)
    pages: int = 0
    seen: int = 0  # items so far
    cursors: frozenset[str] = frozenset()
    last: tuple[str, ...] = ()  # the job ids of the page before: the same again is no progress
    matches: tuple[str, ...] = ()
    remembered: Mapping[str, str] = field(default_factory=dict, repr=False)

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
        remembered = {**page.remembered, **self.remembered}
        if not page.more or page.old:
            return _verdict(matches, remembered)
        cursor = self._next(page)
        if not cursor or cursor in self.cursors or (page.ids and page.ids == self.last):
            return _failed("list makes no progress")
        pages = self.pages + 1
        if pages >= self.contract.recovery.max_pages:
            return _verdict(matches, remembered) if matches else _failed("list too long")
        try:
            request = next_page(self.operation, self.contract, cursor, credential=self.credential)
        except UnbuildableError as error:
            return _failed(error.code)
        return replace(
            self,
            request=request,
            pages=pages,
            seen=self.seen + page.count,
            cursors=self.cursors | {cursor},
            last=page.ids,
            matches=matches,
            remembered=remembered,
        )

    def _next(self, page: "_Page") -> str:
        match self.contract.recovery.paging:
            case "page":
                return str(self.contract.recovery.first_page + self.pages + 1)
            case "offset":
                return str(self.seen + page.count) if page.count else ""
            case _:
                return page.cursor


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    matches: tuple[str, ...]
    more: bool = False
    cursor: str = ""
    count: int = 0
    ids: tuple[str, ...] = ()
    old: bool = False  # its last item was there before our create
    remembered: Mapping[str, str] = field(default_factory=dict, repr=False)


def _page(outcome: Outcome, operation: Operation, contract: Contract, now: Micros, *, lookup: bool) -> _Page | Found:
    match outcome:
        case NotSentOutcome(error=error) | MaybeOutcome(error=error):
            return ReadFailed(layer="transport", error=sanitise(error))
        case AnsweredOutcome(status=code):
            pass
    rule = contract.recovery
    if lookup and code in rule.not_found and not is_page(outcome):
        return JobNotFound()
    if code != 200:  # noqa: PLR2004 - nothing else carries a list or a job
        return read_failure(outcome, contract, now)
    body = read_json(outcome)
    if body.problem:
        return ReadFailed(layer="protocol", error=body.problem, retry_after=retry_after(outcome, now))
    items: Any = find(rule.items, outcome, body.value) if rule.items else [body.value]
    if not isinstance(items, list):
        return _failed("no_items")
    ours = _ours(items, operation, contract)
    if isinstance(ours, ReadFailed):
        return ours
    if lookup and not ours and by_name(contract):
        return _taken(items[0], rule)
    ids = tuple(job_id_text(_at(rule.job_id, item)) for item in items)
    page = _Page(
        matches=tuple(dict.fromkeys(job_id for job_id, _ in ours)),
        count=len(items),
        ids=ids,
        old=bool(items) and _before(_at(rule.created, items[-1]) if rule.created else None, operation),
        remembered=remember(contract, answer=None, body=ours[0][1]) if ours else {},
    )
    return _onwards(page, outcome, body.value, operation, rule)


def by_name(contract: Contract) -> bool:
    """Say whether the lookup asks for a job by the name that we gave it: what it finds has our name, be it ours or not."""
    rule = contract.recovery
    return (
        not rule.items and contract.create is not None and contract.create.token.place != "none" and "token" in template_fields(rule.path)
    )


def _taken(item: Any, rule: RecoveryRule) -> JobsConflict:
    job_id = job_id_text(_at(rule.job_id, item))
    return JobsConflict(
        remote_job_ids=(job_id,) if job_id else (), message="the name of our job stands for a job that is not ours", code="name_taken"
    )


def _ours(items: list[Any], operation: Operation, contract: Contract) -> list[tuple[str, dict[str, Any]]] | ReadFailed:
    """Return (id, item) of our jobs. An item that cannot be read might be ours: the answer proves nothing then."""
    rule = contract.recovery
    needle = _needle(operation, contract)
    found: list[tuple[str, dict[str, Any]]] = []
    for item in items:
        if not isinstance(item, dict):
            return _failed("unreadable_item")
        if rule.match and (not needle or as_id(_at(rule.match, item), len(needle)) != needle):
            continue
        job_id = job_id_text(_at(rule.job_id, item))
        if not job_id:
            return _failed("unusable_job_id")
        found.append((job_id, item))
    return found


def _at(expression: str, item: dict[str, Any]) -> Any:
    try:
        return compile_place(f"body:{expression}").find(body=item)
    except ValueError:
        return None  # the loader refuses such a contract


def _before(created: Any, operation: Operation) -> bool:
    """Say whether an item is surely older than our first send; a time that cannot be read says nothing."""
    moment, first = instant(created), operation.first_sent_at or operation.created_at
    return moment is not None and moment < first - _SKEW


def _onwards(page: "_Page", answer: AnsweredOutcome, body: Any, operation: Operation, rule: RecoveryRule) -> "_Page | ReadFailed":
    """Return the page with what follows it. A list's end is said, never guessed: an unreadable cursor is a failed read."""
    match rule.paging:
        case "page" | "offset":
            said = find(rule.next, answer, body) if rule.next else page.count
            return replace(page, more=bool(said))
        case "header":
            value: Any = next_link(answer.header("link"))
        case _:
            value = find(rule.next, answer, body)
    if value is None or value is False or value == "":
        return page
    text = value if isinstance(value, str) else as_text(value)
    if rule.paging in _BY_LINK:
        try:
            link = urljoin(f"{operation.origin.rstrip('/')}/", text).partition("#")[0]
        except ValueError:
            link = ""
        if not home(link, operation.origin):
            return _failed("foreign next link")
        text = link
    elif "://" in text[:16] or text.startswith("//"):
        text = _from_link(text, operation, rule)
        if not text:
            return _failed("foreign next link")
    if (
        not text
        or len(text) > _MAX_CURSOR
        or as_text(text, _MAX_CURSOR) != text
        or (rule.paging in _BY_LINK and not _URL_TEXT.fullmatch(text))
    ):
        return _failed("unusable cursor")
    return replace(page, more=True, cursor=text)


def next_link(header: str) -> str:
    """Return the target of `rel="next"` in a Link header, or the empty text (RFC 8288 section 3)."""
    for found in _LINK.finditer(header[:_MAX_HEADER]):
        relations = _REL.search(found["rest"])
        if relations is not None and "next" in (relations["quoted"] or relations["plain"] or "").lower().split():
            return found["target"].strip()
    return ""


def _from_link(link: str, operation: Operation, rule: RecoveryRule) -> str:
    """Return the cursor in a link that is at home: it is not followed, only its cursor is taken."""
    if not home(link, operation.origin):
        return ""
    try:
        return parse_qs(urlsplit(link).query, max_num_fields=50).get(rule.next_param, [""])[0]
    except ValueError:
        return ""


def _verdict(matches: tuple[str, ...], remembered: Mapping[str, str]) -> JobKnown | JobNotFound | JobsConflict:
    match matches:
        case ():
            return JobNotFound()
        case (only,):
            return JobKnown(remote_job_id=only, source="recovery", remembered=remembered)
        case _:
            return JobsConflict(remote_job_ids=matches[:_MAX_CONFLICT], message="the provider names several jobs for one create")


def _failed(error: str) -> ReadFailed:
    return ReadFailed(layer="protocol", error=error)

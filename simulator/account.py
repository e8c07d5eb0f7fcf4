"""A provider account that speaks a contract: it keeps the contract's promises, and does with each job what its fate says.

It answers the requests that the contract describes with the provider's own documents (`simulator/spoken.py`). What happens
to requests and answers on their way is nobody's business here.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal
from urllib.parse import parse_qsl

from schemas.contract import Contract
from schemas.http import AnsweredOutcome
from schemas.operation import SECOND, Micros
from schemas.states import ENDED_READINGS, Reading
from simulator.routes import Call, routes
from simulator.spoken import Documents, Named

_NOTHING: Final = AnsweredOutcome(status=404, headers=(("content-type", "application/json"),), body=b"{}")
_MAX_JOBS: Final = 100_000
Headers = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What becomes of a job. Times in seconds after its create; a job without `runs` never ends by itself."""

    queued: float = 0.0
    runs: float | None = 30.0
    ending: Reading = Reading.SUCCEEDED
    cancel: Literal["honoured", "refused", "ignored", "races"] = "honoured"  # races: taken, and the job ends by itself
    cancel_takes: float = 0.0
    hidden: float = 0.0  # for so long nobody is shown the job
    refused: bool = False  # the create is refused for good
    vanishes: float | None = None  # from then on nobody knows the job
    strange: tuple[float, float] = (0.0, 0.0)  # between these times its word is one of tomorrow
    result_gone: bool = False  # its files are expired
    reversed_after: float | None = None  # so long after its end it turns out to have failed


@dataclass(slots=True, kw_only=True)
class Job:
    """One job at the provider, and so the truth."""

    named: Named
    fate: Fate
    created: Micros
    cancelled_at: Micros | None = None
    cancelling: bool = False

    def reading(self, now: Micros) -> Reading:
        """Return where the job truly stands."""
        age, fate = (now - self.created) / SECOND, self.fate
        if self.cancelled_at is not None and now >= self.cancelled_at:
            return Reading.CANCELLED
        if fate.runs is not None and age >= fate.queued + fate.runs:
            back = fate.reversed_after is not None and age >= fate.queued + fate.runs + fate.reversed_after
            return Reading.FAILED if back else fate.ending
        return Reading.RUNNING if age >= fate.queued else Reading.QUEUED

    def shown(self, now: Micros) -> Reading:
        """Return what the provider says of it."""
        age, fate = (now - self.created) / SECOND, self.fate
        if age < fate.hidden or (fate.vanishes is not None and age >= fate.vanishes):
            return Reading.ABSENT
        return Reading.UNKNOWN if fate.strange[0] <= age < fate.strange[1] else self.reading(now)


class Account:
    """One kind of operation of a provider account. Where a provider has several, each is an account of its own.

    `fate` says what becomes of a new job, by our operation id where the create carries it (else the empty text).
    """

    def __init__(
        self,
        contract: Contract,
        *,
        now: Callable[[], Micros],
        fate: Callable[[str], Fate] = lambda _: Fate(),
        action: str = "",
        base: str = "",
    ) -> None:
        self.contract = contract.of(action)
        self.documents = Documents(contract, action, base)
        self.jobs: dict[str, Job] = {}
        self.calls: list[Call] = []
        self._now = now
        self._fate = fate
        self._routes = routes(self.contract)
        self._addresses: dict[tuple[str, str], Call] = {}  # (method, address) that a create answer named
        self._tokens: dict[str, tuple[Micros, AnsweredOutcome, str]] = {}

    def answer(self, method: str, url: str, headers: Headers = (), body: bytes = b"") -> AnsweredOutcome:
        """Execute one request now and answer it. What is no address of the contract is not found."""
        call = self.reads(method, url)
        if call is None:
            return self._file(method, url)
        self.calls.append(call)
        return self._done(call, headers, body)

    def reads(self, method: str, url: str) -> Call | None:
        """Return which call of ours this is; None: no address of this contract."""
        known = self._addresses.get((method, url))
        return known or next((call for route in self._routes if (call := route.read(method, url)) is not None), None)

    def make(self, operation: str = "", token: str = "") -> Job:
        """Make a job, as a create does."""
        named = self._new(operation, token)
        job = Job(named=named, fate=self._fate(operation), created=self._now())
        if len(self.jobs) >= _MAX_JOBS:
            raise RuntimeError("this simulator holds no more jobs")
        self.jobs[named.job] = job
        self._name_addresses(named)
        return job

    def _name_addresses(self, named: Named) -> None:
        addresses = self.documents.named_addresses(named)
        values = {"remote_job_id": named.job}
        for kind, rule in (("status", self.contract.status), ("cancel", self.contract.cancel)):
            if rule is not None and rule.url in addresses:
                self._addresses[rule.method, addresses[rule.url]] = Call(kind=kind, values=values)  # type: ignore[arg-type] # both are kinds

    def of(self, operation: str) -> list[Job]:
        """Return the jobs of one operation, oldest first."""
        return [job for job in self.jobs.values() if job.named.operation == operation]

    def _done(self, call: Call, headers: Headers, body: bytes) -> AnsweredOutcome:
        match call.kind:
            case "create":
                return self._create(call, headers, body)
            case "search":
                return self._search(call)
            case "status":
                job = self._job(call)
                return self.documents.status(Named(job=_id(call)), Reading.ABSENT) if job is None else self._status(job)
            case "cancel":
                job = self._job(call)
                return _NOTHING if job is None else self._cancel(job)

    def _job(self, call: Call) -> Job | None:
        if "remote_job_id" in call.values:
            return self.jobs.get(call.values["remote_job_id"])
        return next((job for job in self.jobs.values() if _names(call, job.named)), None)

    # --- create

    def _new(self, operation: str, token: str) -> Named:
        named = Named(job="", operation=operation, token=token, number=len(self.jobs) + 1)
        return replace(named, job=self.documents.job_id(named))

    def _create(self, call: Call, headers: Headers, body: bytes) -> AnsweredOutcome:
        rule = self.contract.create
        assert rule is not None, "a create route comes from a create rule"
        document = _document(body, rule.encoding)
        operation = call.values.get("operation") or _carried(document, rule.add, "{operation}")
        token = call.values.get("token") or self._token(document, headers) or _carried(document, rule.add, "{token}")
        known = self._tokens.get(token) if token else None
        if known is not None and self._now() < known[0] + rule.token.window_seconds * SECOND:
            return self._repeated(known[1], self.jobs.get(known[2]))
        named = self._new(operation, token)
        if self._fate(operation).refused:
            answer = self.documents.refused(named)
        elif (twin := self.jobs.get(named.job)) is not None:
            answer = self.documents.repeated(twin.named)
        else:
            answer = self.documents.create(self.make(operation, token).named)
        keeps_refusals = rule.token.repeats != "success"
        if token and rule.token.window_seconds and (answer.status in rule.accepted or keeps_refusals):
            self._tokens[token] = (self._now(), answer, named.job)
        return answer

    def _repeated(self, first: AnsweredOutcome, job: Job | None) -> AnsweredOutcome:
        """Answer a token that was used: as the contract says that its provider does."""
        rule = self.contract.create
        assert rule is not None, "a create route comes from a create rule"
        if rule.token.repeats == "conflict" and job is not None:
            return self.documents.repeated(job.named)
        return replace(first, headers=(*first.headers, ("idempotent-replayed", "true")))

    def _token(self, document: Mapping[str, Any], headers: Headers) -> str:
        rule = self.contract.create
        assert rule is not None, "a create route comes from a create rule"
        match rule.token.place:
            case "header":
                return next((value for name, value in headers if name.lower() == rule.token.name.lower()), "")
            case "body":
                return _found(document, rule.token.name)
            case _:
                return ""

    # --- reads

    def _status(self, job: Job) -> AnsweredOutcome:
        now = self._now()
        reading = job.shown(now)
        age, fate = (now - job.created) / SECOND, job.fate
        part = min(max((age - fate.queued) / fate.runs, 0.0), 0.999) if fate.runs and reading is Reading.RUNNING else 0.0
        return self.documents.status(job.named, reading, cancelling=job.cancelling, part=part)

    def _search(self, call: Call) -> AnsweredOutcome:
        lookup = "lookup" in self.contract.recovery.strategies
        shown = [job for job in reversed(self.jobs.values()) if job.shown(self._now()) is not Reading.ABSENT]
        if lookup:
            shown = [job for job in shown if _names(call, job.named)]
        return self.documents.found([job.named for job in shown], lookup=lookup)

    def _file(self, method: str, url: str) -> AnsweredOutcome:
        for job in reversed(self.jobs.values()) if method == "GET" else ():
            file = self.documents.files(job.named).get(url)
            if file is not None and not job.fate.result_gone:
                return self.documents.file(file)
        return _NOTHING

    # --- cancel

    def _cancel(self, job: Job) -> AnsweredOutcome:
        now = self._now()
        if job.reading(now) in ENDED_READINGS or job.fate.cancel == "refused":
            return self.documents.cancel(job.named, taken=False)
        if job.fate.cancel == "honoured" and job.cancelled_at is None:
            job.cancelled_at = now + round(job.fate.cancel_takes * SECOND)
        job.cancelling = job.fate.cancel != "ignored"
        return self.documents.cancel(job.named, taken=True)


def _id(call: Call) -> str:
    return call.values.get("remote_job_id", "")


def _names(call: Call, named: Named) -> bool:
    pairs = [(call.values[key], value) for key, value in (("operation", named.operation), ("token", named.token)) if key in call.values]
    return bool(pairs) and all(asked == value for asked, value in pairs)


def _document(body: bytes, encoding: str) -> Mapping[str, Any]:
    if encoding == "form":
        return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=1_000))
    try:
        value = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _carried(document: Mapping[str, Any], add: Sequence[tuple[str, str]], wanted: str) -> str:
    """Return what stands where the contract puts this field into a create."""
    for place, template in add:
        before, found, after = template.partition(wanted)
        text = _found(document, place)
        if found and text.startswith(before) and text.endswith(after):
            return text[len(before) : len(text) - len(after)]
    return ""


def _found(document: Mapping[str, Any], place: str) -> str:
    first, *rest = place.split(".")
    if isinstance(flat := document.get(first + "".join(f"[{name}]" for name in rest)), str):
        return flat  # a form's way to write a member
    value: Any = document
    for name in (first, *rest):
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""

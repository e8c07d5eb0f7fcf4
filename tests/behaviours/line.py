"""The line to a provider: what happens to requests and answers on their way, and a note of every call that was made."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal

from reconciler.transport import Downloaded, Sink, Transport
from reconciler.wire import Departure
from schemas.http import AnsweredOutcome, HttpRequest, MaybeOutcome, NotSentOutcome, Outcome
from schemas.operation import Micros
from schemas.states import Errand
from simulator.account import Account
from simulator.spoken import UnspokenError

Mishap = Literal[
    "unsent", "lost", "dropped", "cut", "empty", "html", "error", "error_though_done", "redirect", "slow_down", "garbled",
    "another_job", "gone", "gone_page",
]  # fmt: skip
"""lost: the request never arrives, and nobody knows. dropped, cut, empty, error_though_done: it is executed, its answer is spoiled."""

PAGE: Final = b"<!doctype html><html><body><form>Please log in</form></body></html>"
WAIT_SECONDS: Final = 40  # what `slow_down` asks for
_JSON: Final = (("content-type", "application/json"),)
_EXECUTED: Final = frozenset({"dropped", "cut", "empty", "error_though_done", "garbled", "another_job"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What goes wrong, call by call: the first mishap hits the first call of its kind, and so on."""

    create: tuple[Mishap, ...] = ()
    read: tuple[Mishap, ...] = ()
    search: tuple[Mishap, ...] = ()
    cancel: tuple[Mishap, ...] = ()
    file: tuple[Mishap, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """One call that was made."""

    at: Micros
    kind: str
    mishap: Mishap | None


@dataclass(slots=True)
class Turn:
    """Whose errand is under way: calls are made one after the other."""

    operation: str = ""
    errand: Errand = Errand.READ


class Line(Transport):
    """The transport of one provider account, without a network. `created` is told each new job before its answer is seen."""

    def __init__(self, accounts: Callable[[str], Account], turn: Turn, scripts: dict[str, Script], now: Callable[[], Micros]) -> None:
        self._account = accounts  # by operation: each kind of operation has its own
        self.calls: dict[str, list[Made]] = defaultdict(list)
        self.jobs: dict[str, list[str]] = defaultdict(list)  # operation -> the jobs that its creates made
        self.unspoken: set[str] = set()  # documents that the contract has no sample of
        self.created: Callable[[str, str], None] = lambda _operation, _job: None
        self._turn = turn
        self._scripts = scripts
        self._now = now

    async def perform(self, request: HttpRequest, *, send_by: float | None = None, departure: Departure | None = None) -> Outcome:
        del send_by
        kind = {Errand.CREATE: "create", Errand.RECOVER: "search", Errand.CANCEL: "cancel"}.get(self._turn.errand, "read")
        return self._outcome(request, kind, departure or Departure())

    async def download(
        self,
        request: HttpRequest,
        sink: Sink,
        *,
        max_bytes: int,
        silence_seconds: float,
        send_by: float | None = None,
        departure: Departure | None = None,
    ) -> Downloaded | AnsweredOutcome | MaybeOutcome | NotSentOutcome:
        del max_bytes, silence_seconds, send_by
        outcome = self._outcome(request, "file", departure or Departure())
        if not isinstance(outcome, AnsweredOutcome) or outcome.status != 200:
            return outcome
        await sink.begin(AnsweredOutcome(status=200, headers=outcome.headers))
        await sink.write(outcome.body)
        return Downloaded(status=200, headers=outcome.headers, bytes=len(outcome.body))

    async def aclose(self) -> None:
        """Nothing is open."""

    def _outcome(self, request: HttpRequest, kind: str, departure: Departure) -> Outcome:
        operation = self._turn.operation
        before = sum(call.kind == kind for call in self.calls[operation])
        mishaps: tuple[Mishap, ...] = getattr(self._scripts[operation], kind)
        mishap = mishaps[before] if before < len(mishaps) else None
        self.calls[operation].append(Made(at=self._now(), kind=kind, mishap=mishap))
        if mishap == "unsent":
            return NotSentOutcome(error="refused")
        departure.sent = True
        if mishap is not None and mishap not in _EXECUTED:
            return _never_arrived(mishap)
        account = self._account(operation)
        known = len(account.jobs)
        try:
            answer = account.answer(request.method, request.url, request.headers, request.body)
        except UnspokenError as error:
            self.unspoken.add(str(error))
            return MaybeOutcome(error="unspoken")
        if len(account.jobs) > known:
            job = next(reversed(account.jobs))
            self.jobs[operation].append(job)
            self.created(operation, job)
        job = self.jobs[operation][-1] if self.jobs[operation] else ""
        return answer if mishap is None else _spoiled(mishap, answer, job)


def _never_arrived(mishap: Mishap) -> Outcome:
    match mishap:
        case "html":
            return AnsweredOutcome(status=200, headers=(("content-type", "text/html"),), body=PAGE)
        case "gone_page":
            return AnsweredOutcome(status=404, headers=(("content-type", "text/html"),), body=PAGE)
        case "error":
            return AnsweredOutcome(status=502, headers=_JSON, body=b"{}")
        case "redirect":
            return AnsweredOutcome(status=302, headers=(("location", "https://elsewhere.example/login"),))
        case "slow_down":
            return AnsweredOutcome(status=429, headers=(*_JSON, ("retry-after", str(WAIT_SECONDS))), body=b"{}")
        case "gone":
            return AnsweredOutcome(status=404, headers=_JSON, body=b"{}")
        case _:
            return MaybeOutcome(error="timeout")


def _spoiled(mishap: Mishap, answer: AnsweredOutcome, job: str) -> Outcome:
    match mishap:
        case "another_job":
            return replace(answer, body=answer.body.replace(job.encode(), f"{job}9".encode()))
        case "cut":
            return MaybeOutcome(error="closed", status=answer.status)
        case "empty":
            return replace(answer, body=b"")
        case "error_though_done":
            return AnsweredOutcome(status=500, headers=_JSON, body=b"{}")
        case "garbled":
            return AnsweredOutcome(status=answer.status, headers=answer.headers, body=answer.body[: len(answer.body) // 2])
        case _:
            return MaybeOutcome(error="closed")


__all__ = ["PAGE", "WAIT_SECONDS", "Line", "Made", "Mishap", "Script", "Turn"]

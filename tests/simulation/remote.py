"""Providers in memory: truthful about their own jobs. What happens to requests on their way is for tests/simulation/wire.py."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from schemas.contract import Contract
from schemas.http import AnsweredOutcome, HttpRequest
from schemas.operation import SECOND, Micros
from schemas.states import Reading
from tests.simulation.accounts import ORIGIN, WORD_OF
from tests.simulation.world import BrokenInvariantError, World

PAGE: Final = 2
_ENDINGS: Final = (Reading.SUCCEEDED,) * 6 + (Reading.FAILED, Reading.FAILED, Reading.CANCELLED, Reading.EXPIRED)
Event = Callable[["Job", Reading], None]


@dataclass(slots=True, kw_only=True)
class Fate:
    """What the provider will make of an operation's job, whenever it is created: the part that no timing changes."""

    ending: Reading
    runs_seconds: float
    queued_seconds: float
    refused: bool  # the create is refused for good
    cancel: str  # honoured | slow | ignored | refused | completes
    hidden_seconds: float  # after the create, reads answer 404 and lookups do not show the job


@dataclass(slots=True, kw_only=True)
class Job:
    """One job at the provider, and so the truth."""

    id: str
    operation: str
    created_at: Micros
    visible_at: Micros
    starts_at: Micros
    ends_at: Micros
    ending: Reading
    result: bytes
    cancel: str
    consumed: bool = False
    deleted: bool = False
    missed: bool = False  # a lookup that should have shown it came from a replica that lagged: `confirmations` covers it

    def reading(self, now: Micros) -> Reading:
        if now >= self.ends_at:
            return self.ending
        return Reading.RUNNING if now >= self.starts_at else Reading.QUEUED


@dataclass(slots=True)
class Remote:
    """One provider account."""

    world: World
    contract: Contract
    fates: dict[str, Fate]
    tell_event: Event
    jobs: dict[str, Job] = field(default_factory=dict)
    tokens: dict[str, tuple[Micros, int, bytes]] = field(default_factory=dict)
    tokens_seen: dict[str, set[str]] = field(default_factory=dict)
    bodies_seen: dict[str, set[bytes]] = field(default_factory=dict)
    risk_accepted: set[str] = field(default_factory=set)  # a person said: send again, although it may exist

    def jobs_of(self, operation: str) -> list[Job]:
        return [job for job in self.jobs.values() if job.operation == operation]

    def answer(self, request: HttpRequest) -> AnsweredOutcome:
        """Execute one request now and answer it."""
        path = request.url.removeprefix(ORIGIN)
        path, _, query = path.partition("?")
        parts = path.strip("/").split("/")
        match request.method, parts:
            case "POST", ["jobs"]:
                return self._create(request)
            case "GET", ["jobs"]:
                return self._list(query)
            case "GET", ["lookup", operation]:
                return self._lookup(operation)
            case "GET", ["jobs", job]:
                return self._status(job)
            case "GET", ["jobs", job, "result"]:
                return self._result(job)
            case ("POST", ["jobs", job, "cancel"]) | ("DELETE", ["jobs", job]):
                return self._cancel(job, destroy=request.method == "DELETE")
            case _:
                raise BrokenInvariantError("A", f"a request that no contract has: {request.method} {request.url}")

    # --- create

    def _create(self, request: HttpRequest) -> AnsweredOutcome:
        operation = str(json.loads(request.body)["metadata"]["operation"])
        token = next((value for name, value in request.headers if name == "Idempotency-Key"), "")
        self.bodies_seen.setdefault(operation, set()).add(request.body)
        if token:
            self.tokens_seen.setdefault(operation, set()).add(token)
            known = self.tokens.get(token)
            rule = self.contract.create
            assert rule is not None
            if known is not None and self.world.time < known[0] + rule.token.window_seconds * SECOND:
                self.world.tell("provider replays the create of %s", operation)
                return _json(known[1], known[2], replayed=True)
        status, body = self.execute(operation)
        if token:
            self.tokens[token] = (self.world.time, status, body)
        return _json(status, body)

    def execute(self, operation: str) -> tuple[int, bytes]:
        """Create a job, or refuse for good. A second job for one operation is what must never be."""
        fate = self.fates[operation]
        if fate.refused:
            return 422, b'{"error":"refused"}'
        if self.jobs_of(operation) and operation not in self.risk_accepted:
            raise BrokenInvariantError("4", f"the provider executes a second create for {operation}")
        job = self.make(operation)
        return 201, _write(self._shown(job))

    def make(self, operation: str) -> Job:
        world, fate = self.world, self.fates[operation]
        now = world.time
        starts = now + round(fate.queued_seconds * SECOND)
        identity = f"job-{self.contract.name}-{len(self.jobs) + 1}"
        job = Job(
            id=identity,
            operation=operation,
            created_at=now,
            visible_at=now + round(fate.hidden_seconds * SECOND),
            starts_at=starts,
            ends_at=starts + round(fate.runs_seconds * SECOND),
            ending=fate.ending,
            result=f"result,of\n{identity},{operation}\n".encode(),
            cancel=fate.cancel,
        )
        self.jobs[job.id] = job
        world.tell("provider creates %s for %s", job.id, operation)
        self.tell_event(job, Reading.QUEUED)
        world.at(job.starts_at, lambda: self._announce(job, job.starts_at, Reading.RUNNING))
        self._announce_end(job)
        return job

    def _announce_end(self, job: Job) -> None:
        ends = job.ends_at
        self.world.at(ends, lambda: self._announce(job, ends, job.ending) if job.ends_at == ends else None)

    def _announce(self, job: Job, time: Micros, reading: Reading) -> None:
        if not job.deleted and job.reading(time) is reading:
            self.tell_event(job, reading)

    # --- reads

    def _list(self, query: str) -> AnsweredOutcome:
        shown = [job for job in reversed(self.jobs.values()) if self._visible(job)]
        start = int(query.partition("=")[2] or 0)
        page = [self._shown(job) for job in shown[start : start + PAGE]]
        following = str(start + PAGE) if start + PAGE < len(shown) else None
        return _json(200, _write({"data": page, "next": following}))

    def _lookup(self, operation: str) -> AnsweredOutcome:
        job = next((job for job in self.jobs_of(operation) if self._visible(job)), None)
        return _json(404, b"{}") if job is None else _json(200, _write(self._shown(job)))

    def _visible(self, job: Job) -> bool:
        """Say whether a lookup shows the job: late enough, and once in a while a lagging replica answers (never twice)."""
        if job.deleted or self.world.time < job.visible_at:
            return False
        lagging = not job.missed and self.world.hit(0.5)
        job.missed = job.missed or lagging
        return not lagging

    def _status(self, identity: str) -> AnsweredOutcome:
        job = self.jobs.get(identity)
        if job is None or job.deleted or self.world.time < job.visible_at:
            return _json(404, b"{}")
        shown = self._shown(job)
        if self.world.hit(0.03):
            shown["state"] = "a word of tomorrow"
        return _json(200, _write(shown))

    def _shown(self, job: Job) -> dict[str, Any]:
        reading = job.reading(self.world.time)
        shown: dict[str, Any] = {"id": job.id, "state": WORD_OF[reading], "metadata": {"operation": job.operation}}
        if reading in {Reading.SUCCEEDED, Reading.EXPIRED}:
            shown |= {"sha256": hashlib.sha256(job.result).hexdigest(), "bytes": len(job.result)}
        return shown

    def _result(self, identity: str) -> AnsweredOutcome:
        job = self.jobs.get(identity)
        if job is None or job.deleted:
            return _json(404, b"{}")
        rule = self.contract.result
        if rule is not None and rule.one_shot:
            if job.consumed:
                return _json(410, b"{}")
            job.consumed = True
        return AnsweredOutcome(status=200, headers=(("content-type", "text/csv"),), body=job.result)

    # --- cancel

    def _cancel(self, identity: str, *, destroy: bool) -> AnsweredOutcome:
        job, now = self.jobs.get(identity), self.world.time
        if job is None or job.deleted:
            return _json(404, b"{}")
        over = now >= job.ends_at
        self.world.tell("provider is asked to cancel %s (%s, %s)", job.id, job.cancel, "over" if over else "alive")
        if destroy and job.cancel != "refused":
            job.deleted = True
            if not over:
                job.ends_at, job.ending = now, Reading.CANCELLED
            return _json(204, b"")
        if over or job.cancel == "refused":
            return _json(409, b'{"error":"too late"}')
        match job.cancel:
            case "honoured":
                self._stop(job, now + SECOND // 10)
            case "slow":
                self._stop(job, now + 45 * SECOND)
            case "completes":
                job.ends_at = min(job.ends_at, now + 2 * SECOND)
                self._announce_end(job)
            case _:
                pass  # ignored: taken politely, and nothing happens
        return _json(202, b"{}")

    def _stop(self, job: Job, time: Micros) -> None:
        if time < job.ends_at:
            job.ends_at, job.ending = time, Reading.CANCELLED
            job.starts_at = min(job.starts_at, time)
            self._announce_end(job)


def draw_fate(world: World, contract: Contract, *, plain: bool) -> Fate:
    """Draw what becomes of one operation. `plain`: nothing that depends on timing."""
    random = world.random
    hidden = min(contract.recovery.visibility_seconds, 40) * random.random() if random.random() < 0.5 else 0.0
    return Fate(
        ending=random.choice(_ENDINGS),
        runs_seconds=random.choice((0.0, random.uniform(1, 30), random.uniform(20, 200), random.uniform(100, 900))),
        queued_seconds=random.choice((0.0, random.uniform(0, 20))),
        refused=not plain and random.random() < 0.06,
        cancel=random.choice(("honoured", "honoured", "slow", "ignored", "refused", "completes")),
        hidden_seconds=hidden,
    )


def _write(value: Any) -> bytes:
    return json.dumps(value).encode()


def _json(status: int, body: bytes, *, replayed: bool = False) -> AnsweredOutcome:
    headers = (("content-type", "application/json"), *((("idempotent-replayed", "true"),) if replayed else ()))
    return AnsweredOutcome(status=status, headers=headers, body=body)

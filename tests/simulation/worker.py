"""A reconciler without an event loop: the real claim, requests, interpretation and settle, with a point to die at between any two.

It follows `reconciler/errands.py` step by step; what differs is that a call is a step of a generator and not an await.
"""

import hashlib
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from lifecycle import recovery as lifecycle_recovery
from providers import interpret, recovery, requests, results, transfers
from providers.recovery import ListWalk
from providers.requests import UnbuildableError
from schemas.commands import Claimed, ClaimWork, Settle
from schemas.contract import Contract
from schemas.evidence import (
    Collected,
    CollectFailed,
    Evidence,
    JobKnown,
    Lapsed,
    NotSent,
    Read,
    ReadFailed,
    ResultGone,
    ResultInvalid,
    StoredFile,
)
from schemas.http import AnsweredOutcome, Exchange, HttpRequest, MaybeOutcome, NotSentOutcome, Outcome
from schemas.operation import SECOND, Micros
from schemas.states import ACTING, Errand
from tests.simulation.process import LEASE, Commit, Pause, Process, Send, Step
from tests.simulation.wire import SEND_BUDGET, Wire
from tests.simulation.world import World

MARGIN: Final[Micros] = 2 * SECOND
_MAX_TRIES: Final = 3
Steps = Generator[Step, Any, Evidence]
Watch = Callable[[Claimed, HttpRequest], None]


@dataclass(slots=True, kw_only=True)
class Desk:
    """What the errands of one process have at hand."""

    world: World
    wires: dict[str, Wire]
    contracts: dict[str, Contract]
    store: dict[str, bytes]  # the artifact room: it outlives processes, as a disk does
    departs: Watch  # told at the moment when bytes leave
    begins: Callable[[str], None]  # told when a call for an operation begins
    same_token: bool = True
    exchange: Exchange | None = field(default=None)


def reconcile(process: Process, desk: Desk, idle: Callable[[], None]) -> Generator[Step, Any, None]:
    """Claim until nothing is due, then say so."""
    after: Mapping[str, str] = {}
    world, starved = desk.world, True
    while starved:
        yield Pause("before the claim")
        taken = world.monotonic()
        limit = world.random.choice((1, 3, 4, 4))
        work = yield Commit(
            ClaimWork(
                worker=process.name,
                room=dict.fromkeys(desk.contracts, 4),
                limit=limit,
                lease=LEASE,
                send_budget=SEND_BUDGET,
                now=world.now(),
                chance=world.chance(),
                after=after,
            )
        )
        after = work.after
        for item in work.items:
            world.tell("%s claims %s: %s fence %d", process.name, item.operation.id[-3:], item.errand, item.fence)
            process.start(_errand(process, desk, item, taken))
        starved = len(work.items) >= limit  # more may be due
    idle()


def _errand(process: Process, desk: Desk, claimed: Claimed, taken: float) -> Generator[Step, Any, None]:
    world = desk.world
    yield Pause("after the claim, before the send")
    started = world.now()
    desk.begins(claimed.operation.id)
    send_by = taken + (LEASE - SEND_BUDGET - MARGIN) / SECOND
    call = _Call(desk, claimed, send_by)
    evidence = yield from call.evidence()
    yield Pause("after the answer, before the settle")
    settled = yield Commit(
        Settle(
            operation_id=claimed.operation.id,
            fence=claimed.fence,
            errand=claimed.errand,
            evidence=evidence,
            started_at=started,
            now=world.now(),
            chance=world.chance(),
            actor=process.name,
            attempt_id=claimed.attempt_id,
            exchange=call.exchange,
        )
    )
    world.tell("%s settled %s: %s%s", process.name, claimed.operation.id[-3:], settled.operation.state, " stale" if settled.stale else "")


class _Call:
    """One errand on its way."""

    def __init__(self, desk: Desk, claimed: Claimed, send_by: float) -> None:
        self.desk, self.claimed, self.operation = desk, claimed, claimed.operation
        self.contract = desk.contracts[claimed.operation.provider]
        self.send_by = send_by if claimed.errand in ACTING else None
        self.exchange: Exchange | None = None

    def evidence(self) -> Steps:
        errand, operation, contract = self.claimed.errand, self.operation, self.contract
        if errand is Errand.LAPSE:
            return Lapsed()
        try:
            match errand:
                case Errand.CREATE:
                    return (yield from self._create())
                case Errand.READ:
                    outcome = yield from self._request(Errand.READ)
                    read = interpret.status(outcome, operation, contract, self._now())
                    return self._with_inline(read, outcome) if isinstance(read, Read) else read
                case Errand.CANCEL:
                    outcome = yield from self._request(Errand.CANCEL)
                    return interpret.cancel(outcome, operation, contract, self._now())
                case Errand.RECOVER:
                    return (yield from self._recover())
                case Errand.COLLECT:
                    return (yield from self._collect())
        except UnbuildableError as error:
            return requests.refusal(error, errand, operation)

    def _now(self) -> Micros:
        return self.desk.world.now()

    def _request(self, errand: Errand) -> Generator[Step, Any, Outcome]:
        operation = self.operation
        if errand is Errand.CREATE and not self.desk.same_token:
            operation = replace(operation, idempotency_token=self.desk.world.new_token())
        request = requests.build(errand, operation, self.contract, credential="secret", now=self._now())
        return (yield from self._send(request))

    def _send(self, request: HttpRequest) -> Generator[Step, Any, Outcome]:
        began = self._now()
        wire = self.desk.wires[self.operation.provider]
        outcome: Outcome = yield Send(wire, request, self.claimed.errand, self.send_by, lambda: self.desk.departs(self.claimed, request))
        self.exchange = interpret.record(
            request, outcome, id=self.desk.world.new_id("exc"), errand=str(self.claimed.errand), started_at=began, finished_at=self._now()
        )
        return outcome

    def _create(self) -> Steps:
        outcome = yield from self._request(Errand.CREATE)
        evidence = interpret.create(outcome, self.operation, self.contract, self._now())
        if isinstance(evidence, JobKnown) and evidence.status is not None:
            read = self._with_inline(Read(facts=evidence.status), outcome)
            return replace(evidence, status=read.facts)
        return evidence

    def _recover(self) -> Steps:
        operation, contract = self.operation, self.contract
        planned = lifecycle_recovery.plan(operation, contract, self._now())
        if planned not in {"lookup", "list"}:
            planned = next((strategy for strategy in contract.recovery.strategies if strategy != "resend"), None)
        if planned == "lookup":
            outcome = yield from self._send(recovery.first_page(operation, contract, credential="secret", now=self._now()))
            return recovery.interpret_lookup(outcome, operation, contract, self._now())
        if planned != "list":
            return ReadFailed(layer="protocol", error="no_recovery")
        walk = ListWalk.start(operation, contract, credential="secret", now=self._now())
        while True:
            step = walk.step((yield from self._send(walk.request)), self._now())
            if not isinstance(step, ListWalk):
                return step
            walk = step
            yield Pause("between two pages")

    def _with_inline(self, read: Read, outcome: Outcome) -> Read:
        body = interpret.inline_body(outcome)
        if body is None or not interpret.wants_inline(self.contract, read.facts):
            return read
        return replace(read, facts=replace(read.facts, inline=Collected(files=(self._store(body, "application/json"),))))

    def _store(self, body: bytes, media_type: str) -> StoredFile:
        key = self.desk.world.new_id("art")
        self.desk.store[key] = body
        digest = hashlib.sha256(body).hexdigest()
        return StoredFile(role="output", key=key, media_type=media_type, bytes=len(body), sha256=digest)

    def _collect(self) -> Steps:
        operation, contract = self.operation, self.contract
        if operation.consumed_by is not None:  # another machine's store: what the lost worker may have kept is not here
            return ResultGone(code="one_shot_lost", message="not stored here")
        request = requests.build(Errand.READ, operation, contract, credential="secret", now=self._now())
        answer = yield from self._send(request)
        reading = interpret.status(answer, operation, contract, self._now())
        if isinstance(reading, ReadFailed):
            if contract.result is not None and contract.result.one_shot:
                return NotSent(errand=Errand.COLLECT, error=f"status {reading.error}", retry_after=reading.retry_after)
            return CollectFailed(error=f"status {reading.error}", retry_after=reading.retry_after)
        if not isinstance(reading, Read) or reading.facts.reading is not operation.ending:
            return reading
        assert isinstance(answer, AnsweredOutcome)
        if contract.result is None:
            return self._with_inline(reading, answer).facts.inline or CollectFailed(error="store_full")
        found = results.collect_requests(operation, contract, answer, credential="secret")
        if not isinstance(found, tuple):
            return found
        yield Pause("between the read and the download")
        (file,) = found
        outcome = yield from self._send(file.request)
        return self._judge_file(outcome, file)

    def _judge_file(self, outcome: Outcome, file: transfers.FileRequest) -> Evidence:
        operation, contract = self.operation, self.contract
        assert contract.result is not None
        one_shot = contract.result.one_shot
        if one_shot and isinstance(outcome, NotSentOutcome):
            return NotSent(errand=Errand.COLLECT, error=outcome.error)
        if isinstance(outcome, MaybeOutcome) and one_shot:
            return ResultGone(code="one_shot_lost", message="the transfer broke")
        refused = interpret.download(outcome, file, operation, self._now())
        if refused is not None:
            return refused
        assert isinstance(outcome, AnsweredOutcome)
        body = outcome.body
        digest = hashlib.sha256(body).hexdigest()
        problem = interpret.check_file(file.expected, outcome, size=len(body), sha256=digest, head=body[:512])
        if problem in transfers.RETRIED and operation.collect_tries + 1 < _MAX_TRIES and not one_shot:
            return CollectFailed(error=problem)
        stored = self._store(body, interpret.media_type(outcome))
        return Collected(files=(stored,)) if problem is None else ResultInvalid(code=problem, files=(stored,))

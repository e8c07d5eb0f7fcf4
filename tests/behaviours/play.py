"""Many contracts and many behaviours in one record, played to their ends: the real ledger and errands on a clock that jumps.

Every operation is one (contract, behaviour). Claims and settlements of all that is due at a moment are one transaction each,
so that hundreds of operations cost little more than one.
"""

import asyncio
import heapq
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from artifacts.store import Store
from ledger import queries
from ledger.audit import Fault, self_audit, verify
from ledger.engine import Engines
from ledger.ingest import ingest
from ledger.leases import claim, defer
from ledger.petition import petition
from ledger.register import register
from ledger.settle import settle
from ledger.tables import operations
from ledger.transaction import Transaction, View
from ledger.vault import Vault
from providers.mapping import events
from providers.vectors import request_of
from reconciler.desk import Account as Configured
from reconciler.errands import Performer
from reconciler.leases import Leases
from reconciler.pace import Pace
from schemas.commands import Claimed, ClaimWork, Defer, Ingest, Ingested, Intent, Petition, Petitioned, Register, Settle
from schemas.contract import Contract, Limits
from schemas.delivery import Delivery
from schemas.evidence import CancelAsked
from schemas.operation import SECOND, Micros, Operation
from schemas.settings import ProviderSettings
from schemas.states import Mode
from simulator.account import Account, Fate
from tests.behaviours.line import Line, Made, Script, Turn

EPOCH: Final[Micros] = 1_800_000_000 * SECOND
LEASE: Final[Micros] = 45 * SECOND
_GRID: Final[Micros] = 15 * SECOND  # a worker that looks every fifteen seconds: what is due between is done together
_STEP: Final[Micros] = SECOND // 20
_STEPS_AT_MOST: Final = 5_000
_AT_ONCE: Final = 1_000
_HORIZON: Final[Micros] = 4 * 3_600 * SECOND  # ends are watched for weeks; nothing else takes longer than this
Callback = str  # "once" | "none" | "thrice" | "early"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of operation of one provider: the whole contract, and the contract as this action has it."""

    whole: Contract
    action: str
    contract: Contract

    @property
    def name(self) -> str:
        return f"{self.whole.name} {self.action}" if self.whole.actions else self.whole.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one operation plays: the script of its line, the fate of its job, its callbacks, and when a cancel is asked (seconds)."""

    script: Script = field(default_factory=Script)
    fate: Fate = field(default_factory=Fate)
    callbacks: Callback = "once"
    cancel_after: float | None = None
    create_seconds: int = 900
    result_seconds: int = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """What became of one operation, and what was done for it."""

    operation: Operation
    codes: tuple[str, ...]  # of its history, in order
    jobs: tuple[str, ...]  # that its creates made
    calls: tuple[Made, ...]
    deliveries: tuple[str, ...]  # what the ledger answered to each
    cancel_answer: str = ""

    def made(self, kind: str) -> int:
        """Return how many calls of this kind were made."""
        return sum(call.kind == kind for call in self.calls)


class Clock:
    """The world: time moves when the play moves it, ids come in order, chance is even."""

    def __init__(self) -> None:
        self.time = EPOCH
        self._count = 0

    def now(self) -> Micros:
        return self.time

    def monotonic(self) -> float:
        return (self.time - EPOCH) / SECOND

    def new_id(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count:032x}"

    def new_token(self) -> str:
        self._count += 1
        return f"tok{self._count:029x}"

    def chance(self) -> float:
        return 0.5


class Play:
    """One record, its providers, and what is to happen when."""

    def __init__(self, engines: Engines, contracts: Sequence[Contract], directory: Path) -> None:
        self.clock = Clock()
        self.engines = engines
        self.contracts = {contract.name: contract for contract in contracts}
        self.vault = Vault(bytes(32))
        self._turn = Turn()
        self._parts: dict[str, Part] = {}
        self._of: dict[str, Kind] = {}
        self._scripts: dict[str, Script] = {}
        self._events: list[tuple[Micros, int, Callable[[], None]]] = []
        self._intents: list[Register] = []
        self._answers: dict[str, list[str]] = {}
        self._cancels: dict[str, str] = {}
        self.accounts: dict[str, Account] = {}
        self.lines = {name: self._line() for name in self.contracts}
        accounts = {
            name: Configured(settings=ProviderSettings(name=name, contract=name), contract=contract, transport=self.lines[name])
            for name, contract in self.contracts.items()
        }
        pace = Pace(dict.fromkeys(self.contracts, Limits(concurrency=_AT_ONCE, rate_per_second=1e9)), now=0.0)
        self._performer = Performer(
            world=self.clock,
            store=Store(directory),
            pace=pace,
            accounts=accounts,
            leases=Leases(_NoRecord(), self.clock, lease_seconds=LEASE / SECOND),  # type: ignore[arg-type] # nothing is renewed in no time
            credential=lambda _: "secret",
            public_url="https://hooks.example.com",
            actor="worker",
        )

    def _line(self) -> Line:
        line = Line(lambda operation: self._account(self._of[operation]), self._turn, self._scripts, self.clock.now)
        line.created = self._created
        return line

    def _account(self, kind: Kind) -> Account:
        if kind.name not in self.accounts:
            self.accounts[kind.name] = Account(
                kind.whole, now=self.clock.now, fate=lambda _: self._parts[self._turn.operation].fate, action=kind.action
            )
        return self.accounts[kind.name]

    # --- what is played

    def add(self, number: int, kind: Kind, part: Part) -> str:
        """Register one operation. A contract without a create has its job made elsewhere, and adopted."""
        contract = kind.contract
        identity = f"op_{number:032x}"
        self._parts[identity], self._scripts[identity], self._of[identity] = part, part.script, kind
        job, mode = None, Mode.SEND
        if contract.create is None:
            self._turn.operation, mode = identity, Mode.ADOPT
            job = self._account(kind).make(identity).named.job
            self.lines[contract.name].jobs[identity].append(job)
        intent = Intent(
            id=identity,
            owner="acme",
            subject="agent",
            provider=contract.name,
            action=kind.action,
            mode=mode,
            origin=contract.origin,
            contract_digest=contract.digest,
            idempotency_token=f"token-{number:026x}",
            trace_id=f"{number + 1:032x}",
            request_fingerprint=f"sha256:{number:064x}",
            create_seconds=part.create_seconds,
            result_seconds=part.result_seconds,
            cancel_seconds=300,
            collect_seconds=300,
            idempotency_key=f"key-{number}",
            reference=f"ref-{number}",
            remote_job_id=job,
            request=None if job else _request(contract),
        )
        self._intents.append(Register(intent=intent, now=self.clock.time))
        if job:
            self._created(identity, job)
        if part.cancel_after is not None:
            self._at(part.cancel_after, lambda: self._cancel(identity))
        return identity

    def run(self) -> None:
        """Play until nothing is owed any more, or only ends are watched."""
        self._tx(register, *self._intents)
        asyncio.run(self._run())

    async def _run(self) -> None:
        for _ in range(_STEPS_AT_MOST):
            while self._events and self._events[0][0] <= self.clock.time:
                heapq.heappop(self._events)[2]()
            if await self._errands():
                continue
            following = [time for time in (self._next_due(), self._events[0][0] if self._events else None) if time is not None]
            if not following:
                return
            due = max(min(following), self.clock.time + 1)
            if due > EPOCH + _HORIZON:
                return
            self.clock.time = due + (EPOCH - due) % _GRID
        raise AssertionError("the play does not come to an end")

    async def _errands(self) -> int:
        command = ClaimWork(
            worker="w1", room=dict.fromkeys(self.contracts, _AT_ONCE), limit=_AT_ONCE, lease=LEASE, send_budget=10 * SECOND,
            now=self.clock.time, chance=0.5,
        )  # fmt: skip
        (work,) = self._tx(claim, command)
        self.clock.time += _STEP  # a call begins after its claim, and ends before it is settled
        settled: list[Settle] = []
        deferred: list[Defer] = []
        for item in work.items:
            match await self._performed(item):
                case Settle() as done:
                    settled.append(done)
                case Defer() as later:
                    deferred.append(later)
                case None:
                    raise AssertionError("no lease can be lost here")
        self.clock.time += _STEP
        if settled:
            self._tx(settle, *settled)
        if deferred:
            self._tx(defer, *deferred)
        return len(work.items)

    async def _performed(self, item: Claimed) -> Settle | Defer | None:
        self._turn.operation, self._turn.errand = item.operation.id, item.errand
        taken = self.clock.monotonic()
        return await asyncio.create_task(self._performer.perform(item, taken, taken + 30))

    def _next_due(self) -> Micros | None:
        with self.engines.look() as connection:
            found = connection.execute(sa.select(sa.func.min(operations.c.due_at))).scalar()
        return None if found is None else int(found)

    # --- cancels and callbacks

    def _at(self, seconds: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.clock.time + round(seconds * SECOND), len(self._events) + id(what), what))

    def _cancel(self, identity: str) -> None:
        evidence = CancelAsked(by="agent", reason="no longer wanted")
        command = Petition(operation_id=identity, owner="acme", actor="agent", evidence=evidence, now=self.clock.time, chance=0.5)
        answer: Petitioned = self._tx(petition, command)[0]
        self._cancels[identity] = answer.code or answer.outcome

    def _created(self, identity: str, job: str) -> None:
        part = self._parts[identity]
        contract = self._of[identity].whole
        if not contract.signatures or not contract.event.job_id or part.callbacks == "none":
            return
        if part.callbacks == "early":
            self._deliver(identity, contract, job)
        if part.fate.runs is not None:
            for copy in range(3 if part.callbacks == "thrice" else 1):
                self._at(part.fate.queued + part.fate.runs + 0.5 + copy * 7, lambda: self._deliver(identity, contract, job))

    def _deliver(self, identity: str, contract: Contract, job: str) -> None:
        """Ingest a callback about `job`, mapped from the contract's own genuine sample."""
        about = [s for s in contract.samples if s.get("expect") == "valid" and _event_of(s).get("remote_job_id")]
        sample = next((s for s in about if _event_of(s).get("client_reference")), about[0])
        said = _event_of(sample)
        # Every callback of another job is another event; copies of one are the same.
        pairs = {
            said.get("event_id", ""): f"{said.get('event_id', '')}{int(identity[3:], 16):05d}",
            said.get("client_reference", ""): identity,
        }
        text = _Words({old: new for old, new in (pairs | {said["remote_job_id"]: job}).items() if old})
        told = {key: text.all(sample[key]) for key in ("method", "url", "headers", "body", "body_base64") if key in sample}
        request = request_of(told)
        event = next(event for event in events(contract, request, request.body) if event.remote_job_id == job)
        delivery = Delivery(
            id=self.clock.new_id("dlv_"), provider=contract.name, received_at=self.clock.time, event=event, secret_id="s1", scheme_id="v1",
            body=request.body,
        )  # fmt: skip
        answer: Ingested = self._tx(ingest, Ingest(delivery=delivery, now=self.clock.time))[0]
        self._answers.setdefault(identity, []).append(str(answer.status))

    # --- the record

    def _tx(self, function: Callable[[Transaction, list[Any]], list[Any]], *commands: Any) -> list[Any]:
        with self.engines.begin() as connection:
            return function(Transaction(connection, self.vault, self.contracts), list(commands))

    def end(self, identity: str) -> End:
        """Return what became of one operation."""
        with self.engines.look() as connection:
            view = View(connection, self.vault)
            operation = queries.operation(view, identity, None)
            rows = queries.history(view, identity, 0, 500)
        assert operation is not None
        line = self.lines[operation.provider]
        return End(
            operation=operation,
            codes=tuple(str(row["code"]) for row in rows),
            jobs=tuple(line.jobs[identity]),
            calls=tuple(line.calls[identity]),
            deliveries=tuple(self._answers.get(identity, ())),
            cancel_answer=self._cancels.get(identity, ""),
        )

    def faults(self) -> tuple[Mapping[str, int], list[Fault]]:
        """Return what the self-audit and the chain's verification find."""
        with self.engines.look() as connection:
            view = View(connection, self.vault)
            return self_audit(view, self.clock.time), [item for item in verify(view) if isinstance(item, Fault)]


def _request(contract: Contract) -> bytes:
    """Return a request with all that the contract takes out of it."""
    assert contract.create is not None
    members = {name: f"{name}-1" for name in (*contract.create.take, *contract.create.keep)}
    return json.dumps({"input": {"text": "x"}, **members}).encode()


class _NoRecord:
    """Nothing is renewed: no errand takes any time here."""


class _Words:
    """Replaces words in a sample, in all its texts."""

    def __init__(self, pairs: Mapping[str, str]) -> None:
        self._pairs = pairs
        self._pattern = re.compile("|".join(map(re.escape, pairs)))

    def all(self, value: Any) -> Any:
        match value:
            case str():
                return self._pattern.sub(lambda found: self._pairs[found[0]], value)
            case dict():
                return {key: self.all(item) for key, item in value.items()}
            case list():
                return [self.all(item) for item in value]
            case _:
                return value


def _event_of(sample: Mapping[str, Any]) -> Mapping[str, str]:
    event = sample.get("event", {})
    first = event[0] if isinstance(event, list) else event
    return {key: str(value) for key, value in first.items()}

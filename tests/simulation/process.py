"""A process that may crash: it runs tasks step by step, and commits through one writer, one kind of command at a time.

A task is a generator. It yields a Pause (here it may be slow, stall or die with its process), a Send or a Commit, and is
sent back what came of it. After a crash nothing of the process goes on; another one with another name, or the same, starts.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Final

from ledger.ingest import ingest
from ledger.leases import claim, defer
from ledger.petition import petition
from ledger.register import register
from ledger.settle import settle
from ledger.sweep import sweep
from schemas.commands import ClaimWork, Defer, Ingest, Petition, Register, Settle, Sweep
from schemas.http import HttpRequest, Outcome
from schemas.operation import SECOND, Micros
from schemas.states import Errand
from tests.simulation.record import Crash, Record
from tests.simulation.wire import Wire
from tests.simulation.world import World

LEASE: Final[Micros] = 45 * SECOND
_FUNCTIONS: Final[dict[type, Any]] = {
    Register: register, Ingest: ingest, Petition: petition, Settle: settle, Defer: defer, ClaimWork: claim, Sweep: sweep,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pause:
    """A point where time may pass and the process may die."""

    where: str


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request; sent back is its Outcome."""

    wire: Wire
    request: HttpRequest
    errand: Errand
    send_by: float | None
    departs: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit one command; sent back is its answer."""

    command: Any


Step = Pause | Send | Commit
Task = Generator[Step, Any, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Temper:
    """How hostile the machine is: chances of a crash at a point, of a stall past the lease, of a crash around a commit."""

    crash: float
    stall: float
    commit_crash: float


class Process:
    """One process. `restart` is called after a crash and starts its successor."""

    def __init__(self, world: World, record: Record, name: str, temper: Temper, restart: Callable[["Process"], None]) -> None:
        self.world, self.record, self.name, self.temper = world, record, name, temper
        self.alive = True
        self.tasks = 0
        self._restart = restart
        self._waiting: dict[type, list[tuple[Any, Callable[[Any], None]]]] = {}
        self._flush_due = False

    def start(self, task: Task) -> None:
        self.tasks += 1
        self._advance(task, None)

    def crash(self, where: str) -> None:
        if self.alive:
            self.world.tell("%s dies: %s", self.name, where)
            self.alive = False
            self._restart(self)

    def _advance(self, task: Task, value: Any) -> None:
        if not self.alive:
            return
        try:
            step = task.send(value)
        except StopIteration:
            self.tasks -= 1
            return
        match step:
            case Pause(where=where):
                self._pause(task, where)
            case Send(wire=wire, request=request, errand=errand, send_by=send_by, departs=departs):
                wire.send(request, errand, lambda outcome: self._seen(task, outcome), send_by=send_by, departs=departs)
            case Commit(command=command):
                self._submit(command, lambda answer: self._advance(task, answer))

    def _pause(self, task: Task, where: str) -> None:
        world = self.world
        if world.hit(self.temper.crash):
            self.crash(where)
            return
        seconds = world.between(0.0005, 0.05)
        if world.hit(self.temper.stall):
            seconds = LEASE / SECOND * world.between(0.3, 2.5)
            world.tell("%s stalls for %.1f s: %s", self.name, seconds, where)
        world.after(seconds, lambda: self._advance(task, None))

    def _seen(self, task: Task, outcome: Outcome) -> None:
        if self.alive and self.world.hit(self.temper.crash):
            self.crash("after the provider executed, before the answer is seen")
        self._advance(task, outcome)

    def _submit(self, command: Any, answered: Callable[[Any], None]) -> None:
        self._waiting.setdefault(type(command), []).append((command, answered))
        if not self._flush_due:
            self._flush_due = True
            seconds = self.world.between(0.0005, 0.01)
            if self.world.hit(self.temper.stall / 4):
                seconds = self.world.between(0.1, LEASE / SECOND * 1.5)  # the database is busy, or the whole process is paused
                self.world.tell("%s waits %.1f s for its commit", self.name, seconds)
            self.world.after(seconds, self._flush)

    def _flush(self) -> None:
        """Commit what waits, together, one kind per transaction."""
        self._flush_due = False
        waiting, self._waiting = self._waiting, {}
        for kind in sorted(waiting, key=lambda item: item.__name__):
            if not self.alive:
                return
            commands = [command for command, _ in waiting[kind]]
            self.world.tell("%s commits %s %s", self.name, kind.__name__, [_brief(command) for command in commands])
            try:
                answers, dies = self.record.transact(kind.__name__, _FUNCTIONS[kind], commands, crash=self.temper.commit_crash)
            except Crash:
                self.crash(f"before the commit of {kind.__name__}")
                return
            if dies:
                self.crash(f"after the commit of {kind.__name__}")
                return
            for (_, answered), answer in zip(waiting[kind], answers, strict=True):
                answered(answer)


def _brief(command: Any) -> str:
    match command:
        case Settle():
            return f"{command.operation_id[-3:]} fence {command.fence} {command.evidence}"
        case Petition():
            return f"{command.operation_id[-3:]} {command.evidence}"
        case Ingest():
            event = command.delivery.event
            return f"{event.event_id} {event.remote_job_id} {event.claimed_state}"
        case Register():
            return f"{command.intent.id[-3:]} {command.intent.mode} {command.intent.provider}"
        case _:
            return type(command).__name__

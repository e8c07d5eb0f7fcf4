"""One seed from beginning to end: two or three workers, a web process, five providers, callers, people, faults; then calm.

`tell` runs a story and returns it; a broken invariant is a BrokenInvariantError. What a story is made of is drawn from its seed
and from nothing else, so that `SIMULATION_SEED=N python -m pytest tests/simulation` tells it again.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Final

from ledger.leases import claim
from ledger.transaction import Transaction
from schemas.commands import Claimed, ClaimWork, Sweep
from schemas.http import HttpRequest
from schemas.operation import SECOND, Micros
from schemas.states import ACTING, Errand
from tests.simulation.accounts import KINDS, contract
from tests.simulation.callbacks import Postman
from tests.simulation.callers import Callers
from tests.simulation.checkers import Checkers
from tests.simulation.process import LEASE, Commit, Process, Task, Temper
from tests.simulation.record import Intruder, Record
from tests.simulation.remote import Remote
from tests.simulation.wire import SEND_BUDGET, Wire
from tests.simulation.worker import Desk, reconcile
from tests.simulation.world import EPOCH, BrokenInvariantError, World

_STEPS_AT_MOST: Final = 20_000
_COMMITS_AT_MOST: Final = 1_500
_HORIZON: Final[Micros] = 60 * 86_400 * SECOND
_SWEEP_SECONDS: Final = 600.0
_MILD: Final = Temper(crash=0.004, stall=0.01, commit_crash=0.004)
_HARSH: Final = Temper(crash=0.03, stall=0.08, commit_crash=0.03)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a story may be told without (tests/simulation/test_guards.py), and how plainly."""

    send_by: bool = True
    same_token: bool = True
    confirmations: int = 2
    intruders: float = 0.0  # chance that another writer comes between the reading and the writing of a transaction
    unique_deliveries: bool = True
    harsh: bool | None = None  # None: as the seed says
    plain: bool = False  # nothing whose end depends on timing
    callbacks: int = 0  # which of the possible sets of callbacks
    kinds: tuple[str, ...] = KINDS


@dataclass(slots=True)
class Story:
    """What is left when a story has been told."""

    world: World
    ends: dict[str, tuple[str, str | None]] = field(default_factory=dict)  # operation -> state and error code
    commits: int = 0
    conflicts: int = 0
    fault: BrokenInvariantError | None = None

    def report(self, lines: int) -> str:
        seed = self.world.seed
        story = "\n".join(self.world.story(lines))
        return f"{story}\n{self.fault}\nAgain: SIMULATION_SEED={seed} python -m pytest tests/simulation -k replay -s"


def tell(seed: int, options: Options | None = None) -> Story:
    """Tell one story. A broken invariant is in its `fault`."""
    stage = _Stage(seed, options or Options())
    story = Story(stage.world)
    try:
        stage.run()
    except BrokenInvariantError as fault:
        story.fault = fault
    except AssertionError as error:  # an assertion of the house: the checker named H
        story.fault = BrokenInvariantError("H", f"{type(error).__name__}: {error}")
        story.fault.__cause__ = error
    except Exception as error:  # noqa: BLE001 - whatever the house raises is a finding of this seed
        story.fault = BrokenInvariantError("X", f"{type(error).__name__}: {error}")
        story.fault.__cause__ = error
    story.ends = {row["id"]: (row["state"], row["error_code"]) for row in stage.checkers.rows.values()}
    story.commits, story.conflicts = stage.checkers.steps, stage.record.conflicts
    return story


class _Stage:
    """Everything of one story, and its scheduler."""

    def __init__(self, seed: int, options: Options) -> None:
        world = self.world = World(seed)
        self.options = options
        random = world.random
        self.contracts = {
            kind: contract(kind, random, confirmations=options.confirmations, plain=options.plain)
            for kind in random.sample(options.kinds, min(2, len(options.kinds)))
        }
        mild = random.random() < 0.4 if options.harsh is None else not options.harsh
        self.temper = _MILD if mild else _HARSH
        self.record = Record(world, self.contracts, unique_deliveries=options.unique_deliveries)
        self.edge: list[Process] = []
        self.postman = Postman(world, Random(f"{seed} callbacks {options.callbacks}"), self.edge)
        self.remotes = {kind: self._remote(kind) for kind in self.contracts}
        self.wires = {kind: Wire(world, remote, check_send_by=options.send_by) for kind, remote in self.remotes.items()}
        self.callers = Callers(world, self.remotes, self.wires, self.edge, plain=options.plain)
        self.checkers = Checkers(world, self.record, self.remotes, self.callers, self.postman)
        self.record.after = self.checkers.after_commit
        self.record.begins = self.checkers.glimpsed.clear
        self.desk = Desk(
            world=world,
            wires=self.wires,
            contracts=self.contracts,
            store={},
            departs=self._departs,
            begins=self._begins,
            same_token=options.same_token,
        )
        self.workers: list[Process] = []
        self.idle: set[str] = set()
        self.woken: Micros = 0  # no further worker is woken before this
        self.names = 0

    def _remote(self, kind: str) -> Remote:
        return Remote(self.world, self.contracts[kind], {}, lambda job, reading: self.postman.announce(kind, job, reading))

    # --- the scheduler

    def run(self) -> None:
        world, random = self.world, self.world.random
        self.edge.append(Process(world, self.record, "web", self.temper, self._restart_edge))
        for _ in range(random.choice((2, 2, 3))):
            self._hire(f"worker-{len(self.workers)}")
        for number in range(random.choice((1, 1, 2, 3))):
            self.callers.plan(number)
        if random.random() < 0.1:
            world.after(random.uniform(0, 300), lambda: self.postman.forge(next(iter(self.contracts)), "job-of-nobody"))
        calm_at = world.time + round(random.choice((200, 900, 2_000)) * SECOND)
        world.at(calm_at, self._calm)
        self._sweep_later()
        for _ in range(_STEPS_AT_MOST):
            if not self._step():
                break
        else:
            raise BrokenInvariantError("E", "the story has no end: something runs hot")
        self.checkers.at_the_end()

    def _step(self) -> bool:
        world = self.world
        if self.options.intruders:
            self.record.intruder = self._claimer() if world.hit(self.options.intruders) else None
        if self.checkers.steps > _COMMITS_AT_MOST:
            raise BrokenInvariantError("E", f"{self.checkers.steps} commits: something runs hot")
        due, queued = self._due_at(), world.next_at()
        wake = None if due is None else max(due, self.woken)
        if self.idle and wake is not None and (queued is None or wake <= queued):
            if wake > EPOCH + _HORIZON:
                return False
            world.time = max(world.time, wake)
            self._wake()
            return True
        if queued is None or queued > EPOCH + _HORIZON or (world.calm and due is None and self._quiet()):
            return False
        world.take()()
        return True

    def _quiet(self) -> bool:
        """Say whether nothing but the endless sweep is left to do."""
        return not self.world.pending() and len(self.idle) == len(self.workers)

    def _due_at(self) -> Micros | None:
        return min((row["due_at"] for row in self.checkers.rows.values() if row["due_at"] is not None), default=None)

    def _calm(self) -> None:
        self.world.tell("calm: no more faults")
        self.world.calm = True

    # --- processes

    def _hire(self, name: str) -> None:
        process = Process(self.world, self.record, name, self.temper, self._replace)
        self.workers.append(process)
        self.idle.add(name)

    def _wake(self) -> None:
        name = self.world.random.choice(sorted(self.idle))
        self.idle.discard(name)
        # Mostly one worker goes for what is due; at times several race for it.
        self.woken = self.world.time + (SECOND // 10 if self.world.random.random() < 0.75 else 0)
        process = next(worker for worker in self.workers if worker.name == name)
        process.start(reconcile(process, self.desk, lambda: self._rest(process)))

    def _rest(self, process: Process) -> None:
        """Let a worker that found nothing look again, a little later: what is due may be leased or without room."""
        self.world.after(self.world.between(0.01, 1.0), lambda: self.idle.add(process.name) if process.alive else None)

    def _replace(self, dead: Process) -> None:
        self.workers.remove(dead)
        self.idle.discard(dead.name)
        name = dead.name
        if self.world.random.random() < 0.6:
            self.names += 1
            name = f"worker-{self.names}-new"
        self.world.after(self.world.between(0.1, 30), lambda: self._hire(name))

    def _restart_edge(self, dead: Process) -> None:
        del dead
        self.edge[0] = Process(self.world, self.record, "web", self.temper, self._restart_edge)

    def _sweep_later(self) -> None:
        def again() -> None:
            self._sweep_now()
            self._sweep_later()

        self.world.after(_SWEEP_SECONDS, again, quiet=True)

    def _sweep_now(self) -> None:
        self.edge[0].start(self._sweep())

    def _sweep(self) -> Task:
        yield Commit(Sweep(now=self.world.now(), limit=50, chance=self.world.chance()))

    # --- what the checkers want to know

    def _begins(self, operation: str) -> None:
        self.checkers.begun[operation] = self.world.time

    def _departs(self, claimed: Claimed, request: HttpRequest) -> None:
        acts = claimed.errand in ACTING
        token = next((value for name, value in request.headers if name == "Idempotency-Key"), "") if claimed.errand is Errand.CREATE else ""
        self.checkers.sends(claimed.operation.id, claimed.attempt_id, acts=acts, token=token)

    def _claimer(self) -> Intruder:
        """Return another process's claim, which dies right after its commit."""

        def intrude(tx: Transaction) -> None:
            work = ClaimWork(
                worker="intruder",
                room=dict.fromkeys(self.contracts, 4),
                limit=4,
                lease=LEASE,
                send_budget=SEND_BUDGET,
                now=self.world.now(),
                chance=0.5,
            )
            claim(tx, [work])
            self.checkers.glimpse()

        return intrude

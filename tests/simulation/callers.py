"""Callers and people: they register (twice at once), cancel, refresh, report their own creates, and answer questions."""

from dataclasses import dataclass, field, replace
from typing import Any, Final

from lifecycle.questions import ANSWERS
from schemas.commands import Intent, Petition, Register
from schemas.evidence import Answered, CancelAsked, Evidence, RefreshAsked, Reported
from schemas.operation import Operation
from schemas.states import Answer, Mode, Question
from tests.simulation.accounts import ORIGIN
from tests.simulation.process import Commit, Pause, Process, Task
from tests.simulation.remote import Remote, draw_fate
from tests.simulation.wire import Wire
from tests.simulation.world import BrokenInvariantError, World

_ANSWERS_AT_MOST: Final = 5


@dataclass(slots=True)
class Callers:
    """Everybody who asks something of the gateway."""

    world: World
    remotes: dict[str, Remote]
    wires: dict[str, Wire]
    edge: list[Process]
    plain: bool  # nothing whose outcome depends on timing: no cancel, no approval, no external create
    acknowledged: dict[str, str] = field(default_factory=dict)  # operation -> its token: registrations that a caller saw
    keys: dict[str, str] = field(default_factory=dict)  # idempotency key -> operation
    requests: int = 0
    answers: dict[str, int] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)  # questions that somebody looks at
    external: set[str] = field(default_factory=set)  # external creates that have not been made yet

    # --- registering

    def plan(self, number: int) -> None:
        """Plan the story of one operation."""
        world, random = self.world, self.world.random
        provider = random.choice(sorted(self.remotes))
        operation = f"op_{number:032x}"
        mode = Mode.SEND
        if not self.plain and random.random() < 0.2:
            mode = random.choice((Mode.EXTERNAL, Mode.ADOPT))
        intent = self._intent(operation, provider, mode, number)
        remote = self.remotes[provider]
        remote.fates[operation] = draw_fate(world, remote.contract, plain=self.plain)
        start = random.choice((0.0, random.uniform(0, 60)))
        if mode is Mode.ADOPT:
            job = remote.make(operation)
            intent = replace(intent, remote_job_id=job.id)
        if mode is Mode.EXTERNAL:
            self.external.add(operation)
        for copy in range(random.choice((1, 1, 2, 3))):
            twin = intent if copy == 0 else self._twin(intent)
            world.after(start + (0 if copy == 0 else random.choice((0.0, 0.01, 20.0))), lambda twin=twin: self.register(twin, 1))  # type: ignore[misc]
        if not self.plain:
            for evidence in self._wishes(operation):
                world.after(start + random.uniform(0.1, 400), lambda evidence=evidence: self._petition(operation, evidence, "owner-a"))  # type: ignore[misc]

    def _wishes(self, operation: str) -> list[Evidence]:
        random = self.world.random
        wishes: list[Evidence] = []
        if random.random() < 0.35:
            wishes += [CancelAsked(by="caller", reason="no longer wanted")] * random.choice((1, 1, 2))
        if random.random() < 0.3:
            wishes.append(RefreshAsked(by="caller"))
        if random.random() < 0.1:
            self.world.after(random.uniform(0, 200), lambda: self._petition(operation, CancelAsked(by="stranger"), "owner-z"))
        return wishes

    def _intent(self, operation: str, provider: str, mode: Mode, number: int) -> Intent:
        random = self.world.random
        return Intent(
            id=operation,
            owner="owner-a",
            subject="agent",
            provider=provider,
            action="create",
            mode=mode,
            origin=ORIGIN,
            contract_digest=provider,
            idempotency_token=f"token-{number:032d}",
            trace_id=f"{number + 1:032x}",
            request_fingerprint="sha256:" + f"{number:064x}",
            create_seconds=random.choice((120, 600)) if not self.plain else 86_400,
            result_seconds=random.choice((300, 3_600)) if not self.plain else 864_000,
            cancel_seconds=random.choice((40, 300)),
            collect_seconds=random.choice((60, 600)) if not self.plain else 86_400,
            approval_seconds=random.choice((30, 600)) if not self.plain and mode is Mode.SEND and random.random() < 0.15 else 0,
            idempotency_key=f"key-{number}",
            request=b'{"input":1}',
        )

    def _fresh(self, intent: Intent) -> Intent:
        """Return the intent with the ids of another request: the edge makes them anew each time."""
        self.requests += 1
        identity = f"{intent.id[:-8]}{self.requests:05x}{intent.id[-3:]}"
        remote = self.remotes[intent.provider]
        remote.fates[identity] = remote.fates[intent.id]  # whichever of them is recorded, it is the same wish
        return replace(intent, id=identity, idempotency_token=f"{intent.idempotency_token}-{self.requests}")

    def _twin(self, intent: Intent) -> Intent:
        """Return the same wish as a racing duplicate brings it: with ids of its own; sometimes another request under the same key.

        Somebody may adopt the same job under another key.
        """
        if intent.mode is Mode.ADOPT and self.world.random.random() < 0.5:
            return replace(self._fresh(intent), idempotency_key=f"{intent.idempotency_key}-again")
        other = self.world.random.random() < 0.2
        return replace(
            self._fresh(intent),
            request_fingerprint="sha256:" + "f" * 64 if other else intent.request_fingerprint,
        )

    def register(self, intent: Intent, number: int) -> None:
        done = [False]

        def task() -> Task:
            yield Pause("the intent is checked, not recorded")
            answer: Any = yield Commit(Register(intent=intent, now=self.world.now()))
            done[0] = True
            self._registered(intent, answer)

        def retry() -> None:
            if not done[0] and (number < 5 or self.world.calm):
                self.register(self._fresh(intent), number + 1)

        # The caller that saw no answer asks again with the same key.
        self.world.after(self.world.between(5, 20), retry)
        self.edge[0].start(task())

    def _registered(self, intent: Intent, answer: Any) -> None:
        world = self.world
        world.tell("%s registered: %s", intent.id[-3:], answer.outcome)
        if answer.outcome == "key_expired":
            raise BrokenInvariantError("1", f"the key of {intent.id} leads to nothing")
        if answer.outcome not in {"created", "replayed"}:
            return
        operation: Operation = answer.operation
        key = intent.idempotency_key or ""
        if self.keys.setdefault(key, operation.id) != operation.id:
            raise BrokenInvariantError("2", f"the key {key} stands for {self.keys[key]} and for {operation.id}")
        self.acknowledged[operation.id] = operation.idempotency_token
        if operation.mode is Mode.EXTERNAL and first(operation.id) in self.external:
            self.external.discard(first(operation.id))
            world.after(world.between(0, 20), lambda: self._create_ourselves(operation))

    def _create_ourselves(self, operation: Operation) -> None:
        """Make the create as the caller's own service, and report what it knows: the truth, or that it does not know."""
        world, remote = self.world, self.remotes[operation.provider]
        chance = world.random.random()
        if chance < 0.2:
            report = Reported(by="service", outcome="not_sent")
        else:
            status, _ = remote.execute(operation.id)
            job = remote.jobs_of(operation.id)[0].id if status == 201 else None
            report = Reported(by="service", outcome="accepted" if job else "rejected", remote_job_id=job)
            if chance < 0.45:
                report = Reported(by="service", outcome="unknown")
        if world.random.random() < 0.2:
            return  # the report is never made
        for _ in range(world.random.choice((1, 2))):
            world.after(world.between(0, 300), lambda: self._petition(operation.id, report, "owner-a"))

    # --- petitions

    def _petition(self, operation: str, evidence: Evidence, owner: str | None, chance: float = 0.5) -> None:
        def task() -> Task:
            yield Pause("the petition is checked, not recorded")
            answer: Any = yield Commit(
                Petition(operation_id=operation, owner=owner, actor="person", evidence=evidence, now=self.world.now(), chance=chance)
            )
            if owner == "owner-z" and answer.outcome != "not_found":
                raise BrokenInvariantError("8", f"a stranger was answered {answer.outcome} about {operation}")
            self.world.tell("petition %s on %s: %s %s", evidence.kind, operation[-3:], answer.outcome, answer.code)

        self.edge[0].start(task())

    # --- people

    def look(self, row: dict[str, Any]) -> None:
        """Let a person look at an open question, once, some time later."""
        question = row["question_id"]
        if question is None or question in self.asked or self.plain:
            return
        self.asked.add(question)
        if self.world.random.random() < 0.75:
            seconds = self.world.random.choice((5.0, self.world.between(10, 200), self.world.between(200, 4_000)))
            self.world.after(seconds, lambda: self._answer(row["id"], question, Question(row["question_kind"]), row["provider"]))

    def _answer(self, operation: str, question: str, kind: Question, provider: str) -> None:
        world, remote = self.world, self.remotes[provider]
        given = self.answers.get(operation, 0)
        self.answers[operation] = given + 1
        jobs = remote.jobs_of(operation)
        pending = self.wires[provider].in_flight > 0 or operation in self.external
        possible = list(ANSWERS[kind])
        if jobs or pending:
            possible = [answer for answer in possible if answer is not Answer.NOT_CREATED]
        if not jobs:
            possible = [answer for answer in possible if answer is not Answer.ADOPT]
        if given >= _ANSWERS_AT_MOST:
            possible = [answer for answer in possible if answer in {Answer.ABANDON, Answer.ACKNOWLEDGE, Answer.DENY}]
        if not possible:
            return
        if kind is Question.APPROVAL:
            possible = [Answer.APPROVE, Answer.APPROVE, Answer.DENY]
        answer = world.random.choice(possible)
        risk = answer is Answer.RESEND and kind is Question.CREATE_UNRESOLVED and world.random.random() < 0.6
        if risk:
            remote.risk_accepted.add(operation)
        self._petition(
            operation,
            Answered(
                by="person",
                question_id=question,
                question=kind,
                answer=answer,
                reason="looked at it",
                remote_job_id=jobs[0].id if answer is Answer.ADOPT else None,
                seconds=world.random.choice((None, 60, 900)) if answer in {Answer.RESUME, Answer.WAIT, Answer.RETRY} else None,
                accept_duplicate_risk=risk,
            ),
            "owner-a",
        )


def first(operation: str) -> str:
    """Return the id that the wish was planned with: twins differ in five digits."""
    return f"{operation[:-8]}00000{operation[-3:]}"

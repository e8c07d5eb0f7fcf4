"""Callbacks of the providers: early, late, repeated, reordered, lost, rewritten under the same id, and sometimes untrue."""

import hashlib
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from schemas.commands import Ingest
from schemas.delivery import Delivery, Event
from schemas.states import Reading
from tests.simulation.accounts import WORD_OF
from tests.simulation.process import Commit, Pause, Process, Task
from tests.simulation.remote import Job
from tests.simulation.world import World

_TRIES: Final = 4
_ECHOES: Final = frozenset({"tokens", "lister"})  # these providers repeat our operation's id in their callbacks


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """One delivery as the provider makes it. `operation`: the echo of our id, empty where the provider has none."""

    provider: str
    job: str
    operation: str
    event_id: str
    claimed: str
    body: str


@dataclass(slots=True)
class Postman:
    """Carries the callbacks. `random` is its own, so that a story can be told again with other deliveries only."""

    world: World
    random: Random
    edge: list[Process]  # the web process of the moment
    acknowledged: dict[tuple[str, str], str] = field(default_factory=dict)  # (provider, dedup key) -> what the ledger said
    hinted: dict[str, int] = field(default_factory=dict)  # operation -> when the last hint was committed
    sent: int = 0
    _done: set[Letter] = field(default_factory=set)

    def announce(self, provider: str, job: Job, reading: Reading) -> None:
        """Tell the gateway, perhaps, that `job` has reached `reading`."""
        random = self.random
        if random.random() < 0.2:
            return
        claimed = random.choice(tuple(WORD_OF.values())) if random.random() < 0.1 else WORD_OF[reading]
        self.sent += 1
        event_id = f"evt-{provider}-{self.sent}"
        delay = random.choice((0.0, random.uniform(0, 1), random.uniform(0, 60), random.uniform(0, 900)))
        copies = random.choice((1, 1, 1, 2, 3))
        for copy in range(copies):
            body = f"{event_id} {job.id} {claimed}"
            if copy and random.random() < 0.2:
                body += " and more"
            late = delay if copy == 0 else delay + random.choice((0.0, random.uniform(0, 300)))
            echo = job.operation if provider in _ECHOES else ""
            letter = Letter(provider=provider, job=job.id, operation=echo, event_id=event_id, claimed=claimed, body=body)
            self.world.after(late, lambda letter=letter: self._post(letter, 1))  # type: ignore[misc]

    def forge(self, provider: str, job_id: str) -> None:
        """Send a genuine delivery about a job that nobody knows."""
        self.sent += 1
        event = f"evt-{provider}-{self.sent}"
        self._post(Letter(provider=provider, job=job_id, operation="", event_id=event, claimed="done", body=event), 1)

    def _post(self, letter: "Letter", number: int) -> None:
        process = self.edge[0]
        again = self.world.between(1, 40)

        def retry() -> None:
            if number < _TRIES and letter not in self._done:
                self._post(letter, number + 1)

        self.world.after(again, retry)  # the provider repeats what nobody acknowledged
        process.start(self._receive(letter))

    def _receive(self, letter: Letter) -> Task:
        world = self.world
        digest = hashlib.sha256(letter.body.encode()).hexdigest()
        event = Event(
            dedup_key="id:" + hashlib.sha256(letter.event_id.encode()).hexdigest(),
            content_sha256=digest,
            event_id=letter.event_id,
            event_type="job.changed",
            remote_job_id=letter.job,
            client_reference=letter.operation,
            claimed_state=letter.claimed,
        )
        yield Pause("the delivery is verified, not stored")
        delivery = Delivery(
            id=world.new_id("dlv"),
            provider=letter.provider,
            received_at=world.now(),
            event=event,
            secret_id="secret-1",
            scheme_id="v1",
            body=letter.body.encode(),
        )
        answer: Any = yield Commit(Ingest(delivery=delivery, now=world.now()))
        self._done.add(letter)
        self.acknowledged[letter.provider, event.dedup_key] = answer.status
        world.tell("2xx for %s: %s", letter.event_id, answer.status)
        if answer.status == "accepted":  # a repetition is no news, and no hint
            self.hinted[answer.operation_id] = max(delivery.received_at, self.hinted.get(answer.operation_id, 0))

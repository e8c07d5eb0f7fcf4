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


@dataclass(slots=True)
class Postman:
    """Carries the callbacks. `random` is its own, so that a story can be told again with other deliveries only."""

    world: World
    random: Random
    edge: list[Process]  # the web process of the moment
    acknowledged: dict[tuple[str, str], str] = field(default_factory=dict)  # (provider, dedup key) -> what the ledger said
    hinted: dict[str, int] = field(default_factory=dict)  # operation -> when the last hint was committed
    sent: int = 0
    _done: set[tuple[str, str, str]] = field(default_factory=set)

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
            self.world.after(late, lambda body=body: self._post(provider, job, event_id, claimed, body, 1))  # type: ignore[misc]

    def forge(self, provider: str, job_id: str) -> None:
        """Send a genuine delivery about a job that nobody knows."""
        self.sent += 1
        event = f"evt-{provider}-{self.sent}"
        stranger = Job(
            id=job_id, operation="", created_at=0, visible_at=0, starts_at=0, ends_at=0, ending=Reading.FAILED, result=b"", cancel=""
        )
        self._post(provider, stranger, event, "done", event, 1)

    def _post(self, provider: str, job: Job, event_id: str, claimed: str, body: str, number: int) -> None:
        process = self.edge[0]
        again = self.world.between(1, 40)

        def retry() -> None:
            if number < _TRIES and (provider, event_id, body) not in self._done:
                self._post(provider, job, event_id, claimed, body, number + 1)

        self.world.after(again, retry)  # the provider repeats what nobody acknowledged
        process.start(self._receive(provider, job, event_id, claimed, body))

    def _receive(self, provider: str, job: Job, event_id: str, claimed: str, body: str) -> Task:
        world = self.world
        digest = hashlib.sha256(body.encode()).hexdigest()
        event = Event(
            dedup_key="id:" + hashlib.sha256(event_id.encode()).hexdigest(),
            content_sha256=digest,
            event_id=event_id,
            event_type="job.changed",
            remote_job_id=job.id,
            client_reference=job.operation if provider in _ECHOES else "",
            claimed_state=claimed,
        )
        yield Pause("the delivery is verified, not stored")
        delivery = Delivery(
            id=world.new_id("dlv"),
            provider=provider,
            received_at=world.now(),
            event=event,
            secret_id="secret-1",
            scheme_id="v1",
            body=body.encode(),
        )
        answer: Any = yield Commit(Ingest(delivery=delivery, now=world.now()))
        self._done.add((provider, event_id, body))
        self.acknowledged[provider, event.dedup_key] = answer.status
        world.tell("2xx for %s: %s", event_id, answer.status)
        if answer.status == "accepted":  # a repetition is no news, and no hint
            self.hinted[answer.operation_id] = max(delivery.received_at, self.hinted.get(answer.operation_id, 0))

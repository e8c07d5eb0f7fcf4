"""Killing under load: a client that creates and delivers, a killer with SIGKILL, and the counts of what must not be.

The client knows only what a caller knows. It asks again after every connection error and every 5xx, with the same key or the
same event id, and writes down what was acknowledged by a 2xx. What the record and the provider say is compared with that.
"""

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from ledger.audit import self_audit, verify
from schemas.states import FINAL, PARKED
from tests.cli.stage import Running
from tests.processes.remote import LIMIT_SECONDS, Remote
from tests.processes.town import WORLD, Town, signed, until

KILL_AFTER_SECONDS = (0.3, 1.5)  # after a start: between the first request served and well into the work
PAUSE_SECONDS = 0.02  # between a client's requests: the processes share two processors with it
AGAIN_SECONDS = 0.1  # before it asks again
# What the provider does to an operation; most of them meet nothing unusual.
FAULTS: Sequence[tuple[str, ...]] = (
    (), (), (), (), (),
    ("drop_create_response",),
    ("create_500_though_done",),
    ("early_callback",),
    ("duplicate_callbacks=2",),
    ("lose_callbacks",),
    ("lie_then_correct",),
    ("cut_result=1",),
    ("html_200=1",),
    ("sync_success",),
    ("fail",),
    ("run=1.5", "complete_during_cancel"),
)  # fmt: skip


@dataclass(slots=True)
class Load:
    """A client of several threads. `addresses` are tried in turn; `operations` and `deliveries` are what was acknowledged."""

    addresses: Sequence[str]
    key: str
    seed: int
    limit: int  # operations to create at most: what settles within the time of a test
    operations: dict[str, str] = field(default_factory=dict)  # idempotency key -> operation id
    deliveries: dict[str, str] = field(default_factory=dict)  # event id -> delivery id
    again: Counter[str] = field(default_factory=Counter)  # why something was asked again
    wrong: list[str] = field(default_factory=list)  # answers that no caller may get
    stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        """Begin: two threads that create, two that deliver."""
        for number in range(2):
            self._threads.append(threading.Thread(target=self._create, args=(number,), daemon=True))
            self._threads.append(threading.Thread(target=self._deliver, args=(number,), daemon=True))
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Stop; what was asked and not acknowledged is asked until it is."""
        self.stop.set()
        for thread in self._threads:
            thread.join(LIMIT_SECONDS)
            assert not thread.is_alive(), "a client never got its answer"

    def _create(self, number: int) -> None:
        with httpx.Client(verify=False, timeout=10, headers={"Authorization": f"Bearer {self.key}"}) as client:  # noqa: S501 - loopback
            self._create_with(client, number)

    def _create_with(self, client: httpx.Client, number: int) -> None:
        chance = random.Random(self.seed * 10 + number)
        for count in range(self.limit // 2):
            if self.stop.wait(PAUSE_SECONDS):
                return
            key = f"key-{number}-{count}"
            body = {"provider": "reports", "request": {"kind": key, "rows": 5, "simulate": list(chance.choice(FAULTS))}}
            ask = self._asking(client, "/v1/operations", json=body, headers={"Idempotency-Key": key})
            operation = str(self._insist(ask).json()["id"])
            self.operations[key] = operation
            if chance.random() < 0.1 and self._insist(ask).json()["id"] != operation:  # asked again although it was acknowledged
                self.wrong.append(f"{key}: two operations")
            if chance.random() < 0.1:
                self._insist(self._asking(client, f"/v1/operations/{operation}/cancel", json={}), also=409)  # 409: it is final

    def _deliver(self, number: int) -> None:
        with httpx.Client(verify=False, timeout=10) as client:  # noqa: S501 - loopback
            self._deliver_with(client, number)

    def _deliver_with(self, client: httpx.Client, number: int) -> None:
        chance = random.Random(self.seed * 10 + 5 + number)
        count = 0
        while not self.stop.wait(PAUSE_SECONDS):
            count += 1
            known = list(self.operations.values())
            event = f"evt-{number}-{count}"
            if known and chance.random() < 0.8:
                headers, body = signed(event, "", chance.choice(["running", "succeeded", "failed"]), reference=chance.choice(known))
            else:
                headers, body = signed(event, f"rep_unknown_{chance.randrange(50)}")
            answer = self._insist(self._asking(client, "/webhooks/reports", content=body, headers=headers))
            self.deliveries[event] = str(answer.json()["delivery"])

    @staticmethod
    def _asking(client: httpx.Client, path: str, **request: Any) -> Callable[[str], httpx.Response]:
        return lambda base: client.post(f"{base}{path}", **request)

    def _insist(self, ask: Callable[[str], httpx.Response], also: int = 0) -> httpx.Response:
        """Ask until there is an answer, as a caller with retries does."""
        end = time.monotonic() + LIMIT_SECONDS
        for attempt in range(100_000):
            base = self.addresses[attempt % len(self.addresses)]
            try:
                answer = ask(base)
            except httpx.TransportError as error:
                self.again[type(error).__name__] += 1
            else:
                if answer.is_success or answer.status_code == also:
                    return answer
                self.again[str(answer.status_code)] += 1
                if answer.status_code < 500 and answer.status_code != 429:
                    self.wrong.append(f"{answer.status_code}: {answer.text[:200]}")
            assert time.monotonic() < end, "never acknowledged"
            threading.Event().wait(AGAIN_SECONDS)
        raise AssertionError("never acknowledged")


def kill(start: Callable[[], contextlib.AbstractContextManager[Running]], times: int, chance: random.Random) -> float:
    """Start a process, kill it at a random moment, `times` over. Return the seconds that it served."""
    served = 0.0
    for _ in range(times):
        with start() as running:
            pause = chance.uniform(*KILL_AFTER_SECONDS)
            threading.Event().wait(pause)  # the moment is the point: no condition marks it
            running.process.kill()
            running.process.wait(LIMIT_SECONDS)
            served += pause
    return served


def settle(town: Town, seconds: float = LIMIT_SECONDS) -> Counter[str]:
    """Wait until every operation rests, and return the states. It needs a process that runs."""
    resting = {str(state) for state in FINAL | PARKED}

    def rests() -> bool:
        return not set(states(town)) - resting

    until(rests, "everything settles", seconds)
    return states(town)


def states(town: Town) -> Counter[str]:
    """Return how many operations are in which state."""
    return Counter({row["state"]: row["n"] for row in town.rows("SELECT state, count(*) AS n FROM operations GROUP BY state")})


def verdict(town: Town, remote: Remote, load: Load) -> Mapping[str, int]:
    """Return the counts of what must not be: each is 0 where the promises hold."""
    recorded = {row["idempotency_key"]: row["id"] for row in town.rows("SELECT id, idempotency_key FROM operations")}
    received: dict[str, list[str]] = {}
    for row in town.rows("SELECT id, event_id FROM deliveries"):
        received.setdefault(row["event_id"], []).append(row["id"])
    applied = town.rows(
        "SELECT cause_id, count(*) AS n FROM history WHERE cause = 'delivery' AND cause_id <> ''"
        " GROUP BY operation, cause_id, code = 'named_by_delivery'"  # the one row of a fold that also took the job which it names
    )
    resting = {str(state) for state in FINAL | PARKED}
    faults = town.record.read_now(lambda view: [found for found in verify(view) if not isinstance(found, int)])
    audit: Mapping[str, Any] = town.record.read_now(self_audit, WORLD.now())
    return {
        "operations acknowledged but absent": sum(recorded.get(key) != operation for key, operation in list(load.operations.items())),
        "deliveries acknowledged but absent": sum(found not in received.get(event, ()) for event, found in list(load.deliveries.items())),
        "deliveries stored twice": sum(len(ids) > 1 for ids in received.values()),
        "deliveries applied twice": sum(row["n"] > 1 for row in applied),
        "second remote jobs": sum(count > 1 for count in remote.jobs_of_operations().values()),
        "unsettled": sum(count for state, count in states(town).items() if state not in resting),
        "quarantined": states(town)["quarantined"],
        "self-audit": sum(audit.values()),
        "chain and fold": len(faults),
        "wrong answers": len(load.wrong),
    }

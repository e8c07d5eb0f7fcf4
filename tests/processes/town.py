"""A town for process tests: a provider, a database, a folder with a configuration, and real processes of the house."""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx
import sqlalchemy as sa

from cli.world import RealWorld
from gateway.keys import SCOPES, new_key
from ledger import queries
from ledger.audit import self_audit, verify
from ledger.keyfile import load_or_create_keys
from ledger.ledger import Ledger
from ledger.vault import Vault
from schemas.commands import AddKey
from simulator.signing import standard_webhook
from tests.cli.stage import SECRET, Running, Stage, free_port, reports
from tests.processes.remote import LIMIT_SECONDS, Remote

T = TypeVar("T")
OWNER = "acme"
WORLD = RealWorld()
# Leases of two seconds, so that a test need not wait for long ones; the parts keep their proportions.
BRISK = {
    "GATEWAY_CLOCKWORK__LEASE_SECONDS": "2",
    "GATEWAY_CLOCKWORK__SEND_BUDGET_SECONDS": "0.5",
    "GATEWAY_CLOCKWORK__SEND_MARGIN_SECONDS": "0.2",
    "GATEWAY_CLOCKWORK__POLL_SECONDS": "0.2",
}


def until(condition: Callable[[], T], what: str, seconds: float = LIMIT_SECONDS) -> T:
    """Wait for a condition to hold, asking again as fast as it answers, and return what it answered."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.005)  # what is waited for is in another process and has no event here; the others need the processor
    raise AssertionError(f"never came to hold: {what}")


@dataclass(slots=True)
class Town:
    """Everything of one test. `key` opens the API to all scopes of one owner."""

    stage: Stage
    remote: Remote
    url: str
    port: int
    record: Ledger
    key: str
    logs: list[Running] = field(default_factory=list)

    @property
    def address(self) -> str:
        """Return where callbacks come, and where `serve` listens unless told otherwise."""
        return f"http://127.0.0.1:{self.port}"

    @contextlib.contextmanager
    def running(self, role: str = "serve", *, port: int | None = None, **environment: str) -> Iterator[Running]:
        """Run `serve`, `web` or `reconcile` and wait until it has started."""
        with self.begun(role, port=port, **environment) as running:
            running.event("house.started")
            yield running

    @contextlib.contextmanager
    def begun(self, role: str = "serve", *, port: int | None = None, **environment: str) -> Iterator[Running]:
        """Run a process and do not wait for its start."""
        options = () if role == "reconcile" else ("--port", str(self.port if port is None else port))
        with self.stage.running(role, *options, **environment) as running:
            self.logs.append(running)
            yield running

    def api(self, address: str | None = None) -> httpx.Client:
        """Return a client of the API."""
        return httpx.Client(base_url=address or self.address, headers={"Authorization": f"Bearer {self.key}"}, timeout=30, verify=False)  # noqa: S501 - loopback

    def rows(self, statement: str, **values: Any) -> list[Mapping[str, Any]]:
        """Return what an SQL query finds in the record."""
        with self.record.engines.look() as connection:
            return [dict(row) for row in connection.execute(sa.text(statement), values).mappings()]

    def row(self, operation: str) -> Mapping[str, Any]:
        """Return the record of an operation."""
        (found,) = self.rows("SELECT * FROM operations WHERE id = :id", id=operation)
        return found

    def history(self, operation: str) -> list[Mapping[str, Any]]:
        """Return the history of an operation."""
        return self.record.read_now(queries.history, operation, 0, 500)

    def states(self, operation: str) -> list[str]:
        """Return the states that an operation went through."""
        found: list[str] = []
        for row in self.history(operation):
            if not found or found[-1] != row["to_state"]:
                found.append(str(row["to_state"]))
        return found

    def settled(self, operation: str, state: str = "succeeded", seconds: float = LIMIT_SECONDS) -> Mapping[str, Any]:
        """Wait until an operation is in `state`, which must be where it rests."""
        found: Mapping[str, Any] = {}

        def rests() -> bool:
            nonlocal found
            found = self.row(operation)
            return found["verdict_seq"] is not None or found["question_id"] is not None

        until(rests, f"{operation} is {state}", seconds)
        assert found["state"] == state, (found["state"], self.states(operation))
        return found

    def sound(self) -> None:
        """Assert that chain and fold verify, the self-audit is 0, and no operation has two remote jobs."""
        odd = {name: count for name, count in self.record.read_now(self_audit, WORLD.now()).items() if count}
        faults = self.record.read_now(lambda view: [found for found in verify(view) if not isinstance(found, int)])
        assert (odd, faults) == ({}, [])
        assert {name: count for name, count in self.remote.jobs_of_operations().items() if count > 1} == {}


def create(api: httpx.Client, key: str = "k1", *faults: str, **request: Any) -> str:
    """Ask for a report and return the operation's id. `faults` are the simulator's."""
    body = {"provider": "reports", "request": {"kind": "sales", "rows": 5, "simulate": list(faults), **request}}
    answer = api.post("/v1/operations", json=body, headers={"Idempotency-Key": key})
    assert answer.status_code in {200, 202}, answer.text
    return str(answer.json()["id"])


def adopt(api: httpx.Client, job: str) -> str:
    """Register a job that exists already and return the operation's id."""
    answer = api.post("/v1/operations", json={"provider": "reports", "remote_job_id": job})
    assert answer.status_code in {200, 202}, answer.text
    return str(answer.json()["id"])


def signed(
    event_id: str, job: str, word: str = "succeeded", *, reference: str | None = None, secret: str = SECRET
) -> tuple[dict[str, str], bytes]:
    """Return headers and body of a genuine delivery of the simulator's reports API."""
    now = WORLD.now()
    data = {"id": job, "status": word, "client_reference": reference}
    body = json.dumps({"type": f"report.{word}", "timestamp": "2026-01-01T00:00:00Z", "data": data}).encode()
    return standard_webhook(secret=secret, event_id=event_id, at=now, body=body, forged=False), body


def deliver(address: str, delivery: tuple[dict[str, str], bytes]) -> httpx.Response:
    """Send a delivery over a connection of its own."""
    headers, body = delivery
    return httpx.post(f"{address}/webhooks/reports", content=body, headers=headers, timeout=30, verify=False)  # noqa: S501 - loopback


def new_job(remote: Remote, *faults: str) -> str:
    """Make a remote job that no operation knows, and return its id."""
    body = {"kind": "alone", "rows": 5, "simulate": list(faults)}
    return str(httpx.post(f"{remote.base_url}/v1/reports", json=body).json()["id"])


@contextlib.contextmanager
def town(
    folder: Path,
    url: str,
    remote: Remote,
    *,
    origin: str | None = None,
    contract: tuple[tuple[str, str], ...] = (),
    more: str = "",
    **environment: str,
) -> Iterator[Town]:
    """Set up a town. `contract` replaces parts of the contract file; `origin` stands between the house and the provider."""
    port = free_port()
    stage = reports(folder, origin=origin or remote.base_url, more=f'public_url = "http://127.0.0.1:{port}"\n{more}')
    file = folder / "reports.toml"
    text = file.read_text(encoding="utf-8")
    for old, new in contract:
        assert old in text, old
        text = text.replace(old, new)
    file.write_text(text, encoding="utf-8")
    stage = Stage(folder=folder, environment={**stage.environment, **BRISK, "GATEWAY_DATABASE_URL": url, **environment})
    vault = Vault(*load_or_create_keys(str(folder / "var" / "master.key")))
    record = Ledger.open(url, vault=vault, contracts={}, application_name="test")
    key_id, key, digest = new_key(WORLD)
    record.write_now(AddKey(id=key_id, key_sha256=digest, owner=OWNER, subject="agent-7", scopes=SCOPES, now=WORLD.now()))
    try:
        yield Town(stage=stage, remote=remote, url=url, port=port, record=record, key=key)
    finally:
        record.close()


def seed() -> int:
    """Return the seed of this run, printed so that a failure shows it; PROCESS_SEED takes it back."""
    given = os.environ.get("PROCESS_SEED")
    number = int(given) if given else time.monotonic_ns() % 1_000_000
    print(f"PROCESS_SEED={number}")  # noqa: T201 - pytest shows it with a failure
    return number

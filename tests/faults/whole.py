"""The whole house as `gateway serve` puts it together, in this process: real uvicorn, real record, real reconciler."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import sqlalchemy as sa

from cli import house as composition
from cli.configuration import load
from cli.world import RealWorld
from gateway.app import create_app
from gateway.gate import Endpoints
from gateway.keys import SCOPES, new_key
from gateway.server import serve
from ledger import queries
from ledger.ledger import Ledger
from reconciler.clockwork import Clockwork
from schemas.commands import AddKey
from schemas.operation import SECOND, Micros, Operation
from schemas.states import State
from simulator.options import SimulatorOptions
from simulator.signing import standard_webhook

ROOT = Path(__file__).parents[2]
SECRET = "whsec_c2ltdWxhdG9yLXJlcG9ydHMtc2VjcmV0LTAwMDA="  # the simulator's own
CREDENTIAL = "CANARY-credential"
PATIENCE = 30.0  # seconds until what does not come fails the test

LOOKUP = """
path = "/v1/reports?client_reference={operation}"
items = "body:data"
match = "client_reference"
equals = "{operation}"
job_id = "id"
"""


def changed(contract: str, *changes: tuple[str, str]) -> str:
    """Return a contract's text with each old text replaced; every one must be there once."""
    for old, new in changes:
        assert contract.count(old) == 1, old
        contract = contract.replace(old, new)
    return contract


REPORTS = changed(
    (ROOT / "tests" / "cli" / "reports.toml").read_text(encoding="utf-8"),
    (', callback_url = "{callback_url}"', ""),  # the port is known only once the house listens: a test tells the simulator itself
)

QUIET = changed(REPORTS, ("poll_seconds = 1\n", "poll_seconds = 600\n"), ("max_poll_seconds = 2\n", "max_poll_seconds = 600\n"))
"""Reads only when there is a reason: nothing polls within a test's time."""


class ShiftedWorld(RealWorld):
    """The real world with a wall clock that is wrong by `offset`."""

    __slots__ = ("offset",)

    def __init__(self, offset: Micros = 0) -> None:
        super().__init__()
        self.offset = offset

    def now(self) -> Micros:
        return RealWorld.now(self) + self.offset


def options(**more: Any) -> SimulatorOptions:
    """Return a simulator whose jobs end at once unless a fault says otherwise."""
    base: dict[str, Any] = {"queue_seconds": 0.0, "run_seconds": 0.0, "late_copy_seconds": 0.1, "callback_retry_seconds": (0.2, 0.5)}
    return SimulatorOptions(**(base | more))


@dataclass(slots=True)
class Whole:
    """A running house and a caller's key."""

    house: composition.House
    address: str
    key: str
    clockwork: Clockwork | None
    clients: list[httpx.AsyncClient] = field(default_factory=list)

    @property
    def ledger(self) -> Ledger:
        return self.house.ledger

    @property
    def callback_url(self) -> str:
        return f"{self.address}/webhooks/reports"

    def client(self, key: str | None = None) -> httpx.AsyncClient:
        """Return a client that holds a key (the house's own one)."""
        headers = {"Authorization": f"Bearer {key or self.key}"}
        client = httpx.AsyncClient(base_url=self.address, headers=headers, timeout=PATIENCE, trust_env=False)
        self.clients.append(client)
        return client

    async def create(self, *faults: str, key: str | None = None, **body: Any) -> httpx.Response:
        """Register a report; `faults` travel in the request to the simulator."""
        request = {"kind": "sales", "rows": 3, **({"simulate": list(faults)} if faults else {})}
        document = {"provider": "reports", "request": request, **body}
        return await self.client().post("/v1/operations", json=document, headers={"Idempotency-Key": key or RealWorld().new_token()})

    async def made(self, *faults: str, **body: Any) -> str:
        """Register a report and return the operation's id."""
        answer = await self.create(*faults, **body)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    async def adopted(self, job: str) -> str:
        """Register a job that exists, and return the operation's id."""
        answer = await self.client().post("/v1/operations", json={"provider": "reports", "remote_job_id": job})
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    async def deliver(self, event: str, job: str, status: str, *, at: Micros | None = None, **data: Any) -> httpx.Response:
        """Send a signed callback that claims a status; the same arguments and `at` give the same bytes."""
        body = json.dumps({"type": f"report.{status}", "timestamp": STAMP, "data": {"id": job, "status": status, **data}}).encode()
        signed_at = self.house.world.now() if at is None else at
        headers = standard_webhook(secret=SECRET, event_id=event, at=signed_at, body=body, forged=False)
        return await self.client().post("/webhooks/reports", content=body, headers={**headers, "Content-Type": "application/json"})

    async def operation(self, operation_id: str) -> Operation:
        """Return the operation as committed."""
        found = await self.ledger.read(queries.operation, operation_id, None)
        assert found is not None
        return found

    async def reaches(self, operation_id: str, *states: State) -> Operation:
        """Wait until the operation is in one of the states."""
        return await self.until(operation_id, lambda op: op.state in states)

    async def until(self, operation_id: str, condition: Callable[[Operation], bool]) -> Operation:
        """Wait until the operation meets a condition."""
        found = await self.operation(operation_id)
        try:
            async with asyncio.timeout(PATIENCE):
                while not condition(found):
                    await asyncio.sleep(0.02)
                    found = await self.operation(operation_id)
        except TimeoutError:
            raise AssertionError(f"{found.state} {found.error_code} {found.last_read_error}") from None
        return found

    async def rows(self, table: sa.Table, *conditions: sa.ColumnElement[bool]) -> list[Mapping[str, Any]]:
        """Return rows of a table as they are."""

        def query(view: Any) -> list[Mapping[str, Any]]:
            return [dict(row) for row in view.connection.execute(sa.select(table).where(*conditions)).mappings()]

        return await self.ledger.read(query)

    async def history(self, operation_id: str) -> list[Mapping[str, Any]]:
        """Return the history of an operation, the oldest first."""
        return await self.ledger.read(queries.history, operation_id, 0, 500)

    async def audited(self) -> None:
        """Check that the record agrees with itself: the chain, the fold, and the self-audit."""
        from ledger.audit import Fault, self_audit, verify

        counts = await self.ledger.read(self_audit, self.house.world.now())
        assert not {name: count for name, count in counts.items() if count}
        assert not [item for item in await self.ledger.read(lambda view: list(verify(view))) if isinstance(item, Fault)]


STAMP = "2026-01-01T00:00:00.000Z"
"""The provider's time in every callback of these tests: equal, so that no order can be made of it."""


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait, bounded, for a condition that no event announces."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def whole(
    folder: Path,
    *,
    origin: str = "http://127.0.0.1:9",
    database_url: str | None = None,
    contract: str = REPORTS,
    world: RealWorld | None = None,
    reconcile: bool = True,
    several: bool | None = None,
    at: Callable[[str], None] | None = None,
    settings: str = "",
    patient: bool = True,
    credential: str | None = None,
    before: Callable[[Ledger, Micros], Awaitable[None]] | None = None,
) -> AsyncIterator[Whole]:
    """Run the house until the block ends. `at` is told each named point around the record's commits."""
    (folder / "reports.toml").write_text(contract, encoding="utf-8")
    (folder / "gateway.toml").write_text(
        f"""
        database_url = "{database_url or f"sqlite:///{folder}/gateway.db"}"
        {settings}
        [providers.reports]
        contract = "./reports.toml"
        base_url = "{origin}"
        secrets = ["env:REPORTS_SECRET"]
        credential = "{credential or f"file:{folder}/credential"}"
        [clockwork]
        lease_seconds = 8.0  # what an attempt may still do is waited for until its own limit: lease and send budget
        send_budget_seconds = 2.0
        send_margin_seconds = 0.5
        poll_seconds = 0.2
        drain_seconds = 2.0
        [web]
        port = 0
        shutdown_seconds = 2.0
        """,
        encoding="utf-8",
    )
    (folder / "credential").write_text(CREDENTIAL, encoding="utf-8")
    with _environment(REPORTS_SECRET=SECRET):
        chosen = load(file=str(folder / "gateway.toml"), environment={"REPORTS_SECRET": SECRET}, folder=folder)
        house = composition.open_house(chosen, world=world or RealWorld(), migrate=True)
        endpoints = Endpoints(composition.endpoints(house.settings, house.contracts, composition.material(house), house.world.now()))
    if at is not None:
        house.ledger._writer._parts.crash_point = at
    house.ledger.start(several_processes=several)
    if before is not None:
        await before(house.ledger, house.world.now())
    clockwork = composition.clockwork(house) if reconcile else None
    closing, address = asyncio.Event(), asyncio.get_running_loop().create_future()
    gate = composition.gate(house, endpoints=endpoints, closing=closing, expects_reconciler=reconcile)
    serving = asyncio.create_task(serve(create_app(gate), house.settings.web, on_started=address.set_result, stop=closing))
    opened = Whole(house=house, address=await asyncio.wait_for(address, PATIENCE), key="", clockwork=clockwork)
    if at is None or patient:
        opened.key = await add_key(house)
    if clockwork is not None:
        await clockwork.start()
    try:
        yield opened
    finally:
        for client in opened.clients:
            await client.aclose()
        closing.set()
        await asyncio.wait_for(serving, PATIENCE)
        if clockwork is not None:
            await clockwork.drain()
        house.ledger.close()


async def add_key(house: composition.House, owner: str = "acme") -> str:
    """Store a new key with every scope and return its text."""
    key_id, text, digest = new_key(house.world)
    await house.ledger.write(AddKey(id=key_id, key_sha256=digest, owner=owner, subject="agent", scopes=SCOPES, now=house.world.now()))
    return text


@contextlib.contextmanager
def _environment(**values: str) -> Any:
    import os

    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def seconds(number: float) -> Micros:
    """Return microseconds."""
    return int(number * SECOND)

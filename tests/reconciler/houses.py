"""A whole reconciler over a real record: SQLite file, ledger, store, transport, clockwork."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from artifacts.store import Store
from ledger import queries
from ledger.audit import self_audit
from ledger.ledger import Ledger
from ledger.vault import Vault
from reconciler.clockwork import Clockwork
from reconciler.desk import Account
from reconciler.errands import Performer
from reconciler.leases import Leases
from reconciler.pace import Pace
from reconciler.retention import Retention
from reconciler.transport import Transport
from schemas.commands import Intent, Register, Registered
from schemas.contract import Contract
from schemas.operation import Operation
from schemas.settings import ClockworkSettings, ProviderSettings, RetentionSettings
from schemas.states import Mode, State
from tests.reconciler.accounts import CONTRACT, CREDENTIAL
from tests.reconciler.worlds import MovingWorld, StillWorld

assert CONTRACT.status is not None
QUICK = replace(CONTRACT, status=replace(CONTRACT.status, poll_seconds=1, max_poll_seconds=1))


def open_ledger(directory: Path, contracts: Mapping[str, Contract], at: Callable[[str], None] = lambda _: None) -> Ledger:
    """Open and start a record in a directory; `at` is told each named point around its commits."""
    ledger = Ledger.open(f"sqlite:///{directory}/gateway.db", vault=Vault(bytes(32)), contracts=contracts, crash_point=at)
    ledger.start()
    return ledger


def intent(world: StillWorld, origin: str, **changes: Any) -> Intent:
    """Return an intent for the provider `jobs`."""
    operation_id = world.new_id("op_")
    given = {
        "id": operation_id,
        "owner": "acme",
        "subject": "agent",
        "provider": "jobs",
        "action": "create",
        "mode": Mode.SEND,
        "origin": origin,
        "contract_digest": CONTRACT.digest,
        "idempotency_token": world.new_token(),
        "trace_id": "0af7651916cd43dd8448eb211c80319c",
        "request_fingerprint": f"sha256:{operation_id}",
        "create_seconds": 600,
        "result_seconds": 600,
        "cancel_seconds": 600,
        "collect_seconds": 600,
        "idempotency_key": operation_id,
        "request": b'{"rows":3}',
    }
    return Intent(**{**given, **changes})


@dataclass(slots=True)
class House:
    """Everything that one process of `gateway reconcile` has."""

    ledger: Ledger
    world: MovingWorld
    clockwork: Clockwork
    accounts: dict[str, Account]
    leases: Leases

    async def register(self, **changes: Any) -> str:
        """Record an intent and return its operation's id."""
        provider = changes.get("provider", "jobs")
        origin = self.accounts[provider].origin
        command = Register(intent=intent(self.world, origin, **changes), now=self.world.now())
        answer: Registered = await self.ledger.write(command)
        assert answer.operation is not None
        return answer.operation.id

    async def operation(self, operation_id: str) -> Operation:
        found = await self.ledger.read(queries.operation, operation_id, None)
        assert found is not None
        return found

    async def reaches(self, operation_id: str, *states: State, seconds: float = 15) -> Operation:
        """Wait until the operation is in one of the states."""
        async with asyncio.timeout(seconds):
            while (found := await self.operation(operation_id)).state not in states:  # noqa: ASYNC110 - the record is asked, nothing is guessed
                await asyncio.sleep(0.02)
        return found


@contextlib.asynccontextmanager
async def house(
    directory: Path,
    origins: Mapping[str, str],
    *,
    contract: Contract = QUICK,
    contracts: Mapping[str, Contract] | None = None,
    worker: str = "worker:1",
    shared: Ledger | None = None,
    start: bool = True,
    world: MovingWorld | None = None,
    **settings: Any,
) -> AsyncIterator[House]:
    """Run a clockwork over a record in `directory` until the block ends."""
    known = contracts if contracts is not None else dict.fromkeys(origins, contract)
    ledger = shared if shared is not None else open_ledger(directory, known)
    world = world or MovingWorld()
    chosen = replace(ClockworkSettings(poll_seconds=0.2, drain_seconds=2.0), **settings)
    accounts = {
        name: Account(
            settings=ProviderSettings(name=name, contract=name, base_url=origin), contract=known[name], transport=Transport(world)
        )
        for name, origin in origins.items()
    }
    store = Store(directory / "artifacts")
    pace = Pace({name: known[name].limits for name in origins}, now=world.monotonic())
    leases = Leases(ledger, world, lease_seconds=chosen.lease_seconds)
    performer = Performer(
        world=world, store=store, pace=pace, accounts=accounts, leases=leases, credential=lambda _: CREDENTIAL, public_url="", actor=worker
    )
    clockwork = Clockwork(
        record=ledger,
        world=world,
        performer=performer,
        leases=leases,
        pace=pace,
        accounts=accounts,
        store=store,
        settings=chosen,
        worker=worker,
        audit=lambda: ledger.read(self_audit, world.now()),
        retention=Retention(record=ledger, world=world, store=store, settings=RetentionSettings()),
    )
    if start:
        await clockwork.start()
    try:
        yield House(ledger=ledger, world=world, clockwork=clockwork, accounts=accounts, leases=leases)
    finally:
        await clockwork.drain()
        if shared is None:
            ledger.close()

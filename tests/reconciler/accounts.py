"""A contract, an operation and a performer for tests that call a real server on loopback."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from artifacts.store import Store
from lifecycle.errands import acts
from reconciler.desk import Account
from reconciler.errands import Performer
from reconciler.leases import Leases
from reconciler.pace import Pace
from reconciler.transport import Transport
from schemas.commands import Claimed, Defer, Settle
from schemas.contract import CancelRule, Contract, CreateRule, Limits, RecoveryRule, ResultFile, ResultRule, StatusRule, TokenRule
from schemas.operation import SECOND, Operation
from schemas.settings import ProviderSettings
from schemas.states import Errand, Mode, Reading, State
from tests.reconciler.servers import Server, read_request, response
from tests.reconciler.worlds import NOW, StillWorld

CREDENTIAL = "CANARY-credential"
LEASE_SECONDS = 45.0

CONTRACT = Contract(
    name="jobs",
    digest="d" * 64,
    create=CreateRule(path="/jobs", token=TokenRule(place="header", name="Idempotency-Key", window_seconds=3600)),
    recovery=RecoveryRule(strategies=("list",), path="/jobs", items="body:data", match="reference", next="body:next"),
    status=StatusRule(
        path="/jobs/{remote_job_id}",
        readings={"running": Reading.RUNNING, "done": Reading.SUCCEEDED, "failed": Reading.FAILED},
    ),
    cancel=CancelRule(path="/jobs/{remote_job_id}/cancel"),
    result=ResultRule(files=(ResultFile(url="body:result_url", bytes="body:size", sha256="body:sha256", authenticated=True),)),
    limits=Limits(total_seconds=5.0, connect_seconds=2.0),
)


def operation(origin: str, **changes: Any) -> Operation:
    """Return an operation of the provider `jobs` as a claim would hand it out."""
    base = Operation(
        id="op_1",
        owner="acme",
        subject="agent",
        provider="jobs",
        contract_digest=CONTRACT.digest,
        origin=origin,
        action="create",
        mode=Mode.SEND,
        idempotency_token="tok-1",
        trace_id="0af7651916cd43dd8448eb211c80319c",
        request_fingerprint="sha256:0",
        created_at=NOW,
        create_seconds=60,
        result_seconds=60,
        cancel_seconds=60,
        collect_seconds=60,
        request=b'{"rows":3}',
        state=State.OBSERVING,
        remote_job_id="job-1",
    )
    return replace(base, **changes)


class Bench:
    """One provider account with everything that performs errands for it. Errands run as tasks, as in the crew."""

    def __init__(
        self,
        directory: Path,
        origin: str,
        *,
        contract: Contract = CONTRACT,
        record: Any = None,
        credential: Callable[[str], str | None] = lambda _: CREDENTIAL,
        **options: Any,
    ) -> None:
        self.world = StillWorld()
        self.contract = contract
        self.directory = directory
        self.store = Store(directory)
        self.pace = Pace({"jobs": contract.limits}, now=self.world.monotonic())
        self.transport = Transport(self.world, **{key: options.pop(key) for key in ("tls", "resolve", "permitted") if key in options})
        settings = ProviderSettings(name="jobs", contract="jobs", base_url=origin, **options)
        self.accounts = {"jobs": Account(settings=settings, contract=contract, transport=self.transport)}
        self.leases = Leases(record, self.world, lease_seconds=LEASE_SECONDS)
        self.performer = Performer(
            world=self.world,
            store=self.store,
            pace=self.pace,
            accounts=self.accounts,
            leases=self.leases,
            credential=credential,
            public_url="https://hooks.test/",
            actor="worker:1",
        )

    def begin(self, op: Operation, errand: Errand, *, send_in: float = 30.0) -> "asyncio.Task[Settle | Defer | None]":
        now = self.world.monotonic()
        claimed = Claimed(operation=op, errand=errand, fence=7, attempt_id="att_1" if acts(errand, self.contract, op) else None)
        return asyncio.create_task(self.performer.perform(claimed, now, now + send_in))

    async def settle(self, op: Operation, errand: Errand) -> Settle:
        """Perform one errand to its end and return its settlement."""
        command = await asyncio.wait_for(self.begin(op, errand), 20)
        assert isinstance(command, Settle)
        return command

    def files(self) -> list[str]:
        return sorted(path.name for path in self.directory.iterdir())


def collecting(origin: str, **changes: Any) -> Operation:
    """Return an operation whose success was read and whose result is to be fetched."""
    given = {"state": State.RESULT_COLLECTING, "ending": Reading.SUCCEEDED, "collect_deadline": NOW + 3_600 * SECOND}
    return operation(origin, **{**given, **changes})


async def endless(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Be a provider whose job is done and whose result begins and never ends."""
    request = await read_request(server, reader)
    if b"/jobs/" in request.split(b"\r\n")[0]:
        writer.write(response(200, json.dumps({"status": "done", "result_url": f"{server.url}/f"}).encode()))
        return
    writer.write(b"HTTP/1.1 200 X\r\ncontent-length: 100000000\r\n\r\n" + b"x" * 2_000_000)
    await writer.drain()
    await server.release.wait()

"""What the tests of the interface have in common: how operations are made, and how the reconciler's part is played."""

import hashlib
import json
from typing import Any

import httpx

from ledger import queries
from lifecycle.begin import begin
from schemas.commands import ClaimWork, Intent, Settle
from schemas.evidence import Read, StatusFacts, StoredFile
from schemas.operation import SECOND, Operation
from schemas.states import Mode
from tests.gateway.house import START, House

OPERATIONS = "/v1/operations"


BODY: dict[str, Any] = {"provider": "reports", "request": {"a": 1, "b": 2}}


RESULT = b"name,amount\nada,1\nbob,2\n"


FILE = StoredFile(role="output", key="art_1", media_type="text/csv", bytes=len(RESULT), sha256=hashlib.sha256(RESULT).hexdigest())


async def made(client: httpx.AsyncClient, key: str = "k", **more: Any) -> dict[str, Any]:
    body = {"provider": "reports", "request": {"n": key}, **more}
    found: dict[str, Any] = (await client.post(OPERATIONS, json=body, headers={"Idempotency-Key": key})).json()
    return found


async def adopted(client: httpx.AsyncClient, job: str = "job-1") -> dict[str, Any]:
    found: dict[str, Any] = (await client.post(OPERATIONS, json={"provider": "reports", "remote_job_id": job})).json()
    return found


async def create(client: httpx.AsyncClient, body: Any, key: str | None = "k-1") -> httpx.Response:
    headers = {"Content-Type": "application/json", **({} if key is None else {"Idempotency-Key": key})}
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await client.post(OPERATIONS, content=content, headers=headers)


async def count(home: House) -> int:
    return len(await home.ledger.read(queries.operations, queries.OperationFilter(owner=None), 1000))


async def settle_read(home: House, operation: str, facts: StatusFacts) -> None:
    """Do what the reconciler does: lease the due read, and settle what it brought."""
    now = home.world.now()
    claim = ClaimWork(worker="test", room={"reports": 10}, limit=10, lease=60 * SECOND, send_budget=10 * SECOND, now=now, chance=0.5)
    (item,) = [item for item in (await home.ledger.write(claim)).items if item.operation.id == operation]
    settled = await home.ledger.write(
        Settle(
            operation_id=operation,
            fence=item.fence,
            errand=item.errand,
            evidence=Read(facts=facts, digest="d", observation_id="obs_1"),
            started_at=now,
            now=now,
            chance=0.5,
            actor="worker:test",
        )
    )
    assert settled.refused is None


def registered() -> Operation:
    """Return an operation that was just registered."""
    intent = Intent(
        id="op_1",
        owner="acme",
        subject="agent-7",
        provider="reports",
        action="create",
        mode=Mode.SEND,
        origin="https://api.reports.example",
        contract_digest="",
        idempotency_token="t",
        trace_id="",
        request_fingerprint="sha256:0",
        create_seconds=1,
        result_seconds=1,
        cancel_seconds=1,
        collect_seconds=1,
    )
    return begin(intent, START)[0]

"""The escalation bundle over HTTP (MISSION E4, D5-D7)."""

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import pytest

from schemas.api_bundle import BundleView
from schemas.commands import ClaimWork, Settle
from schemas.evidence import CancelTaken, JobKnown, Read, StatusFacts
from schemas.http import Exchange
from schemas.operation import SECOND
from schemas.states import Errand, Reading
from tests.gateway.asking import OPERATIONS, made
from tests.gateway.house import House, event, house


async def act(home: House, operation: str, evidence: Any, errand: Errand, body: bytes = b"{}") -> None:
    """Play the reconciler: claim the errand and settle what it brought, with its exchange."""
    now = home.world.now()
    claim = ClaimWork(worker="w", room={"reports": 10}, limit=10, lease=60 * SECOND, send_budget=10 * SECOND, now=now, chance=0.5)
    (item,) = [item for item in (await home.ledger.write(claim)).items if item.operation.id == operation]
    assert item.errand is errand
    exchange = Exchange(
        id=home.world.new_id("exc_"),
        errand=errand,
        method="POST",
        url="https://api.reports.example/jobs",
        started_at=now,
        finished_at=now,
        outcome="answered",
        status=200,
        provider_request_id=f"req-{errand}",
        response_digest=hashlib.sha256(body).hexdigest(),
        response_body=body,
    )
    await home.ledger.write(
        Settle(
            operation_id=operation, fence=item.fence, errand=errand, evidence=evidence, started_at=now, now=now, chance=0.5,
            actor="worker:w", attempt_id=item.attempt_id, exchange=exchange,
        )
    )  # fmt: skip


async def cancelled_too_late(home: House, client: Any) -> str:
    """Return an operation whose cancel could not be confirmed in time."""
    operation = str((await made(client, deadlines={"cancel_seconds": 60}))["id"])
    body = b'{"id": "job-1", "authorization": "Bearer canary-1234567890abcdef"}'
    await act(home, operation, JobKnown(remote_job_id="job-1", source="create"), Errand.CREATE, body)
    await home.deliver("reports", event(1))
    await client.post(f"{OPERATIONS}/{operation}/cancel", json={"reason": "wrong month"})
    await act(home, operation, CancelTaken(), Errand.CANCEL)
    home.world.pass_seconds(61)
    await act(home, operation, Read(facts=StatusFacts(reading=Reading.RUNNING, remote_state="running"), digest="r"), Errand.READ)
    return operation


def test_a_bundle_holds_everything_that_a_provider_must_be_told(tmp_path: Path) -> None:
    """E4, D7: ids, trace, request ids, attempts, exchanges, callbacks and history with its reasons; no secret, no request."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            operation = await cancelled_too_late(home, client)
            answer = await client.get(f"{OPERATIONS}/{operation}/bundle")
            found = answer.json()
            BundleView.model_validate(found)
            assert found["operation"]["state"] == "cancellation_unconfirmed"
            account = found["account"]
            assert (account["remote_job_id"], account["trace_id"]) == ("job-1", found["operation"]["trace_id"])
            assert account["request_ids"] == ["req-create", "req-cancel", "req-read"]
            assert [(row["errand"], row["outcome"]) for row in found["attempts"]] == [("create", "answered"), ("cancel", "answered")]
            assert [row["errand"] for row in found["exchanges"]] == ["create", "cancel", "read"]
            assert [row["event_id"] for row in found["deliveries"]] == ["evt_1"]
            assert [row["reading"] for row in found["observations"]] == ["running"]
            assert "wrong month" in [row["text"] for row in found["history"]]
            assert found["omitted"] == {}
            assert answer.headers["cache-control"] == "no-store"
            assert operation in answer.headers["content-disposition"]
            for secret in ("canary-1234567890abcdef", "correct-horse", client.headers["authorization"].removeprefix("Bearer ")):
                assert secret not in answer.text
            again = await client.get(f"{OPERATIONS}/{operation}/bundle")
            assert again.content == answer.content

    asyncio.run(scenario())


def verified(bundle: dict[str, Any]) -> bool:
    """Verify a bundle by what it says in `proof.how`, and by nothing else."""
    rows = {row["seq"]: row for row in bundle["history"]}
    previous = bundle["proof"]["chain"][0]["previous"]
    for link in bundle["proof"]["chain"]:
        row = rows[link["seq"]]
        parts = [bytes.fromhex(link["previous"]), bundle["operation"]["id"], link["seq"], link["at"]]
        parts += [row["actor"], row["from_state"] or "", row["to_state"], row["cause"], row["cause_id"], row["code"]]
        parts += [link["changes"], bytes.fromhex(link["text_sha256"])]
        digest = hashlib.sha256(b"gateway-history-1")
        for part in parts:
            data = part if isinstance(part, bytes) else str(part).encode()
            digest.update(len(data).to_bytes(4, "big") + data)
        if link["previous"] != previous or digest.hexdigest() != link["hash"]:
            return False
        previous = link["hash"]
    return bool(previous == bundle["proof"]["head"] and len(rows) == bundle["proof"]["seq"])


@pytest.mark.parametrize("field", ["actor", "code", "to_state", "cause_id"])
def test_the_proof_verifies_as_it_says_and_shows_any_change(tmp_path: Path, field: str) -> None:
    """D5: whoever has the bundle alone can recompute the chain; a changed row no longer fits."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            operation = await cancelled_too_late(home, client)
            found = (await client.get(f"{OPERATIONS}/{operation}/bundle")).json()
            assert verified(found)
            found["history"][1][field] += "x"
            assert not verified(found)

    asyncio.run(scenario())


def test_a_strangers_bundle_is_not_found(tmp_path: Path) -> None:
    """G4, B144: somebody else's id and an id that never was are answered alike; without the scope nothing is said."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client, stranger = await home.client(), await home.client("globex")
            operation = (await made(client))["id"]
            foreign = await stranger.get(f"{OPERATIONS}/{operation}/bundle")
            unknown = await stranger.get(f"{OPERATIONS}/op_nowhere/bundle")
            assert (foreign.status_code, foreign.json()) == (404, unknown.json())
            weak = await home.client(scopes=("operations:create",))
            assert (await weak.get(f"{OPERATIONS}/{operation}/bundle")).status_code == 403

    asyncio.run(scenario())


def test_a_bundle_is_bounded_and_says_what_it_leaves_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D6: the newest rows of each kind; the proof then begins behind the hash of the row before them."""
    monkeypatch.setattr("ledger.bundle.HISTORY", 2)
    monkeypatch.setattr("ledger.bundle.OTHERS", 1)

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            operation = await cancelled_too_late(home, client)
            found = (await client.get(f"{OPERATIONS}/{operation}/bundle")).json()
            assert [row["errand"] for row in found["attempts"]] == ["cancel"]
            assert [row["errand"] for row in found["exchanges"]] == ["read"]
            seqs = [row["seq"] for row in found["history"]]
            assert seqs == [found["proof"]["seq"] - 1, found["proof"]["seq"]]
            assert found["omitted"] == {"history": seqs[0] - 1, "attempts": 1, "exchanges": 2}
            assert found["proof"]["chain"][0]["previous"] != ""

    asyncio.run(scenario())

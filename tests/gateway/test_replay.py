"""Stored deliveries are applied again by their owner: re-verified, mapped anew, matched again, written down with who wanted it."""

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

from ledger import inbox, queries
from providers import restored
from providers.verification import prepare
from schemas.api import ReplayView
from schemas.commands import Replay
from schemas.delivery import Event, Secret
from tests.gateway.asking import adopted
from tests.gateway.house import House, endpoint, event, house


async def notes(home: House, operation: str) -> list[tuple[str, str, str]]:
    rows = await home.ledger.read(queries.history, operation)
    return [(row["actor"], row["code"], row["text"]) for row in rows if row["cause_id"].startswith("dlv_")]


async def attached(home: House, client: Any) -> tuple[str, str]:
    """Return the ids of an operation and of a delivery that is attached to it."""
    op = await adopted(client)
    sent = await home.deliver("reports", event(1))
    assert sent.json()["status"] == "accepted"
    return op["id"], sent.json()["delivery"]


def test_a_replay_is_a_hint_with_a_name(tmp_path: Path) -> None:
    """B5, D1: `202`; the history says who, a read is due, and the delivery stays one."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            op, delivery = await attached(home, client)
            for _ in range(30):  # more hints than are written in full: a replay always is
                assert (await client.post(f"/v1/deliveries/{delivery}/replay")).status_code == 202
            answer = await client.post(f"/v1/deliveries/{delivery}/replay", json={})
            ReplayView.model_validate(answer.json())
            assert answer.json() == {"delivery": delivery, "status": "accepted", "operation": op, "verified": True}
            said = await notes(home, op)
            assert said[0] == ("provider:reports", "delivery", "job.changed running")
            assert said[1:] == [("agent-7", "delivery", "job.changed running replayed")] * 31
            assert len(await home.ledger.read(queries.deliveries, None, 10)) == 1

    asyncio.run(scenario())


def test_what_is_not_ones_own_is_not_there(tmp_path: Path) -> None:
    """G4: another owner's, an orphan, a dead letter, a refusal and an unknown id get the same `404`; the scope is asked for."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client, stranger = await home.client(), await home.client("globex")
            _, delivery = await attached(home, client)
            orphan = (await home.deliver("reports", event(2, job="job-9"))).json()["delivery"]
            dead = (await home.deliver("reports", b"{")).json()["delivery"]
            for asking, wanted in [(stranger, delivery), (client, orphan), (client, dead), (client, "dlv_0"), (client, "rfs_0")]:
                answer = await asking.post(f"/v1/deliveries/{wanted}/replay")
                assert (answer.status_code, answer.json()["detail"]) == (404, "there is no delivery with this id for this key")
            assert (await client.post(f"/v1/deliveries/{delivery}/replay", json={"x": 1})).status_code == 422
            blind = await home.client(scopes=("operations:read",))
            assert (await blind.post(f"/v1/deliveries/{delivery}/replay")).json()["code"] == "missing_scope"

    asyncio.run(scenario())


def replaced(home: House, **changes: Any) -> None:
    known = {name: endpoint(name, home.gate.ledger.contracts[name]) for name in home.gate.ledger.contracts}
    known["reports"] = dataclasses.replace(known["reports"], **changes)
    home.gate.endpoints.replace(known)


def test_todays_contract_reads_the_bytes(tmp_path: Path) -> None:
    """C2 of contracts: a corrected mapping takes effect on what was stored before; a retired secret is told, not hidden."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            op, delivery = await attached(home, client)
            known = home.gate.endpoints.get("reports")
            assert known is not None
            corrected = dataclasses.replace(known.contract, event=dataclasses.replace(known.contract.event, state="body:type"))
            replaced(home, contract=corrected, verifier=prepare(corrected.signatures, [Secret(id="sec_2", value=b"another-secret")]))
            answer = await client.post(f"/v1/deliveries/{delivery}/replay")
            assert (answer.status_code, answer.json()["verified"]) == (202, False)
            assert (await notes(home, op))[-1][2] == "job.changed job.changed replayed, verified at its receipt only"
            row = await home.ledger.read(queries.delivery, delivery)
            assert row is not None
            assert row["claimed_state"] == "job.changed"
            replaced(home, verifier=None)
            assert (await client.post(f"/v1/deliveries/{delivery}/replay")).json()["code"] == "not_supported"

    asyncio.run(scenario())


def test_an_operator_matches_orphans_again_and_no_owner_reaches_another(tmp_path: Path) -> None:
    """B6: mapped anew, an orphan attaches; an owner's replay never attaches to an operation of somebody else."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client, stranger = await home.client(), await home.client("globex")
            op, delivery = await attached(home, client)
            orphan = (await home.deliver("reports", event(2, job="job-9"))).json()["delivery"]
            foreign = (await adopted(stranger, "job-2"))["id"]

            async def again(which: str, job: str, owner: str | None) -> Any:
                said = Event(dedup_key="x", content_sha256="", remote_job_id=job)
                return await home.ledger.write(
                    Replay(delivery_id=which, owner=owner, actor="ada", event=said, verified=True, now=home.world.now(), chance=0.5)
                )

            assert (await again(delivery, "job-2", "acme")).operation_id == op
            assert await notes(home, foreign) == []
            assert (await again(orphan, "job-2", "acme")).outcome == "not_found"
            moved = await again(orphan, "job-2", None)
            assert (moved.outcome, moved.operation_id) == ("accepted", foreign)
            assert (await again("dlv_0", "job-2", None)).outcome == "not_found"
            unreadable = restored.element((), 3)
            assert not unreadable.readable

    asyncio.run(scenario())


def test_the_stored_bytes_verify_again_later(tmp_path: Path) -> None:
    """B1: at the time of its receipt, with query and repeated headers as received; elements of an array look into the whole."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            body = b'{"events": [{"id": "e1", "type": "t", "job": "j1"}, {"id": "e2", "type": "t", "job": "j2"}]}'
            sent = await home.deliver("batch", body, headers={"X-Other": "a: b"})
            home.world.pass_seconds(90_000)
            second = sent.json()["deliveries"][1]["delivery"]
            row = await home.ledger.read(inbox.stored, second, None)
            known = home.gate.endpoints.get("batch")
            assert row is not None
            assert known is not None
            assert known.verifier is not None
            request = restored.delivery_request(row, "https://hooks.example/webhooks/batch")
            review = restored.review(known.verifier, known.contract, request, row["received_at"])
            assert review.right
            assert (request.body, dict(request.headers)[b"x-other"]) == (body, b"a: b")
            assert restored.element(review.events, row["element"]).remote_job_id == "j2"
            asked = dataclasses.replace(request, query=b"a=1&b=%20", headers=((b"x", b"1"), (b"x", b"2")))
            blob = b"\r\n".join(name + b": " + value for name, value in restored.headers_of(asked))
            again = restored.delivery_request({"headers": blob, "body": asked.body, "provider": "batch"}, asked.public_url)
            assert again == asked

    asyncio.run(scenario())

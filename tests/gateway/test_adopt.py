"""Jobs that exist, and creates that the service makes itself (MISSION A11)."""

import asyncio
from pathlib import Path

from tests.gateway.asking import BODY, OPERATIONS, create
from tests.gateway.house import house


def test_adopting_is_idempotent_needs_a_scope_and_is_opaque_to_others(tmp_path: Path) -> None:
    """A11: the same job is the same operation for its owner, `409` without a hint for everybody else."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            body = {"provider": "reports", "remote_job_id": "job-1"}
            without = await home.client(scopes=("operations:create",))
            refused = await create(without, body, key=None)
            assert (refused.status_code, refused.json()["scope"]) == (403, "operations:adopt")
            client, stranger = await home.client(), await home.client("globex")
            first, again = await create(client, body, key=None), await create(client, body, key=None)
            assert (first.status_code, again.status_code) == (202, 200)
            assert (first.json()["state"], first.json()["remote"]["job_id"]) == ("accepted", "job-1")
            taken = await create(stranger, body, key=None)
            assert (taken.status_code, taken.json()["code"]) == (409, "job_taken")
            assert first.json()["id"] not in taken.text

    asyncio.run(scenario())


def test_an_adoption_under_a_key_that_stands_for_another_job_is_refused(tmp_path: Path) -> None:
    """A3: the job id is part of what an adopting request is."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            await create(client, {"provider": "reports", "remote_job_id": "job-1"})
            answer = await create(client, {"provider": "reports", "remote_job_id": "job-2"})
            assert answer.json()["code"] == "idempotency_key_reused"

    asyncio.run(scenario())


def test_a_callback_that_came_before_its_operation_attaches(tmp_path: Path) -> None:
    """B6: the early delivery is in the history of the operation that adopts its job."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            early = await home.deliver("reports", b'{"id":"e1","job":"job-1","state":"done"}')
            assert early.json()["status"] == "unmatched"
            made = (await create(client, {"provider": "reports", "remote_job_id": "job-1"}, key=None)).json()
            rows = (await client.get(f"{OPERATIONS}/{made['id']}/history")).json()["history"]
            assert early.json()["delivery"] in [row["cause_id"] for row in rows]

    asyncio.run(scenario())


def test_an_external_create_gets_its_token_and_reports(tmp_path: Path) -> None:
    """A11: the service gets the token to send, reports the outcome, and the same report again is an echo."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            made = (await create(client, {**BODY, "create": "external"})).json()
            assert (made["state"], made["status"]) == ("awaiting_outcome", "unconfirmed")
            assert made["idempotency_token"].startswith("token-")
            address = f"{OPERATIONS}/{made['id']}/create-outcome"
            missing = await client.put(address, json={"outcome": "accepted"})
            assert (missing.status_code, missing.json()["errors"][0]["field"]) == (422, "remote_job_id")
            naming = await home.client(scopes=("operations:create",))
            scope = await naming.put(address, json={"outcome": "accepted", "remote_job_id": "job-7"})
            assert scope.json()["code"] == "missing_scope"
            report = {"outcome": "accepted", "remote_job_id": "job-7"}
            reported = await client.put(address, json=report)
            assert (reported.status_code, reported.json()["state"]) == (200, "accepted")
            assert (await client.put(address, json=report)).status_code == 200
            other = await client.put(address, json={"outcome": "rejected"})
            assert (other.status_code, other.json()["code"]) == (409, "already_reported")
            sent = (await create(client, BODY, key="k-2")).json()
            wrong = await client.put(f"{OPERATIONS}/{sent['id']}/create-outcome", json={"outcome": "not_sent"})
            assert (wrong.status_code, wrong.json()["code"]) == (409, "not_external")

    asyncio.run(scenario())


def test_deadlines_default_to_the_contract(tmp_path: Path) -> None:
    """A9: every clock that the caller does not set is the contract's."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            made = (await create(client, {**BODY, "deadlines": {"cancel_seconds": 7}})).json()
            defaults = home.ledger.contracts["reports"].deadlines
            assert made["deadlines"]["cancel_seconds"] == 7
            assert made["deadlines"]["create_seconds"] == defaults.create_seconds
            assert made["deadlines"]["create_at"] is not None

    asyncio.run(scenario())

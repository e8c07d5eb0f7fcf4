"""Superseding and resuming over HTTP (MISSION A3, D1)."""

import asyncio
from pathlib import Path
from typing import Any

from schemas.evidence import StatusFacts
from schemas.states import Reading
from tests.gateway.asking import BODY, OPERATIONS, adopted, create, made, settle_read
from tests.gateway.house import house


def test_superseding_ends_the_old_one_links_both_and_waits(tmp_path: Path) -> None:
    """A3: the old job is cancelled, the new request waits unsent, both say so, and the old end lets it go."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            old = await adopted(client)
            answer = await create(client, {**BODY, "supersedes": old["id"]}, key="new")
            new = answer.json()
            assert (answer.status_code, new["state"], new["status"], new["supersedes"]) == (202, "create_pending", "queued", old["id"])
            assert old["id"] in new["message"]
            was = (await client.get(f"{OPERATIONS}/{old['id']}")).json()
            assert (was["state"], was["superseded_by"], was["cancel"]["by"]) == ("cancel_requested", new["id"], "agent-7")
            assert new["id"] in was["cancel"]["reason"]
            replay = await create(client, {**BODY, "supersedes": old["id"]}, key="new")
            assert (replay.status_code, replay.json()["id"]) == (200, new["id"])
            unlinked = await create(client, BODY, key="new")
            assert unlinked.json()["code"] == "idempotency_key_reused"

    asyncio.run(scenario())


def test_superseding_needs_the_cancel_scope_and_a_request_of_ours(tmp_path: Path) -> None:
    """A3: who may not cancel may not supersede; who sends by themselves cannot be held back."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client, weak = await home.client(), await home.client(scopes=("operations:create", "operations:adopt"))
            old = await made(client)
            refused = await create(weak, {**BODY, "supersedes": old["id"]}, key="new")
            assert (refused.status_code, refused.json()["scope"]) == (403, "operations:cancel")
            bodies: list[dict[str, Any]] = [
                {**BODY, "create": "external", "supersedes": old["id"]},
                {"provider": "reports", "remote_job_id": "job-9", "supersedes": old["id"]},
            ]
            for body in bodies:
                answer = await create(client, body, key="new")
                assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "supersedes")
            assert (await client.get(f"{OPERATIONS}/{old['id']}")).json()["superseded_by"] is None

    asyncio.run(scenario())


def test_a_second_successor_and_foreign_links_are_refused(tmp_path: Path) -> None:
    """A3, B144: one successor; a stranger's id and an unknown id are refused in the same words."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client, stranger = await home.client(), await home.client("globex")
            old = await made(client)
            await create(client, {**BODY, "supersedes": old["id"]}, key="second")
            third = await create(client, {**BODY, "supersedes": old["id"]}, key="third")
            assert (third.status_code, third.json()["code"]) == (409, "already_superseded")
            foreign = await create(stranger, {**BODY, "supersedes": old["id"]}, key="x")
            unknown = await create(stranger, {**BODY, "supersedes": "op_" + "0" * 32}, key="x")
            assert foreign.json() == unknown.json()
            assert (foreign.status_code, foreign.json()["errors"][0]["field"]) == (422, "supersedes")

    asyncio.run(scenario())


def test_a_final_operation_is_resumed_by_a_new_one(tmp_path: Path) -> None:
    """D1: a retry at the provider is a new operation; what still runs is refused; both histories show it."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            old = await adopted(client)
            early = await create(client, {"provider": "reports", "remote_job_id": "job-2", "resumes": old["id"]}, key=None)
            assert (early.status_code, early.json()["code"]) == (409, "not_final")
            home.world.pass_seconds(60)
            await settle_read(home, old["id"], StatusFacts(reading=Reading.FAILED, has_result=False))
            new = (await create(client, {"provider": "reports", "remote_job_id": "job-2", "resumes": old["id"]}, key=None)).json()
            assert (new["resumes"], new["state"]) == (old["id"], "accepted")
            rows = (await client.get(f"{OPERATIONS}/{old['id']}/history")).json()["history"]
            assert (rows[-1]["code"], rows[-1]["cause"], rows[-1]["cause_id"]) == ("resumed_by_another", "link", new["id"])

    asyncio.run(scenario())


def test_an_approval_belongs_to_creates_that_the_gateway_sends(tmp_path: Path) -> None:
    """G7: an external create with an approval was once sent by the gateway itself when it was approved; it is refused."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            answer = await create(client, {**BODY, "create": "external", "approval": {}})
            assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "approval")

    asyncio.run(scenario())

"""Contradictions of ended operations, and what a caller sees of partial effects and late reports (A8, A11, D1, E5)."""

import asyncio
from pathlib import Path
from typing import Any

import httpx

from schemas.commands import Settle
from schemas.evidence import Read, StatusFacts
from schemas.states import Errand, Reading
from tests.gateway.asking import BODY, OPERATIONS, adopted, create, made, settle_read
from tests.gateway.house import House, house


async def contradicted(home: House, operation: str, reading: Reading) -> None:
    """Settle what a worker brings that comes after the end."""
    now = home.world.now()
    await home.ledger.write(
        Settle(
            operation_id=operation, fence=0, errand=Errand.READ, evidence=Read(facts=StatusFacts(reading=reading), digest=str(reading)),
            started_at=now, now=now, chance=0.5, actor="worker:late",
        )
    )  # fmt: skip


async def failed(home: House, client: httpx.AsyncClient) -> str:
    operation = str((await adopted(client))["id"])
    home.world.pass_seconds(60)
    await settle_read(home, operation, StatusFacts(reading=Reading.FAILED, has_result=False, effects=(("rows", "12"),)))
    return operation


async def codes(client: httpx.AsyncClient, operation: str) -> list[str]:
    rows: list[dict[str, Any]] = (await client.get(f"{OPERATIONS}/{operation}/history")).json()["history"]
    return [row["code"] for row in rows]


def test_an_incident_is_a_question_beside_an_end_that_stays(tmp_path: Path) -> None:
    """D1: listed, acknowledged with a reason, the state stays; further ones are rows; afterwards a new one opens again."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            operation = await failed(home, client)
            before = (await client.get(f"{OPERATIONS}/{operation}")).headers["etag"]
            await contradicted(home, operation, Reading.SUCCEEDED)
            shown = await client.get(f"{OPERATIONS}/{operation}")
            assert (shown.json()["state"], shown.json()["settled"]) == ("failed", True)
            assert shown.headers["etag"] != before
            assert "incident" in shown.json()["message"]
            (listed,) = (await client.get("/v1/questions")).json()["questions"]
            assert (listed["operation"], listed["question"]["kind"], listed["question"]["answers"]) == (
                operation,
                "incident",
                ["acknowledge"],
            )
            await contradicted(home, operation, Reading.CANCELLED)
            again = (await client.get(f"{OPERATIONS}/{operation}")).json()
            assert again["incident"] == shown.json()["incident"]
            assert (await codes(client, operation))[-2:] == ["incident", "incident_goes_on"]
            address = f"{OPERATIONS}/{operation}/decision"
            answer = {"question": listed["question"]["id"], "answer": "acknowledge"}
            silent = await client.post(address, json=answer)
            assert (silent.status_code, silent.json()["code"]) == (422, "reason_required")
            acknowledged = await client.post(address, json={**answer, "reason": "refund failed, told the customer"})
            found = acknowledged.json()
            assert (acknowledged.status_code, found["state"], found["incident"], found["question"]) == (200, "failed", None, None)
            assert (await client.get("/v1/questions")).json()["questions"] == []
            stale = await client.post(address, json={**answer, "reason": "again"})
            assert stale.json()["code"] == "question_changed"
            await contradicted(home, operation, Reading.SUCCEEDED)
            reopened = (await client.get(f"{OPERATIONS}/{operation}")).json()
            assert reopened["incident"] not in {None, shown.json()["incident"]}

    asyncio.run(scenario())


def test_what_an_ended_job_did_is_shown(tmp_path: Path) -> None:
    """E5: the provider's last word about partial effects, in a field and in the message."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            found = (await client.get(f"{OPERATIONS}/{await failed(home, client)}")).json()
            assert found["effects"] == {"rows": "12"}
            assert "Known partial effects: rows 12." in found["message"]

    asyncio.run(scenario())


def test_a_finished_operation_is_not_cancelled(tmp_path: Path) -> None:
    """B079: 409 with the state; the history does not move and nothing is owed."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            operation = await failed(home, client)
            before = await codes(client, operation)
            answer = await client.post(f"{OPERATIONS}/{operation}/cancel", json={"reason": "late"})
            assert (answer.status_code, answer.json()["code"], answer.json()["state"]) == (409, "already_final", "failed")
            assert await codes(client, operation) == before
            assert (await client.get(f"{OPERATIONS}/{operation}")).json()["next_check_at"] is None

    asyncio.run(scenario())


def test_a_job_that_cannot_be_had_is_refused_in_the_same_words_whoever_has_it(tmp_path: Path) -> None:
    """A11: a report or an answer that names a job of another owner, or of another operation of one's own, learns nothing."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client, stranger = await home.client(), await home.client("globex")
            await adopted(stranger, "job-theirs")
            await adopted(client, "job-mine")
            operation = (await create(client, {**BODY, "create": "external"})).json()["id"]
            address = f"{OPERATIONS}/{operation}/create-outcome"
            answers = [await client.put(address, json={"outcome": "accepted", "remote_job_id": job}) for job in ("job-theirs", "job-mine")]
            assert [answer.status_code for answer in answers] == [409, 409]
            assert answers[0].json() == answers[1].json()
            assert answers[0].json()["code"] == "job_taken"
            free = await client.put(address, json={"outcome": "accepted", "remote_job_id": "job-free"})
            assert free.json()["remote"]["job_id"] == "job-free"

    asyncio.run(scenario())


def test_adopting_is_for_the_owners_of_the_account(tmp_path: Path) -> None:
    """A11: `owners` bounds who may adopt, register and create; the account looks unknown to everybody else."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            stranger = await home.client("globex")
            bodies: tuple[dict[str, Any], ...] = ({"remote_job_id": "job-1"}, {"request": {}, "create": "external"}, {"request": {}})
            for number, more in enumerate(bodies):
                there = await create(stranger, {"provider": "private", **more}, key=f"k{number}")
                nowhere = await create(stranger, {"provider": "nowhere", **more}, key=f"k{number}")
                assert (there.status_code, there.json()) == (422, nowhere.json())
            assert (await create(await home.client(), {"provider": "private", "remote_job_id": "job-1"})).status_code == 202

    asyncio.run(scenario())


def test_reports_may_be_repeated_and_a_cancel_survives_them(tmp_path: Path) -> None:
    """A11, E3: the same report is an echo, whatever it said; a cancel asked before the report is sent when the job is known."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            for number, report in enumerate(({"outcome": "rejected", "message": "no"}, {"outcome": "not_sent"}, {"outcome": "unknown"})):
                operation = (await made(client, f"k{number}", create="external"))["id"]
                address = f"{OPERATIONS}/{operation}/create-outcome"
                first, second = await client.put(address, json=report), await client.put(address, json=report)
                assert (first.status_code, second.status_code) == (200, 200)
                assert first.json()["version"] == second.json()["version"]
            operation = (await made(client, "k9", create="external"))["id"]
            asked = (await client.post(f"{OPERATIONS}/{operation}/cancel")).json()
            assert (asked["state"], asked["status"]) == ("awaiting_outcome", "cancelling")
            address = f"{OPERATIONS}/{operation}/create-outcome"
            found = (await client.put(address, json={"outcome": "accepted", "remote_job_id": "job-9"})).json()
            assert (found["state"], found["cancel"]["outcome"]) == ("cancel_requested", "requested")

    asyncio.run(scenario())

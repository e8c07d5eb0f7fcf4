"""Cancel, refresh and decide: recorded once, refused with a reason (MISSION E, G7, G8)."""

import asyncio
from pathlib import Path

from schemas.api import QuestionsView
from schemas.evidence import StatusFacts
from schemas.states import Reading
from tests.gateway.asking import adopted, made, settle_read
from tests.gateway.house import house


def test_cancel_and_its_refusal_on_a_final_operation(tmp_path: Path) -> None:
    """E1, INTERFACE: `202` while it can matter, then `409 already_final` with the state."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            op = await made(client)
            first = await client.post(op["links"]["cancel"])
            assert (first.status_code, first.json()["state"]) == (202, "withdrawn")
            second = await client.post(op["links"]["cancel"], json={"reason": "again"})
            problem = second.json()
            assert (second.status_code, problem["code"]) == (409, "already_final")
            assert (problem["state"], problem["operation"]) == ("withdrawn", op["id"])
            running = await adopted(client)
            asked = await client.post(running["links"]["cancel"], json={"reason": "r", "expected_effect": "stops billing"})
            assert (asked.status_code, asked.json()["status"]) == (202, "cancelling")
            assert (asked.json()["cancel"]["by"], asked.json()["cancel"]["reason"]) == ("agent-7", "r")

    asyncio.run(scenario())


def test_refresh_makes_a_read_due_within_its_budget(tmp_path: Path) -> None:
    """G8: `202` asks for a read now; beyond the budget `429` with Retry-After; no body is taken."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            op = await adopted(client)
            assert (await client.post(op["links"]["refresh"])).status_code == 202
            assert (await client.post(op["links"]["refresh"], json={"now": 1})).status_code == 422
            await settle_read(home, op["id"], StatusFacts(reading=Reading.RUNNING, remote_state="running"))
            again = await client.post(op["links"]["refresh"])
            assert (again.status_code, again.json()["code"]) == (429, "budget")
            assert 1 <= int(again.headers["retry-after"]) <= 60

    asyncio.run(scenario())


def test_an_approval_is_a_question_that_another_person_answers(tmp_path: Path) -> None:
    """G7: listed, answered once, by somebody else; the second answer finds the question changed."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            agent, person, stranger = await home.client(), await home.client(subject="ada"), await home.client("globex")
            op = await made(agent, approval={"within_seconds": 600, "by": ["ada"]})
            assert op["status"] == "awaiting_approval"
            listed = (await person.get("/v1/questions")).json()
            QuestionsView.model_validate(listed)
            question = listed["questions"][0]["question"]
            assert (listed["questions"][0]["operation"], question["kind"]) == (op["id"], "approval")
            assert question["answers"] == ["approve", "deny"]
            assert (await stranger.get("/v1/questions")).json()["questions"] == []
            address = op["links"]["decision"]
            mine = await agent.post(address, json={"question": question["id"], "answer": "approve"})
            assert (mine.status_code, mine.json()["code"]) == (403, "not_approver")
            wrong = await person.post(address, json={"question": question["id"], "answer": "abandon"})
            assert (wrong.status_code, wrong.json()["code"]) == (422, "unknown_answer")
            nonsense = await person.post(address, json={"question": question["id"], "answer": "perhaps"})
            assert nonsense.json()["code"] == "invalid_field"
            clock = await person.post(address, json={"question": question["id"], "answer": "approve", "result_seconds": 5})
            assert clock.json()["errors"][0]["field"] == "result_seconds"
            done = await person.post(address, json={"question": question["id"], "answer": "approve", "reason": "fine"})
            assert (done.status_code, done.json()["state"]) == (200, "create_pending")
            again = await person.post(address, json={"question": question["id"], "answer": "approve"})
            assert (again.status_code, again.json()["code"], again.json()["question"]) == (409, "question_changed", None)
            rows = (await person.get(op["links"]["history"])).json()["history"]
            assert (rows[-1]["actor"], rows[-1]["cause"], rows[-1]["text"]) == ("ada", "decision", "fine")

    asyncio.run(scenario())


def test_two_answers_that_race_are_one_decision(tmp_path: Path) -> None:
    """G7: the first answer counts, the other is told that the question has changed."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            agent, ada, bob = await home.client(), await home.client(subject="ada"), await home.client(subject="bob")
            op = await made(agent, approval={})
            question = op["question"]["id"]
            answers = await asyncio.gather(
                ada.post(op["links"]["decision"], json={"question": question, "answer": "approve"}),
                bob.post(op["links"]["decision"], json={"question": question, "answer": "deny"}),
            )
            assert sorted(answer.status_code for answer in answers) == [200, 409]

    asyncio.run(scenario())


def test_naming_a_job_in_a_decision_needs_the_scope(tmp_path: Path) -> None:
    """INTERFACE: adopting a job, here too, is authorised by itself."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client(scopes=("operations:create", "operations:decide"))
            op = await made(client, approval={})
            answer = await client.post(
                op["links"]["decision"], json={"question": op["question"]["id"], "answer": "adopt", "remote_job_id": "j"}
            )
            assert (answer.status_code, answer.json()["scope"]) == (403, "operations:adopt")

    asyncio.run(scenario())

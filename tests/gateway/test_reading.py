"""Reading and waiting: what callers see of an operation, and how cheaply (MISSION G)."""

import asyncio
from dataclasses import replace
from pathlib import Path

from gateway import view
from ledger import queries
from schemas.api import HistoryView, OperationsView, OperationView
from schemas.operation import SECOND
from tests.gateway.asking import OPERATIONS, adopted, made, registered
from tests.gateway.house import event, house


def test_the_shown_operation_is_the_documented_one(tmp_path: Path) -> None:
    """INTERFACE, Operation: always the same fields, absent ones null; the model in code says the same."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            first = await made(client)
            OperationView.model_validate(first, strict=False)
            lines = (
                "id provider action status state settled final stage message error remote created_at updated_at verified_at",
                "next_check_at deadlines cancel result question reference authorized_by idempotency_key request_fingerprint",
                "trace_id supersedes superseded_by resumes expires_at metadata version links",
            )
            documented = " ".join(lines).split()
            assert [name for name in documented if name not in first] == []
            assert set(first["remote"]) == {"job_id", "state", "progress", "provider_time", "observed_at", "failed_reads", "read_error"}
            assert first["created_at"] == "2027-01-15T08:00:00.000000Z"
            assert first["idempotency_key"] == "k"
            listed = (await client.get(OPERATIONS)).json()
            OperationsView.model_validate(listed)
            HistoryView.model_validate((await client.get(first["links"]["history"])).json())

    asyncio.run(scenario())


def test_unchanged_is_304_and_a_change_is_not(tmp_path: Path) -> None:
    """G3: `If-None-Match` with the current tag, which is the version, is 304 with the same headers."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            one = await made(client, "a")
            answer = await client.get(one["links"]["self"])
            tag = answer.headers["etag"]
            assert tag == f'"{one["version"]}"'
            for header in (tag, f"W/{tag}", f'"x", {tag}', "*"):
                unchanged = await client.get(one["links"]["self"], headers={"If-None-Match": header})
                assert (unchanged.status_code, unchanged.content, unchanged.headers["etag"]) == (304, b"", tag)
                assert int(unchanged.headers["retry-after"]) >= 1
            await client.post(one["links"]["cancel"], json={})
            assert (await client.get(one["links"]["self"], headers={"If-None-Match": tag})).status_code == 200

    asyncio.run(scenario())


def test_waiting_ends_with_the_change(tmp_path: Path) -> None:
    """G3: `Prefer: wait` answers when the version changes, long before its time; woken, not polled."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            op = await made(client)
            address = op["links"]["self"]
            tag = (await client.get(address)).headers["etag"]
            waiting = [
                asyncio.create_task(client.get(address, headers={"Prefer": "wait=50", "If-None-Match": tag})),
                asyncio.create_task(client.get(address, headers={"Prefer": "respond-async, wait=50"})),
            ]
            done, _ = await asyncio.wait(waiting, timeout=0.2)
            assert not done
            await client.post(op["links"]["cancel"], json={})
            for answer in await asyncio.wait_for(asyncio.gather(*waiting), 2):
                assert (answer.status_code, answer.json()["state"]) == (200, "withdrawn")
                assert answer.headers["preference-applied"] == "wait=50"
                assert "retry-after" not in answer.headers

    asyncio.run(scenario())


def test_waiting_answers_at_once_when_there_is_news_or_nothing_to_come(tmp_path: Path) -> None:
    """G3: a differing version and a final state are answered immediately; the end of the wait is 304."""

    async def scenario() -> None:
        async with house(tmp_path, max_wait_seconds=1) as home:
            client = await home.client()
            op = await made(client)
            address = op["links"]["self"]
            answer = await asyncio.wait_for(client.get(address, headers={"Prefer": "wait=1", "If-None-Match": '"old"'}), 0.9)
            assert answer.status_code == 200
            tag = answer.headers["etag"]
            ended = await client.get(address, headers={"Prefer": "wait=99", "If-None-Match": tag})
            assert (ended.status_code, ended.headers["preference-applied"]) == (304, "wait=1")
            await client.post(op["links"]["cancel"], json={})
            final = await client.get(address)
            again = client.get(address, headers={"Prefer": "wait=1", "If-None-Match": final.headers["etag"]})
            assert (await asyncio.wait_for(again, 0.9)).status_code == 304

    asyncio.run(scenario())


def test_shutdown_answers_those_who_wait(tmp_path: Path) -> None:
    """SIGTERM: a long poll is answered at once instead of holding up the drain."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            op = await made(client)
            waiting = asyncio.create_task(client.get(op["links"]["self"], headers={"Prefer": "wait=50"}))
            await asyncio.wait([waiting], timeout=0.1)
            home.gate.closing.set()
            assert (await asyncio.wait_for(waiting, 2)).status_code == 200
            assert (await client.get("/readyz")).status_code == 503

    asyncio.run(scenario())


def test_retry_after_grows_while_nothing_changes() -> None:
    """G3: unchanged reads, failed reads and age lengthen the pause, up to a minute."""
    op = registered()
    now = op.updated_at
    pauses = [view.retry_after(replace(op, steady_reads=count), now) for count in range(7)]
    assert pauses == sorted(pauses)
    assert pauses[0] == 2
    assert pauses[-1] == 60
    assert view.retry_after(op, now + 100 * SECOND) == 25
    assert view.retry_after(op, now - 100 * SECOND) == 2


def test_a_callback_wakes_a_waiting_agent_and_makes_a_read_due(tmp_path: Path) -> None:
    """B5: a verified delivery schedules a read; it never ends an operation, whatever it claims."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            op = await adopted(client)
            home.world.pass_seconds(5)
            assert (await home.deliver("reports", event(1, state="done"))).json()["status"] == "accepted"
            after = (await client.get(op["links"]["self"])).json()
            assert (after["state"], after["final"]) == ("accepted", False)
            kept = await home.ledger.read(queries.operation, op["id"], "acme")
            assert kept is not None
            assert kept.due_at is not None
            assert kept.due_at <= home.world.now()

    asyncio.run(scenario())

"""Finding operations again, and their history (MISSION D4, G6)."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.operations import SHOWN_IN
from lifecycle.public import public_status
from schemas.states import PublicStatus, Reading, State
from tests.gateway.asking import OPERATIONS, adopted, made, registered
from tests.gateway.house import house


def test_the_listing_asks_for_every_state_that_can_show_a_status() -> None:
    """G6: no combination of state, reading and cancel intent shows a status whose listing would not look there."""
    for state in State:
        for reading in (None, *Reading):
            for unsure in (0, 1):
                for outcome in (None, "requested", "refused"):
                    op = replace(
                        registered(),
                        state=state,
                        reading=reading,
                        unsure_creates=unsure,
                        cancel_outcome=outcome,
                        cancel_requested_at=None if outcome is None else 1,
                    )
                    assert state in SHOWN_IN[public_status(op)], (state, reading, unsure, outcome)
    assert set(SHOWN_IN) == set(PublicStatus)


def test_finding_by_filter_and_page(tmp_path: Path) -> None:
    """G6: an owner finds its operations by key, reference, job, status, state, provider and time, page by page."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            ids = []
            for number in range(5):
                home.world.pass_seconds(1)
                ids.append((await made(client, f"k{number}", reference=f"r{number % 2}"))["id"])
            home.world.pass_seconds(1)
            ids.append((await adopted(client, "job-9"))["id"])
            stopped = await client.post(f"{OPERATIONS}/{ids[0]}/cancel", json={})
            assert stopped.json()["status"] == "cancelled"

            async def found(**filters: Any) -> list[str]:
                answer = await client.get(OPERATIONS, params=filters)
                assert answer.status_code == 200, answer.text
                return [item["id"] for item in answer.json()["operations"]]

            assert await found() == ids[::-1]
            assert await found(reference="r1") == [ids[3], ids[1]]
            assert await found(idempotency_key="k2") == [ids[2]]
            assert await found(remote_job_id="job-9") == [ids[5]]
            assert await found(status="cancelled") == [ids[0]]
            assert await found(status="queued") == ids[4:0:-1]
            assert await found(status="queued", state="accepted") == []
            assert await found(state="accepted") == [ids[5]]
            assert await found(provider="github") == []
            assert await found(created_after="2027-01-15T08:00:05Z") == [ids[5], ids[4]]
            assert await found(created_before="2027-01-15T09:00:02+01:00") == [ids[0]]
            pages: list[str] = []
            cursor = None
            for _ in range(10):
                params = {"limit": "2", "status": "queued", **({} if cursor is None else {"cursor": cursor})}
                page = (await client.get(OPERATIONS, params=params)).json()
                pages += [item["id"] for item in page["operations"]]
                cursor = page["next_cursor"]
                if cursor is None:
                    break
            assert pages == ids[4:0:-1]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("unknown=1", "invalid_request"),
        ("limit=0", "invalid_request"),
        ("limit=1&limit=2", "invalid_request"),
        ("limit=201", "invalid_request"),
        ("limit=%C2%B2", "invalid_request"),
        ("status=done", "invalid_request"),
        ("state=zombie", "invalid_request"),
        ("created_after=yesterday", "invalid_request"),
        ("created_after=2027-01-15T08:00:00", "invalid_request"),
        ("reference=%FF", "invalid_request"),
        ("reference=%00", "invalid_request"),
        ("cursor=x", "invalid_cursor"),
        ("cursor=" + "A" * 600, "invalid_cursor"),
        ("cursor=W10", "invalid_cursor"),
        ("&".join(f"a{number}=1" for number in range(40)), "invalid_request"),
    ],
)
def test_queries_that_are_wrong_are_400(tmp_path: Path, query: str, code: str) -> None:
    """Whatever stands in a query has a clear answer."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            answer = await client.get(f"{OPERATIONS}?{query}")
            assert (answer.status_code, answer.json()["code"]) == (400, code)

    asyncio.run(scenario())


def test_a_cursor_belongs_to_its_filter_and_owner(tmp_path: Path) -> None:
    """INTERFACE: cursors are bound to their filter; another owner cannot use one either."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client, other = await home.client(), await home.client("globex")
            for number in range(3):
                await made(client, f"k{number}")
            cursor = (await client.get(OPERATIONS, params={"limit": 1})).json()["next_cursor"]
            assert (await client.get(OPERATIONS, params={"limit": 2, "cursor": cursor})).status_code == 200
            assert (await client.get(OPERATIONS, params={"provider": "reports", "cursor": cursor})).status_code == 400
            assert (await other.get(OPERATIONS, params={"cursor": cursor})).status_code == 400

    asyncio.run(scenario())


def test_history_is_paged_and_names_who_did_what(tmp_path: Path) -> None:
    """D4, D6: rows in order, with actor, cause and words; nothing of the request body or a token in them."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            op = await made(client, "k", metadata={"m": "meta-canary"})
            cancelled = (await client.post(op["links"]["cancel"], json={"reason": "too dear"})).json()
            assert cancelled["cancel"]["reason"] == "too dear"
            page = (await client.get(op["links"]["history"], params={"limit": 1})).json()
            assert [row["seq"] for row in page["history"]] == [1]
            rest = (await client.get(op["links"]["history"], params={"cursor": page["next_cursor"]})).json()
            rows = page["history"] + rest["history"]
            assert rest["next_cursor"] is None
            assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
            assert (rows[-1]["actor"], rows[-1]["cause"], rows[-1]["to_state"]) == ("agent-7", "request", "withdrawn")
            assert "meta-canary" not in str(rows)
            assert "token-" not in str(rows)

    asyncio.run(scenario())

"""Reading, waiting, finding, asking and downloading: what callers see of an operation (MISSION G)."""

import asyncio
import base64
import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway import view
from gateway.operations import SHOWN_IN
from ledger import queries
from ledger.fold import Fold
from ledger.ledger import Ledger
from ledger.transaction import Transaction
from lifecycle.public import public_status
from schemas.api import HistoryView, OperationsView, OperationView, QuestionsView
from schemas.operation import SECOND, Operation
from schemas.states import Cause, PublicStatus, Reading, State
from tests.gateway.house import House, event, house

OPERATIONS = "/v1/operations"


async def made(client: httpx.AsyncClient, key: str = "k", **more: Any) -> dict[str, Any]:
    body = {"provider": "reports", "request": {"n": key}, **more}
    found: dict[str, Any] = (await client.post(OPERATIONS, json=body, headers={"Idempotency-Key": key})).json()
    return found


async def adopted(client: httpx.AsyncClient, job: str = "job-1") -> dict[str, Any]:
    found: dict[str, Any] = (await client.post(OPERATIONS, json={"provider": "reports", "remote_job_id": job})).json()
    return found


def test_the_shown_operation_is_the_documented_one(tmp_path: Path) -> None:
    """INTERFACE, Operation: always the same fields, absent ones null; the model in code says the same."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            first = await made(client)
            OperationView.model_validate(first, strict=False)
            documented = (
                "id provider action status state settled final stage message error remote created_at updated_at verified_at"
                " next_check_at deadlines cancel result question reference authorized_by idempotency_key request_fingerprint"
                " trace_id supersedes superseded_by resumes expires_at metadata version links"
            ).split()
            assert [name for name in documented if name not in first] == []
            assert set(first["remote"]) == {"job_id", "state", "progress", "provider_time", "observed_at"}
            assert first["created_at"] == "2027-01-15T08:00:00.000000Z"
            assert first["idempotency_key"] == "k"
            listed = (await client.get(OPERATIONS)).json()
            OperationsView.model_validate(listed)
            HistoryView.model_validate((await client.get(first["links"]["history"])).json())

    asyncio.run(scenario())


def test_unchanged_is_304_and_the_tag_is_bound_to_the_operation(tmp_path: Path) -> None:
    """G3: `If-None-Match` with the current tag is 304 with the same headers; another operation's tag is not it."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            one, two = await made(client, "a"), await made(client, "b")
            answer = await client.get(one["links"]["self"])
            tag = answer.headers["etag"]
            for header in (tag, f"W/{tag}", f'"x", {tag}', "*"):
                unchanged = await client.get(one["links"]["self"], headers={"If-None-Match": header})
                assert (unchanged.status_code, unchanged.content, unchanged.headers["etag"]) == (304, b"", tag)
                assert int(unchanged.headers["retry-after"]) >= 1
            assert (await client.get(two["links"]["self"], headers={"If-None-Match": tag})).status_code == 200
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
    op = _operation()
    now = op.updated_at
    pauses = [view.retry_after(replace(op, steady_reads=count), now) for count in range(7)]
    assert pauses == sorted(pauses)
    assert pauses[0] == 2
    assert pauses[-1] == 60
    assert view.retry_after(op, now + 100 * SECOND) == 25
    assert view.retry_after(op, now - 100 * SECOND) == 2


def test_the_listing_asks_for_every_state_that_can_show_a_status() -> None:
    """G6: no combination of state, reading and cancel intent shows a status whose listing would not look there."""
    for state in State:
        for reading in (None, *Reading):
            for unsure in (0, 1):
                for outcome in (None, "requested", "refused"):
                    op = replace(
                        _operation(),
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
            await client.post(op["links"]["cancel"], json={"reason": "too dear"})
            page = (await client.get(op["links"]["history"], params={"limit": 1})).json()
            assert [row["seq"] for row in page["history"]] == [1]
            rest = (await client.get(op["links"]["history"], params={"cursor": page["next_cursor"]})).json()
            rows = page["history"] + rest["history"]
            assert rest["next_cursor"] is None
            assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
            assert (rows[-1]["actor"], rows[-1]["cause"], rows[-1]["to_state"]) == ("agent-7", "request", "withdrawn")
            assert "too dear" in [row["text"] for row in rows]
            assert "meta-canary" not in str(rows)
            assert "token-" not in str(rows)

    asyncio.run(scenario())


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
            await _change(home.ledger, op["id"], last_read_at=home.world.now())
            again = await client.post(op["links"]["refresh"])
            assert (again.status_code, again.json()["code"]) == (429, "budget")
            assert 1 <= int(again.headers["retry-after"]) <= 60

    asyncio.run(scenario())


def test_an_approval_is_a_question_that_another_person_answers(tmp_path: Path) -> None:
    """G7: listed, answered once, by somebody else; the second answer finds the question changed."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            agent, person, stranger = await home.client(), await home.client(subject="ada"), await home.client("globex")
            op = await made(agent, approval={"within_seconds": 600})
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


RESULT = b"name,amount\nada,1\nbob,2\n"


def test_a_result_is_downloaded_whole_or_in_part(tmp_path: Path) -> None:
    """F: bytes with digest and tag; one range; 304; `HEAD`; nothing that a browser would run."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            op = await adopted(client)
            address = op["links"]["result"]
            early = await client.get(address)
            assert (early.status_code, early.json()["code"], early.json()["operation"]) == (409, "not_ready", op["id"])
            assert early.headers["retry-after"]
            home.files["art_1"] = RESULT
            await _succeed(home, op["id"])
            whole = await client.get(address)
            digest = hashlib.sha256(RESULT).digest()
            assert (whole.status_code, whole.content) == (200, RESULT)
            assert whole.headers["content-length"] == str(len(RESULT))
            assert whole.headers["content-type"] == "text/csv"
            assert whole.headers["repr-digest"] == f"sha-256=:{base64.b64encode(digest).decode()}:"
            assert whole.headers["etag"] == f'"sha256:{digest.hex()}"'
            assert whole.headers["content-disposition"].startswith("attachment")
            assert "sandbox" in whole.headers["content-security-policy"]
            tag = whole.headers["etag"]
            assert (await client.get(address, headers={"If-None-Match": tag})).status_code == 304
            head = await client.head(address)
            assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", str(len(RESULT)))
            for asked, wanted in (
                ("bytes=0-3", RESULT[:4]),
                ("bytes=5-", RESULT[5:]),
                ("bytes=-4", RESULT[-4:]),
                ("bytes=-999", RESULT),
                ("bytes=3-99999", RESULT[3:]),
            ):
                part = await client.get(address, headers={"Range": asked})
                start = len(RESULT) - len(wanted) if asked != "bytes=0-3" else 0
                assert (part.status_code, part.content) == (206, wanted), asked
                assert part.headers["content-range"] == f"bytes {start}-{start + len(wanted) - 1}/{len(RESULT)}"
            for ignored in ("bytes=0-1,3-4", "bytes=x-", "lines=1-2", "bytes=-", "bytes=5-3"):
                assert (await client.get(address, headers={"Range": ignored})).status_code == 200, ignored
            changed = await client.get(address, headers={"Range": "bytes=0-3", "If-Range": '"other"'})
            assert changed.status_code == 200
            for outside in ("bytes=999-", "bytes=-0"):
                beyond = await client.get(address, headers={"Range": outside})
                assert (beyond.status_code, beyond.headers["content-range"]) == (416, f"bytes */{len(RESULT)}")
            del home.files["art_1"]
            gone = await client.get(address)
            assert (gone.status_code, gone.json()["code"]) == (410, "result_expired")

    asyncio.run(scenario())


def test_an_end_without_a_result_says_so(tmp_path: Path) -> None:
    """F: a withdrawn operation has nothing to wait for."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            op = await made(client)
            await client.post(op["links"]["cancel"])
            answer = await client.get(op["links"]["result"])
            assert (answer.status_code, answer.json()["code"], answer.json()["state"]) == (409, "no_result", "withdrawn")
            assert "retry-after" not in answer.headers

    asyncio.run(scenario())


def test_what_failed_validation_is_shown_only_to_whoever_may_decide(tmp_path: Path) -> None:
    """F2: kept for inspection, and no result to a caller who would take it for one."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            caller = await home.client(scopes=("operations:read", "operations:download"))
            op = await adopted(client)
            home.files["art_1"] = RESULT
            await _change(
                home.ledger,
                op["id"],
                state=State.RESULT_VALIDATION_FAILED,
                question_id="q_1",
                question_kind="result_validation_failed",
                due_at=None,
                **_stored(),
            )
            assert (await caller.get(op["links"]["result"])).json()["code"] == "not_ready"
            assert (await client.get(op["links"]["result"])).content == RESULT

    asyncio.run(scenario())


def _stored() -> dict[str, Any]:
    return {
        "result_artifact": "art_1",
        "result_media_type": "text/csv",
        "result_bytes": len(RESULT),
        "result_sha256": hashlib.sha256(RESULT).hexdigest(),
        "result_complete": True,
    }


async def _succeed(home: House, operation: str) -> None:
    await _change(home.ledger, operation, state=State.SUCCEEDED, due_at=None, verdict_cause=Cause.READING, **_stored())


async def _change(ledger: Ledger, operation: str, **columns: Any) -> None:
    raise NotImplementedError(ledger, operation, columns, Fold, Transaction)


def _operation() -> Operation:
    raise NotImplementedError

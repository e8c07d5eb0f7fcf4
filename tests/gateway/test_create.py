"""POST /v1/operations: what is recorded, what is refused by name, and that a key stands for one intent."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from ledger import queries
from tests.gateway.house import House, house

BODY: dict[str, Any] = {"provider": "reports", "request": {"a": 1, "b": 2}}
OPERATIONS = "/v1/operations"


async def create(client: httpx.AsyncClient, body: Any, key: str | None = "k-1") -> httpx.Response:
    headers = {"Content-Type": "application/json", **({} if key is None else {"Idempotency-Key": key})}
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await client.post(OPERATIONS, content=content, headers=headers)


async def count(home: House) -> int:
    return len(await home.ledger.read(queries.operations, queries.OperationFilter(owner=None), 1000))


def test_a_create_is_recorded_and_answered_with_where_to_look(tmp_path: Path) -> None:
    """G1: `202` with Location, Retry-After, ETag and the operation, which is in the record by then (A1)."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            answer = await create(client, {**BODY, "reference": "order-9", "authorized_by": "Ada", "metadata": {"team": "x"}})
            made = answer.json()
            assert answer.status_code == 202
            assert answer.headers["location"] == f"/v1/operations/{made['id']}"
            assert int(answer.headers["retry-after"]) >= 1
            assert answer.headers["etag"] == f'"{made["id"]}.{made["version"]}"'
            assert (made["status"], made["state"], made["settled"]) == ("queued", "create_pending", False)
            kept = await home.ledger.read(queries.operation, made["id"], "acme")
            assert kept is not None
            assert (kept.request, kept.subject, kept.origin) == (b'{"a":1,"b":2}', "agent-7", "https://api.reports.example")
            assert (made["reference"], made["authorized_by"], made["metadata"]) == ("order-9", "Ada", {"team": "x"})
            assert made["idempotency_token"] is None

    asyncio.run(scenario())


def test_the_same_key_and_request_is_the_same_operation(tmp_path: Path) -> None:
    """B052, A3: a retry gets the operation again, marked as a replay; nothing new is recorded."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            first, second = await create(client, BODY), await create(client, BODY)
            assert (first.status_code, second.status_code) == (202, 200)
            assert second.headers["idempotency-replayed"] == "true"
            assert "idempotency-replayed" not in first.headers
            assert first.json()["id"] == second.json()["id"]
            assert await count(home) == 1

    asyncio.run(scenario())


def test_requests_that_race_with_one_key_make_one_operation(tmp_path: Path) -> None:
    """B052: twenty at once, one record; exactly one of them is told that it made it."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            answers = await asyncio.gather(*(create(client, BODY) for _ in range(20)))
            assert sorted(answer.status_code for answer in answers) == [200] * 19 + [202]
            assert len({answer.json()["id"] for answer in answers}) == 1
            assert await count(home) == 1

    asyncio.run(scenario())


def test_a_key_with_another_request_is_422_also_while_racing(tmp_path: Path) -> None:
    """B057: another body under the key is refused with 422 at any time, and changes nothing."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            other = {**BODY, "request": {"a": 2}}
            answers = await asyncio.gather(create(client, BODY), create(client, other), create(client, BODY))
            statuses = sorted(answer.status_code for answer in answers)
            assert statuses in ([200, 202, 422], [202, 422, 422])
            refused = next(answer for answer in answers if answer.status_code == 422)
            assert refused.json()["code"] == "idempotency_key_reused"
            assert await count(home) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("second", "same"),
    [
        (b'{"provider":"reports","request":{"b":2,"a":1}}', True),
        (b' {"request" : {"a":1, "b":2},\n "provider":"reports"}', True),
        (b'{"provider":"reports","request":{"a":1.0,"b":2}}', False),
        (b'{"provider":"reports","request":{"a":1,"b":2,"c":null}}', False),
        (b'{"provider":"reports","request":{"a":1,"b":"2"}}', False),
        (b'{"provider":"reports","request":{"a":1,"b":2},"expect":{"media_type":"text/csv"}}', False),
        (b'{"provider":"reports","request":{"a":1,"b":2},"create":"external"}', False),
        (b'{"provider":"github","request":{"a":1,"b":2}}', False),
        (b'{"provider":"reports","request":{"a":1,"b":2},"reference":"later"}', True),
    ],
    ids=["key-order", "white-space", "float", "null", "text", "expectations", "mode", "provider", "reference"],
)
def test_what_counts_as_the_same_request(tmp_path: Path, second: bytes, same: bool) -> None:  # noqa: FBT001 - a parameter
    """B058: key order and white space do not matter; number forms, null, mode, provider and expectations do."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            await create(client, BODY)
            answer = await create(client, second)
            assert answer.status_code == (200 if same else 422)

    asyncio.run(scenario())


def test_composed_and_decomposed_text_differ(tmp_path: Path) -> None:
    """B058: Unicode forms are not normalised."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            await create(client, {"provider": "reports", "request": {"name": "\u00e9"}})
            answer = await create(client, {"provider": "reports", "request": {"name": "e\u0301"}})
            assert answer.json()["code"] == "idempotency_key_reused"

    asyncio.run(scenario())


def test_keys_belong_to_their_owner(tmp_path: Path) -> None:
    """B152: two owners use the same key for two operations, and neither learns of the other's."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            ours, theirs = await home.client("acme"), await home.client("globex")
            mine, other = await create(ours, BODY), await create(theirs, {**BODY, "request": {"secret": 1}})
            assert (mine.status_code, other.status_code) == (202, 202)
            assert mine.json()["id"] != other.json()["id"]
            found = (await theirs.get(OPERATIONS, params={"idempotency_key": "k-1"})).json()["operations"]
            assert [item["id"] for item in found] == [other.json()["id"]]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("key", "code"),
    [
        (None, "idempotency_key_required"),
        ("", "invalid_idempotency_key"),
        ("with space", "invalid_idempotency_key"),
        ("x" * 256, "invalid_idempotency_key"),
        ("\u00e9", "invalid_idempotency_key"),
    ],
)
def test_the_key_is_required_and_well_formed(tmp_path: Path, key: str | None, code: str) -> None:
    """A3: without a key nothing is recorded; a key is 1-255 visible ASCII characters."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            headers = [(b"content-type", b"application/json")]
            if key is not None:
                headers.append((b"idempotency-key", key.encode("latin-1")))
            answer = await client.post(OPERATIONS, content=json.dumps(BODY).encode(), headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (400, code)
            assert await count(home) == 0

    asyncio.run(scenario())


def test_two_key_headers_are_no_key(tmp_path: Path) -> None:
    """A3: a repeated header is refused instead of one of them being chosen."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            headers = [(b"content-type", b"application/json"), (b"idempotency-key", b"a"), (b"idempotency-key", b"b")]
            answer = await client.post(OPERATIONS, content=json.dumps(BODY).encode(), headers=headers)
            assert answer.json()["code"] == "invalid_idempotency_key"

    asyncio.run(scenario())


FAULTS: list[tuple[dict[str, Any], str, str]] = [
    ({**BODY, "provder": "x"}, "provder", "did you mean provider"),
    ({**BODY, "deadlines": {"create_second": 5}}, "deadlines.create_second", "did you mean create_seconds"),
    ({**BODY, "zzz": 1}, "zzz", "unknown field; known are"),
    ({**BODY, "deadlines": {"create_seconds": 0}}, "deadlines.create_seconds", "greater than or equal to 1"),
    ({**BODY, "deadlines": {"result_seconds": 7_776_001}}, "deadlines.result_seconds", "less than or equal to 7776000"),
    ({**BODY, "deadlines": {"create_seconds": "5"}}, "deadlines.create_seconds", "valid integer"),
    ({**BODY, "deadlines": {"create_seconds": True}}, "deadlines.create_seconds", "valid integer"),
    ({**BODY, "request": [1]}, "request", "valid dictionary"),
    ({**BODY, "request": {"n": 2**53}}, "request", "2^53"),
    ({"provider": "reports"}, "request", "give a request"),
    ({**BODY, "remote_job_id": "j"}, "remote_job_id", "goes without request"),
    ({"provider": "reports", "remote_job_id": "a\u0000b"}, "remote_job_id", "pattern"),
    ({**BODY, "reference": ""}, "reference", "at least 1 character"),
    ({**BODY, "create": "internal"}, "create", "external"),
    ({**BODY, "expect": {"sha256": "ABC"}}, "expect.sha256", "pattern"),
    ({**BODY, "expect": {"min_bytes": 2, "max_bytes": 1}}, "expect.min_bytes", "more than max_bytes"),
    ({**BODY, "metadata": {"a": 1}}, "metadata.a", "valid string"),
    ({**BODY, "metadata": {str(number): "x" for number in range(51)}}, "metadata", "at most 50"),
    ({**BODY, "action": "other"}, "action", "this provider has create"),
    ({**BODY, "approval": {"by": ["x"] * 21}}, "approval.by", "at most 20"),
]


@pytest.mark.parametrize(("body", "field", "message"), FAULTS, ids=[fault[1] + "-" + fault[2][:12] for fault in FAULTS])
def test_faulty_fields_are_named(tmp_path: Path, body: dict[str, Any], field: str, message: str) -> None:
    """Unknown fields are refused by name with the nearest known one; values by what is wrong with them."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            answer = await create(client, body)
            problem = answer.json()
            assert (answer.status_code, problem["code"]) == (422, "invalid_field")
            assert [error["field"] for error in problem["errors"]] == [field]
            assert message in problem["errors"][0]["message"]
            assert await count(home) == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("name", ["supersedes", "resumes", "notify"])
def test_fields_of_later_versions_are_refused_and_not_ignored(tmp_path: Path, name: str) -> None:
    """A3: a field whose promise cannot be kept yet is refused by name, never silently dropped."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            answer = await create(client, {**BODY, name: "op_1"})
            assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (422, "not_available", name)
            assert await count(home) == 0

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "body",
    [
        b'{"provider":"reports","request":{"progress":NaN}}',
        b'{"provider":"reports","provider":"github","request":{}}',
        b'{"provider":"reports","request":{"a":1,"\\u0061":2}}',
        b"[" * 100_000,
        b"\xff",
        b"",
        b"[]",
        b'"text"',
        b'{"provider":"reports","request":{"a":"\\ud800"}}',
        b'{"provider":"reports","request":{"a":1e999}}',
    ],
)
def test_bodies_that_are_not_strict_json_are_400(tmp_path: Path, body: bytes) -> None:
    """B134, B136, B139: NaN, duplicate keys, depth, bad UTF-8 and lone surrogates have one clear answer."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            answer = await create(client, body)
            assert (answer.status_code, answer.json()["code"]) == (400, "unreadable_body")

    asyncio.run(scenario())


def test_bounds_and_types_of_bodies(tmp_path: Path) -> None:
    """B10, B155: too large is 413, compressed is 415, another media type is 415."""

    async def scenario() -> None:
        async with house(tmp_path, api_body_bytes=1_000) as home:
            client = await home.client()
            assert (await create(client, {**BODY, "request": {"a": "x" * 1_000}})).status_code == 413
            zipped = await client.post(OPERATIONS, content=b"x", headers={"Content-Encoding": "gzip"})
            assert (zipped.status_code, zipped.json()["code"]) == (415, "unsupported_encoding")
            form = await client.post(OPERATIONS, data={"provider": "reports"})
            assert (form.status_code, form.json()["code"]) == (415, "unsupported_media_type")

    asyncio.run(scenario())


def test_a_foreign_provider_is_as_unknown_as_none(tmp_path: Path) -> None:
    """G4: a provider that another owner may use looks like one that does not exist."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            stranger, owner = await home.client("globex"), await home.client("acme")
            foreign = await create(stranger, {"provider": "private", "request": {}})
            absent = await create(stranger, {"provider": "nothing", "request": {}})
            assert (foreign.status_code, foreign.json()) == (absent.status_code, absent.json())
            assert foreign.json()["code"] == "unknown_provider"
            assert (await create(owner, {"provider": "private", "request": {}})).status_code == 202

    asyncio.run(scenario())


def test_contracts_that_cannot_carry_operations_say_so(tmp_path: Path) -> None:
    """A contract without a status request is receive-only; one without a create takes only jobs that exist."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            for body in ({"provider": "token", "request": {}}, {"provider": "token", "remote_job_id": "j"}):
                answer = await create(client, body)
                assert (answer.status_code, answer.json()["code"]) == (422, "receive_only")
            assert (await create(client, {"provider": "adopted", "request": {}})).json()["code"] == "receive_only"
            assert (await create(client, {"provider": "adopted", "remote_job_id": "j"}, key=None)).status_code == 202

    asyncio.run(scenario())


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


def test_storage_that_is_gone_is_503_and_a_retry_starts_afresh(tmp_path: Path) -> None:
    """B055: a failure before the commit is not remembered; the same key works afterwards."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            await client.get(OPERATIONS)  # the key is in the cache
            home.ledger.close()
            answer = await create(client, BODY)
            assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
            assert answer.headers["retry-after"]
        async with house(tmp_path) as again:
            client = await again.client(subject="agent-8")
            assert (await create(client, BODY)).status_code == 202

    asyncio.run(scenario())

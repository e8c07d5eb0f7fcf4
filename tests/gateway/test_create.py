"""POST /v1/operations: what is recorded, and what is refused by name."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ledger import queries
from tests.gateway.asking import BODY, OPERATIONS, count, create
from tests.gateway.house import house

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
            assert answer.headers["etag"] == f'"{made["version"]}"'
            assert (made["status"], made["state"], made["settled"]) == ("queued", "create_pending", False)
            kept = await home.ledger.read(queries.operation, made["id"], "acme")
            assert kept is not None
            assert (kept.request, kept.subject, kept.origin) == (b'{"a":1,"b":2}', "agent-7", "https://api.reports.example")
            assert (made["reference"], made["authorized_by"], made["metadata"]) == ("order-9", "Ada", {"team": "x"})
            assert made["idempotency_token"] is None

    asyncio.run(scenario())


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


@pytest.mark.parametrize("name", ["notify"])
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

"""A key stands for one intent, whatever races and whatever fails (MISSION A3)."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.gateway.asking import BODY, OPERATIONS, count, create
from tests.gateway.house import house


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
        async with house(tmp_path, first_id=1_000) as again:
            client = await again.client(subject="agent-8")
            assert (await create(client, BODY)).status_code == 202

    asyncio.run(scenario())

"""What a caller demands of a result, checked when it is asked for, and told when it has come (F2, F5, F6)."""

import asyncio
import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from schemas.evidence import Collected, Items, ResultInvalid, StatusFacts, StoredFile
from schemas.states import Reading
from tests.gateway.asking import BODY, FILE, RESULT, adopted, create, settle_read
from tests.gateway.house import house

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}
ERRORS = b'{"custom_id": "item-499"}\n'
SECOND_FILE = StoredFile(
    role="errors", key="art_2", media_type="application/jsonl", bytes=len(ERRORS), sha256=hashlib.sha256(ERRORS).hexdigest()
)
ITEMS = Items(succeeded=498, failed=2, missing=0, failed_refs=("item-498", "item-499"))


@pytest.mark.parametrize(
    ("expect", "field", "word"),
    [
        ({"json_schema": {"$ref": "https://schemas.example/x"}}, "expect.json_schema", "nothing is fetched"),
        ({"json_schema": {"type": "whole"}}, "expect.json_schema", "no schema"),
        ({"json_schema": {"pattern": "(?=a)b"}}, "expect.json_schema", "no schema"),
        ({"json_schema": {"$ref": "#"}}, "expect.json_schema", "back to itself"),
        ({"json_schema": []}, "expect.json_schema", "dictionary"),
        ({"records": -1}, "expect.records", "greater than"),
        ({"records": True}, "expect.records", "valid"),
        ({"records": {}}, "expect.records", "min, max or both"),
        ({"records": {"min": 3, "max": 2}}, "expect.records.min", "more than max"),
        ({"records": {"about": 3}}, "expect.records", "unknown field"),
    ],
)
def test_a_demand_that_cannot_be_kept_is_refused_when_it_is_made(tmp_path: Path, expect: Any, field: str, word: str) -> None:
    """F2: the field and the cure, before anything is recorded or sent."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            answer = await create(client, {**BODY, "expect": expect})
            assert answer.status_code == 422, answer.text
            assert any(error["field"].startswith(field) and word in error["message"] for error in answer.json()["errors"]), answer.text
            assert (await client.get("/v1/operations")).json()["operations"] == []

    asyncio.run(scenario())


def test_a_demand_is_part_of_what_a_key_stands_for(tmp_path: Path) -> None:
    """A3, F2: the same key with another schema or another count is another request."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            asked = {**BODY, "expect": {"json_schema": SCHEMA, "records": {"min": 1}}}
            assert (await create(client, asked)).status_code == 202
            assert (await create(client, asked)).headers["idempotency-replayed"] == "true"
            for other in ({"json_schema": SCHEMA}, {"json_schema": {**SCHEMA, "required": ["n"]}, "records": {"min": 1}}, {"records": 1}):
                answer = await create(client, {**BODY, "expect": other})
                assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_key_reused")

    asyncio.run(scenario())


def test_items_and_files_of_a_result_are_told_and_fetched(tmp_path: Path) -> None:
    """F5: counts, names of failed items, each file by its role with its own digest; an unknown role is named with those there are."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            op = await adopted(client)
            home.files |= {"art_1": RESULT, "art_2": ERRORS}
            done = Collected(files=(FILE, SECOND_FILE), records=500, items=ITEMS)
            await settle_read(home, op["id"], StatusFacts(reading=Reading.SUCCEEDED, inline=done))
            result = (await client.get(op["links"]["self"])).json()["result"]
            counts = {"succeeded": 498, "failed": 2, "missing": 0, "duplicates": 0, "unreadable": 0}
            assert result["items"] == {**counts, "failed_refs": ["item-498", "item-499"]}
            assert (result["records"], result["complete"], result["expires_at"]) == (500, True, "2027-02-14T08:00:00.000000Z")
            assert [file["role"] for file in result["files"]] == ["output", "errors"]
            for file, body in zip(result["files"], (RESULT, ERRORS), strict=True):
                answer = await client.get(file["url"])
                assert (answer.status_code, answer.content) == (200, body)
                assert answer.headers["content-type"].startswith(file["media_type"])
                assert answer.headers["etag"] == f'"sha256:{file["sha256"]}"'
                assert answer.headers["x-content-type-options"] == "nosniff"
            part = await client.get(result["files"][1]["url"], headers={"Range": "bytes=2-4"})
            assert (part.status_code, part.content) == (206, ERRORS[2:5])
            assert part.headers["content-disposition"] == f'attachment; filename="{op["id"]}-errors"'
            unknown = await client.get(f"{op['links']['result']}?file=logs")
            assert (unknown.status_code, unknown.json()["code"], unknown.json()["files"]) == (404, "unknown_file", ["errors", "output"])
            assert (await client.get(f"{op['links']['result']}?role=errors")).json()["code"] == "invalid_request"

    asyncio.run(scenario())


def test_a_result_is_given_out_until_its_date(tmp_path: Path) -> None:
    """F6: 410 from then on, whether or not the file is still there; the end, its counts and digest stay."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            op = await adopted(client)
            home.files["art_1"] = RESULT
            done = Collected(files=(FILE,))
            await settle_read(home, op["id"], StatusFacts(reading=Reading.SUCCEEDED, inline=done))
            home.world.pass_seconds(30 * 86_400 - 1)
            assert (await client.get(op["links"]["result"])).status_code == 200
            home.world.pass_seconds(1)
            gone = await client.get(op["links"]["result"])
            assert (gone.status_code, gone.json()["code"], gone.json()["state"]) == (410, "result_expired", "succeeded")
            assert gone.json()["expired_at"] == "2027-02-14T08:00:00.000000Z"
            kept = (await client.get(op["links"]["self"])).json()
            assert (kept["status"], kept["result"]["sha256"]) == ("succeeded", FILE.sha256)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("answer", "state"), [("accept_result", "succeeded"), ("reject", "failed"), ("retry", "result_collecting"), ("abandon", "abandoned")]
)
def test_a_person_answers_for_a_result_that_does_not_fit(tmp_path: Path, answer: str, state: str) -> None:
    """F2: the question names its answers, and each of them works; who accepted it stands in the result."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client(subject="ada")
            op = await adopted(client)
            home.files["art_1"] = RESULT
            invalid = ResultInvalid(
                code="items_missing", message="2 items are in none of the files", files=(FILE,), items=replace(ITEMS, missing=2)
            )
            await settle_read(home, op["id"], StatusFacts(reading=Reading.SUCCEEDED, inline=invalid))
            parked = (await client.get(op["links"]["self"])).json()
            assert (parked["state"], parked["error"]["code"]) == ("result_validation_failed", "items_missing")
            assert parked["question"]["answers"] == ["accept_result", "retry", "reject", "abandon"]
            body = {"question": parked["question"]["id"], "answer": answer, "reason": "seen"}
            after = (await client.post(op["links"]["decision"], json=body)).json()
            assert (after["state"], after["question"]) == (state, None)
            assert after["result"]["accepted_by"] == ("ada" if answer == "accept_result" else None)
            assert after["result"]["items"]["missing"] == 2

    asyncio.run(scenario())

"""What a stranger or a caller with bad intentions sends: an answer each time, never a fault of ours, on both databases."""

import asyncio
import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from cli.world import RealWorld
from tests.conformance.conftest import Database
from tests.faults.whole import QUIET, Whole, add_key, whole


def _cursor(*parts: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")


def _bound(*parts: Any) -> str:
    """Return what binds a cursor to its listing: no secret, so that anybody may write cursors of their own."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


ODD_NUMBERS = [10**30, -(10**30), 2**63, -(2**63) - 1, True, None, 1.5, "1", [1]]
ODD_TEXTS = ["\ud800", "a\x00b", "\x7f", "é", "", "x" * 200]


def test_a_cursor_of_ones_own_making_is_refused_or_harmless(tmp_path: Path, database: Database) -> None:
    """G6, B130: numbers and texts that no database takes are 400 `invalid_cursor`; nothing is a fault of ours."""

    async def scenario() -> None:
        async with whole(tmp_path, database_url=database.url, contract=QUIET, reconcile=False) as home:
            made = await home.adopted("job-1")
            client = home.client()
            for number in ODD_NUMBERS:
                cursor = _cursor(_bound("history", made), number)
                answer = await client.get(f"/v1/operations/{made}/history", params={"cursor": cursor})
                assert (answer.status_code, answer.json()["code"]) == (400, "invalid_cursor"), number
            for position in [*((number, "op_1") for number in ODD_NUMBERS), (1,), (), *((1, text) for text in ODD_TEXTS)]:
                cursor = _cursor(_bound("operations", "acme", {}), *position)
                answer = await client.get("/v1/operations", params={"cursor": cursor})
                assert answer.status_code in {200, 400}, position

    asyncio.run(scenario())


TEXTS = {
    "nul": "a\x00b",
    "control": "a\x1b[31m\r\nb",
    "separator": "a\u2028b",
    "surrogate": "\ud800",
    "plane": "\U0001f4a9",
    "long": "x" * 3_000,
}
FIELDS = ["provider", "reference", "authorized_by", "metadata", "metadata_key", "request", "request_key", "approval", "action"]


def _body(field: str, text: str) -> dict[str, Any]:
    body: dict[str, Any] = {"provider": "reports", "request": {"a": 1}}
    match field:
        case "metadata":
            return {**body, "metadata": {"a": text}}
        case "metadata_key":
            return {**body, "metadata": {text: "a"}}
        case "request":
            return {**body, "request": {"a": text}}
        case "request_key":
            return {**body, "request": {text: 1}}
        case "approval":
            return {**body, "approval": {"by": [text]}}
        case _:
            return {**body, field: text}


async def _ask(client: httpx.AsyncClient, method: str, path: str, body: Any) -> httpx.Response:
    headers = {"Content-Type": "application/json", "Idempotency-Key": RealWorld().new_token()}
    return await client.request(method, path, content=json.dumps(body).encode(), headers=headers)


def test_texts_that_a_database_refuses_never_fail_here(tmp_path: Path, database: Database) -> None:
    """B137: NUL, controls, separators and lone surrogates in every text that callers send: taken or refused, and readable again."""

    async def scenario() -> None:
        async with whole(tmp_path, database_url=database.url, contract=QUIET, reconcile=False) as home:
            client = home.client()
            for field in FIELDS:
                for name, text in TEXTS.items():
                    answer = await _ask(client, "POST", "/v1/operations", _body(field, text))
                    assert answer.status_code in {202, 400, 422}, (field, name, answer.text)
            for name, text in TEXTS.items():
                await _people_write(home, client, name, text)
            page: dict[str, Any] = (await client.get("/v1/operations", params={"limit": "200"})).json()
            assert page["operations"]
            for operation in page["operations"]:
                history = await client.get(f"/v1/operations/{operation['id']}/history")
                assert history.status_code == 200
            await home.audited()

    asyncio.run(scenario())


async def _people_write(home: Whole, client: httpx.AsyncClient, name: str, text: str) -> None:
    """Cancel, decide and report with a text of this kind; adopt a job of this name."""
    made = (await _ask(client, "POST", "/v1/operations", {"provider": "reports", "remote_job_id": f"job-{name}"})).json()["id"]
    parked = (await _ask(client, "POST", "/v1/operations", _body("approval", "agent"))).json()
    external = (await _ask(client, "POST", "/v1/operations", {**_body("provider", "reports"), "create": "external"})).json()["id"]
    asked = [
        ("POST", "/v1/operations", {"provider": "reports", "remote_job_id": text}),
        ("POST", f"/v1/operations/{made}/cancel", {"reason": text, "expected_effect": text}),
        ("PUT", f"/v1/operations/{external}/create-outcome", {"outcome": "unknown", "message": text}),
        ("POST", f"/v1/operations/{parked['id']}/decision", {"question": parked["question"]["id"], "answer": "deny", "reason": text}),
    ]
    for method, path, body in asked:
        answer = await _ask(client, method, path, body)
        assert answer.status_code in {200, 202, 400, 422}, (name, path, answer.text)
    for path in ("/v1/operations/a%00b", "/v1/operations/a%00b/history", "/v1/operations/%ff%fe", "/v1/operations/%ED%A0%80/result"):
        assert (await client.get(path)).status_code == 404, path
    for method, path in (("POST", "/v1/operations/a%00b/cancel"), ("POST", "/v1/operations/a%00b/refresh")):
        assert (await client.request(method, path)).status_code == 404, path
    for parameter in ("provider", "reference", "idempotency_key", "remote_job_id"):
        for value in ("%00", "%ED%A0%80", "%ff", "%F0%9F%92%A9"):
            assert (await client.get(f"/v1/operations?{parameter}={value}")).status_code in {200, 400}, (parameter, value)
    await home.operation(made)


@pytest.mark.parametrize("text", list(TEXTS))
def test_deliveries_of_any_text_are_stored(tmp_path: Path, database: Database, text: str) -> None:
    """B137: such a text as job id, state, reference and event id of a genuine delivery: 2xx or 400, never a loop of 5xx."""

    async def scenario() -> None:
        async with whole(tmp_path, database_url=database.url, contract=QUIET, reconcile=False) as home:
            for number, fields in enumerate(({"id": TEXTS[text]}, {"status": TEXTS[text]}, {"client_reference": TEXTS[text]})):
                data: dict[str, Any] = {"id": "job-1", "status": "running", **fields}
                answer = await home.deliver(f"evt_{number}", str(data.pop("id")), str(data.pop("status")), **data)
                assert answer.status_code in {200, 400}, answer.text

    asyncio.run(scenario())


def test_two_keys_are_no_key(tmp_path: Path) -> None:
    """B144: of two Authorization headers a proxy may have checked the other one: whatever they hold, nobody is let in."""

    async def scenario() -> None:
        async with whole(tmp_path, contract=QUIET, reconcile=False) as home:
            other = await add_key(home.house, "globex")
            for keys in ((home.key, other), (other, home.key), (home.key, home.key), (home.key, "x")):
                headers = [("Authorization", f"Bearer {key}") for key in keys]
                async with httpx.AsyncClient(base_url=home.address, trust_env=False) as client:
                    answer = await client.get("/v1/operations", headers=headers)
                assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")

    asyncio.run(scenario())


def test_owners_learn_nothing_of_each_other(tmp_path: Path, database: Database) -> None:
    """B144: on every route with an id another owner's operation answers exactly what an unknown one does; lists show nothing of it."""

    async def scenario() -> None:
        async with whole(tmp_path, database_url=database.url, contract=QUIET, reconcile=False) as home:
            made = (await home.create(key="shared", reference="ref-1")).json()["id"]
            other, unknown = home.client(await add_key(home.house, "globex")), "op_" + "0" * 32
            for method, path, body in (
                ("GET", "", None),
                ("GET", "/history", None),
                ("GET", "/result", None),
                ("POST", "/refresh", {}),
                ("POST", "/cancel", {"reason": "x"}),
                ("POST", "/decision", {"question": "q_1", "answer": "abandon"}),
                ("PUT", "/create-outcome", {"outcome": "unknown"}),
            ):
                answers = [await _ask(other, method, f"/v1/operations/{name}{path}", body) for name in (made, unknown)]
                first, second = [(answer.status_code, answer.text.replace(made, unknown)) for answer in answers]
                assert first == second, path
                assert first[0] == 404
            for query in ("idempotency_key=shared", "reference=ref-1", "provider=reports", ""):
                assert (await other.get(f"/v1/operations?{query}")).json()["operations"] == []
            assert (await home.operation(made)).cancel_requested_at is None

    asyncio.run(scenario())

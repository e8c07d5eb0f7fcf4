"""What holds on every route: who may, what is never cached, what an unknown id looks like, and what errors say."""

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway import health
from gateway.keys import SCOPES
from gateway.problems import PROBLEMS
from gateway.routes import ROUTES, Route
from ledger.engine import open_engines
from schemas.api import ProblemView
from schemas.commands import Beat
from schemas.operation import SECOND
from tests.conformance.conftest import until
from tests.gateway.asking import made
from tests.gateway.house import StandingWorld, house

SCOPED = [route for route in ROUTES if route.scope is not None]
WITH_ID = [route for route in SCOPED if "{id}" in route.path]
BODIES: dict[str, Any] = {
    "create-outcome": {"outcome": "not_sent"},
    "decision": {"question": "q", "answer": "approve"},
    "operations": {"provider": "reports", "request": {}},
}


def name(route: Route) -> str:
    return f"{route.method} {route.path}"


async def ask(client: httpx.AsyncClient, route: Route, operation: str = "op_0") -> httpx.Response:
    """Send a plausible request to the route."""
    body = BODIES.get(route.path.rpartition("/")[2])
    return await client.request(
        route.method,
        route.path.replace("{id}", operation),
        json=body,
        headers={"Idempotency-Key": f"k-{operation}"},
    )


@pytest.mark.parametrize("route", SCOPED, ids=name)
def test_without_a_valid_key_every_route_is_401(tmp_path: Path, route: Route) -> None:
    """G5: no key, a wrong scheme, an unknown and a mangled key are the same refusal, with a challenge."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            _, text = await home.key()
            headers: list[dict[str, str]] = [
                {},
                {"Authorization": text},
                {"Authorization": f"Basic {text}"},
                {"Authorization": "Bearer "},
                {"Authorization": f"Bearer {text}x"},
                {"Authorization": f"Bearer {text[:-1]}"},
                {"Authorization": "Bearer rgk_" + "a" * 10_000},
                {"Authorization": "Bearer rgk_\u00e9"},
            ]
            for sent in headers:
                client = home.bare()
                client.headers = httpx.Headers(sent, encoding="latin-1")
                answer = await ask(client, route)
                assert answer.status_code == 401, sent
                assert answer.json()["code"] == "unauthenticated"
                assert answer.headers["www-authenticate"].startswith("Bearer")
                assert answer.headers["cache-control"] == "no-store"

    asyncio.run(scenario())


@pytest.mark.parametrize("route", SCOPED, ids=name)
def test_every_route_needs_its_scope(tmp_path: Path, route: Route) -> None:
    """G5: a key with all scopes but this one is refused with 403 and the name of the scope."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client(scopes=tuple(scope for scope in SCOPES if scope != route.scope))
            answer = await ask(client, route)
            assert (answer.status_code, answer.json()["code"], answer.json()["scope"]) == (403, "missing_scope", route.scope)

    asyncio.run(scenario())


@pytest.mark.parametrize("route", WITH_ID, ids=name)
def test_a_foreign_id_looks_exactly_like_an_unknown_one(tmp_path: Path, route: Route) -> None:
    """B144, G4: status, headers and body of both are the same on every route that takes an id."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            ours, theirs = await home.client("acme"), await home.client("globex")
            made = await ours.post("/v1/operations", json={"provider": "reports", "remote_job_id": "job-1"})
            foreign, unknown = await ask(theirs, route, made.json()["id"]), await ask(theirs, route, "op_0")
            for answer in (foreign, unknown):
                assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
            drop = {"x-request-id", "date"}
            kept = [{key: value for key, value in answer.headers.items() if key not in drop} for answer in (foreign, unknown)]
            assert kept[0] == kept[1]
            assert foreign.content == unknown.content
            assert made.json()["id"] not in foreign.text

    asyncio.run(scenario())


def test_nobody_finds_the_operations_of_others(tmp_path: Path) -> None:
    """B144: no filter of the listing reaches another owner's operations."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            ours, theirs = await home.client("acme"), await home.client("globex")
            headers = {"Idempotency-Key": "k-1"}
            body = {"provider": "reports", "request": {}, "reference": "r"}
            made = (await ours.post("/v1/operations", json=body, headers=headers)).json()
            await ours.post("/v1/operations", json={"provider": "reports", "remote_job_id": "job-1"})
            for filters in ({}, {"reference": "r"}, {"idempotency_key": "k-1"}, {"remote_job_id": "job-1"}, {"state": made["state"]}):
                assert (await theirs.get("/v1/operations", params=filters)).json()["operations"] == []

    asyncio.run(scenario())


def test_nothing_authenticated_is_cached(tmp_path: Path) -> None:
    """B151: every route, good answers and errors alike, is `no-store` and varies by Authorization."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            made = (await client.post("/v1/operations", json={"provider": "reports", "remote_job_id": "job-1"})).json()
            answers = [await ask(client, route, made["id"]) for route in SCOPED]
            answers += [await ask(client, route, "op_0") for route in SCOPED]
            answers += [await ask(home.bare(), route) for route in SCOPED]
            answers += [await client.get("/v1/nothing"), await client.delete("/v1/operations"), await client.get("/v1/operations?x=1")]
            tag = (await client.get(made["links"]["self"])).headers["etag"]
            answers.append(await client.get(made["links"]["self"], headers={"If-None-Match": tag}))
            assert answers[-1].status_code == 304
            for answer in answers:
                assert answer.headers["cache-control"] == "no-store"
                assert answer.headers["vary"] == "Authorization"
                assert answer.headers["x-content-type-options"] == "nosniff"
                assert re.fullmatch(r"req_[0-9a-f]{32}", answer.headers["x-request-id"])

    asyncio.run(scenario())


def test_every_problem_is_of_one_form(tmp_path: Path) -> None:
    """G4: problems are application/problem+json with the members of RFC 9457 and a stable code, 404 and 405 too."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            answers = [
                await client.get("/nothing"),
                await client.get("/v1/operations/"),
                await client.get("/v1/operations/a/b/c"),
                await client.delete("/v1/operations/op_0"),
                await client.get("/v1/operations/op_0"),
                await client.get("/v1/operations/%00%ff"),
                await client.post("/webhooks/nobody"),
            ]
            for answer in answers:
                problem = ProblemView.model_validate(answer.json())
                assert answer.headers["content-type"] == "application/problem+json"
                assert problem.status == answer.status_code == PROBLEMS[problem.code].status
                assert problem.type.endswith(problem.code)
            assert [answer.status_code for answer in answers] == [404, 404, 404, 405, 404, 404, 404]
            assert "GET" in answers[3].headers["allow"]

    asyncio.run(scenario())


def test_what_was_not_foreseen_is_one_honest_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An unexpected error is a problem without a trace; the log says where, and not with which values."""

    class Broken(StandingWorld):
        def now(self) -> int:
            raise RuntimeError("canary-value")

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            await client.get("/v1/operations")
            broken = Broken(900)
            home.world.now = broken.now  # type: ignore[method-assign]
            answer = await client.post("/v1/operations", json={"provider": "reports", "remote_job_id": "j"})
            assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")
            assert answer.headers["x-request-id"] in answer.json()["detail"]
            assert "canary" not in answer.text

    asyncio.run(scenario())
    printed = "".join(capsys.readouterr())
    assert "gateway.failed" in printed
    assert "canary" not in printed


def test_life_needs_no_database_and_readiness_does(tmp_path: Path) -> None:
    """B162: /livez is 200 while the ledger is gone; /readyz says which check fails."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = home.bare()
            assert (await client.get("/livez")).json() == {"status": "ok", "checks": {"process": "ok"}}
            assert (await client.get("/readyz")).json()["status"] == "ok"
            home.ledger.close()
            assert (await client.get("/livez")).status_code == 200
            unready = await client.get("/readyz")
            assert (unready.status_code, unready.json()["checks"]["database"]) == (503, "no answer")
            assert unready.headers["retry-after"]

    asyncio.run(scenario())


def test_readiness_wants_a_fresh_heartbeat_where_a_reconciler_is_expected(tmp_path: Path) -> None:
    """H3: without a duty that ran of late the process is not ready, and the answer names the cure."""

    async def scenario() -> None:
        async with house(tmp_path, expects_reconciler=True) as home:
            client = home.bare()
            assert "gateway reconcile" in (await client.get("/readyz")).json()["checks"]["reconciler"]
            await home.ledger.write(Beat(duty="sweep", process="p", now=home.world.now(), ok=True))
            assert (await client.get("/readyz")).status_code == 200
            home.world.pass_seconds(health._FRESH / SECOND + 1)
            assert (await client.get("/readyz")).status_code == 503

    asyncio.run(scenario())


def test_readiness_wants_every_duty_of_this_process(tmp_path: Path) -> None:
    """C2, B107: a duty that hangs makes its process unready, whatever another one writes into the record meanwhile."""

    async def scenario() -> None:
        late: list[str] = []
        async with house(tmp_path, expects_reconciler=True, late=late) as home:
            await home.ledger.write(Beat(duty="sweep", process="another", now=home.world.now(), ok=True))
            assert (await home.bare().get("/readyz")).status_code == 200
            late.append("sweep")
            unready = await home.bare().get("/readyz")
            assert (unready.status_code, unready.json()["checks"]["reconciler"]) == (503, "not well for too long: sweep; see the log")
            assert (await home.bare().get("/livez")).status_code == 200

    asyncio.run(scenario())


def test_a_database_that_says_nothing_is_unavailable_in_time(tmp_path: Path) -> None:
    """B120, B164: while somebody else holds the lock a write is 503 with Retry-After after `answer_seconds`, and may be repeated."""

    async def scenario() -> None:
        async with house(tmp_path, answer_seconds=2.0) as home:
            client = await home.client()
            first = await made(client, "before")
            other = open_engines(f"sqlite:///{tmp_path}/gateway.db")
            with other.begin():
                body = {"provider": "reports", "request": {"a": 1}}
                refused = await client.post("/v1/operations", json=body, headers={"Idempotency-Key": "k"})
                assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
                assert int(refused.headers["retry-after"]) > 0
                assert home.ledger.trouble() == ""  # the writer itself has not given up yet
                assert (await client.get(first["links"]["self"])).status_code == 200  # reads go on
            other.close()
            await until(lambda: home.ledger.waiting() == 0)
            again = await client.post("/v1/operations", json=body, headers={"Idempotency-Key": "k"})
            assert again.status_code in {200, 202}

    asyncio.run(scenario())


def test_waiting_for_a_change_is_not_waiting_for_the_database(tmp_path: Path) -> None:
    """G3: `Prefer: wait` may last longer than `answer_seconds`."""

    async def scenario() -> None:
        async with house(tmp_path, answer_seconds=1.5) as home:
            client = await home.client()
            first = await made(client, "k")
            waiting = asyncio.ensure_future(client.get(first["links"]["self"], headers={"Prefer": "wait=30"}))
            began = time.monotonic()
            await until(lambda: time.monotonic() > began + 2)
            assert not waiting.done()
            await client.post(first["links"]["cancel"], json={})
            assert (await waiting).status_code == 200

    asyncio.run(scenario())

"""Field faults of kind d, create: what the provider did, what we saw of it, and how many times we asked; through the running house."""

import asyncio
import json
import socket
import threading
from pathlib import Path

import pytest

from cli.world import RealWorld
from ledger import tables
from schemas.states import State
from simulator.server import Simulator
from tests.conformance.conftest import Database
from tests.faults.providers import Misbehave, Provider, close, cut, reset_after_head, silent
from tests.faults.whole import LOOKUP, REPORTS, changed, eventually, options, whole
from tests.reconciler.servers import Server, response, serving

_QUICK = "\n[limits]\ntotal_seconds = 1\nconnect_seconds = 1\n\n[cancel]"
RESEND = changed(REPORTS, ("\n[cancel]", _QUICK))
LOOKUPS = changed(
    RESEND,
    ('strategies = ["resend"]', 'strategies = ["lookup"]' + LOOKUP),
    ("replay_guaranteed = true\n", ""),
    ("visibility_seconds = 1\n", "visibility_seconds = 6\n"),
)
ALONE = changed(RESEND, ('strategies = ["resend"]', "strategies = []"), ("replay_guaranteed = true\n", ""))
"""No recovery: whatever is ambiguous is parked for a person, and seen as such."""
PROMISED = changed(ALONE, ('path = "/v1/reports"\n', 'path = "/v1/reports"\nnot_executed = [429, 503]\n'))
"""The provider's word: 503 did nothing."""


@pytest.mark.parametrize("contract", [RESEND, LOOKUPS], ids=["resend", "lookup"])
def test_a_create_that_outlasts_our_patience_is_one_job(tmp_path: Path, database: Database, contract: str) -> None:
    """B046: accepted, answered after we gave up: `create_unknown`, then lookup or the same token; one job, and the operation has it."""

    async def scenario() -> None:
        async with (
            Simulator(options(), RealWorld()) as sim,
            whole(tmp_path, origin=sim.base_url, database_url=database.url, contract=contract) as home,
        ):
            made = await home.made("delay_create_response=3", "run=9999")
            await home.reaches(made, State.CREATE_UNKNOWN)
            op = await home.reaches(made, State.ACCEPTED, State.OBSERVING)
            (job,) = sim.jobs
            assert op.remote_job_id == job
            tokens = {call.headers["idempotency-key"] for call in sim.calls("POST", "/v1/reports")}
            assert tokens == {op.idempotency_token}
            if contract is LOOKUPS:
                assert len(sim.calls("POST", "/v1/reports")) == 1
            await home.audited()

    asyncio.run(scenario())


PARKED, RUNNING = State.CREATE_UNRESOLVED, State.OBSERVING
OUTCOMES: list[tuple[str, bytes | Misbehave, str, int, State, str]] = [
    ("read timeout", silent, ALONE, 1, PARKED, "timeout"),
    ("closed without an answer", close, ALONE, 1, PARKED, "closed"),
    ("reset after the head began", reset_after_head, ALONE, 1, PARKED, ""),
    ("answer cut short", cut, ALONE, 1, PARKED, "cut"),
    ("502", response(502, b"<html>", "content-type: text/html"), ALONE, 1, PARKED, "http_502"),
    ("504", response(504), ALONE, 1, PARKED, "http_504"),
    ("500", response(500, b'{"error":"transaction timeout"}'), ALONE, 1, PARKED, "http_500"),
    ("202 that is no JSON", response(202, b"queued!"), ALONE, 1, PARKED, ""),
    ("429", response(429, b"", "retry-after: 1"), ALONE, 2, RUNNING, ""),
    ("503 without a promise", response(503, b"", "retry-after: 1"), ALONE, 1, PARKED, "http_503"),
    ("503 where it is promised to have done nothing", response(503, b"", "retry-after: 1"), PROMISED, 2, RUNNING, ""),
]


@pytest.mark.parametrize(
    ("answer", "contract", "posts", "state", "error"), [case[1:] for case in OUTCOMES], ids=[case[0] for case in OUTCOMES]
)
def test_only_what_surely_did_nothing_is_sent_again(
    tmp_path: Path, *, answer: bytes | Misbehave, contract: str, posts: int, state: State, error: str
) -> None:
    """B047: fault by fault, how many POSTs the provider sees in the end, and where the operation then stands."""
    provider = Provider(answers=[answer])

    async def scenario() -> None:
        async with serving(provider) as server, whole(tmp_path, origin=server.url, contract=contract) as home:
            made = await home.made()
            op = await home.reaches(made, state)
            assert len(provider.posts) == posts
            assert provider.tokens == [op.idempotency_token] * posts
            assert len(await home.rows(tables.attempts, tables.attempts.c.errand == "create")) == posts
            if error:
                (exchange,) = await home.rows(tables.exchanges, tables.exchanges.c.errand == "create")
                assert error in {str(exchange["error"]).partition(":")[0], f"http_{exchange['status']}"}
            await home.audited()

    asyncio.run(scenario())


def test_a_refused_connection_is_tried_until_somebody_listens(tmp_path: Path) -> None:
    """B047: nothing listens, so nothing was executed: sent again by itself, and the provider sees one POST in all."""
    provider = Provider()

    async def scenario() -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        async with whole(tmp_path, origin=f"http://127.0.0.1:{port}", contract=ALONE) as home:
            made = await home.made()
            op = await home.until(made, lambda op: op.sends >= 2)
            assert op.state is State.CREATE_PENDING
            listener = await asyncio.start_server(lambda reader, writer: _serve(provider, reader, writer), "127.0.0.1", port)
            await home.reaches(made, State.OBSERVING, State.ACCEPTED)
            assert len(provider.posts) == 1
            await home.audited()
            listener.close()

    asyncio.run(scenario())


async def _serve(provider: Provider, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        await provider(Server(), reader, writer)
    except (ConnectionError, asyncio.IncompleteReadError):
        writer.close()


def test_a_server_error_is_looked_up_with_patience(tmp_path: Path, database: Database) -> None:
    """B048: 500 although the job exists, which shows only later: never failed meanwhile, one POST, and it runs to its end."""

    async def scenario() -> None:
        async with (
            Simulator(options(), RealWorld()) as sim,
            whole(tmp_path, origin=sim.base_url, database_url=database.url, contract=LOOKUPS) as home,
        ):
            made = await home.made("create_500_though_done", "hide=3")
            await home.reaches(made, State.CREATE_UNKNOWN)
            op = await home.reaches(made, State.SUCCEEDED)
            assert len(sim.calls("POST", "/v1/reports")) == len(sim.jobs) == 1
            assert op.remote_job_id in sim.jobs
            assert not [row for row in await home.history(made) if row["to_state"] == "failed"]

    asyncio.run(scenario())


def test_a_broken_connection_costs_one_post_per_attempt(tmp_path: Path) -> None:
    """B050: the server keeps connections alive, then takes two creates whole and closes: as many POSTs as attempts, no silent resend."""
    provider = Provider(answers=[None, close, close])

    async def scenario() -> None:
        async with serving(provider) as server, whole(tmp_path, origin=server.url, contract=RESEND) as home:
            first = await home.made()
            await home.reaches(first, State.OBSERVING)
            second = await home.made()
            op = await home.reaches(second, State.OBSERVING)
            attempts = await home.rows(tables.attempts, tables.attempts.c.errand == "create")
            assert len(attempts) == len(provider.posts) == 4
            assert [row["outcome"] for row in attempts if row["operation"] == second] == ["ambiguous", "ambiguous", "answered"]
            assert len(provider.jobs) == 2
            assert op.sends == 3

    asyncio.run(scenario())


def test_the_same_key_is_one_job_however_it_is_repeated(tmp_path: Path, database: Database) -> None:
    """B052: a pair at once, and one later: one operation, one job at the provider; without a key nothing is recorded."""

    async def scenario() -> None:
        async with (
            Simulator(options(), RealWorld()) as sim,
            whole(tmp_path, origin=sim.base_url, database_url=database.url) as home,
        ):
            pair = await asyncio.gather(home.create("run=9999", key="k-1"), home.create("run=9999", key="k-1"))
            assert sorted(answer.status_code for answer in pair) == [200, 202]
            made = pair[0].json()["id"]
            await home.reaches(made, State.OBSERVING)
            later = await home.create("run=9999", key="k-1")
            assert {answer.json()["id"] for answer in [*pair, later]} == {made}
            bare = await home.client().post("/v1/operations", json={"provider": "reports", "request": {"kind": "sales", "rows": 1}})
            assert (bare.status_code, bare.json()["code"]) == (400, "idempotency_key_required")
            assert len(sim.jobs) == len(sim.calls("POST", "/v1/reports")) == 1

    asyncio.run(scenario())


def test_the_token_is_the_same_after_a_restart(tmp_path: Path, database: Database) -> None:
    """B053: the first process ends with its POST unanswered; the next one resends with the identical token; one job."""
    provider = Provider(answers=[silent])
    patient = changed(RESEND, ("total_seconds = 1\n", "total_seconds = 30\n"))

    async def scenario() -> None:
        async with serving(provider) as server:
            async with whole(tmp_path, origin=server.url, database_url=database.url, contract=patient) as first:
                made = await first.made()
                await eventually(lambda: len(provider.posts) == 1)
            async with whole(tmp_path, origin=server.url, database_url=database.url, contract=patient) as second:
                op = await second.reaches(made, State.OBSERVING)
                assert provider.tokens == [op.idempotency_token] * 2
                assert len(provider.jobs) == 1
                await second.audited()

    asyncio.run(scenario())


@pytest.mark.parametrize("place", ["before_commit", "after_commit"])
def test_a_create_that_fails_here_may_be_repeated(tmp_path: Path, database: Database, place: str) -> None:
    """B055: our own failure before the commit leaves nothing, after it leaves the operation: the same key gives one either way."""
    state = {"armed": False}

    def die(point: str) -> None:
        if state["armed"] and point == f"Register.{place}":
            raise KeyboardInterrupt

    async def scenario() -> None:
        async with whole(tmp_path, database_url=database.url, reconcile=False, at=die) as home:
            await home.client().get("/v1/operations")
            state["armed"] = True
            lost = await home.create(key="k-1")
            assert (lost.status_code, lost.json()["code"]) == (503, "unavailable")
            state["armed"] = False
        async with whole(tmp_path, database_url=database.url, reconcile=False) as again:
            answer = await again.create(key="k-1")
            assert answer.status_code == (202 if place == "before_commit" else 200)
            found = (await again.client().get("/v1/operations")).json()["operations"]
            assert [item["id"] for item in found] == [answer.json()["id"]]

    asyncio.run(scenario())


def test_a_replayed_server_error_leads_to_the_lookup(tmp_path: Path) -> None:
    """B055: the provider replays its stored 500 for our token: after a few resends the lookup finds the job it had made."""
    stored = response(500, b'{"error":"boom"}', "idempotent-replayed: true")
    contract = changed(RESEND, ('strategies = ["resend"]', 'strategies = ["resend", "lookup"]' + LOOKUP))
    provider = Provider(answers=[stored] * 50)

    async def scenario() -> None:
        async with serving(provider) as server, whole(tmp_path, origin=server.url, contract=contract) as home:
            made = await home.made()
            op = await home.reaches(made, State.OBSERVING)
            assert (op.remote_job_id, len(provider.jobs)) == ("rep_1", 1)
            assert len(provider.posts) <= 4
            assert any("client_reference" in path for path in provider.gets)

    asyncio.run(scenario())


def test_a_key_is_refused_for_another_body_while_the_first_is_being_stored(tmp_path: Path, database: Database) -> None:
    """B057: K with A held up before its commit, K with B, K with A: B is 422, both A are one operation."""
    hold, reached = threading.Event(), threading.Event()
    state = {"armed": True}

    def wait(point: str) -> None:
        if state["armed"] and point == "Register.before_commit":
            state["armed"] = False
            reached.set()
            hold.wait(20)

    async def scenario() -> None:
        async with whole(tmp_path, database_url=database.url, reconcile=False, at=wait) as home:
            first = asyncio.create_task(home.create(key="k-1"))
            assert await asyncio.to_thread(reached.wait, 10)
            others = [asyncio.create_task(home.create("run=1", key="k-1")), asyncio.create_task(home.create(key="k-1"))]
            await eventually(lambda: home.ledger.waiting() == 2)
            hold.set()
            answers = await asyncio.gather(first, *others)
            assert [answer.status_code for answer in answers] == [202, 422, 200]
            assert answers[1].json()["code"] == "idempotency_key_reused"
            assert answers[0].json()["id"] == answers[2].json()["id"]

    asyncio.run(scenario())


@pytest.mark.parametrize("where", ["same host", "other host"])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_of_a_create_is_not_followed(tmp_path: Path, status: int, where: str) -> None:
    """B060: no request ever reaches the Location, the credential neither; the operation waits for a person and says why."""
    provider, elsewhere = Provider(executes=False), Provider()

    async def scenario() -> None:
        async with serving(provider) as server, serving(elsewhere) as other:
            target = (server if where == "same host" else other).url + "/moved?sig=CANARY-signature"
            provider.answers.append(response(status, b"", f"location: {target}"))
            async with whole(tmp_path, origin=server.url, contract=ALONE) as home:
                made = await home.made()
                op = await home.reaches(made, State.CREATE_UNRESOLVED)
                shown = (await home.client().get(f"/v1/operations/{made}")).json()
                rows = await home.history(made)
                assert (len(provider.posts), provider.gets, provider.others) == (1, [], [])
                assert other.connections == 0
                assert op.question_id is not None
                said = json.dumps([shown, [(row["code"], row["text"]) for row in rows]])
                assert f"redirect_{status}" in said
                assert "CANARY" not in said

    asyncio.run(scenario())


POINTERS = ["a failed job", "another's job", "a job that is gone"]


@pytest.mark.parametrize("target", POINTERS)
def test_a_conflict_that_points_at_a_job_is_not_believed(tmp_path: Path, target: str) -> None:
    """B061: our contracts have no place for such a pointer: 409 stays ambiguous and is never adopted; recovery by echo decides."""
    named = {"a failed job": "rep_dead", "another's job": "rep_other", "a job that is gone": "rep_gone"}[target]
    answer = response(409, json.dumps({"error": {"code": "duplicate"}, "id": named}).encode(), "content-type: application/json")
    provider = Provider(answers=[answer], executes=False)
    provider.jobs["a"] = {"id": "rep_dead", "status": "failed", "client_reference": "op_somebody"}
    provider.jobs["b"] = {"id": "rep_other", "status": "running", "client_reference": "op_somebody_else"}

    async def scenario() -> None:
        async with serving(provider) as server, whole(tmp_path, origin=server.url, contract=LOOKUPS) as home:
            made = await home.made()
            op = await home.until(made, lambda op: op.state is State.CREATE_UNKNOWN and len(provider.gets) >= 2)
            assert op.remote_job_id is None
            assert len(provider.posts) == 1
            provider.jobs[op.idempotency_token] = {"id": "rep_ours", "status": "running", "client_reference": made}
            op = await home.reaches(made, State.OBSERVING)
            assert op.remote_job_id == "rep_ours"
            assert not any(path.endswith(named) for path in provider.gets)

    asyncio.run(scenario())


def test_an_old_open_attempt_is_looked_up_before_anything_else(tmp_path: Path, database: Database) -> None:
    """B062: the process ended between send and answer; while the lookup is down the operation stays open, then it is resolved."""
    provider = Provider(answers=[silent], lookups=False)
    patient = changed(LOOKUPS, ("total_seconds = 1\n", "total_seconds = 30\n"))

    async def scenario() -> None:
        async with serving(provider) as server:
            async with whole(tmp_path, origin=server.url, database_url=database.url, contract=patient) as first:
                made = await first.made()
                await eventually(lambda: len(provider.posts) == 1)
            async with whole(tmp_path, origin=server.url, database_url=database.url, contract=patient) as second:
                op = await second.until(made, lambda op: op.read_failures >= 2)
                assert op.state is State.CREATE_UNKNOWN
                provider.lookups = True
                op = await second.reaches(made, State.OBSERVING)
                assert (op.remote_job_id, len(provider.posts)) == ("rep_1", 1)
                await second.audited()

    asyncio.run(scenario())

"""The two-way sweep's duty against a raw server: pages, pace, failures, and going on after a restart (C9)."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from ledger.ledger import Ledger
from ledger.walks import findings, walks
from reconciler.desk import Account
from reconciler.pace import Pace
from reconciler.transport import Transport
from reconciler.walker import PAGES_AT_ONCE, Walker
from schemas.contract import ListRule
from schemas.operation import SECOND
from schemas.settings import ProviderSettings
from tests.reconciler.accounts import CONTRACT, CREDENTIAL
from tests.reconciler.houses import open_ledger
from tests.reconciler.servers import Server, answering, header, response, serving
from tests.reconciler.worlds import NOW, StillWorld

RULE = ListRule(path="/jobs?limit=2", time="at", next="body:next", newest_first=True, max_pages=30, grace_seconds=1)
OLD = NOW // SECOND - 100


def page(*jobs: str, following: str = "", at: int = OLD) -> bytes:
    document = {"data": [{"id": job, "at": at} for job in jobs], "next": following or None}
    return response(200, json.dumps(document).encode(), "content-type: application/json")


@dataclass(slots=True)
class Bench:
    """A walker over a real record, and the raw server whose list it walks."""

    ledger: Ledger
    world: StillWorld
    walker: Walker
    server: Server
    pace: Pace

    async def stands(self) -> dict[str, Any]:
        return dict((await self.ledger.read(walks))[0])

    async def found(self) -> list[str]:
        return sorted(row["remote_job_id"] for row in await self.ledger.read(findings, None, 100))

    def pass_seconds(self, seconds: int) -> None:
        self.world.moment += seconds * SECOND
        self.world.shift += seconds


@contextlib.asynccontextmanager
async def bench(folder: Path, *answers: bytes, rule: ListRule = RULE, sweep_seconds: int = 3_600, **limits: Any) -> AsyncIterator[Bench]:
    contract = replace(CONTRACT, list=rule, limits=replace(CONTRACT.limits, **limits))
    async with serving(answering(*answers)) as server:
        ledger, world = open_ledger(folder, {"jobs": contract}), StillWorld()
        settings = ProviderSettings(name="jobs", contract="jobs", base_url=server.url, sweep_seconds=sweep_seconds)
        transport = Transport(world)
        accounts = {"jobs": Account(settings=settings, contract=contract, transport=transport)}
        pace = Pace({"jobs": contract.limits}, now=world.monotonic())
        walker = Walker(record=ledger, world=world, accounts=accounts, pace=pace, credential=lambda _: CREDENTIAL)
        try:
            yield Bench(ledger, world, walker, server, pace)
        finally:
            await transport.aclose()
            ledger.close()


def targets(server: Server) -> list[str]:
    return [request.split(b" ")[1].decode() for request in server.requests]


def test_a_walk_reads_every_page_once_and_comes_back_after_its_pause(tmp_path: Path) -> None:
    """C9: GET only, with the account's credential, by the cursor; the next walk is the contract's pause away."""

    async def scenario() -> None:
        async with bench(tmp_path, page("a", "b", following="c1"), page("c")) as home:
            assert await home.walker.run_once() == {"pages": 1, "leak": 3, "end": 1}
            assert targets(home.server) == ["/jobs?limit=2", "/jobs?limit=2&after=c1"]
            assert {request.split(b" ")[0] for request in home.server.requests} == {b"GET"}
            assert CREDENTIAL in header(home.server.requests[0], "authorization")
            assert await home.found() == ["a", "b", "c"]
            assert await home.walker.run_once() == {}
            home.pass_seconds(3_600)
            await home.walker.run_once()
            assert targets(home.server)[2:] == ["/jobs?limit=2"]

    asyncio.run(scenario())


def test_a_long_walk_goes_on_in_the_next_run_and_after_a_restart(tmp_path: Path) -> None:
    """C9: PAGES_AT_ONCE pages a run; the cursor stands in the record, so a new process reads on where the last one was."""
    pages = [page(f"j{number}", following=f"c{number}") for number in range(PAGES_AT_ONCE)]

    async def scenario() -> None:
        async with bench(tmp_path, *pages) as home:
            assert (await home.walker.run_once())["pages"] == PAGES_AT_ONCE
            stands = await home.stands()
            assert (stands["cursor"], stands["pages"]) == (f"c{PAGES_AT_ONCE - 1}", PAGES_AT_ONCE)
        async with bench(tmp_path, page("last")) as home:
            home.pass_seconds(2)
            assert (await home.walker.run_once())["end"] == 1
            assert targets(home.server) == [f"/jobs?limit=2&after=c{PAGES_AT_ONCE - 1}"]
            assert len(await home.found()) == PAGES_AT_ONCE + 1

    asyncio.run(scenario())


def test_a_newest_first_list_is_walked_back_to_what_is_known(tmp_path: Path) -> None:
    """C9: the watermark with its overlap ends the next walk early; a page that is only partly old does not."""
    first = page("old", at=OLD - 10_000)
    known = page("old", following="older", at=OLD - 20_000)
    new = response(200, json.dumps({"data": [{"id": "new", "at": OLD}, {"id": "old", "at": OLD - 20_000}], "next": "c"}).encode())

    async def scenario() -> None:
        async with bench(tmp_path, first, new.replace(b"\r\n\r\n", b"\r\ncontent-type: application/json\r\n\r\n", 1), known) as home:
            await home.walker.run_once()
            home.pass_seconds(3_600)
            assert (await home.walker.run_once())["end"] == 1
            assert targets(home.server) == ["/jobs?limit=2", "/jobs?limit=2", "/jobs?limit=2&after=c"]

    asyncio.run(scenario())


@pytest.mark.parametrize(("rule", "outcome"), [(RULE, "end"), (replace(RULE, newest_first=False), "cut")])
def test_a_list_that_is_too_long_is_cut(tmp_path: Path, rule: ListRule, outcome: str) -> None:
    """C9: the cap on pages holds; only where the newest come first is the part that was read a whole."""
    capped = replace(rule, max_pages=3)

    async def scenario() -> None:
        pages = [page(f"j{number}", following=f"c{number}") for number in range(9)]
        async with bench(tmp_path, *pages, rule=capped) as home:
            assert (await home.walker.run_once())[outcome] == 1
            assert len(home.server.requests) == 3
            assert (await home.stands())["error"] == "list too long"

    asyncio.run(scenario())


def test_a_list_without_progress_is_cut(tmp_path: Path) -> None:
    """C9: a cursor that comes again ends the walk; it says nothing about what is absent."""

    async def scenario() -> None:
        async with bench(tmp_path, page("a", following="c"), page("b", following="c")) as home:
            assert (await home.walker.run_once())["cut"] == 1
            assert len(home.server.requests) == 2
            assert (await home.stands())["error"] == "list makes no progress"

    asyncio.run(scenario())


def test_a_failure_is_tried_again_later_and_later_with_the_same_cursor(tmp_path: Path) -> None:
    """C3, C9: an outage costs patience and no place; `Retry-After` holds the whole account."""

    async def scenario() -> None:
        bad = response(503, b"", "retry-after: 300")
        async with bench(tmp_path, page("a", following="c"), bad, page("b")) as home:
            assert (await home.walker.run_once())["failed"] == 1
            home.pass_seconds(299)
            assert await home.walker.run_once() == {}
            home.pass_seconds(2)
            assert (await home.walker.run_once())["end"] == 1
            assert targets(home.server)[1:] == ["/jobs?limit=2&after=c"] * 2
            assert await home.found() == ["a", "b"]

    asyncio.run(scenario())


def test_the_accounts_pace_comes_first(tmp_path: Path) -> None:
    """C3: where no room is left nothing is asked, and no failure is counted."""

    async def scenario() -> None:
        async with bench(tmp_path, page("a"), concurrency=1) as home:
            home.pace.start("jobs", home.world.monotonic())
            assert await home.walker.run_once() == {"pages": 0, "paused": 1}
            assert (home.server.requests, (await home.stands())["failures"]) == ([], 0)
            home.pace.finish("jobs")
            home.pass_seconds(10)
            assert (await home.walker.run_once())["end"] == 1

    asyncio.run(scenario())


def test_a_sweep_that_is_switched_off_asks_nothing(tmp_path: Path) -> None:
    """C9: `sweep_seconds = 0` is for accounts that others share."""

    async def scenario() -> None:
        async with bench(tmp_path, page("a"), sweep_seconds=0) as home:
            assert await home.walker.run_once() == {}
            assert home.server.requests == []

    asyncio.run(scenario())

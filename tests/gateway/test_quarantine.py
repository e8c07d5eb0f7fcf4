"""Refused deliveries are put aside without anybody waiting for it, and a run of them is told."""

import asyncio
from pathlib import Path
from typing import Any

import structlog
from structlog.testing import capture_logs

from gateway.lines import A_SECOND as LINES
from gateway.quarantine import A_SECOND, FLOOD, RUN, WAITING, Shelf
from ledger import inbox, queries
from ledger.errors import LedgerUnavailableError
from ledger.ledger import Ledger
from schemas.commands import Command
from schemas.delivery import InboundRequest, Reason, Refused
from schemas.operation import SECOND
from tests.gateway.house import SECRET, House, event, house, signature


def shelf(home: House) -> Shelf:
    found: Shelf = home.app._receiver.shelf
    return found


async def forged(home: House, provider: str = "reports", body: bytes = b"{}", path: str = "") -> int:
    answer = await home.bare().post(f"/webhooks/{provider}{path}", content=body, headers={"X-Sig": "t=1800000000,v1=" + "0" * 64})
    return answer.status_code


async def kept(home: House) -> list[dict[str, Any]]:
    await shelf(home).written()
    return [dict(row) for row in await home.ledger.read(inbox.refused, provider=None, limit=100)]


def test_a_refused_delivery_can_be_looked_at(tmp_path: Path) -> None:
    """B12: exact bytes, raw target, headers and the reason are kept; no delivery is stored."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            assert await forged(home, body=b'{"forged":\xff}', path="?x=%20y") == 401
            (row,) = await kept(home)
            assert (row["provider"], row["reason"], row["bytes"], row["at"]) == ("reports", "wrong_signature", 12, home.world.now())
            found = await home.ledger.read(inbox.refusal, row["id"])
            assert found is not None
            assert (found["body"], found["target"], found["method"]) == (b'{"forged":\xff}', b"/webhooks/reports?x=%20y", "POST")
            assert b"x-sig: t=1800000000" in found["headers"]
            assert home.counted["receiver.quarantine", "kept"] == 1
            assert await home.ledger.read(queries.deliveries, None, 10) == []

    asyncio.run(scenario())


def test_what_is_known_otherwise_is_not_put_aside(tmp_path: Path) -> None:
    """B8: stale deliveries and dead letters are deliveries; unknown addresses, large and slow bodies say nothing of a signature."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            assert (await home.deliver("reports", event(1), offset=-4_000)).status_code == 401
            assert (await home.deliver("reports", b"{")).status_code == 400
            assert (await home.deliver("small", b"x" * 3_000)).status_code == 413
            assert await forged(home, "nobody") == 404
            assert await forged(home, "secretless") == 503
            assert await kept(home) == []

    asyncio.run(scenario())


def test_a_flood_costs_its_pace_and_its_buffer_and_no_more(tmp_path: Path) -> None:
    """B10: of one provider so many a second, of all together so many in memory; what is dropped is counted, others have their share."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            for _ in range(A_SECOND + 5):
                assert await forged(home) == 401
            assert await forged(home, "github") == 401
            rows = await kept(home)
            assert sum(row["provider"] == "reports" for row in rows) == A_SECOND
            assert sum(row["provider"] == "github" for row in rows) == 1
            assert home.counted["receiver.quarantine", "dropped"] == 5
            home.world.pass_seconds(1)
            assert await forged(home) == 401
            assert len(await kept(home)) == A_SECOND + 2
            many = Shelf(home.gate)
            request = InboundRequest(method="POST", path=b"/", query=b"", headers=(), body=b"")
            for number in range(WAITING + 10):  # without a turn of the loop nothing is written
                many.take(f"p{number}", request, Refused(reason=Reason.WRONG_SIGNATURE), 1)
            assert home.counted["receiver.quarantine", "dropped"] == 15
            await many.written()

    asyncio.run(scenario())


def test_large_bodies_share_a_bound_of_bytes(tmp_path: Path) -> None:
    """B10: the buffer is bounded in bytes too, and a body above 64 KiB is not kept."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            many = Shelf(home.gate)
            request = InboundRequest(method="POST", path=b"/", query=b"", headers=(), body=b"x" * 70_000)
            for number in range(100):
                many.take(f"p{number}", request, Refused(reason=Reason.WRONG_SIGNATURE), 1)
            assert home.counted["receiver.quarantine", "dropped"] == 100 - 64
            await many.written()
            (row, *_) = await kept(home)
            found = await home.ledger.read(inbox.refusal, row["id"])
            assert found is not None
            assert (found["body"], found["bytes"]) == (None, 70_000)

    asyncio.run(scenario())


def test_a_flood_between_genuine_deliveries_is_told_too(tmp_path: Path) -> None:
    """B10, B12: what comes between does not hide a hundred refusals in a minute."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            counted = shelf(home)
            for number in range(FLOOD):
                counted.refused("reports", "missing_signature")
                if number % 5 == 0:
                    counted.accepted("reports")
            assert runs(logs) == [("reports", FLOOD, "missing_signature")]

    structlog.reset_defaults()
    with capture_logs() as logs:
        asyncio.run(scenario())


class Refusing(Ledger):
    """A record that takes everything but refusals."""

    async def write(self, command: Command) -> Any:
        if type(command).__name__ == "Quarantine":
            raise LedgerUnavailableError("the disk is full")
        return await super().write(command)


def test_a_record_that_takes_nothing_changes_no_answer(tmp_path: Path) -> None:
    """B10: a refusal that cannot be kept is a refusal: the same `401`, counted as dropped."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            home.ledger.__class__ = Refusing
            assert [await forged(home) for _ in range(3)] == [401, 401, 401]
            assert await kept(home) == []
            assert home.counted["receiver.quarantine", "dropped"] == 3
            home.ledger.__class__ = Ledger

    asyncio.run(scenario())


def runs(logs: list[Any]) -> list[tuple[str, int, str]]:
    return [(entry["provider"], entry["count"], entry["reason"]) for entry in logs if entry["event"] == "receiver.refusal_run"]


def test_a_run_of_refusals_is_told_once_a_minute(tmp_path: Path) -> None:
    """B12: reads cover for lost callbacks, so the run is told: after so many without a genuine one, at most once a minute."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            for _ in range(RUN - 1):
                await forged(home)
            assert (await home.deliver("reports", event(1))).status_code == 200
            for _ in range(RUN - 1):
                await forged(home)
            assert runs(logs) == []
            for _ in range(5):
                await forged(home)
            assert runs(logs) == [("reports", RUN, "wrong_signature")]
            home.world.pass_seconds(61)
            await forged(home)
            assert runs(logs)[1:] == [("reports", RUN + 5, "wrong_signature")]
            assert home.counted["receiver.refusal_run", "wrong_signature"] == 2
            # A late clock is a run too: every delivery is genuine and refused.
            for number in range(RUN):
                body = event(number)
                headers = {"X-Sig": signature(body, home.world.now() // SECOND - 9_000, SECRET)}
                assert (await home.bare().post("/webhooks/private", content=body, headers=headers)).status_code == 401
            assert runs(logs)[2:] == [("private", RUN, "too_old")]

    structlog.reset_defaults()
    with capture_logs() as logs:
        asyncio.run(scenario())


def test_a_flood_of_refusals_does_not_fill_the_log(tmp_path: Path) -> None:
    """B10: twenty lines a second of one provider; the next one tells how many went without; another provider has its own."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = home.bare()
            for _ in range(LINES + 7):
                assert (await client.post("/webhooks/reports", content=b"x")).status_code == 401
            assert (await client.post("/webhooks/github", content=b"x")).status_code == 401
            home.world.pass_seconds(1)
            assert (await client.post("/webhooks/reports", content=b"x")).status_code == 401

    with capture_logs() as logs:
        asyncio.run(scenario())
    told = [(line["provider"], line.get("left_out", 0)) for line in logs if line["event"] == "receiver.refused"]
    assert told == [*[("reports", 0)] * LINES, ("github", 0), ("reports", 7)]

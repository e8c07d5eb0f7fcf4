"""Event ids that come again with other bytes are told when they are many."""

import asyncio
from pathlib import Path
from typing import Any

import structlog
from structlog.testing import capture_logs

from gateway.conflicts import USUAL
from tests.gateway.house import House, event, house


def runs(logs: list[Any]) -> list[tuple[str, int]]:
    return [(entry["provider"], entry["count"]) for entry in logs if entry["event"] == "receiver.conflict_run"]


async def conflicts(home: House, provider: str, first: int, count: int, *, offset: int = 0) -> None:
    """Deliver `count` contents more under the event id that is known; the contents differ by their number."""
    for number in range(first, first + count):
        answer = await home.deliver(provider, event(1, attempt=number), offset=offset)
        assert answer.status_code == (200 if not offset else 401)


def test_a_run_of_conflicts_is_told_once_a_minute(tmp_path: Path) -> None:
    """B3: a high ratio of known ids with other bytes is an alarm; repeats of the same bytes and a few conflicts are none."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            for provider in ("reports", "private"):
                for _ in range(USUAL + 5):
                    assert (await home.deliver(provider, event(1))).status_code == 200
            await conflicts(home, "reports", 0, USUAL)
            await conflicts(home, "private", 0, USUAL)
            assert runs(logs) == []
            await conflicts(home, "reports", 100, 5)
            assert runs(logs) == [("reports", USUAL + 1)]
            home.world.pass_seconds(61)
            await conflicts(home, "reports", 200, USUAL)
            await conflicts(home, "private", 200, 1)
            assert len(runs(logs)) == 1
            await conflicts(home, "reports", 300, 2)
            assert runs(logs)[1:] == [("reports", USUAL + 1)]
            assert home.counted["receiver.conflict_run", ""] == 2

    structlog.reset_defaults()
    with capture_logs() as logs:
        asyncio.run(scenario())


def test_late_conflicts_count_too(tmp_path: Path) -> None:
    """B3, B8: genuine deliveries outside their window are refused and stored, and their conflicts are conflicts."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            assert (await home.deliver("reports", event(1))).status_code == 200
            await conflicts(home, "reports", 0, USUAL + 1, offset=-4_000)
            assert runs(logs) == [("reports", USUAL + 1)]

    structlog.reset_defaults()
    with capture_logs() as logs:
        asyncio.run(scenario())

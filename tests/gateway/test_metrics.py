"""What a scraper reads: counts of the process and of the record, with labels from closed sets only."""

import asyncio
import re
from pathlib import Path

from gateway.counts import COUNTED
from schemas.commands import Beat
from tests.gateway.asking import made
from tests.gateway.house import event, house

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "operating.md"


def test_counts_duties_and_operations_are_exposed(tmp_path: Path) -> None:
    """H3: what was stored and refused, how each duty goes, and what is not over; without a key, and without anybody's words."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            caller = await home.client()
            await made(caller, reference="a caller's own words")
            await home.deliver("reports", event(1))
            await home.deliver("reports", event(2), headers={"X-Sig": "t=1,v1=00"})
            await home.bare().post("/webhooks/nobody-configured-this", content=b"{}")
            await home.ledger.write(Beat(duty="tidy", process="worker-1", now=home.world.now(), ok=True, counts={"parts": 3}))
            answer = await home.bare().get("/metrics")
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith("text/plain; version=")
            lines = answer.text.splitlines()
            assert 'gateway_receiver_stored_total{provider="reports",status="unmatched"} 1.0' in lines
            assert any(re.match(r'gateway_receiver_refused_total\{provider="reports",reason="\w+"\} 1.0', line) for line in lines)
            assert 'gateway_operations{provider="reports",state="create_pending"} 1.0' in lines
            stamp = f"{home.world.now() / 1_000_000}"
            assert f'gateway_duty_last_success_timestamp_seconds{{duty="tidy",process="worker-1"}} {stamp}' in {
                re.sub(r" (\S+)$", lambda value: f" {float(value[1])}", line) for line in lines if "last_success" in line and line[0] != "#"
            }
            assert 'gateway_duty_found{duty="tidy",process="worker-1",what="parts"} 3.0' in lines
            assert "gateway_record_readable 1.0" in lines
            assert "own words" not in answer.text
            assert "nobody-configured" not in answer.text

    asyncio.run(scenario())


def test_a_record_that_is_gone_is_said_and_hides_no_count(tmp_path: Path) -> None:
    """B162: a scrape is answered while the database is not; scrapes share one look at the record for some seconds."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            await home.deliver("reports", event(1))
            assert "gateway_record_readable 1.0" in (await home.bare().get("/metrics")).text
            await asyncio.to_thread(home.ledger.close)
            assert "gateway_record_readable 1.0" in (await home.bare().get("/metrics")).text
            home.world.pass_seconds(6)
            text = (await home.bare().get("/metrics")).text
            assert "gateway_record_readable 0.0" in text
            assert "gateway_receiver_stored_total" in text

    asyncio.run(scenario())


def test_figures_of_the_record_are_the_same_in_every_process(tmp_path: Path) -> None:
    """B158: of two processes behind one address either tells all deliveries and duties, not its own share."""

    async def scenario() -> None:
        async with house(tmp_path) as one, house(tmp_path, first_id=1_000_000) as other:
            for number in range(20):
                await (one if number % 3 else other).deliver("reports", event(number))
            await one.ledger.write(Beat(duty="tidy", process="worker-1", now=one.world.now(), ok=True, counts={}))
            for home in (one, other, one):
                lines = (await home.bare().get("/metrics")).text.splitlines()
                assert 'gateway_deliveries_verified_total{provider="reports"} 20.0' in lines
                assert 'gateway_duty_runs_total{duty="tidy",process="worker-1"} 1.0' in lines

    asyncio.run(scenario())


def test_every_count_is_in_the_table_and_in_the_docs() -> None:
    """A count that the table does not know would be an exception in the middle of a delivery."""
    named = {found for path in (ROOT / "gateway").glob("*.py") for found in re.findall(r'\.count\("([a-z_.]+)"', path.read_text("utf-8"))}
    assert named == set(COUNTED)
    page = PAGE.read_text("utf-8")
    for name, (text, labels) in COUNTED.items():
        row = f"| `gateway_{name.replace('.', '_')}_total` | {', '.join(f'`{label}`' for label in labels)} | {text} |"
        assert row in page

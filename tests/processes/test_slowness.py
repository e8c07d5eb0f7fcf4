"""Slow providers and lost tasks: whoever waits keeps nobody else waiting, and what a 2xx promised does not hang on a task."""

import concurrent.futures
import re
import signal
import time
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import sqlalchemy as sa

from simulator.jobs import Phase
from tests.conformance.conftest import Database
from tests.processes.remote import Remote
from tests.processes.town import Town, adopt, create, deliver, new_job, signed, town, until

pytestmark = pytest.mark.timeout(110)
CRASHING = "from tests.processes.crashing import run; run()"
RARE = (("poll_seconds = 1\nmax_poll_seconds = 2", "poll_seconds = 864000\nmax_poll_seconds = 864000\nstale_seconds = 8640000"),)
OTHER = """
[providers.other]
contract = "./reports.toml"
base_url = "{origin}"
secrets = ["env:REPORTS_SECRET"]
"""


def test_a_provider_that_never_answers_blocks_nobody(tmp_path: Path, remote: Remote) -> None:
    """B107: every read at one account hangs, more of them than it may have at a time; another account's operations end quickly."""
    url = f"sqlite:///{tmp_path}/gateway.db"
    with Remote() as silent, town(tmp_path, url, remote, more=OTHER.format(origin=silent.base_url)) as house:
        with house.running(), house.api() as api:
            hanging = [new_job(silent, "hang_reads=1000", "run=600") for _ in range(40)]
            for job in hanging:
                answer = api.post("/v1/operations", json={"provider": "other", "remote_job_id": job})
                assert answer.status_code == 202
            until(lambda: len([job for job in hanging if silent.reads(job)]) >= 16, "its reads hang")
            began = time.monotonic()
            operations = [create(api, f"k{number}") for number in range(10)]
            for operation in operations:
                house.settled(operation, seconds=30)
            assert time.monotonic() - began < 10
        assert [count for job in hanging if (count := silent.reads(job)) > 1] == []


def test_no_transaction_waits_for_a_provider(house: Town, remote: Remote) -> None:
    """B120, B122: thirty creates that take five seconds each: deliveries and other writers commit at once all the while."""
    slow = 5.0
    with house.running() as serving, house.api() as api:
        with concurrent.futures.ThreadPoolExecutor(10) as pool:
            operations = list(pool.map(lambda n: create(api, f"k{n}", f"delay_create_response={slow}", "lose_callbacks"), range(30)))
        until(lambda: remote.creates() >= 16, "as many calls as the account may have are under way")
        open_attempts = "SELECT count(*) AS n FROM operations WHERE open_attempt IS NOT NULL"
        assert house.rows(open_attempts)[0]["n"] >= 8
        taken: list[float] = []
        with httpx.Client() as client:
            for number in range(40):
                headers, body = signed(f"evt_{number}", "", "running", reference=operations[number % 30])
                began = time.monotonic()
                answer = client.post(f"{serving.address}/webhooks/reports", content=body, headers=headers)
                taken.append(time.monotonic() - began)
                assert answer.status_code == 200
        began = time.monotonic()
        with house.record.engines.begin() as connection:
            connection.execute(sa.text("UPDATE operations SET hints = hints WHERE open_attempt IS NOT NULL"))
        written = time.monotonic() - began
        assert house.rows(open_attempts)[0]["n"] > 0  # calls were under way through all of this
        if house.record.engines.postgres:
            idle = "SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'"
            assert house.rows(idle + " AND now() - state_change > interval '1 second'")[0]["n"] == 0
        for operation in operations:
            house.settled(operation)
    assert sorted(taken)[-2] < 1
    assert written < 1
    house.sound()


def test_what_a_2xx_promised_survives_the_process(tmp_path: Path, database: Database, remote: Remote) -> None:
    """B112, B025: the receiving process is killed right after its 2xx; the read that it owes is in the record, and is made."""
    with town(tmp_path, database.url, remote, contract=RARE) as house:
        with house.running("reconcile"), house.running("web") as web, house.api() as api:
            job = new_job(remote, "run=600", "lose_callbacks")
            operation = adopt(api, job)
            until(lambda: house.row(operation)["state"] == "observing" and not house.row(operation)["lease_until"], "seen alive")
            assert (
                house.row(operation)["due_at"] - house.row(operation)["updated_at"] > 60_000_000
            )  # however the chance falls, the next read is far away
            remote.force(job, Phase.SUCCEEDED)
            assert deliver(web.address, signed("evt_1", job)).status_code == 200
            web.process.kill()
            house.settled(operation, seconds=20)
        house.sound()


@pytest.mark.parametrize(("place", "word"), [("Ingest.before_commit", "accepted"), ("Ingest.after_commit", "duplicate")])
def test_killed_between_the_delivery_and_its_application(tmp_path: Path, remote: Remote, place: str, word: str) -> None:
    """B025: both are one commit. Killed before it, the redelivery is new and applied; after it, it is a duplicate, applied once."""
    with town(tmp_path, f"sqlite:///{tmp_path}/gateway.db", remote, contract=RARE) as house:
        with house.running("web"), house.api() as api:
            job = new_job(remote, "run=600", "lose_callbacks")
            operation = adopt(api, job)
            crashing = replace(house, stage=replace(house.stage, start=CRASHING))
            delivery = signed("evt_1", job)
            with crashing.running("web", port=0, CRASH_AT=place) as receiver:
                with pytest.raises(httpx.TransportError):
                    deliver(receiver.address, delivery)
                assert receiver.process.wait(60) == -signal.SIGKILL
            again = deliver(house.address, delivery)
            assert (again.status_code, again.json()["status"]) == (200, word)
            remote.force(job, Phase.SUCCEEDED)
            with house.running("reconcile"):
                house.settled(operation, seconds=20)
        assert len([row for row in house.history(operation) if row["cause"] == "delivery"]) == 1
        house.sound()


def test_a_stopped_process_makes_up_for_its_ticks_once(file_house: Town) -> None:
    """B101: a reconciler that stands still over many ticks goes on at once when it wakes, and skips or misses no duty."""
    house = file_house
    with house.running("reconcile", GATEWAY_CLOCKWORK__SWEEP_SECONDS="0.3") as running:
        running.process.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        until(lambda: time.monotonic() - stopped > 2, "several ticks have passed")
        running.process.send_signal(signal.SIGCONT)
        beats = "SELECT counts FROM heartbeats WHERE duty = 'sweep'"
        found = until(lambda: house.rows(beats), "its heartbeat")
        assert running.stop() == 0
        runs = int(re.findall(r'"runs": ?(\d+)', found[0]["counts"])[0])
        assert 10 <= runs <= (time.monotonic() - stopped - 2) / 0.3 + 4
        assert [event for event in running.seen if event.get("event") == "reconciler.tick_event"] == []

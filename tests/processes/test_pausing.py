"""A reconciler that is stopped past its lease and wakes up: its successor has the work, and it changes nothing by itself."""

import signal
from pathlib import Path

import pytest

from simulator.jobs import Phase
from tests.cli.stage import Running
from tests.conformance.conftest import Database
from tests.processes.line import Line
from tests.processes.remote import Remote
from tests.processes.town import Town, adopt, create, new_job, town, until

pytestmark = pytest.mark.timeout(110)
PATIENT = ("[status.readings]", "[limits]\nconnect_seconds = 60\ntotal_seconds = 60\n\n[status.readings]")
ROWS = 200_000  # 5.8 MB: more than what the sockets between us hold


def pause(running: Running, house: Town) -> None:
    """Stop a process where it holds no lock of the record: there it would stop everybody."""

    def stopped() -> bool:
        running.process.send_signal(signal.SIGSTOP)
        if house.record.engines.postgres:
            busy = house.rows(
                "SELECT pid FROM pg_stat_activity WHERE application_name = 'gateway-reconcile' AND datname = current_database()"
                " AND xact_start IS NOT NULL"
            )
            free = not busy
        else:
            free = _writable(house)
        if not free:
            running.process.send_signal(signal.SIGCONT)
        return free

    until(stopped, "stopped between two transactions")


def _writable(house: Town) -> bool:
    driver = house.record.engines.write.raw_connection()
    try:
        driver.execute("PRAGMA busy_timeout=50")
        driver.execute("BEGIN IMMEDIATE")
        driver.execute("ROLLBACK")
    except Exception as error:
        if "locked" not in str(error):  # of either driver
            raise
        return False
    finally:
        driver.execute("PRAGMA busy_timeout=5000")
        driver.close()
    return True


def wake(running: Running) -> None:
    """Let a stopped process go on."""
    running.process.send_signal(signal.SIGCONT)


def exchanges(house: Town, operation: str, errand: str) -> int:
    return len(house.rows("SELECT id FROM exchanges WHERE operation = :id AND errand = :errand", id=operation, errand=errand))


def test_paused_in_a_create(house: Town, remote: Remote) -> None:
    """B125, C1: the create's answer is read after another process has finished; it is true and known, and nothing changes."""
    with house.running("web"), house.running("reconcile") as first, house.api() as api:
        operation = create(api, "k1", "delay_create_response=1", "lose_callbacks")
        until(remote.creates, "the create is under way")
        pause(first, house)
        with house.running("reconcile"):
            final = house.settled(operation)
            history = house.history(operation)
            wake(first)
            attempts = "SELECT outcome FROM attempts WHERE operation = :id AND errand = 'create' ORDER BY number"
            until(lambda: house.rows(attempts, id=operation)[0]["outcome"] == "answered", "the first one's answer is on record")
    after = house.row(operation)
    assert house.history(operation) == history
    assert {name: after[name] for name in ("state", "version", "due_at", "lease_fence", "lease_until")} == {
        name: final[name] for name in ("state", "version", "due_at", "lease_fence", "lease_until")
    }
    assert remote.creates() == 2
    house.sound()


def test_paused_in_a_read(tmp_path: Path, remote: Remote) -> None:
    """B125: an answer `running` that is older than the end is read after it, under an old fence; the end stays."""
    url = f"sqlite:///{tmp_path}/gateway.db"
    with Line(remote.base_url) as line, town(tmp_path, url, remote, origin=line.base_url, contract=(PATIENT,)) as house:
        with house.running("web"), house.running("reconcile") as first, house.api() as api:
            job = new_job(remote, "run=600")
            line.passing.clear()
            operation = adopt(api, job)
            until(lambda: remote.reads(job) and line.held.is_set(), "an answer waits on the line")
            pause(first, house)
            line.passing.set()
            remote.force(job, Phase.SUCCEEDED)
            with house.running("reconcile"):
                final = house.settled(operation)
                history = house.history(operation)
                reads = exchanges(house, operation, "read")
                wake(first)
                until(lambda: exchanges(house, operation, "read") == reads + 1, "the old answer is on record")
        after = house.row(operation)
        assert house.history(operation) == history
        assert (after["state"], after["version"], after["lease_fence"]) == ("succeeded", final["version"], final["lease_fence"])
        assert after["due_at"] is None
        house.sound()


def test_paused_between_claim_and_send(tmp_path: Path, database: Database, remote: Remote) -> None:
    """B125, A6: a worker stopped after its claim and before its first byte never sends when it wakes: the provider gets one create."""
    with (
        Line(remote.base_url, closed=True) as line,
        town(tmp_path, database.url, remote, origin=line.base_url, contract=(PATIENT,)) as house,
    ):
        with house.running("web"), house.running("reconcile") as first, house.api() as api:
            operation = create(api, "k1", "lose_callbacks")
            until(lambda: house.row(operation)["open_attempt"], "the attempt is committed")
            pause(first, house)
            assert remote.creates() == 0
            line.open()
            with house.running("reconcile"):
                final = house.settled(operation)
                wake(first)
                attempts = "SELECT outcome, error FROM attempts WHERE operation = :id ORDER BY number"
                until(lambda: house.rows(attempts, id=operation)[0]["outcome"] != "lost", "the sleeper has said what it did")
        assert house.rows(attempts, id=operation)[0] == {"outcome": "not_sent", "error": "too_late"}
        assert remote.creates() == 1
        assert house.row(operation)["version"] == final["version"]
        house.sound()


def files(house: Town) -> list[str]:
    return sorted(place.name for place in (house.stage.folder / "var" / "artifacts").iterdir())


def kept(house: Town) -> list[str]:
    return sorted(row["id"] for row in house.rows("SELECT id FROM artifacts"))


def test_a_long_collection_keeps_its_lease(tmp_path: Path, remote: Remote) -> None:
    """C1: a transfer of more than two leases is renewed all the while; another process beside it never takes it over."""
    url = f"sqlite:///{tmp_path}/gateway.db"
    with (
        Line(remote.base_url, rate=900_000) as line,
        town(tmp_path, url, remote, origin=line.base_url, GATEWAY_CLOCKWORK__LEASE_SECONDS="3") as house,
    ):
        with house.running("web"), house.running("reconcile"), house.running("reconcile"), house.api() as api:
            operation = create(api, "k1", rows=ROWS)
            until(lambda: house.row(operation)["state"] == "result_collecting", "the collection is owed")
            house.settled(operation)
        job = house.row(operation)["remote_job_id"]
        assert len(remote.calls("GET", f"/v1/reports/{job}/result")) == 1
        spent = house.rows("SELECT finished_at - started_at AS micros FROM exchanges WHERE errand = 'collect' AND url LIKE '%/result'")
        assert spent[0]["micros"] > 6_000_000
        assert files(house) == kept(house)
        house.sound()


def test_a_collection_that_lost_its_lease_leaves_no_file(tmp_path: Path, remote: Remote) -> None:
    """C1, F3: a sleeper wakes in the middle of its transfer and learns that its lease is lost: only its successor's file is there."""
    url = f"sqlite:///{tmp_path}/gateway.db"
    with Line(remote.base_url, rate=200_000) as line, town(tmp_path, url, remote, origin=line.base_url) as house:
        with house.running("web"), house.running("reconcile") as first, house.api() as api:
            operation = create(api, "k1", rows=ROWS)
            until(lambda: [name for name in files(house) if name.endswith(".part")], "a transfer is under way")
            pause(first, house)
            line.rate = None
            with house.running("reconcile"):
                final = house.settled(operation)
                wake(first)
                first.event("reconciler.lease_lost")
                until(lambda: files(house) == kept(house), "one file is left", 10)
        assert len(kept(house)) == 1
        assert house.row(operation)["version"] == final["version"]
        house.sound()

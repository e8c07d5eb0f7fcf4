"""Several processes on one database: work is done once, starts do not collide, and a library that cannot share is refused."""

import concurrent.futures
import contextlib
from pathlib import Path

import httpx
import pytest

from tests.cli.stage import ROOT
from tests.conformance.conftest import Database
from tests.processes.remote import Remote
from tests.processes.town import Town, adopt, deliver, new_job, signed, town, until

pytestmark = pytest.mark.timeout(110)
OPERATIONS = 20
PROCESSES = 4


def test_four_reconcilers_read_each_operation_once(house: Town, remote: Remote) -> None:
    """B100: twenty operations due at once and four reconcilers that all wake up: twenty reads."""
    jobs = [new_job(remote, "fail", "run=0") for _ in range(OPERATIONS)]
    with contextlib.ExitStack() as stack:
        stack.enter_context(house.running("web"))
        # Room for five in each, so that no process can take all of them.
        processes = [stack.enter_context(house.begun("reconcile", GATEWAY_CLOCKWORK__WORKERS="5")) for _ in range(PROCESSES)]
        for process in processes:
            process.event("house.started")
        api = stack.enter_context(house.api())
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            operations = list(pool.map(lambda job: adopt(api, job), jobs))
        for operation in operations:
            house.settled(operation, "failed")
    assert [remote.reads(job) for job in jobs] == [1] * OPERATIONS
    house.sound()


def test_an_affected_sqlite_is_one_process_alone(file_house: Town, tmp_path: Path) -> None:
    """A library with the WAL-reset bug: `web` runs, `reconcile` beside it is refused with the cure (a safe one is not: see the others)."""
    house = file_house
    house.record.close()  # this process has the file open too
    driver = tmp_path / "affected" / "pysqlite3"
    driver.mkdir(parents=True)
    (driver / "__init__.py").write_text("")
    (driver / "dbapi2.py").write_text('from sqlite3 import *\nsqlite_version = "3.40.1"\nsqlite_version_info = (3, 40, 1)\n')
    affected = f"{driver.parent}:{ROOT}"
    with house.running("web", PYTHONPATH=affected):
        done = house.stage.run("reconcile", PYTHONPATH=affected)
        assert done.code == 2
        assert len(done.err.splitlines()) == 1
        assert "another process has" in done.err
        assert "Use `gateway serve` (one process)" in done.err
        assert "or use PostgreSQL" in done.err


def test_four_starters_on_an_empty_database(tmp_path: Path, empty_database: Database, remote: Remote) -> None:
    """B160: four processes start at once on nothing: one migrates, all become ready, none complains."""
    with town(tmp_path, f"sqlite:///{tmp_path}/other.db", remote, GATEWAY_DATABASE_URL=empty_database.url) as house:
        (tmp_path / "var" / "master.key").unlink()  # nothing at all is there
        with contextlib.ExitStack() as stack:
            processes = [stack.enter_context(house.begun("serve", port=0)) for _ in range(PROCESSES)]
            addresses = [process.address for process in processes]
            for address in addresses:
                until(lambda address=address: httpx.get(f"{address}/readyz").status_code == 200, f"{address} is ready")  # type: ignore[misc]
            assert [process.stop() for process in processes] == [0] * PROCESSES
        events = [event for process in processes for event in process.seen]
        assert [event for event in events if event.get("level") not in {"info", None}] == []
        assert house.stage.run("database", "check").code == 0


def test_a_newer_schema_is_refused_with_one_line(house: Town) -> None:
    """B160: an older program on a newer database says so, names the cure, and changes nothing."""
    with house.record.engines.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    done = house.stage.run("serve")
    assert done.code == 2
    assert len(done.err.splitlines()) == 1
    assert "newer version (schema 9999)" in done.err
    assert "install that version" in done.err
    assert house.rows("SELECT version_num FROM alembic_version") == [{"version_num": "9999"}]


def test_two_hundred_deliveries_to_two_processes(file_house: Town) -> None:
    """B116: two processes on one SQLite file take two hundred deliveries at once: no 5xx, and each is stored once."""
    house = file_house
    with house.running("web") as one, house.running("web", port=0) as other:
        addresses = [one.address, other.address]
        with concurrent.futures.ThreadPoolExecutor(50) as pool:
            answers = list(pool.map(lambda n: deliver(addresses[n % 2], signed(f"evt_{n}", f"rep_{n % 7}")), range(200)))
    assert {answer.status_code for answer in answers} == {200}
    stored = {row["id"] for row in house.rows("SELECT id FROM deliveries")}
    assert stored == {answer.json()["delivery"] for answer in answers}
    assert len(stored) == 200

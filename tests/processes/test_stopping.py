"""The end of a process in the middle of its work: it drains within its bound, nothing is half applied, the next one goes on."""

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.cli.stage import ROOT, WAIT_SECONDS
from tests.conformance.conftest import Database
from tests.processes.line import Line
from tests.processes.remote import Remote
from tests.processes.town import Town, create, town, until

pytestmark = pytest.mark.timeout(110)


@contextlib.contextmanager
def locked(house: Town) -> Iterator[None]:
    """Hold the record so that nobody commits."""
    with house.record.engines.begin() as connection:  # SQLite: BEGIN IMMEDIATE is the lock
        if house.record.engines.postgres:
            connection.execute(sa.text("LOCK TABLE operations IN EXCLUSIVE MODE"))
        yield


def test_sigterm_between_the_providers_answer_and_its_commit(tmp_path: Path, database: Database, remote: Remote) -> None:
    """B103: the answer has come, its commit waits, SIGTERM comes: the drain waits for the commit, and it is whole."""
    with Line(remote.base_url) as line, town(tmp_path, database.url, remote, origin=line.base_url) as house:
        with house.running() as serving, house.api() as api:
            line.passing.clear()
            operation = create(api, "k1", "run=600", "lose_callbacks")
            until(line.held.is_set, "the answer is on the line")
            with locked(house):
                line.passing.set()
                serving.process.send_signal(signal.SIGTERM)
                serving.event("house.stopping")
                assert house.row(operation)["remote_job_id"] is None
            assert serving.process.wait(WAIT_SECONDS) == 0
            drained = serving.event("reconciler.drained")
        assert (drained["interrupted"], drained["lost"]) == (0, 0)  # the commit may be through before the drain counts what runs
        left = house.row(operation)
        (job,) = remote.jobs()
        assert (left["remote_job_id"], left["lease_until"], left["open_attempt"]) == (job.id, None, None)
        assert left["due_at"] is not None
        assert house.states(operation) == ["create_pending", "accepted"]
        house.sound()


def test_a_drain_has_a_bound_and_gives_leases_back(house: Town, remote: Remote) -> None:
    """B103, C8: a read that hangs is interrupted after the bound; its lease is free at once, and the next process goes on."""
    with house.running(GATEWAY_CLOCKWORK__DRAIN_SECONDS="0.5", GATEWAY_CLOCKWORK__LEASE_SECONDS="600") as serving, house.api() as api:
        operation = create(api, "k1", "hang_reads=1", "lose_callbacks")
        until(lambda: (job := house.row(operation)["remote_job_id"]) and remote.reads(job), "the read hangs")
        began = time.monotonic()
        assert serving.stop() == 0
        assert time.monotonic() - began < 10
        drained = serving.event("reconciler.drained")
        assert (drained["finished"], drained["interrupted"], drained["lost"]) == (0, 1, 0)
    assert house.row(operation)["lease_until"] is None
    with house.running():
        house.settled(operation)
    assert remote.creates() == 1
    house.sound()


def test_the_second_signal_ends_it_at_once(file_house: Town, remote: Remote) -> None:
    """SIGTERM, then SIGINT while a call hangs: it ends with 1 at once; `tests/cli` shows how the next start recovers."""
    with file_house.running(GATEWAY_CLOCKWORK__DRAIN_SECONDS="600") as running, file_house.api() as api:
        create(api, "k1", "delay_create_response=600", "lose_callbacks")
        until(remote.creates, "the create hangs")
        running.process.send_signal(signal.SIGTERM)
        running.event("house.stopping")
        began = time.monotonic()
        assert running.stop(signal.SIGINT) == 1
        assert time.monotonic() - began < 5


def test_an_entry_script_hands_sigterm_over(file_house: Town) -> None:
    """B156: `exec` in an entry script: SIGTERM to the script's process reaches the house, which drains and ends with 0."""
    script = file_house.stage.folder / "start.sh"
    script.write_text(f"#!/bin/sh\nset -eu\nexec {sys.executable} -c 'from cli.main import main; main()' \"$@\"\n", encoding="utf-8")
    environment = {**file_house.stage.environment, "PYTHONPATH": str(ROOT), "PORT": str(file_house.port)}
    command = ["sh", str(script), "serve"]
    with subprocess.Popen(command, cwd=file_house.stage.folder, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        started = next(line for line in process.stderr if "house.started" in line)
        assert f":{file_house.port}" in started  # $PORT
        began = time.monotonic()
        process.terminate()
        rest = process.stderr.read()
        assert process.wait(WAIT_SECONDS) == 0
        assert time.monotonic() - began < 10
    assert "reconciler.drained" in rest

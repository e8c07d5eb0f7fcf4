"""`kill -9` of `gateway serve` at random moments under load: what was acknowledged is there, and nothing is done twice."""

import os
import random
from pathlib import Path

import pytest

from tests.conformance.conftest import Database
from tests.processes.killing import Load, kill, settle, verdict
from tests.processes.remote import Remote
from tests.processes.town import seed, town

# On PostgreSQL fewer by default: the moments are the same and every start costs a second and a half of processor.
KILLS = {kind: int(os.environ.get("PROCESS_KILLS", usual)) for kind, usual in (("sqlite", "20"), ("postgres", "6"))}


@pytest.mark.timeout(120 + 10 * max(KILLS.values()))
def test_killed_under_load(tmp_path: Path, database: Database) -> None:
    """A2, B4: after the last of the kills and a restart everything acknowledged is on record, settles, has one remote job, and verifies."""
    number, kills = seed(), KILLS[database.kind]
    with Remote(run_seconds=0.5) as remote, town(tmp_path, database.url, remote) as house:
        load = Load(addresses=[house.address], key=house.key, seed=number, limit=25 * kills)
        load.start()
        kill(house.running, kills, random.Random(number))
        with house.running() as last:
            load.end()
            ended = settle(house)
            found = verdict(house, remote, load)
            assert last.stop() == 0
        done = house.stage.run("audit", "verify")
        print(dict(ended), dict(found), dict(load.again), f"{len(load.operations)} operations, {len(load.deliveries)} deliveries")  # noqa: T201 - for people, with -s
    assert found == dict.fromkeys(found, 0), load.wrong[:5]
    assert (done.code, done.err) == (0, "")
    assert done.out == f"{sum(ended.values())} operations verified, 0 faults, self-audit 0\n"
    assert len(load.operations) > 2 * kills  # there was a load
    assert len(load.deliveries) > 2 * kills
    assert sum(load.again.values()) > 0

"""Processes killed and stopped, and PostgreSQL restarted, at random moments under load: what was acknowledged is there, and done once."""

import os
import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.processes.killing import Load, kill, settle, verdict
from tests.processes.remote import Remote
from tests.processes.town import Town, seed, town
from tests.processes.weather import Weather, server

KILLS = int(os.environ.get("PROCESS_KILLS", "20"))
BLOWS = int(os.environ.get("PROCESS_BLOWS", "4"))  # every other one is an outage; `python -m bench.soak` blows for as long as one likes


@pytest.mark.timeout(120 + 10 * KILLS)
def test_killed_under_load(tmp_path: Path) -> None:
    """A2, B4: after the last of the kills and a restart everything acknowledged is on record, settles, has one remote job, and verifies."""
    number = seed()
    with Remote(run_seconds=0.5) as remote, town(tmp_path, f"sqlite:///{tmp_path}/gateway.db", remote) as house:
        load = Load(addresses=[house.address], key=house.key, seed=number, limit=25 * KILLS)
        load.start()
        kill(house.running, KILLS, random.Random(number))
        with house.running() as last:
            load.end()
            found, ended = judged(house, remote, load)
            assert last.stop() == 0
        verified(house, ended)
    assert found == dict.fromkeys(found, 0), load.wrong[:5]
    assert len(load.operations) > 2 * KILLS  # there was a load
    assert len(load.deliveries) > 2 * KILLS
    assert sum(load.again.values()) > 0


@pytest.mark.postgres
@pytest.mark.timeout(150 + 20 * BLOWS)
def test_bad_weather_under_load(tmp_path: Path) -> None:
    """H2, C1, B4: two `web` and two `reconcile` are killed and stopped, and their server is stopped or crashes: the same counts are 0.

    No process ends by itself meanwhile: an outage is over when the server is back, not when somebody restarts us.
    """
    number = seed()
    with server() as database, Remote(run_seconds=0.5) as remote, town(tmp_path, database.url, remote) as house:
        weather = Weather(house, database, number)
        load = Load(addresses=weather.addresses, key=house.key, seed=number, limit=60 * BLOWS)
        weather.begin()
        load.start()
        for count in range(BLOWS):
            weather.calm()
            if count % 2:
                weather.outage("fast" if count % 4 == 1 else "immediate")
            else:
                weather.blow()
        weather.calm()
        load.end()
        found, _ = judged(house, remote, load)
        assert weather.end() == [0] * 4
    assert found == dict.fromkeys(found, 0), load.wrong[:5]
    assert weather.deserted == 0
    assert weather.done["server stopped (fast)"] > 0
    assert len(load.operations) > 2 * BLOWS
    assert load.again["503"] > 0  # the outages were met, and were answered


def judged(house: Town, remote: Remote, load: Load) -> tuple[Mapping[str, int], int]:
    """Let everything settle; return the counts of what must not be, and how many operations there are."""
    ended = settle(house)
    found = verdict(house, remote, load)
    print(dict(ended), dict(found), dict(load.again), f"{len(load.operations)} operations, {len(load.deliveries)} deliveries")  # noqa: T201 - for people, with -s
    return found, sum(ended.values())


def verified(house: Town, operations: int) -> None:
    """Let the command line verify the record too."""
    done = house.stage.run("audit", "verify")
    assert (done.code, done.err) == (0, "")
    assert done.out == f"{operations} operations verified, 0 faults, self-audit 0\n"

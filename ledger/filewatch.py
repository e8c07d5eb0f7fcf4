"""Whether the SQLite file of an open record is still the one at its path; once it is not, it never is again.

A deleted file stays writable for whoever has it open: commits succeed, and everything is lost with the process. So the
path's inode is compared with the one that was opened, by `stat` alone: opening and closing a database file would drop
the locks that SQLite holds on it (sqlite.org/howtocorrupt.html).
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

Identity = tuple[int, int]
"""Device and inode."""

CURE: Final = "nothing more is written; put the file back from the backup and restart this process"
_log = structlog.get_logger("ledger")


def identity(path: str) -> Identity | None:
    """Return what the path leads to now; None: nothing, or nothing that can be looked at."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


class FileWatch:
    """See the module. `hold` must keep a connection open, so that SQLite itself never replaces the WAL file."""

    def __init__(self, path: str, opened: Identity) -> None:
        self._known: dict[str, Identity] = {path: opened}
        self._path = path
        self._lock = threading.Lock()
        self._gone = ""
        self._release: Callable[[], None] | None = None

    def hold(self, release: Callable[[], None]) -> None:
        """Watch the WAL file too, from now on. `release` gives the connection back that keeps it in being."""
        self._release = release
        wal = f"{self._path}-wal"
        if (found := identity(wal)) is not None:
            self._known[wal] = found

    def look(self) -> str:
        """Return what is gone, with the cure, or the empty text. Logged once. From any thread; takes microseconds."""
        if self._gone:
            return self._gone
        for path, opened in self._known.items():
            if identity(path) != opened:
                self._lost(path)
                break
        return self._gone

    def close(self) -> None:
        """Give the held connection back. Again: nothing."""
        release, self._release = self._release, None
        if release is not None:
            release()

    def _lost(self, path: str) -> None:
        with self._lock:
            if self._gone:
                return
            self._gone = f"the database file {path} is gone or another one stands in its place; {CURE}"
        _log.error("ledger.database_gone", fault=self._gone)

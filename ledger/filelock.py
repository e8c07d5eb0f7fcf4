"""A lock file beside an SQLite database: says how many processes may have it open."""

import fcntl
import os
import time
from pathlib import Path
from typing import Final, Self

import structlog

from ledger.errors import ConfigurationError
from ledger.filewatch import Identity, identity

_TURN_SECONDS: Final = 2.0  # in which another process that starts too makes the file
_PAUSE_SECONDS: Final = 0.01
_log = structlog.get_logger("ledger")


def missing(database: str) -> str:
    """Return what to say where there is no such database file: one that a process still has open was taken away from it."""
    return _taken(database) if _held(database) else ""


def _taken(database: str) -> str:
    return (
        f"the database file {database} is gone while another process still has it open; stop that process first, then put"
        " the file back from the backup, or start anew"
    )


def _held(database: str) -> bool:
    """Return whether a process has this database open. Makes nothing."""
    try:
        handle = os.open(f"{database}.lock", os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


class FileLock:
    """An advisory lock of the operating system; it goes with the process, however that ends."""

    __slots__ = ("_handle", "opened")

    def __init__(self, handle: int, opened: Identity) -> None:
        self._handle = handle
        self.opened = opened  # the database file that was found or made

    @classmethod
    def beside(cls, database: str, *, exclusive: bool, version: str) -> Self:
        """Make the database's folder and file (0600) and lock it: exclusively for an SQLite with the WAL-reset bug.

        Raises ConfigurationError when another process has the file open and one of the two has that bug, or when the file
        is missing while another process has it open: a second one beside it would be another record.
        """
        place = Path(database)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(f"{database}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise ConfigurationError(f"the database file {database} cannot be opened: {error.strerror}") from None
        if not _may_be_made(place, handle):
            os.close(handle)
            raise ConfigurationError(_taken(database))
        try:
            fcntl.flock(handle, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise ConfigurationError(
                f"another process has {database} open, and the SQLite of one of the two ({version} here) may corrupt a file that two"
                " processes write (sqlite.org/wal.html#walresetbug). Use `gateway serve` (one process), or install SQLite 3.51.3 or"
                " later everywhere (pip install pysqlite3), or use PostgreSQL"
            ) from None
        try:
            return cls(handle, _opened(place))
        except OSError as error:
            os.close(handle)
            raise ConfigurationError(f"the database file {database} cannot be opened: {error.strerror}") from None

    def release(self) -> None:
        """Give the lock back. Once is enough; more does no harm."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)


def _may_be_made(place: Path, handle: int) -> bool:
    """Return whether the file is there, or may be made: nobody has it open (then the lock is held alone until it is there)."""
    give_up = time.monotonic() + _TURN_SECONDS
    while not place.exists():
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() > give_up:
                return False
            time.sleep(_PAUSE_SECONDS)  # two processes that start at once: the other one may be making it
        else:
            return True
    return True


def _opened(place: Path) -> Identity:
    found = identity(str(place))
    if found is not None:  # not opened: closing it would drop the locks of this process's other connections
        return found
    handle = os.open(place, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        made = os.fstat(handle)
    finally:
        os.close(handle)
    _log.info("ledger.database_made", file=str(place))  # whoever expected a record here must be able to see that there was none
    return made.st_dev, made.st_ino

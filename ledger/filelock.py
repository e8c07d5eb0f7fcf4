"""A lock file beside an SQLite database: says how many processes may have it open."""

import fcntl
import os
from pathlib import Path
from typing import Self

from ledger.errors import ConfigurationError


class FileLock:
    """An advisory lock of the operating system; it goes with the process, however that ends."""

    __slots__ = ("_handle",)

    def __init__(self, handle: int) -> None:
        self._handle = handle

    @classmethod
    def beside(cls, database: str, *, exclusive: bool, version: str) -> Self:
        """Make the database's folder and file (0600) and lock it: exclusively for an SQLite with the WAL-reset bug.

        Raises ConfigurationError when another process has the file open and one of the two has that bug.
        """
        place = Path(database)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(place, os.O_RDWR | os.O_CREAT, 0o600))
            handle = os.open(f"{database}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise ConfigurationError(f"the database file {database} cannot be opened: {error.strerror}") from None
        try:
            fcntl.flock(handle, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise ConfigurationError(
                f"another process has {database} open, and the SQLite of one of the two ({version} here) may corrupt a file that two"
                " processes write (sqlite.org/wal.html#walresetbug). Use `gateway serve` (one process), or install SQLite 3.51.3 or"
                " later everywhere (pip install pysqlite3), or use PostgreSQL"
            ) from None
        return cls(handle)

    def release(self) -> None:
        """Give the lock back. Once is enough; more does no harm."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)

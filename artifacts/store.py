"""The artifact room: result files on a local disk, whole or not there at all (MISSION F1, F3).

A file is written as `<id>.part`, flushed, fsynced, renamed to `<id>` and made durable by an fsync of the directory. A
crash leaves only `*.part` files, which `Store.sweep` removes. Files are not encrypted here: the directory (0700) and
the files (0600) belong to the service's user, and a disk that needs more is encrypted underneath.
"""

import asyncio
import contextlib
import errno
import hashlib
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from schemas.operation import Micros

_ID: Final = re.compile(r"art_[0-9a-f]{8,64}\Z")
_PART: Final = ".part"
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# One hop to a thread per mebibyte: a hop costs about as much as hashing 64 KiB, and a disk that stalls never stalls the loop.
_FLUSH_BYTES: Final = 1_048_576
_MICROS_PER_NANO: Final = 1_000

_Value = TypeVar("_Value")


class StoreError(OSError):
    """The store could not do what was asked; the message names the artifact, never a path."""


class StoreFullError(StoreError):
    """The disk, the quota or the file size limit is exhausted (B165). The part file is gone; try again later."""


class MissingArtifactError(StoreError):
    """No file of that id is stored."""


class Store:
    """Result files in one directory, named by their artifact id (`art_` and hex digits).

    The directory is made (0700) where it is missing. Raises StoreError where it cannot be used.
    """

    def __init__(self, directory: str | Path) -> None:
        self._directory = Path(directory)
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._directory.chmod(0o700)
        except OSError as error:
            raise StoreError(
                error.errno,
                f"the artifact directory {directory} cannot be used ({error.strerror}): make it a directory of the service's user",
            ) from error

    @property
    def directory(self) -> str:
        """Return where the files lie."""
        return str(self._directory)

    async def create(self, artifact_id: str) -> "Writer":
        """Return a writer for a new artifact. Raises StoreFullError; StoreError also for an id that is being written or stored."""
        return await asyncio.to_thread(self._create, artifact_id)

    async def open(self, artifact_id: str) -> "Reader":
        """Return a reader of a stored artifact. Raises MissingArtifactError; the reader must be closed."""
        return await asyncio.to_thread(self._open, artifact_id)

    async def remove(self, artifact_id: str) -> bool:
        """Remove a stored artifact and return whether it was there."""
        return await asyncio.to_thread(self._remove, artifact_id)

    def room(self) -> int:
        """Return how many bytes may still be written here. Raises StoreError where the directory is gone."""
        return _guarded(lambda: shutil.disk_usage(self._directory).free, "room")

    def sweep(self, older_than: Micros) -> int:
        """Remove part files last written before `older_than` (microseconds UTC) and return how many; for start-up and ticks."""
        removed = 0
        with os.scandir(self._directory) as entries:
            for entry in entries:
                if not entry.name.endswith(_PART):
                    continue
                # A live transfer may end between the listing and the look.
                with contextlib.suppress(FileNotFoundError):
                    if entry.stat(follow_symlinks=False).st_mtime_ns // _MICROS_PER_NANO < older_than:
                        Path(entry.path).unlink()
                        removed += 1
        return removed

    def stored(self, older_than: Micros, *, after: str = "", limit: int = 500) -> list[str]:
        """Return ids above `after`, in order, of whole files written before `older_than`; for comparing with the record."""
        found = []
        with os.scandir(self._directory) as entries:
            for entry in entries:
                if entry.name <= after or _ID.match(entry.name) is None:
                    continue
                with contextlib.suppress(FileNotFoundError):
                    if entry.stat(follow_symlinks=False).st_mtime_ns // _MICROS_PER_NANO < older_than:
                        found.append(entry.name)
        return sorted(found)[:limit]

    def _path(self, artifact_id: str) -> Path:
        if _ID.match(artifact_id) is None:
            raise MissingArtifactError(errno.ENOENT, "not an artifact id")
        return self._directory / artifact_id

    def _create(self, artifact_id: str) -> "Writer":
        final = self._path(artifact_id)
        if final.exists():
            raise StoreError(errno.EEXIST, f"artifact {artifact_id} is stored already")
        part = final.with_name(final.name + _PART)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return Writer(artifact_id, part, final, _guarded(lambda: os.open(part, flags, 0o600), artifact_id))

    def _open(self, artifact_id: str) -> "Reader":
        path = self._path(artifact_id)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise MissingArtifactError(errno.ENOENT, f"artifact {artifact_id} is not stored") from error
        return Reader(descriptor)

    def _remove(self, artifact_id: str) -> bool:
        path = self._path(artifact_id)
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        _sync_directory(self._directory)
        return True


class Writer:
    """One artifact that is being written. Exactly one of `commit` and `abort` ends it; `abort` after either does nothing."""

    def __init__(self, artifact_id: str, part: Path, final: Path, descriptor: int) -> None:
        self.id = artifact_id
        self.bytes = 0
        self._part = part
        self._final = final
        self._descriptor = descriptor
        self._digest = hashlib.sha256()
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._open = True

    @property
    def sha256(self) -> str:
        """Return the SHA-256 (hex) of everything that reached the file: of the whole once sealed or committed."""
        return self._digest.hexdigest()

    async def write(self, chunk: bytes) -> None:
        """Append. Raises StoreFullError, after which only `abort` is left to do."""
        assert self._open, "the writer has ended"
        self._pending.append(chunk)
        self._pending_bytes += len(chunk)
        self.bytes += len(chunk)
        if self._pending_bytes >= _FLUSH_BYTES:
            await _finish(self._flush)

    async def restart(self) -> None:
        """Forget everything written so far: the bytes that follow are the first. Raises StoreError."""
        assert self._open, "the writer has ended"
        await _finish(self._restart)

    async def read(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes from `offset` of what has been sealed; `length` is bounded to one mebibyte."""
        assert self._open, "the writer has ended"
        return await _finish(lambda: os.pread(self._descriptor, min(length, _FLUSH_BYTES), offset))

    async def seal(self) -> None:
        """Bring everything written so far into the file, so that `sha256` is of the whole. Raises StoreFullError."""
        await _finish(self._flush)

    async def commit(self) -> None:
        """Make the file durable under its id: flush, fsync, rename, fsync of the directory. Raises StoreFullError."""
        assert self._open, "the writer has ended"
        await _finish(self._commit)

    async def abort(self) -> None:
        """Remove what was written; never raises for a file that is gone."""
        await _finish(self._abort)

    def _flush(self) -> None:
        data = b"".join(self._pending)
        self._pending.clear()
        self._pending_bytes = 0
        self._digest.update(data)
        view = memoryview(data)
        while view:
            written = _guarded(lambda left=view: os.write(self._descriptor, left), self.id)  # type: ignore[misc]
            view = view[written:]

    def _restart(self) -> None:
        self._pending.clear()
        self._pending_bytes = self.bytes = 0
        self._digest = hashlib.sha256()
        _guarded(lambda: os.ftruncate(self._descriptor, 0), self.id)
        _guarded(lambda: os.lseek(self._descriptor, 0, os.SEEK_SET), self.id)

    def _commit(self) -> None:
        self._flush()
        _guarded(lambda: os.fsync(self._descriptor), self.id)
        self._close()
        _guarded(lambda: self._part.rename(self._final), self.id)
        _guarded(lambda: _sync_directory(self._final.parent), self.id)

    def _abort(self) -> None:
        if self._open:
            self._close()
            self._pending.clear()
        # After a commit there is no part file: nothing of the artifact is touched.
        self._part.unlink(missing_ok=True)

    def _close(self) -> None:
        self._open = False
        os.close(self._descriptor)


class Reader:
    """A stored artifact opened for reading in ranges."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.bytes = os.fstat(descriptor).st_size

    async def read(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes from `offset`; empty at the end. `length` is bounded to one mebibyte."""
        return await _finish(lambda: os.pread(self._descriptor, min(length, _FLUSH_BYTES), offset))

    def close(self) -> None:
        """Give the file back. A second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


async def _finish(work: Callable[[], _Value]) -> _Value:
    """Run `work` in a thread and wait for its end even when cancelled: nobody may close a descriptor that a thread still uses."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # looked at, so that it is not reported as forgotten; the cancellation goes on
        raise


def _guarded(work: Callable[[], _Value], artifact_id: str) -> _Value:
    try:
        return work()
    except OSError as error:
        if error.errno in _FULL:
            raise StoreFullError(error.errno, f"no room for artifact {artifact_id}: free space for the artifact directory") from error
        raise StoreError(error.errno, f"artifact {artifact_id}: {os.strerror(error.errno or 0)}") from error


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

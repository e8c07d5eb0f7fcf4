"""The key file: the master keys of a database, one a line, the newest last (MISSION H4). 64 hex digits each; `#` begins a remark."""

import contextlib
import os
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ledger.errors import ConfigurationError
from ledger.vault import KEY_BYTES, MAX_KEYS

_MAX_BYTES: Final = 4_096


def load_or_create_keys(path: str | Path) -> tuple[bytes, ...]:
    """Return the master keys in `path`, making one (0600) where there is no file.

    Of several processes that start at once exactly one makes it. Raises ConfigurationError as `load_keys` does.
    """
    place = Path(path)
    if not place.exists():
        _write(place, [secrets.token_bytes(KEY_BYTES)], replace=False)
    return load_keys(place)


def load_keys(path: str | Path) -> tuple[bytes, ...]:
    """Return the master keys in `path`, the newest last.

    Raises ConfigurationError where there is no file, others may read it, or it holds no key.
    """
    place = Path(path)
    try:
        with place.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            content = file.read(_MAX_BYTES)
    except OSError as error:
        raise ConfigurationError(
            f"the key file {place} cannot be read: {error.strerror}; restore it from your backup, or point key_file at it"
        ) from None
    if mode & 0o077:
        raise ConfigurationError(f"the key file {place} may be used by others (mode {mode:04o}); run: chmod 600 {place}")
    lines = [line.partition(b"#")[0].strip() for line in content.splitlines()]
    try:
        keys = [bytes.fromhex(line.decode("ascii")) for line in lines if line]
    except ValueError:
        keys = []
    if not 0 < len(keys) <= MAX_KEYS or any(len(key) != KEY_BYTES for key in keys) or len(set(keys)) != len(keys):
        raise ConfigurationError(
            f"the key file {place} does not hold a key of {2 * KEY_BYTES} hex digits on each line; restore it from your backup"
            " (a new one is made where there is no file, and opens nothing that was sealed before)"
        )
    return tuple(keys)


def add_key(path: str | Path) -> bytes:
    """Write a new key behind those in `path` and return it. The file is replaced whole: there is never half a key."""
    place = Path(path)
    keys = load_keys(place)
    if len(keys) == MAX_KEYS:
        raise ConfigurationError(f"the key file {place} holds {MAX_KEYS} keys; first: gateway keys forget-master")
    fresh = secrets.token_bytes(KEY_BYTES)
    _write(place, [*keys, fresh], replace=True)
    return fresh


def keep_key(path: str | Path, key: bytes) -> None:
    """Leave only `key` in the file."""
    _write(Path(path), [key], replace=True)


def _write(place: Path, keys: Sequence[bytes], *, replace: bool) -> None:
    # Written whole beside the place and then brought there: nobody ever reads half a key, and link() never overwrites.
    draft = place.with_name(f".{place.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(b"".join(key.hex().encode() + b"\n" for key in keys))
                file.flush()
                os.fsync(file.fileno())
            if replace:
                draft.rename(place)
            else:
                with contextlib.suppress(FileExistsError):
                    os.link(draft, place)
        finally:
            draft.unlink(missing_ok=True)
        folder = os.open(place.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # the name must survive a power loss before anything is sealed with the key
        finally:
            os.close(folder)
    except OSError as error:
        raise ConfigurationError(f"the key file {place} cannot be written: {error.strerror}") from None

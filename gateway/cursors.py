"""Opaque cursors: a keyset position, bound to the listing and filter that it was made for."""

import base64
import binascii
import hashlib
import json
from typing import Any, Final

from gateway.problems import ProblemError

_MAX: Final = 512
_LARGEST: Final = 2**63 - 1  # of the databases' integers


def bind(*parts: Any) -> str:
    """Return a short text that stands for a listing and its filter."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]


def write(bound: str, position: tuple[int | str, ...]) -> str:
    """Return the cursor that goes on after `position`."""
    return base64.urlsafe_b64encode(json.dumps([bound, *position]).encode()).decode().rstrip("=")


def read(bound: str, cursor: str | None, kinds: tuple[type, ...]) -> tuple[Any, ...] | None:
    """Return the position in `cursor`, or None without one. Raises 400 for one of another listing or filter."""
    if cursor is None:
        return None
    try:
        found = None if len(cursor) > _MAX else json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        found = None
    if not isinstance(found, list) or found[:1] != [bound] or [type(item) for item in found[1:]] != list(kinds) or not _storable(found):
        raise ProblemError("invalid_cursor", "use the next_cursor of the same listing with the same filter, or leave it out")
    return tuple(found[1:])


def _storable(position: list[Any]) -> bool:
    """Return whether both databases can compare with these values: a cursor is opaque, not secret, and anybody may write one."""
    for item in position:
        if isinstance(item, int) and not -_LARGEST <= item <= _LARGEST:
            return False
        if isinstance(item, str) and not (item.isascii() and item.isprintable()):
            return False
    return True


def limit(text: str | None, *, default: int = 50, most: int = 200) -> int:
    """Return the page size asked for. Raises 400 outside 1..`most`."""
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > len(str(most)) or not 1 <= int(text) <= most:
        raise ProblemError("invalid_request", f"limit must be a number from 1 to {most}")
    return int(text)

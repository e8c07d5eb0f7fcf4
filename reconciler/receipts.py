"""Receipts of results that can be read once: stored beside the files, so that a lost commit does not lose the result (F4).

The attempt names the receipt. Whoever finds an attempt that is not its own looks for its receipt before it says that the result
is lost. What no record takes over is swept with the other strays.
"""

import hashlib
import json
from typing import Any, Final

from artifacts.store import MissingArtifactError, Store, StoreError
from schemas.evidence import Collected, Items, ResultInvalid, StoredFile

_MAX_BYTES: Final = 262_144  # a handful of files and twenty names


def name(attempt_id: str) -> str:
    """Return the artifact id of an attempt's receipt."""
    return f"art_{hashlib.sha256(attempt_id.encode()).hexdigest()}"


async def leave(store: Store, attempt_id: str, outcome: Collected | ResultInvalid) -> None:
    """Write down what an attempt brought, after its files are durable. Raises StoreError."""
    writer = await store.create(name(attempt_id))
    try:
        await writer.write(json.dumps(_value(outcome)).encode())
        await writer.commit()
    finally:
        await writer.abort()


async def find(store: Store, attempt_id: str) -> Collected | ResultInvalid | None:
    """Return what an attempt had brought, where its receipt and all its files are here. Raises StoreError where the store fails."""
    try:
        data = await _read(store, name(attempt_id))
        outcome = _outcome(json.loads(data))
        for file in outcome.files:
            (await store.open(file.key)).close()
    except MissingArtifactError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(5, "a receipt cannot be read") from error
    return outcome


async def _read(store: Store, key: str) -> bytes:
    found = await store.open(key)
    try:
        return await found.read(0, _MAX_BYTES)
    finally:
        found.close()


def _value(outcome: Collected | ResultInvalid) -> dict[str, Any]:
    items = outcome.items
    return {
        "problem": [outcome.code, outcome.message] if isinstance(outcome, ResultInvalid) else None,
        "files": [{field: getattr(file, field) for field in StoredFile.__slots__} for file in outcome.files],
        "records": outcome.records,
        "items": None if items is None else {field: getattr(items, field) for field in Items.__slots__},
    }


def _outcome(value: dict[str, Any]) -> Collected | ResultInvalid:
    items = value["items"]
    shared: dict[str, Any] = {
        "files": tuple(StoredFile(**file) for file in value["files"]),
        "records": value["records"],
        "items": None if items is None else Items(**{**items, "failed_refs": tuple(items["failed_refs"])}),
    }
    if value["problem"] is None:
        return Collected(**shared)
    code, message = value["problem"]
    return ResultInvalid(code=code, message=message, **shared)

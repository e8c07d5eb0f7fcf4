"""The two files of a batch: which items got how far, and the lines that say so, out of order."""

import json
import math
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from schemas.operation import Micros
from simulator.jobs import ENDED, BatchOrder, Job, Phase

_PIECE = 500  # lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Which files exist."""

    output: bool
    errors: bool


def _worked(job: Job, now: Micros) -> tuple[BatchOrder, int]:
    """Return the order, and how many of its items were worked on, in the order of the input."""
    assert isinstance(job.order, BatchOrder)
    return job.order, math.floor(job.order.count * job.progress(now))


def counts(job: Job, now: Micros) -> tuple[int, int]:
    """Return how many items are completed and failed by now. Items that an end left undone count as failed."""
    order, worked = _worked(job, now)
    phase = job.phase(now)
    if phase is Phase.FAILED:
        return 0, 0
    failed = sum(1 for index in range(worked) if order.fails_at(index))
    undone = order.count - worked if phase in {Phase.EXPIRED, Phase.CANCELLED} else 0
    return worked - failed, failed + undone


def ready(job: Job, now: Micros) -> Files:
    """Return which files exist: none before the end or after a failure of the whole batch, and no empty ones."""
    phase = job.phase(now)
    if phase not in ENDED or phase is Phase.FAILED:
        return Files(output=False, errors=False)
    completed, failed = counts(job, now)
    return Files(output=completed > 0, errors=failed > 0)


def lines(job: Job, now: Micros, *, errors: bool) -> Iterator[bytes]:
    """Return the lines of one file, shuffled the same way on every download."""
    order, worked = _worked(job, now)
    undone = f"batch_{job.phase(now)}"  # batch_expired, batch_cancelled
    # Stepping by a number without a common factor visits every item once, out of order, without a list in memory.
    step = next(step for step in range(max(2, order.count * 5 // 8), order.count * 2 + 3) if math.gcd(step, order.count) == 1)
    for turn in range(order.count):
        index = ((turn + 1) * step) % order.count
        code = undone if index >= worked else "item_failed" if order.fails_at(index) else ""
        if bool(code) is errors:
            yield _line(job, order, index, code)


async def pieces(source: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Return the lines in pieces of a sensible size."""
    batch: list[bytes] = []
    for line in source:
        batch.append(line)
        if len(batch) >= _PIECE:
            yield b"".join(batch)
            batch.clear()
    yield b"".join(batch)


def _line(job: Job, order: BatchOrder, index: int, code: str) -> bytes:
    value = {
        "id": f"{job.id}_{index}",
        "custom_id": order.custom_id(index),
        "response": None if code else {"status_code": 200, "request_id": f"{job.id}_{index}", "body": {"value": index * index}},
        "error": {"code": code, "message": "this item has no result"} if code else None,
    }
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"

"""Answers that go from the ledger's threads back to those who wait: on an event loop, or in a thread."""

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Ticket:
    """One waiting caller and what it wants. `age` orders tickets; `loop` None: a thread waits."""

    wanted: Any
    age: int
    future: "asyncio.Future[Any] | concurrent.futures.Future[Any]"
    loop: asyncio.AbstractEventLoop | None = None


Outcome = tuple[Any, BaseException | None]
"""A result, or the error instead of it."""


def deliver(answered: Iterable[tuple[Ticket, Outcome]]) -> None:
    """Answer tickets: one call into each event loop, however many there are (a hop per answer costs more than a commit)."""
    loops: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Outcome]]] = {}
    for ticket, outcome in answered:
        if isinstance(ticket.future, concurrent.futures.Future):
            _settle_thread(ticket.future, outcome)
        elif ticket.loop is not None:
            loops.setdefault(ticket.loop, []).append((ticket.future, outcome))
    for loop, settled in loops.items():
        with contextlib.suppress(RuntimeError):  # that loop has been closed: nobody waits there any more
            loop.call_soon_threadsafe(_settle_loop, settled)


def _settle_loop(settled: list[tuple["asyncio.Future[Any]", Outcome]]) -> None:
    for future, (result, error) in settled:
        if future.done():  # the waiting task was cancelled; what it asked for has happened all the same
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


def _settle_thread(future: "concurrent.futures.Future[Any]", outcome: Outcome) -> None:
    result, error = outcome
    if not future.set_running_or_notify_cancel():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)

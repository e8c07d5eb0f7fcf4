"""The verdict: what an operation should have come to, what it came to, and every difference between the two."""

import asyncio
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cli.demo.client import UnexpectedAnswerError, View, condition
from cli.demo.plots import Cast, jobs_of
from cli.demo.script import Act, Expected
from ledger.audit import Fault, self_audit, verify
from ledger.ledger import Ledger
from schemas.world import World
from simulator import batch_files, reports
from simulator.jobs import BatchOrder, Job, ReportOrder
from simulator.server import Simulator

CALLBACK_SECONDS: Final = 15.0  # until the last callback has been tried; the latest planned one comes two seconds after an end
_MAX_FAULTS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One row of the table. `differences` empty: it ended as it must."""

    name: str
    tells: str
    expected: str
    happened: str
    jobs: int
    operation: str | None
    differences: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Return whether everything agrees."""
        return not self.differences


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What the audits of the whole record found."""

    operations: int
    faults: tuple[str, ...]
    odd: Mapping[str, int]

    @property
    def good(self) -> bool:
        """Return whether nothing was found."""
        return not self.faults and not self.odd


async def judge(cast: Cast, act: Act, operation: str | None, failure: str) -> Verdict:
    """Compare one operation with its script. `failure`: why the plot could not be played to its end."""
    if operation is None:
        return _verdict(act, "not created", 0, None, [failure])
    try:
        return await _judged(cast, act, operation, failure)
    except UnexpectedAnswerError as error:
        return _verdict(act, "cannot be told", 0, operation, [*filter(None, (failure,)), str(error)])


async def _judged(cast: Cast, act: Act, operation: str, failure: str) -> Verdict:
    view = await cast.agent.operation(operation)
    jobs = jobs_of(cast.simulator, view)
    differences = [failure] if failure else []
    try:
        async with asyncio.timeout(CALLBACK_SECONDS):
            await condition(lambda: len(_tries(cast.simulator, jobs)) >= (act.expected.callbacks or 0))
    except TimeoutError:
        differences.append("callbacks are missing")
    view = await cast.agent.operation(operation)
    differences.extend(fact_differences(act.expected, view, len(jobs)))
    differences.extend(callback_differences(act.expected, _tries(cast.simulator, jobs)))
    differences.extend(f"the fault {name} has not hit" for job in jobs for name in act.expected.spent if job.left.get(name, 0))
    reads, downloads = (sum(len(cast.simulator.calls("GET", f"/v1/{job.api}/{job.id}{end}")) for job in jobs) for end in ("", "/result"))
    differences.extend(read_differences(act.expected, reads, downloads))
    differences.extend(history_differences(act.expected, await cast.agent.history(operation)))
    differences.extend(await _result(cast, act.expected, view, jobs))
    return _verdict(act, _words(view), len(jobs), operation, differences)


def _verdict(act: Act, happened: str, jobs: int, operation: str | None, differences: list[str]) -> Verdict:
    wanted = act.expected
    more = [wanted.error] if wanted.error else [f"cancel {wanted.cancel}"] if wanted.cancel else []
    result = [f"{wanted.result} result"] if wanted.result else []
    return Verdict(
        name=act.name,
        tells=act.tells,
        expected=", ".join([wanted.state, *more, *result]),
        happened=happened,
        jobs=jobs,
        operation=operation,
        differences=tuple(differences),
    )


def _words(view: View) -> str:
    parts = [str(view["state"])]
    if view["error"]:
        parts.append(str(view["error"]["code"]))
    elif view["cancel"]:
        parts.append(f"cancel {view['cancel']['outcome']}")
    if view["result"]:
        parts.append("partial result" if view["result"]["complete"] is False else "whole result")
    return ", ".join(parts)


def fact_differences(wanted: Expected, view: View, jobs: int) -> Iterator[str]:
    """Yield each fact of the operation that is otherwise than in the script."""
    found: dict[str, tuple[Any, Any]] = {
        "state": (wanted.state, view["state"]),
        "status": (wanted.status, view["status"]),
        "error": (wanted.error, view["error"] and view["error"]["code"]),
        "remote jobs": (wanted.jobs, jobs),
        "cancel.outcome": (wanted.cancel, view["cancel"] and view["cancel"]["outcome"]),
        "open question": (None, view["question"] and view["question"]["kind"]),
        "accepted by a person": (wanted.accepted_by_person, bool(view["result"] and view["result"]["accepted_by"])),
    }
    for name, (expected, happened) in found.items():
        if expected != happened:
            yield f"{name}: expected {_shown(expected)}, got {_shown(happened)}"


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)


def _tries(simulator: Simulator, jobs: list[Job]) -> list[int | None]:
    return [sent.status for job in jobs for sent in simulator.deliveries(job.id)]


def callback_differences(wanted: Expected, tries: list[int | None]) -> Iterator[str]:
    """Yield how the answers to callbacks (None: never sent) differ from the script."""
    if wanted.callbacks is not None and (len(tries) != wanted.callbacks or set(tries) != wanted.answers):
        expected = ", ".join(sorted(_shown(status) for status in wanted.answers))
        yield f"callbacks: expected {wanted.callbacks} answered {expected or 'none'}, got {tries}"


def read_differences(wanted: Expected, reads: int, downloads: int) -> Iterator[str]:
    """Yield what is wrong with how often the provider was asked for the status and for the result."""
    if reads < wanted.reads:
        yield f"reads: expected at least {wanted.reads}, got {reads}"
    if wanted.downloads not in {None, downloads}:
        yield f"downloads: expected {wanted.downloads}, got {downloads}"


def history_differences(wanted: Expected, rows: Sequence[View]) -> Iterator[str]:
    """Yield what the history lacks, and how often deliveries count otherwise than in the script."""
    missing = set(wanted.codes) - {str(row["code"]) for row in rows}
    if missing:
        yield f"history lacks {', '.join(sorted(missing))}"
    # One that names the job before the create's answer does has two rows: the job, and the hint.
    deliveries = len({row["cause_id"] for row in rows if row["cause"] == "delivery"})
    if wanted.deliveries is not None and deliveries != wanted.deliveries:
        yield f"deliveries applied: expected {wanted.deliveries}, got {deliveries}"


async def _result(cast: Cast, wanted: Expected, view: View, jobs: list[Job]) -> list[str]:
    """Return how the result that the agent downloads differs from what the provider made."""
    content = b""
    if view["result"] is not None:
        try:
            content = await cast.agent.result(view["id"])
        except UnexpectedAnswerError as error:
            return [f"result: {error}"]
    job = next((job for job in jobs if job.id == view["remote"]["job_id"]), None)
    return list(result_differences(wanted, view["result"], content, b"" if job is None else _made(cast.simulator, job)))


def result_differences(wanted: Expected, told: View | None, content: bytes, made: bytes) -> Iterator[str]:
    """Yield how the result as told and as downloaded differs from the script and from what the provider made."""
    if wanted.result is None or told is None:
        if wanted.result is not None or told is not None:
            yield f"result: expected {wanted.result or 'none'}, got {'none' if told is None else 'one'}"
        return
    items = told["items"] and (told["items"]["succeeded"], told["items"]["failed"])
    if wanted.items is not None and items != wanted.items:
        yield f"items: expected {wanted.items[0]} succeeded and {wanted.items[1]} failed, got {_shown(items)}"
    if told["complete"] is not (wanted.result == "whole"):
        yield f"result: expected a {wanted.result} one"
    digest = hashlib.sha256(content).hexdigest()
    if not content or digest != hashlib.sha256(made).hexdigest() or digest != told["sha256"]:
        yield f"result: {len(content)} bytes that are not the provider's {len(made)}"


def _made(simulator: Simulator, job: Job) -> bytes:
    """Return the bytes that the provider made, computed without the gateway."""
    match job.order:
        case ReportOrder():
            return b"".join(reports.rows(job.order, job.order.rows))
        case BatchOrder():
            return b"".join(batch_files.lines(job, simulator.provider.clock.now(), errors=False))


async def audit(ledger: Ledger, world: World) -> Audit:
    """Run the self-audit and walk the history of every operation."""
    faults: list[str] = []
    done = 0

    def walk(view: Any) -> None:
        nonlocal done
        for found in verify(view):
            if not isinstance(found, Fault):
                done = found
            elif len(faults) < _MAX_FAULTS:
                faults.append(f"{found.operation} row {found.seq}: {found.fault}")

    await ledger.read(walk)
    counts = await ledger.read(self_audit, world.now())
    return Audit(operations=done, faults=tuple(faults), odd={name: count for name, count in counts.items() if count})

"""What agents, people and services do to an operation, over HTTP, each with its own key. Waiting is on conditions."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cli.demo.client import Caller, UnexpectedAnswerError, View, condition
from cli.demo.script import Act, Plot
from schemas.states import Answer, State
from simulator.jobs import BatchOrder, Job, ReportOrder
from simulator.server import Simulator

CREATED: Final = frozenset({202})
REPEATED: Final = frozenset({200})
_RUNNING: Final = frozenset({"running", "in_progress"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """Everybody who acts. `began` is told an operation's id as soon as it is known."""

    agent: Caller
    person: Caller
    service: Caller  # talks to the provider, past the gateway
    simulator: Simulator
    run: str  # tells this run's keys from those of another one on the same database
    callback_url: str
    began: Callable[[Act, str], None]


def jobs_of(simulator: Simulator, operation: View) -> list[Job]:
    """Return the remote jobs that belong to an operation, by what the provider itself knows: our echo, or the adopted id."""
    return [job for job in simulator.jobs.values() if _echo(job) == operation["id"] or job.id == operation["remote"]["job_id"]]


def _echo(job: Job) -> str | None:
    match job.order:
        case ReportOrder():
            return job.order.client_reference
        case BatchOrder():
            return job.order.metadata.get("gateway_operation")


def settled(view: View) -> bool:
    """Return whether polling may stop."""
    return bool(view["settled"])


async def straight(cast: Cast, act: Act) -> str:
    """Create the operation and wait for its end. Returns its id."""
    operation = await _create(cast, act)
    await cast.agent.until(operation, settled)
    return operation


async def repeated(cast: Cast, act: Act) -> str:
    """Create it, forget it, create it again with the same key: the same operation."""
    operation = await _create(cast, act)
    _, again = await cast.agent.post("/v1/operations", _body(act), key=_key(cast, act), expect=REPEATED)
    if again["id"] != operation:
        raise UnexpectedAnswerError("the same Idempotency-Key gave another operation")
    await cast.agent.until(operation, settled)
    return operation


async def cancelled(cast: Cast, act: Act) -> str:
    """Cancel it once it is seen running."""
    operation = await _create(cast, act)
    await cast.agent.until(operation, lambda view: view["settled"] or view["remote"]["state"] in _RUNNING)
    body = {"reason": "the question has been answered otherwise", "expected_effect": "no further items are worked on"}
    await cast.agent.post(f"/v1/operations/{operation}/cancel", body, expect=CREATED)
    await cast.agent.until(operation, settled)
    return operation


async def adopted(cast: Cast, act: Act) -> str:
    """Let a service create the job itself; register it after the callback has come."""
    body = {**act.request, "callback_url": cast.callback_url, "simulate": list(act.faults)}
    _, job = await cast.service.post("/v1/reports", body, expect=CREATED)
    await condition(lambda: any(sent.status is not None for sent in cast.simulator.deliveries(job["id"])))
    wanted = {"provider": act.provider, "remote_job_id": job["id"], "reference": act.name}
    _, made = await cast.agent.post("/v1/operations", wanted, expect=CREATED)
    cast.began(act, made["id"])
    await cast.agent.until(made["id"], settled)
    return str(made["id"])


async def twins(cast: Cast, act: Act) -> str:
    """Park on several jobs for one token; a person looks at the provider and names the one that counts."""
    operation = await _create(cast, act)

    def oldest(view: View) -> Mapping[str, Any]:
        return {"remote_job_id": min(jobs_of(cast.simulator, view), key=lambda job: job.created).id}

    return await _decided(cast, operation, State.QUARANTINED, Answer.ADOPT, oldest)


async def wrong_result(cast: Cast, act: Act) -> str:
    """Park on a wrong checksum; a person looks at the result that was kept and accepts it."""
    operation = await _create(cast, act)

    def looked(_: View) -> Mapping[str, Any]:
        return {}

    return await _decided(cast, operation, State.RESULT_VALIDATION_FAILED, Answer.ACCEPT_RESULT, looked)


async def _decided(cast: Cast, operation: str, state: State, answer: Answer, more: Callable[[View], Mapping[str, Any]]) -> str:
    """Wait until the operation is parked, find its question as a person does, answer it, wait for the end."""
    parked = await cast.agent.until(operation, settled)
    if parked["state"] != state:
        return operation  # the verdict says the rest
    asked = await cast.person.get("/v1/questions")
    question = next(view["question"] for view in asked["questions"] if view["operation"] == operation)
    body = {"question": question["id"], "answer": str(answer), "reason": "looked at the provider's own page", **more(parked)}
    await cast.person.post(f"/v1/operations/{operation}/decision", body, expect=REPEATED)
    await cast.agent.until(operation, settled)
    return operation


PLOTS: Final[dict[Plot, Callable[[Cast, Act], Awaitable[str]]]] = {
    "straight": straight,
    "repeated": repeated,
    "cancelled": cancelled,
    "adopted": adopted,
    "twins": twins,
    "wrong_result": wrong_result,
}


async def play(cast: Cast, act: Act, seconds: float) -> str:
    """Play one act, bounded. Returns the operation's id. Raises TimeoutError, UnexpectedAnswerError."""
    async with asyncio.timeout(seconds):
        return await PLOTS[act.plot](cast, act)


def _key(cast: Cast, act: Act) -> str:
    return f"{cast.run}-{act.name}"


def _body(act: Act) -> dict[str, Any]:
    body: dict[str, Any] = {
        "provider": act.provider,
        "request": {**act.request, "simulate": list(act.faults)},
        "reference": act.name,
        "authorized_by": "the demo's script",
    }
    return {**body, "expect": dict(act.expect)} if act.expect else body


async def _create(cast: Cast, act: Act) -> str:
    _, made = await cast.agent.post("/v1/operations", _body(act), key=_key(cast, act), expect=CREATED)
    cast.began(act, made["id"])
    return str(made["id"])

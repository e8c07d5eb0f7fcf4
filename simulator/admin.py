"""The face for tests and people under `/_simulator/`: look, push the clock, force a state, call back now. No credential: loopback only."""

import dataclasses
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from simulator.answers import RefusalError, document, failure
from simulator.faults import FaultError, merge, parse_field
from simulator.jobs import ENDED, Job, Phase
from simulator.provider import Provider

_NO_SUCH_JOB = "no such job"


def _row(provider: Provider, job: Job) -> dict[str, Any]:
    now = provider.clock.now()
    return {"id": job.id, "api": job.api, "phase": job.phase(now), "progress": job.progress(now), "faults": job.faults, "left": job.left}


async def jobs(request: Request) -> Response:
    """GET /_simulator/jobs: every job, hidden ones too, oldest first."""
    provider: Provider = request.app.state.provider
    return JSONResponse({"jobs": [_row(provider, job) for job in list(provider.jobs.values())[-provider.options.max_log :]]})


async def calls(request: Request) -> Response:
    """GET /_simulator/calls?method=&path=: the requests that came in, without their bodies."""
    provider: Provider = request.app.state.provider
    found = provider.journal.calls(request.query_params.get("method"), request.query_params.get("path"))
    rows = [{name: value for name, value in dataclasses.asdict(call).items() if name != "body"} for call in found]
    return JSONResponse({"calls": rows})


async def deliveries(request: Request) -> Response:
    """GET /_simulator/deliveries?job=: the tries to deliver callbacks."""
    provider: Provider = request.app.state.provider
    found = provider.journal.deliveries(request.query_params.get("job"))
    return JSONResponse({"deliveries": [dataclasses.asdict(entry) for entry in found]})


async def advance(request: Request) -> Response:
    """POST /_simulator/advance {"seconds": N}: push the simulator's clock forward."""
    provider: Provider = request.app.state.provider
    seconds = (await document(request)).get("seconds")
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 <= seconds <= 10**9:
        return failure(400, "invalid_seconds", "`seconds` must be a number from 0 to 1000000000")
    provider.clock.advance(seconds)
    return JSONResponse({"now": provider.clock.now()})


async def faults(request: Request) -> Response:
    """POST /_simulator/faults {"simulate": [...]}: replace the standing faults, for jobs to come."""
    provider: Provider = request.app.state.provider
    try:
        provider.stand(merge(parse_field((await document(request)).get("simulate"))))
    except FaultError as problem:
        raise RefusalError(400, "invalid_simulate", str(problem)) from problem
    return JSONResponse({"simulate": provider.standing})


async def force(request: Request) -> Response:
    """POST /_simulator/jobs/{id} {"phase": …}: put the job there, whatever it was; an end makes its callback, again if need be."""
    provider: Provider = request.app.state.provider
    job = provider.jobs.get(request.path_params["job_id"])
    if job is None:
        return failure(404, "not_found", _NO_SUCH_JOB)
    force_phase(provider, job, _phase((await document(request)).get("phase")))
    return JSONResponse(_row(provider, job))


def force_phase(provider: Provider, job: Job, phase: Phase) -> None:
    """Put a job into a phase, now."""
    job.forced = (phase, provider.clock.now())
    if phase in ENDED:
        job.announced = False
        provider.callbacks.watch_end(job)


def _phase(value: Any) -> Phase:
    """Return the phase of that name. Raises RefusalError (400)."""
    if not isinstance(value, str) or value not in list(Phase):
        raise RefusalError(400, "invalid_phase", f"`phase` must be one of {', '.join(Phase)}")
    return Phase(value)


async def deliver(request: Request) -> Response:
    """POST /_simulator/deliver/{id} {"phase": …}: send a callback now, true or (with `phase`) not; answers when it was tried."""
    provider: Provider = request.app.state.provider
    job = provider.jobs.get(request.path_params["job_id"])
    if job is None:
        return failure(404, "not_found", _NO_SUCH_JOB)
    body = await document(request) if await request.body() else {}
    event = provider.callbacks.event(job, _phase(body.get("phase", job.phase(provider.clock.now()))))
    await provider.callbacks.deliver(event)
    tried = [dataclasses.asdict(entry) for entry in provider.journal.deliveries(job.id) if entry.event_id == event.id]
    return JSONResponse({"deliveries": tried})

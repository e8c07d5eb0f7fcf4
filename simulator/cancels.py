"""The cancel call of both APIs, and the ways in which it goes wrong."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from schemas.operation import SECOND
from simulator.answers import Abort, failure, selected, struck
from simulator.creates import Shop
from simulator.faults import merge
from simulator.jobs import ENDED, Cancel, Job, Phase
from simulator.provider import Provider


def cancel(provider: Provider, request: Request, shop: Shop, job: Job, accepted: int) -> Response:
    """Answer a cancel: taken (also when repeated while it lasts), or 409 when refused or too late."""
    faults = merge(job.faults, selected(request))
    now = provider.clock.now()
    phase = job.phase(now)
    if phase in ENDED:
        return failure(409, "already_ended", "this job has ended and cannot be cancelled")
    if "refuse_cancel" in faults:
        return failure(409, "not_cancellable", "this job cannot be cancelled")
    if job.cancel is None and "ignore_cancel" not in faults:
        lasts = int(faults.get("slow_cancel", provider.options.cancel_seconds) * SECOND)
        ending = job.ending if "complete_during_cancel" in faults else Phase.CANCELLED
        job.cancel = Cancel(at=now, until=now + lasts, ending=ending)
        job.forced = None
        provider.callbacks.watch_end(job)
    if struck(request, [job], ("drop_cancel_response",)) is not None:
        return Abort()
    return JSONResponse(shop.show(provider, request, job), accepted)

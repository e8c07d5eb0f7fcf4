"""The create call of both APIs: tokens, and the faults that hit its answer.

A create fault from the header hits this request. One from the body or the options hits the first `create_repeats` requests
of the same token, or of the same body where there is no token: so a recorded request can be resent, and the resend is answered.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from schemas.operation import SECOND
from simulator.answers import Abort, RefusalError, document, failure, rate_limited, selected
from simulator.faults import FAULTS, FaultError, merge, parse_field
from simulator.jobs import Api, Job, Order, Phase
from simulator.provider import Provider, Token

_SLOW_DOWN = frozenset({429, 503})
_MAX_TOKEN = 255
_MAX_URL = 2_048


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """What differs between the APIs: words, how an order is read (raises RefusalError), how a job is shown."""

    api: Api
    accepted: int
    honours_tokens: bool
    order: Callable[[Mapping[str, Any]], Order]
    show: Callable[[Provider, Request, Job], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Visit:
    """One create request as read."""

    faults: dict[str, float]  # of the job, if one is made
    acting: dict[str, float]  # those that act on this request
    order: Order
    callback_url: str | None
    token: str | None
    body_sha256: str


async def create(provider: Provider, request: Request, shop: Shop) -> Response:
    """Answer a create."""
    visit = await _read(provider, request, shop)
    known = provider.tokens.get(visit.token) if visit.token is not None else None
    if known is not None and not _forgotten(provider, known):
        if known.body_sha256 != visit.body_sha256:
            return failure(422, "idempotency_key_reused", "this Idempotency-Key was used with another body")
        job = provider.jobs[known.job]
        if "other_job_id" in visit.acting or "other_job_id" in job.faults:
            job = _open(provider, shop, visit)
        return await _answer(provider, request, shop, job, visit.acting, replayed=True)
    if "reject" in visit.acting:
        return failure(int(visit.acting["reject"]), "rejected", "this request is refused")
    if "create_status" in visit.acting and "accept_anyway" not in visit.acting:
        return _bad_status(provider, int(visit.acting["create_status"]))
    job = _open(provider, shop, visit)
    if visit.token is not None:
        now = provider.clock.now()
        provider.tokens[visit.token] = Token(job=job.id, body_sha256=visit.body_sha256, first_used=now)
    if "early_callback" in visit.acting:
        event = provider.callbacks.event(job, job.phase(provider.clock.now()))
        await provider.callbacks.deliver(event)
    return await _answer(provider, request, shop, job, visit.acting, replayed=False)


async def _read(provider: Provider, request: Request, shop: Shop) -> _Visit:
    raw = await request.body()
    body = await document(request)
    header = selected(request)
    try:
        inside = parse_field(body.get("simulate"))
    except FaultError as problem:
        raise RefusalError(400, "invalid_simulate", str(problem)) from problem
    faults = merge(provider.standing, inside, header)
    body_sha256 = hashlib.sha256(raw).hexdigest()
    token = request.headers.get("idempotency-key") if shop.honours_tokens and "no_idempotency" not in faults else None
    if token is not None and not 0 < len(token) <= _MAX_TOKEN:
        raise RefusalError(400, "invalid_idempotency_key", f"Idempotency-Key must have 1 to {_MAX_TOKEN} characters")
    order = shop.order(body)
    callback_url = _callback_url(body.get("callback_url"))
    before = provider.sighted(token if token is not None else body_sha256)
    first = before < faults.get("create_repeats", 1)
    acting = {name: value for name, value in faults.items() if FAULTS[name].scope != "create" or first or name in header}
    return _Visit(faults=faults, acting=acting, order=order, callback_url=callback_url, token=token, body_sha256=body_sha256)


def _open(provider: Provider, shop: Shop, visit: _Visit) -> Job:
    job = provider.add_job(shop.api, visit.order, visit.faults, visit.callback_url)
    if job is None:
        raise RefusalError(503, "full", "this simulator holds no more jobs; restart it")
    if "sync_success" in visit.acting:
        job.forced = (Phase.SUCCEEDED, job.created)
    provider.callbacks.follow(job)
    return job


async def _answer(provider: Provider, request: Request, shop: Shop, job: Job, acting: Mapping[str, float], *, replayed: bool) -> Response:
    if "delay_create_response" in acting:
        await provider.clock.until(provider.clock.now() + int(acting["delay_create_response"] * SECOND))
    if "drop_create_response" in acting:
        return Abort()
    if "create_500_though_done" in acting:
        return failure(500, "internal", "something went wrong")
    if "create_status" in acting and "accept_anyway" in acting:
        return _bad_status(provider, int(acting["create_status"]))
    headers = {"idempotent-replayed": "true"} if replayed else None
    status = 200 if "sync_success" in acting else shop.accepted
    return JSONResponse(shop.show(provider, request, job), status, headers)


def _bad_status(provider: Provider, status: int) -> Response:
    return rate_limited(provider, status) if status in _SLOW_DOWN else failure(status, "error", "something went wrong")


def _forgotten(provider: Provider, token: Token) -> bool:
    seconds = provider.jobs[token.job].faults.get("forget_tokens")
    return seconds is not None and provider.clock.now() >= token.first_used + int(seconds * SECOND)


def _callback_url(value: Any) -> str | None:
    match value:
        case None:
            return None
        case str() if value.startswith(("http://", "https://")) and len(value) <= _MAX_URL:
            return value
        case _:
            raise RefusalError(400, "invalid_callback_url", "`callback_url` must be an http or https URL")

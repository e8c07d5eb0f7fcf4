"""The batches API, the hard one: no idempotency, list-and-compare, slow cancel, partial results, two files. Like OpenAI's batches."""

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from schemas.operation import SECOND, Micros
from simulator import batch_files
from simulator.answers import HTML, Cut, RefusalError, failure, read, streamed, struck
from simulator.cancels import cancel
from simulator.creates import Shop, create
from simulator.jobs import BatchOrder, Job, Order, Phase
from simulator.options import MAX_ITEMS
from simulator.provider import Provider
from simulator.words import BATCH_WORDS

_MAX_METADATA = 16
_MAX_TEXT = 512
_DAY = 86_400
_MAX_PAGE = 100
_NO_SUCH_BATCH = "no such batch"


def order(body: Mapping[str, Any]) -> BatchOrder:
    """Return the order in a create body. Raises RefusalError (400)."""
    metadata = _metadata(body.get("metadata"))
    wanted: Any = body.get("input")
    match wanted:
        case list() as items if 0 < len(items) <= MAX_ITEMS:
            named = [_item(item) for item in items]
            ids = tuple(name for name, _ in named if isinstance(name, str) and 0 < len(name) <= _MAX_TEXT)
            if len(set(ids)) < len(items):
                raise RefusalError(400, "invalid_input", "every item needs its own `custom_id`")
            failing = frozenset(index for index, (_, fails) in enumerate(named) if fails)
            return BatchOrder(count=len(items), fails=len(failing), custom_ids=ids, failing=failing, metadata=metadata)
        case {"count": int() as count} as short if 0 < count <= MAX_ITEMS and not isinstance(count, bool):
            fails = short.get("fail", 0)
            if isinstance(fails, int) and not isinstance(fails, bool) and 0 <= fails <= count:
                return BatchOrder(count=count, fails=fails, metadata=metadata)
            raise RefusalError(400, "invalid_input", "`fail` must be a number of items from 0 to `count`")
        case _:
            raise RefusalError(400, "invalid_input", f"`input` must be 1 to {MAX_ITEMS} items, or count and fail")


def _item(value: Any) -> tuple[Any, bool]:
    return (value.get("custom_id"), value.get("fail") is True) if isinstance(value, dict) else (None, False)


def _metadata(value: Any) -> Mapping[str, str]:
    match value:
        case None:
            return {}
        case dict() if len(value) <= _MAX_METADATA and all(isinstance(text, str) and len(text) <= _MAX_TEXT for text in value.values()):
            return value
        case _:
            raise RefusalError(400, "invalid_metadata", f"`metadata` must be at most {_MAX_METADATA} short texts by name")


def show(provider: Provider, _request: Request, job: Job) -> dict[str, Any]:
    """Return a batch as the API shows it: times in Unix seconds, null where they did not come."""
    now = provider.clock.now()
    phase = job.phase(now)
    batch = order_of(job)
    done, failed = batch_files.counts(job, now)
    files = batch_files.ready(job, now)
    ended = {word: _unix(job.ended_at) if phase is word else None for word in Phase}
    failure_list = {"object": "list", "data": [{"code": "batch_failed", "message": "the input could not be used", "line": None}]}
    worked_until = min(now, job.cancel.at) if job.cancel is not None else now
    started = worked_until >= job.started_at
    finalized = job.started_at + job.run
    return {
        "id": job.id,
        "object": "batch",
        "endpoint": "/v1/items",
        "status": BATCH_WORDS[phase],
        "errors": failure_list if phase is Phase.FAILED else None,
        "output_file_id": job.output_file_id if files.output else None,
        "error_file_id": job.error_file_id if files.errors else None,
        "created_at": _unix(job.created),
        "in_progress_at": _unix(job.started_at) if started else None,
        "finalizing_at": _unix(finalized) if job.cancel is None and job.forced is None and now >= finalized else None,
        "completed_at": ended[Phase.SUCCEEDED],
        "failed_at": ended[Phase.FAILED],
        "expired_at": ended[Phase.EXPIRED],
        "cancelling_at": _unix(job.cancel.at) if job.cancel is not None else None,
        "cancelled_at": ended[Phase.CANCELLED],
        "expires_at": _unix(job.created) + _DAY,
        "request_counts": {"total": batch.count, "completed": done, "failed": failed},
        "metadata": dict(batch.metadata),
    }


SHOP = Shop(api="batches", accepted=200, honours_tokens=False, order=order, show=show)


async def post_batch(request: Request) -> Response:
    """POST /v1/batches. A repeated POST makes another batch."""
    return await create(request.app.state.provider, request, SHOP)


async def get_batch(request: Request) -> Response:
    """GET /v1/batches/{id}."""
    provider: Provider = request.app.state.provider
    job = provider.find("batches", request.path_params["job_id"])
    if job is None:
        return failure(404, "not_found", _NO_SUCH_BATCH)
    return read(provider, request, [job], show(provider, request, job))


async def list_batches(request: Request) -> Response:
    """GET /v1/batches?limit=&after=: newest first; `after` is the last id of the page before."""
    provider: Provider = request.app.state.provider
    text = request.query_params.get("limit", "20")
    limit = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(_MAX_PAGE)) else 0
    if not 1 <= limit <= _MAX_PAGE:
        return failure(400, "invalid_limit", f"`limit` must be 1 to {_MAX_PAGE}")
    found = provider.visible("batches")
    after = request.query_params.get("after")
    if after is not None:
        places = [place for place, job in enumerate(found) if job.id == after]
        if not places:
            return failure(400, "invalid_after", "`after` must be the id of a batch")
        found = found[places[0] + 1 :]
    page = found[:limit]
    listing = {
        "object": "list",
        "data": [show(provider, request, job) for job in page],
        "has_more": len(found) > limit,
        "first_id": page[0].id if page else None,
        "last_id": page[-1].id if page else None,
    }
    return read(provider, request, page, listing)


async def cancel_batch(request: Request) -> Response:
    """POST /v1/batches/{id}/cancel."""
    provider: Provider = request.app.state.provider
    job = provider.find("batches", request.path_params["job_id"])
    if job is None:
        return failure(404, "not_found", _NO_SUCH_BATCH)
    return cancel(provider, request, SHOP, job, 200)


async def get_file(request: Request) -> Response:
    """GET /v1/files/{id}/content: JSONL, in no order."""
    provider: Provider = request.app.state.provider
    now = provider.clock.now()
    wanted = request.path_params["file_id"]
    job = provider.find("batches", provider.files.get(wanted, ""))
    if job is None:
        return failure(404, "not_found", "no such file")
    files = batch_files.ready(job, now)
    errors = wanted == job.error_file_id
    if not (files.errors if errors else files.output):
        return failure(404, "not_found", "no such file")
    if "expire_result" in job.faults:
        return failure(410, "file_expired", "this file is gone")
    if "html_result" in job.faults:
        return Response(HTML, media_type="text/html")
    lines = batch_files.lines(job, now, errors=errors)
    if struck(request, [job], ("cut_result",)):
        return Cut(b"".join(lines), "application/jsonl")
    if "truncated_result" in job.faults:
        whole = b"".join(lines)
        return Response(whole[: len(whole) - len(whole) // 3 - 1], media_type="application/jsonl")
    return streamed(batch_files.pieces(lines), size=None, media_type="application/jsonl")


def _unix(at: Micros) -> int:
    return at // SECOND


def order_of(job: Job) -> BatchOrder:
    """Return the job's order."""
    job_order: Order = job.order
    assert isinstance(job_order, BatchOrder)
    return job_order

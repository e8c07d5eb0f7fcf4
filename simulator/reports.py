"""The reports API: idempotent creates, a status URL, a CSV result. Like the example of the mission."""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from simulator.answers import HTML, Cut, RefusalError, failure, read, streamed, struck
from simulator.cancels import cancel
from simulator.creates import Shop, create
from simulator.jobs import ENDED, Job, Order, Phase, ReportOrder
from simulator.options import MAX_ROWS
from simulator.provider import Provider
from simulator.words import REPORT_WORDS, iso

_HEAD = b"row,reference,value\n"
_CHUNK_ROWS = 2_000
_ROW_BYTES = 8 + 1 + 12 + 1 + 6 + 1  # fixed, so that the size is known before the first byte
_MAX_TEXT = 500
_HOST = re.compile(r"[A-Za-z0-9.:\[\]_-]{1,255}")
_NO_SUCH_REPORT = "no such report"
_WRONG_SHA256 = hashlib.sha256(b"another result").hexdigest()


def order(body: Mapping[str, Any]) -> ReportOrder:
    """Return the order in a create body. Raises RefusalError (400)."""
    match body.get("kind", "report"), body.get("rows", 10), body.get("client_reference"):
        case str() as kind, int() as rows, (str() | None) as reference if (
            0 < len(kind) <= _MAX_TEXT and not isinstance(rows, bool) and 0 <= rows <= MAX_ROWS and len(reference or "") <= _MAX_TEXT
        ):
            return ReportOrder(kind=kind, rows=rows, client_reference=reference)
        case _:
            raise RefusalError(400, "invalid_report", f"needs `kind` text, `rows` 0 to {MAX_ROWS}, `client_reference` text")


def rows(job_order: ReportOrder, count: int) -> Iterator[bytes]:
    """Return the CSV of the first `count` rows in pieces. The same order always gives the same bytes."""
    seed = hashlib.sha256(job_order.kind.encode()).hexdigest()
    yield _HEAD
    for start in range(0, count, _CHUNK_ROWS):
        numbers = range(start, min(start + _CHUNK_ROWS, count))
        yield "".join(f"{row:08d},{seed[:12]},{(row * 7919 + int(seed[:6], 16)) % 1_000_000:06d}\n" for row in numbers).encode()


def size(count: int) -> int:
    """Return the bytes of a CSV with `count` rows."""
    return len(_HEAD) + count * _ROW_BYTES


def show(provider: Provider, request: Request, job: Job) -> dict[str, Any]:
    """Return a report as the API shows it. Reads compute a large one's checksum in a thread before; elsewhere it is computed here."""
    now = provider.clock.now()
    phase = job.phase(now)
    report = _order_of(job)
    url = f"{_base(request)}/v1/reports/{job.id}"
    result = None
    if phase is Phase.SUCCEEDED:
        digest(job)
        sha256 = _WRONG_SHA256 if "wrong_checksum" in job.faults else job.sha256
        query = f"?{provider.options.result_query}" if provider.options.result_query else ""
        result = {"url": f"{url}/result{query}", "media_type": "text/csv", "bytes": size(report.rows), "sha256": sha256}
    errors = {Phase.FAILED: ("report_failed", "the report could not be made"), Phase.EXPIRED: ("expired", "not made in time")}
    code, message = errors.get(phase, ("", ""))
    return {
        "id": job.id,
        "status": REPORT_WORDS[phase],
        "progress": round(job.progress(now), 4),
        "updated_at": iso(job.ended_at if phase in ENDED else now),
        "client_reference": report.client_reference,
        "status_url": url,
        "error": {"code": code, "message": message} if code else None,
        "result": result,
    }


def _base(request: Request) -> str:
    """Return the address under which the caller knows us, or an empty text when its Host header is none."""
    host = request.headers.get("host", "")
    return f"{request.scope['scheme']}://{host}" if _HOST.fullmatch(host) else ""


def _created(provider: Provider, request: Request, job: Job) -> dict[str, Any]:
    shown = show(provider, request, job)
    if shown["status"] == "succeeded":
        return shown
    return {name: shown[name] for name in ("id", "status", "status_url", "client_reference")}


SHOP = Shop(api="reports", accepted=202, honours_tokens=True, order=order, show=_created)


async def post_report(request: Request) -> Response:
    """POST /v1/reports."""
    return await create(request.app.state.provider, request, SHOP)


async def get_report(request: Request) -> Response:
    """GET /v1/reports/{id}."""
    provider: Provider = request.app.state.provider
    job = provider.find("reports", request.path_params["job_id"])
    if job is None:
        return failure(404, "not_found", _NO_SUCH_REPORT)
    await asyncio.to_thread(digest, job)
    return read(provider, request, [job], show(provider, request, job))


async def list_reports(request: Request) -> Response:
    """GET /v1/reports?client_reference=X: the newest 100."""
    provider: Provider = request.app.state.provider
    wanted = request.query_params.get("client_reference")
    found = [job for job in provider.visible("reports") if wanted is None or _order_of(job).client_reference == wanted][:100]
    for job in found:
        await asyncio.to_thread(digest, job)
    return read(provider, request, found, {"data": [show(provider, request, job) for job in found]})


async def cancel_report(request: Request) -> Response:
    """POST /v1/reports/{id}/cancel."""
    provider: Provider = request.app.state.provider
    job = provider.find("reports", request.path_params["job_id"])
    if job is None:
        return failure(404, "not_found", _NO_SUCH_REPORT)
    return cancel(provider, request, SHOP, job, 202)


async def get_result(request: Request) -> Response:
    """GET /v1/reports/{id}/result: the CSV, streamed."""
    provider: Provider = request.app.state.provider
    job = provider.find("reports", request.path_params["job_id"])
    if job is None or (phase := job.phase(provider.clock.now())) not in ENDED:
        return failure(404, "not_found", "no such result")
    consumed, job.consumed = job.consumed, job.consumed or "one_shot_result" in job.faults
    if phase is not Phase.SUCCEEDED or consumed or "expire_result" in job.faults:
        return failure(410, "result_expired", "this result is gone")
    if "html_result" in job.faults:
        return Response(HTML, media_type="text/html")
    report = _order_of(job)
    if struck(request, [job], ("cut_result",)):
        return Cut(b"".join(rows(report, min(report.rows, _CHUNK_ROWS))), "text/csv", promised=size(report.rows))
    count = report.rows // 2 if "truncated_result" in job.faults else report.rows
    return streamed(_pieces(report, count), size=size(count), media_type="text/csv")


async def _pieces(report: ReportOrder, count: int) -> AsyncIterator[bytes]:
    for piece in rows(report, count):
        yield piece


def digest(job: Job) -> None:
    """Compute the checksum of a report's result, once. Takes half a second for a million rows: call it in a thread."""
    if job.sha256 is None:
        hasher = hashlib.sha256()
        report = _order_of(job)
        for piece in rows(report, report.rows):
            hasher.update(piece)
        job.sha256 = hasher.hexdigest()


def _order_of(job: Job) -> ReportOrder:
    job_order: Order = job.order
    assert isinstance(job_order, ReportOrder)
    return job_order

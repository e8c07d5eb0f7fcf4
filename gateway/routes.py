"""The route table: the one place that says which address takes what, needs which scope and answers how.

Routing, authorisation, `/openapi.json`, the documentation and the tests are all read from it.
"""

from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel

from gateway import bundle, deliveries, health, metrics, operations, petitions, results
from gateway.call import Handler
from schemas import api, api_bundle


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One method on one address. `scope` None: public. `view` None: the answer is no JSON document."""

    method: str
    path: str
    scope: str | None
    summary: str
    handler: Handler
    statuses: tuple[int, ...]  # of success
    codes: tuple[str, ...] = ()  # of problems, besides those that every route of its kind has
    body: type[BaseModel] | None = None
    view: type[BaseModel] | None = None
    parameters: tuple[str, ...] = ()  # query
    headers: tuple[str, ...] = ()  # request headers that matter


_PAGE: Final = ("cursor", "limit")
_PETITION: Final = ("unreadable_body", "invalid_field", "not_found", "already_final", "not_supported", "refused")

ROUTES: Final[tuple[Route, ...]] = (
    Route(
        method="POST",
        path="/v1/operations",
        scope="operations:create",
        summary="Record an intent; it is sent, or its job adopted. Adopting needs operations:adopt, superseding operations:cancel.",
        handler=operations.create,
        statuses=(202, 200),
        codes=(
            "unreadable_body",
            "invalid_field",
            "not_available",
            "idempotency_key_required",
            "invalid_idempotency_key",
            "idempotency_key_reused",
            "idempotency_key_expired",
            "unknown_provider",
            "receive_only",
            "job_taken",
            "already_superseded",
            "not_final",
        ),
        body=api.CreateBody,
        view=api.OperationView,
        headers=("Idempotency-Key",),
    ),
    Route(
        method="GET",
        path="/v1/operations",
        scope="operations:read",
        summary="Find this owner's operations, newest first.",
        handler=operations.find,
        statuses=(200,),
        codes=("invalid_request", "invalid_cursor"),
        view=api.OperationsView,
        parameters=(
            "status",
            "state",
            "provider",
            "reference",
            "idempotency_key",
            "remote_job_id",
            "created_after",
            "created_before",
            *_PAGE,
        ),
    ),
    Route(
        method="GET",
        path="/v1/operations/{id}",
        scope="operations:read",
        summary="Read an operation; with Prefer: wait=N after its next change.",
        handler=operations.read,
        statuses=(200, 304),
        codes=(
            "not_found",
            "operation_expired",
        ),
        view=api.OperationView,
        headers=("If-None-Match", "Prefer"),
    ),
    Route(
        method="GET",
        path="/v1/operations/{id}/history",
        scope="operations:read",
        summary="What happened and why: append-only rows, oldest first.",
        handler=operations.history,
        statuses=(200,),
        codes=("not_found", "operation_expired", "invalid_request", "invalid_cursor"),
        view=api.HistoryView,
        parameters=_PAGE,
    ),
    Route(
        method="GET",
        path="/v1/operations/{id}/bundle",
        scope="operations:read",
        summary="The escalation bundle: everything on record about the operation, with the proof of its history.",
        handler=bundle.bundle,
        statuses=(200,),
        codes=("not_found",),
        view=api_bundle.BundleView,
    ),
    Route(
        method="POST",
        path="/v1/operations/{id}/refresh",
        scope="operations:read",
        summary="Ask for an authoritative read now, within the budget.",
        handler=petitions.refresh,
        statuses=(202,),
        codes=("invalid_field", "not_found", "already_final", "budget", "nothing_to_read", "refused"),
        view=api.OperationView,
    ),
    Route(
        method="POST",
        path="/v1/operations/{id}/cancel",
        scope="operations:cancel",
        summary="Ask the work to stop; cancel.outcome tells what becomes of the wish.",
        handler=petitions.cancel,
        statuses=(202,),
        codes=(*_PETITION, "needs_decision"),
        body=api.CancelBody,
        view=api.OperationView,
    ),
    Route(
        method="POST",
        path="/v1/operations/{id}/decision",
        scope="operations:decide",
        summary="Answer the open question. Naming a job needs operations:adopt too.",
        handler=petitions.decide,
        statuses=(200,),
        codes=(
            *_PETITION,
            "question_changed",
            "not_approver",
            "unknown_answer",
            "remote_job_id_required",
            "reason_required",
            "duplicate_risk",
            "nothing_kept",
        ),
        body=api.DecisionBody,
        view=api.OperationView,
    ),
    Route(
        method="PUT",
        path="/v1/operations/{id}/create-outcome",
        scope="operations:create",
        summary="Report what became of an external create. Naming a job needs operations:adopt too.",
        handler=petitions.report,
        statuses=(200,),
        codes=(*_PETITION, "not_external", "already_reported", "remote_job_id_required", "job_taken"),
        body=api.OutcomeBody,
        view=api.OperationView,
    ),
    Route(
        method="GET",
        path="/v1/operations/{id}/result",
        scope="operations:download",
        summary="The stored result, whole or one range, with its digest.",
        handler=results.download,
        statuses=(200, 206, 304),
        codes=(
            "invalid_request",
            "not_found",
            "operation_expired",
            "unknown_file",
            "not_ready",
            "no_result",
            "result_expired",
            "range_not_satisfiable",
        ),
        parameters=("file",),
        headers=("Range", "If-Range", "If-None-Match"),
    ),
    Route(
        method="GET",
        path="/v1/questions",
        scope="operations:decide",
        summary="Open questions of this owner, oldest first.",
        handler=petitions.questions,
        statuses=(200,),
        codes=("invalid_request",),
        view=api.QuestionsView,
        parameters=("limit",),
    ),
    Route(
        method="POST",
        path="/v1/deliveries/{id}/replay",
        scope="deliveries:replay",
        summary="Apply a delivery of one of this owner's operations again, as today's contract reads it.",
        handler=deliveries.replay,
        statuses=(202,),
        codes=("invalid_field", "not_found", "not_supported"),
        view=api.ReplayView,
    ),
    Route(
        method="GET",
        path="/livez",
        scope=None,
        summary="This process answers.",
        handler=health.live,
        statuses=(200,),
        view=api.HealthView,
    ),
    Route(
        method="GET",
        path="/readyz",
        scope=None,
        summary="The database answers and the clockwork runs; 503 otherwise.",
        handler=health.ready,
        statuses=(200, 503),
        view=api.HealthView,
    ),
    Route(
        method="GET",
        path="/metrics",
        scope=None,
        summary="Counts of this process, duties and operations, in the text format of Prometheus.",
        handler=metrics.expose,
        statuses=(200,),
    ),
)
EVERY_SCOPED: Final = ("unauthenticated", "missing_scope", "busy", "unavailable", "internal_error")
"""Problem codes that every route with a scope may answer with."""

EVERY_BODY: Final = ("body_too_large", "body_too_slow", "unsupported_encoding", "unsupported_media_type")
"""Problem codes that every route that reads a body may answer with."""


def table() -> str:
    """Return the routes as the documentation prints them."""
    lines = ["| route | scope | does | success | problems |", "|---|---|---|---|---|"]
    for route in ROUTES:
        success = ", ".join(str(status) for status in route.statuses)
        codes = ", ".join(f"`{code}`" for code in route.codes) or "none"
        lines.append(f"| `{route.method} {route.path}` | {route.scope or 'none'} | {route.summary} | {success} | {codes} |")
    return "\n".join(lines)

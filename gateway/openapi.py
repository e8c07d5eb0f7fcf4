"""The OpenAPI 3.1 document, generated from the route table and the models."""

import re
from collections.abc import Iterable
from typing import Any, Final

from pydantic import BaseModel  # noqa: TC002 - hints are read by people and by tools alike
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from gateway.problems import PROBLEMS
from gateway.routes import EVERY_BODY, EVERY_SCOPED, ROUTES, Route
from schemas import api

_REFS: Final = "#/components/schemas/{model}"
_DELIVERY_CODES: Final = (
    "unreadable_delivery",
    "delivery_refused",
    "unknown_endpoint",
    "method_not_allowed",
    "body_too_slow",
    "body_too_large",
    "unsupported_encoding",
    "no_usable_secret",
    "unavailable",
)
_RESPONSE_HEADERS: Final = {
    202: ("Location", "Retry-After", "ETag"),
    200: ("ETag", "Retry-After", "Gateway-Verified-At", "Idempotency-Replayed"),
}


def document(version: str) -> dict[str, Any]:
    """Return the whole document."""
    models: list[tuple[type[BaseModel], JsonSchemaMode]] = [(api.ProblemView, "serialization"), (api.DeliveryView, "serialization")]
    models += [(route.body, "validation") for route in ROUTES if route.body is not None]
    models += [(route.view, "serialization") for route in ROUTES if route.view is not None]
    _, schema = models_json_schema(list(dict.fromkeys(models)), ref_template=_REFS)
    paths: dict[str, Any] = {"/webhooks/{provider}": {"post": _delivery()}}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Reconciliation gateway",
            "version": version,
            "description": "The durable truth about long-running work that a provider does for a caller.",
        },
        "paths": paths,
        "components": {
            "schemas": schema["$defs"],
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "An API key: rgk_…"}},
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    answers: dict[str, Any] = {str(status): _success(route, status) for status in route.statuses}
    codes = route.codes
    if route.scope is not None:
        codes += EVERY_SCOPED
    if route.method in {"POST", "PUT"}:
        codes += EVERY_BODY
    answers.update({status: answer for status, answer in _problems(codes).items() if status not in answers})
    described: dict[str, Any] = {
        "operationId": route.handler.__name__,
        "summary": route.summary,
        "parameters": [
            *(_parameter(name, "path", required=True) for name in re.findall(r"{(\w+)}", route.path)),
            *(_parameter(name, "query") for name in route.parameters),
            *(_parameter(name, "header") for name in route.headers),
        ],
        "responses": answers,
    }
    if route.scope is not None:
        described["security"] = [{"key": []}]
        described["description"] = f"Scope: `{route.scope}`."
    if route.body is not None:
        schema = {"$ref": _REFS.format(model=route.body.__name__)}
        described["requestBody"] = {"required": route.body is not api.CancelBody, "content": {"application/json": {"schema": schema}}}
    return described


def _success(route: Route, status: int) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": {304: "Not modified", 206: "One range"}.get(status, route.summary)}
    if status == 304:  # noqa: PLR2004 - the status of RFC 9110
        return answer
    if route.view is None:
        answer["content"] = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    else:
        answer["content"] = {"application/json": {"schema": {"$ref": _REFS.format(model=route.view.__name__)}}}
    if route.view is api.OperationView:
        answer["headers"] = {name: {"schema": {"type": "string"}} for name in _RESPONSE_HEADERS.get(status, ())}
    return answer


def _problems(codes: Iterable[str]) -> dict[str, Any]:
    by_status: dict[int, list[str]] = {}
    for code in codes:
        by_status.setdefault(PROBLEMS[code].status, []).append(code)
    content = {"application/problem+json": {"schema": {"$ref": _REFS.format(model="ProblemView")}}}
    return {str(status): {"description": ", ".join(named), "content": content} for status, named in sorted(by_status.items())}


def _parameter(name: str, place: str, *, required: bool = False) -> dict[str, Any]:
    kind = "integer" if name == "limit" else "string"
    return {"name": name, "in": place, "required": required, "schema": {"type": kind}}


def _delivery() -> dict[str, Any]:
    schema = {"$ref": _REFS.format(model="DeliveryView")}
    return {
        "operationId": "receive",
        "summary": "A provider's callback, signed as its contract says. A contract may prescribe another success answer.",
        "parameters": [_parameter("provider", "path", required=True)],
        "requestBody": {"required": True, "content": {"*/*": {"schema": {"type": "string", "format": "binary"}}}},
        "responses": {
            "200": {"description": "Stored durably", "content": {"application/json": {"schema": schema}}},
            **_problems(_DELIVERY_CODES),
        },
    }

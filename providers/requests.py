"""Requests to providers as values: the contract's templates, filled from the operation. Nothing is sent here.

The base of every authenticated call is the origin that was pinned on the operation when it was registered; nothing that
a caller or provider names can change it (B148). The same operation gives the same create, byte for byte, on every send (A4).
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlencode

from providers.places import TemplateError, render
from providers.targets import (
    Target,
    UnbuildableError,
    UnusableJobIdError,
    base_of,
    fields,
    members,
    path_of,
    target,
    with_query,
)
from schemas.contract import Contract, CreateRule
from schemas.evidence import CancelRefused, CreateAmbiguous, CreateRejected, Evidence, NotSent, ReadFailed, ResultGone
from schemas.http import HttpRequest
from schemas.jsontext import UnreadableJsonError, canonical, parse
from schemas.operation import Micros, Operation
from schemas.states import Errand, State

__all__ = [
    "UnbuildableError",
    "UnusableCredentialError",
    "UnusableJobIdError",
    "auth_header",
    "body_of",
    "build",
    "call",
    "check_request",
    "fields",
    "path_of",
    "refusal",
    "traceparent",
    "with_query",
]

USER_AGENT: Final = "reconciliation-gateway"
_TRACE_ID = re.compile(r"[0-9a-f]{32}")
_HEADER_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")  # RFC 9110 section 5.5 without obs-text
_NO_SPAN = "0" * 16


class UnusableCredentialError(UnbuildableError):
    """The credential cannot stand in a header; an operator can mend it, so nothing is final."""

    def __init__(self) -> None:
        super().__init__("unusable_credential", "the credential has characters that no header can carry: store it again")


def build(
    errand: Errand, operation: Operation, contract: Contract, *, credential: str | None, now: Micros, callback_url: str = ""
) -> HttpRequest:
    """Return the request of a create, read or cancel errand. `recovery` makes its own; collecting is `collect_requests`.

    `now` does not change the request: a resend is identical. Raises UnbuildableError.
    """
    del now
    match errand:
        case Errand.CREATE if contract.create is not None:
            return _create(operation, contract, contract.create, fields(operation, contract, callback_url), credential)
        case Errand.READ if contract.status is not None:
            read = contract.status
            where, method, send, encoding = target(operation, contract, read.url, read.path), read.method, read.send, "json"
        case Errand.CANCEL if contract.cancel is not None:
            stop = contract.cancel
            where, method, send, encoding = target(operation, contract, stop.url, stop.path), stop.method, stop.send, stop.encoding
        case _:
            raise UnbuildableError("unsupported", f"the contract {contract.name} has no {errand.value} request")
    headers, body = body_of(send, encoding, fields(operation, contract))
    return call(method, where, operation, contract, errand, credential=credential, headers=headers, body=body)


def refusal(error: UnbuildableError, errand: Errand, operation: Operation) -> Evidence:
    """Return what an unbuildable request means for its operation. Nothing was sent."""
    if isinstance(error, UnusableCredentialError):
        return ReadFailed(layer="transport", error=error.code) if errand is Errand.READ else NotSent(errand=errand, error=error.code)
    match errand:
        case Errand.CREATE if operation.state is not State.CREATE_UNKNOWN:
            return CreateRejected(code=error.code, message=str(error))
        case Errand.CREATE:
            return CreateAmbiguous(error=error.code, message=str(error))  # an earlier send may have been executed
        case Errand.CANCEL:
            return CancelRefused(code=error.code, message=str(error))
        case Errand.COLLECT:
            return ResultGone(code=error.code, message=str(error))
        case _:
            return ReadFailed(layer="protocol", error=error.code)


def call(
    method: str,
    where: str | Target,
    operation: Operation,
    contract: Contract,
    errand: Errand,
    *,
    credential: str | None,
    headers: tuple[tuple[str, str], ...] = (),
    body: bytes = b"",
) -> HttpRequest:
    """Return a call to a path on the pinned origin, or to an address that the provider named. Raises UnbuildableError.

    At home it carries the contract's headers, the trace and (where there is one) the credential. Elsewhere it carries none of
    them, and only public addresses are dialled.
    """
    there = Target(url=base_of(operation) + where) if isinstance(where, str) else where
    secret = auth_header(contract, credential) if there.own else ()
    own_trace = ((contract.trace_header, operation.trace_id),) if contract.trace_header and there.own else ()
    fixed = (*contract.headers.items(), *headers) if there.own else headers
    named = {name.lower() for name, _ in fixed}
    usual = (("Accept", "application/json"), ("Accept-Encoding", "identity"), ("User-Agent", USER_AGENT))
    return HttpRequest(
        method=method,
        url=there.url,
        headers=(
            *(pair for pair in usual if pair[0].lower() not in named),
            *fixed,
            *((("traceparent", traceparent(operation, errand)),) if there.own else ()),
            *own_trace,
            *secret,
        ),
        body=body,
        secret_headers=tuple(name for name, _ in secret),
        max_bytes=contract.limits.answer_bytes,
        connect_seconds=contract.limits.connect_seconds,
        total_seconds=contract.limits.total_seconds,
        allow_private=there.own,
    )


def auth_header(contract: Contract, credential: str | None) -> tuple[tuple[str, str], ...]:
    """Return the credential's header, or nothing without a credential. Raises UnusableCredentialError."""
    text = (credential or "").strip()
    if not text:
        return ()
    if not _HEADER_VALUE.fullmatch(text):
        raise UnusableCredentialError
    try:
        value = render(contract.auth.value, {"credential": text}, in_path=False)
    except TemplateError as error:
        raise UnusableCredentialError from error
    return ((contract.auth.header, value),)


def with_credential(request: HttpRequest, contract: Contract, credential: str | None) -> HttpRequest:
    """Return a request that carried a credential with another one. Raises UnusableCredentialError."""
    secret = auth_header(contract, credential)
    kept = tuple(item for item in request.headers if item[0] not in request.secret_headers)
    return replace(request, headers=(*kept, *secret), secret_headers=tuple(name for name, _ in secret))


def traceparent(operation: Operation, errand: Errand) -> str:
    """Return the W3C Trace Context header (level 1, section 3.2): the operation's trace, a span of operation and errand."""
    trace = operation.trace_id if _TRACE_ID.fullmatch(operation.trace_id) and operation.trace_id.strip("0") else ""
    trace = trace or hashlib.sha256(operation.trace_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    span = hashlib.sha256(f"{operation.id}\n{errand.value}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"00-{trace}-{span if span != _NO_SPAN else '0' * 15 + '1'}-01"


def check_request(request: bytes | None, contract: Contract) -> str | None:
    """Return why this request could never be sent by the contract, or None. For the edge, before anything is recorded."""
    rule = contract.create
    if rule is None:
        return f"the contract {contract.name} has no create request"
    probe = {"token": "t", "operation": "o", "trace_id": "t", "reference": "r", "callback_url": "c", "remote_job_id": "j"}
    probe |= {f"param.{name}": value for name, value in contract.params.items()} | members(request, rule)
    try:
        _filled(request, rule, probe)
        path_of(rule.path, probe)
        _headers(rule, probe)
    except UnbuildableError as error:
        return str(error)
    return None


def body_of(send: Iterable[tuple[str, str]], encoding: str, values: Mapping[str, str]) -> tuple[tuple[tuple[str, str], ...], bytes]:
    """Return (headers, body) of what a read, lookup or cancel sends; nothing where it sends nothing. Raises UnbuildableError."""
    pairs = tuple(send)
    if not pairs:
        return (), b""
    value: dict[str, Any] = {}
    _add(value, pairs, values)
    return _encoded(value, encoding)


def _create(operation: Operation, contract: Contract, rule: CreateRule, values: Mapping[str, str], credential: str | None) -> HttpRequest:
    token, place = operation.idempotency_token, rule.token.place
    if place != "none" and (not _HEADER_VALUE.fullmatch(token) or len(token) > rule.token.max_length):
        raise UnbuildableError("unusable_token", f"the provider takes tokens of at most {rule.token.max_length} characters")
    headers, body = _encoded(_filled(operation.request, rule, values), rule.encoding)
    headers += _headers(rule, values)
    if place == "header":
        headers += ((rule.token.name, token),)
    path = path_of(rule.path, values)
    if place == "query":
        path = with_query(path, rule.token.name, token)
    return call(rule.method, path, operation, contract, Errand.CREATE, credential=credential, headers=headers, body=body)


def _encoded(value: dict[str, Any], encoding: str) -> tuple[tuple[tuple[str, str], ...], bytes]:
    if encoding == "form":
        return (("Content-Type", "application/x-www-form-urlencoded"),), urlencode(_flat(value)).encode("ascii")
    return (("Content-Type", "application/json"),), _canonical(value)


def _headers(rule: CreateRule, values: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    found: list[tuple[str, str]] = []
    for name, template in rule.headers.items():
        try:
            text = render(template, values, in_path=False)
        except TemplateError as error:
            raise UnbuildableError("unsendable_request", f"the header {name} cannot be filled: {error}") from error
        if not _HEADER_VALUE.fullmatch(text):
            raise UnbuildableError("unsendable_request", f"the header {name} would have characters that no header can carry")
        found.append((name, text))
    return tuple(found)


def _filled(request: bytes | None, rule: CreateRule, values: Mapping[str, str]) -> dict[str, Any]:
    """Return the request's object without what only the path needs, with the contract's echoes and the token in their places."""
    try:
        value = parse(request or b"")
    except UnreadableJsonError as error:
        raise UnbuildableError("unsendable_request", f"the request is not readable: {error}") from error
    if not isinstance(value, dict):
        raise UnbuildableError("unsendable_request", "the request must be a JSON object")
    for name in (*rule.take, *rule.keep):
        if f"request.{name}" not in values:
            raise UnbuildableError("unsendable_request", f"the request needs {name}: a text or a whole number")
    for name in rule.take:
        value.pop(name, None)
    additions = [*rule.add]
    if rule.token.place == "body":
        additions.append((rule.token.name, "{token}"))
    # Without a public address nobody can call back: a template of one would be sent as a broken address.
    _add(value, (pair for pair in additions if values.get("callback_url") or "{callback_url}" not in pair[1]), values)
    _canonical(value)
    return value


def _add(value: dict[str, Any], pairs: Iterable[tuple[str, str]], values: Mapping[str, str]) -> None:
    for place, template in pairs:
        try:
            text = render(template, values, in_path=False)
        except TemplateError as error:
            raise UnbuildableError("unsendable_request", f"the addition {place} cannot be filled: {error}") from error
        _put(value, place, text)


def _put(value: dict[str, Any], place: str, text: str) -> None:
    *parents, last = place.split(".")
    for name in parents:
        value = value.setdefault(name, {})
        if not isinstance(value, dict):
            raise UnbuildableError("unsendable_request", f"the request's {name} must be an object: {place} is the gateway's")
    if value.get(last, text) != text:
        # Overwriting would lose the caller's value, keeping it would lose the job after a lost answer.
        raise UnbuildableError("unsendable_request", f"leave {place} out of the request: it is how the gateway finds its job again")
    value[last] = text


def _canonical(value: Any) -> bytes:
    try:
        return canonical(value)
    except UnreadableJsonError as error:
        raise UnbuildableError("unsendable_request", f"the request {error}") from error


def _flat(value: Any, name: str = "") -> list[tuple[str, str]]:
    """Return form pairs: members as `a[b]`, elements as `a[0]`. The depth is bounded by the parser's."""
    match value:
        case dict():
            return [pair for key, item in value.items() for pair in _flat(item, f"{name}[{key}]" if name else key)]
        case list():
            return [pair for index, item in enumerate(value) for pair in _flat(item, f"{name}[{index}]")]
        case str():
            return [(name, value)]
        case None:
            return [(name, "")]
        case _:
            return [(name, _canonical(value).decode("ascii"))]  # true, false and numbers as JSON writes them

"""Requests to providers as values: the contract's templates, filled from the operation. Nothing is sent here.

The base of every authenticated call is the origin that was pinned on the operation when it was registered; nothing that
a caller or provider names can change it (B148). The same operation gives the same create, byte for byte, on every send (A4).
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote, urlencode

from providers.answers import job_id_text
from providers.origins import address
from providers.places import TemplateError, render, template_fields
from schemas.contract import Contract, CreateRule
from schemas.evidence import CancelRefused, CreateAmbiguous, CreateRejected, Evidence, NotSent, ReadFailed, ResultGone
from schemas.http import HttpRequest
from schemas.jsontext import UnreadableJsonError, canonical, parse
from schemas.operation import Micros, Operation
from schemas.states import Errand, State

USER_AGENT: Final = "reconciliation-gateway"
_TRACE_ID = re.compile(r"[0-9a-f]{32}")
_HEADER_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")  # RFC 9110 section 5.5 without obs-text
_NO_SPAN = "0" * 16


class UnbuildableError(ValueError):
    """This request cannot be made. `code` is a stable word; `refusal` turns it into evidence. Never repeats a secret."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class UnusableJobIdError(UnbuildableError):
    """The remote job id cannot stand in a path: missing, `.`, `..`, too long or with control characters."""

    def __init__(self) -> None:
        super().__init__("unusable_job_id", "the remote job id cannot be used in a request")


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
    values = fields(operation, callback_url)
    match errand:
        case Errand.CREATE if contract.create is not None:
            return _create(operation, contract, contract.create, values, credential)
        case Errand.READ if contract.status is not None:
            rule_method, rule_path = contract.status.method, contract.status.path
        case Errand.CANCEL if contract.cancel is not None:
            rule_method, rule_path = contract.cancel.method, contract.cancel.path
        case _:
            raise UnbuildableError("unsupported", f"the contract {contract.name} has no {errand.value} request")
    return call(rule_method, path_of(rule_path, values), operation, contract, errand, credential=credential)


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


def fields(operation: Operation, callback_url: str = "") -> dict[str, str]:
    """Return the template fields of an operation. A job id that cannot be used is left out (UnusableJobIdError later)."""
    values = {
        "token": operation.idempotency_token,
        "operation": operation.id,
        "trace_id": operation.trace_id,
        "reference": operation.reference or "",
        "callback_url": callback_url,
    }
    if job_id := job_id_text(operation.remote_job_id):
        values["remote_job_id"] = job_id
    return values


def path_of(template: str, values: Mapping[str, str]) -> str:
    """Return a filled path: every field one encoded segment. Raises UnbuildableError."""
    try:
        if "remote_job_id" not in values and "remote_job_id" in template_fields(template):
            raise UnusableJobIdError
        path = render(template, values, in_path=True)
    except TemplateError as error:
        raise UnbuildableError("unusable_path", f"a request's path cannot be filled: {error}") from error
    if not path.startswith("/") or "#" in path or "\\" in path:
        raise UnbuildableError("unusable_path", "a request's path starts with / and has no fragment")
    return path


def call(
    method: str,
    path: str,
    operation: Operation,
    contract: Contract,
    errand: Errand,
    *,
    credential: str | None,
    headers: tuple[tuple[str, str], ...] = (),
    body: bytes = b"",
) -> HttpRequest:
    """Return a call to the pinned origin, with trace and (where there is one) credential. Raises UnbuildableError."""
    base = address(operation.origin)
    if base is None or "?" in base.url:
        raise UnbuildableError("unusable_origin", "the operation's origin is no http or https address")
    secret = auth_header(contract, credential)
    own_trace = ((contract.trace_header, operation.trace_id),) if contract.trace_header else ()
    return HttpRequest(
        method=method,
        url=base.url.rstrip("/") + path,
        headers=(
            ("Accept", "application/json"),
            ("Accept-Encoding", "identity"),
            ("User-Agent", USER_AGENT),
            *headers,
            ("traceparent", traceparent(operation, errand)),
            *own_trace,
            *secret,
        ),
        body=body,
        secret_headers=tuple(name for name, _ in secret),
        max_bytes=contract.limits.answer_bytes,
        connect_seconds=contract.limits.connect_seconds,
        total_seconds=contract.limits.total_seconds,
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
    if contract.create is None:
        return f"the contract {contract.name} has no create request"
    probe = {"token": "t", "operation": "o", "trace_id": "t", "reference": "r", "callback_url": "c", "remote_job_id": "j"}
    try:
        _filled(request, contract.create, probe)
    except UnbuildableError as error:
        return str(error)
    return None


def _create(operation: Operation, contract: Contract, rule: CreateRule, values: Mapping[str, str], credential: str | None) -> HttpRequest:
    token = operation.idempotency_token
    if rule.token.place != "none" and (not _HEADER_VALUE.fullmatch(token) or len(token) > rule.token.max_length):
        raise UnbuildableError("unusable_token", f"the provider takes tokens of at most {rule.token.max_length} characters")
    value = _filled(operation.request, rule, values)
    if rule.encoding == "form":
        kind, body = "application/x-www-form-urlencoded", urlencode(_flat(value)).encode("ascii")
    else:
        kind, body = "application/json", _canonical(value)
    headers: tuple[tuple[str, str], ...] = (("Content-Type", kind),)
    if rule.token.place == "header":
        headers += ((rule.token.name, token),)
    return call(
        rule.method, path_of(rule.path, values), operation, contract, Errand.CREATE, credential=credential, headers=headers, body=body
    )


def _filled(request: bytes | None, rule: CreateRule, values: Mapping[str, str]) -> dict[str, Any]:
    """Return the request's object with the contract's echoes and the token in their places."""
    try:
        value = parse(request or b"")
    except UnreadableJsonError as error:
        raise UnbuildableError("unsendable_request", f"the request is not readable: {error}") from error
    if not isinstance(value, dict):
        raise UnbuildableError("unsendable_request", "the request must be a JSON object")
    additions = [*rule.add]
    if rule.token.place == "body":
        additions.append((rule.token.name, "{token}"))
    for place, template in additions:
        try:
            text = render(template, values, in_path=False)
        except TemplateError as error:
            raise UnbuildableError("unsendable_request", f"the addition {place} cannot be filled: {error}") from error
        _put(value, place, text)
    _canonical(value)
    return value


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


def with_query(path: str, name: str, value: str) -> str:
    """Return `path` with one more query parameter, both parts percent-encoded."""
    return f"{path}{'&' if '?' in path else '?'}{quote(name, safe='')}={quote(value, safe='')}"

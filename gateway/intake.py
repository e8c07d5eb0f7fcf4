"""From a create body to an intent: what is asked is checked here, and what a person would have to know is recorded (MISSION A)."""

import re
from dataclasses import dataclass
from typing import Any, Final

from gateway import fields
from gateway.gate import Endpoint, Gate
from gateway.keys import Principal
from gateway.problems import ProblemError
from providers.json_schema import SchemaRefusedError, compiled
from providers.requests import check_request
from providers.tokens import shaped
from schemas import jsontext
from schemas.api import CreateBody, RecordsBody
from schemas.commands import Intent
from schemas.operation import Expect
from schemas.states import Mode

_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")
_LATER: Final = ("notify",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A create request as it came: the checked body and the caller's key."""

    body: CreateBody
    key: str | None


def intent(gate: Gate, principal: Principal, asked: Asked) -> Intent:
    """Return the intent to record. Raises ProblemError with the field that is wrong."""
    body = asked.body
    mode = _mode(body)
    if mode is Mode.ADOPT:
        principal.require("operations:adopt")
    elif asked.key is None:
        raise ProblemError("idempotency_key_required", "send an Idempotency-Key header, new for every intent and the same on every retry")
    _check_links(principal, body, mode)
    _refuse_later(body)
    endpoint = _endpoint(gate, principal, body)
    action = _action(endpoint, body, mode)
    contract = endpoint.contract.of(action)
    expect = _expect(body)
    request = _request(body)
    if mode is Mode.SEND and (fault := check_request(request, contract)):
        raise fields.invalid(("request", fault))
    deadlines, defaults = body.deadlines, contract.deadlines
    return Intent(
        id=gate.world.new_id("op_"),
        owner=principal.owner,
        subject=principal.subject,
        provider=endpoint.name,
        action=action,
        mode=mode,
        origin=endpoint.origin,
        contract_digest=endpoint.contract.digest,
        idempotency_token=shaped(gate.world.new_token(), contract),
        trace_id=gate.world.new_id(""),
        request_fingerprint=_fingerprint(endpoint, body, action, mode, expect),
        create_seconds=(deadlines and deadlines.create_seconds) or defaults.create_seconds,
        result_seconds=(deadlines and deadlines.result_seconds) or defaults.result_seconds,
        cancel_seconds=(deadlines and deadlines.cancel_seconds) or defaults.cancel_seconds,
        collect_seconds=(deadlines and deadlines.collect_seconds) or defaults.collect_seconds,
        approval_seconds=body.approval.within_seconds if body.approval else 0,
        approval_by=tuple(body.approval.by) if body.approval else (),
        authorized_by=body.authorized_by,
        idempotency_key=asked.key,
        reference=body.reference,
        supersedes=body.supersedes,
        resumes=body.resumes,
        remote_job_id=body.remote_job_id,
        request=request,
        metadata=body.metadata,
        expect=expect,
    )


def idempotency_key(text: str | None) -> str | None:
    """Return the key of an Idempotency-Key header. Raises 400 unless it is 1-255 visible ASCII characters."""
    if text is not None and not _KEY.fullmatch(text):
        raise ProblemError("invalid_idempotency_key", "1 to 255 visible ASCII characters, sent once")
    return text


def _mode(body: CreateBody) -> Mode:
    if body.remote_job_id is not None:
        if body.request is not None or body.create is not None or body.approval is not None:
            raise fields.invalid(("remote_job_id", "goes without request, create and approval: a job that exists is adopted, not created"))
        return Mode.ADOPT
    if body.request is None:
        raise fields.invalid(("request", "give a request, or a remote_job_id to adopt"))
    if body.create == "external" and body.approval is not None:
        raise fields.invalid(("approval", "goes with a request that the gateway sends: nobody here could hold your own call back"))
    return Mode.EXTERNAL if body.create == "external" else Mode.SEND


def _check_links(principal: Principal, body: CreateBody, mode: Mode) -> None:
    """Refuse links that could not be kept: whoever creates by themselves cannot be made to wait for another's end."""
    if body.supersedes is None:
        return
    principal.require("operations:cancel")
    if mode is not Mode.SEND:
        raise fields.invalid(("supersedes", "goes with a request that the gateway sends: another create would not wait for the old end"))


def _refuse_later(body: CreateBody) -> None:
    for name in _LATER:
        if getattr(body, name) is not None:
            raise ProblemError("not_available", f"{name} comes with a later version", extra={"field": name})


def _endpoint(gate: Gate, principal: Principal, body: CreateBody) -> Endpoint:
    endpoint = gate.endpoints.get(body.provider)
    if endpoint is None or not endpoint.serves(principal.owner):
        raise ProblemError("unknown_provider", "ask the operator which providers this owner may use")
    return endpoint


def _action(endpoint: Endpoint, body: CreateBody, mode: Mode) -> str:
    kinds = endpoint.contract.kinds()
    if not kinds:
        raise ProblemError("receive_only", "its contract has no status request, or its constants are missing: see gateway doctor")
    if body.action is None and len(kinds) > 1:
        raise fields.invalid(("action", f"is needed: this provider has {', '.join(kinds)}"))
    action = body.action or next(iter(kinds))
    if action not in kinds:
        raise fields.invalid(("action", f"this provider has {', '.join(kinds)}"))
    if mode is Mode.SEND and kinds[action].create is None:
        raise ProblemError("receive_only", "its contract has no create: register the job with create: external or remote_job_id")
    return action


def _expect(body: CreateBody) -> Expect:
    if body.expect is None:
        return Expect()
    asked = body.expect
    if asked.min_bytes is not None and asked.max_bytes is not None and asked.min_bytes > asked.max_bytes:
        raise fields.invalid(("expect.min_bytes", "is more than max_bytes"))
    if asked.json_schema is not None:
        try:
            compiled(asked.json_schema)
        except SchemaRefusedError as error:
            raise fields.invalid(("expect.json_schema", str(error))) from None
    least, most = (asked.records, asked.records) if isinstance(asked.records, int) else _bounds(asked.records)
    return Expect(
        media_type=asked.media_type,
        max_bytes=asked.max_bytes,
        min_bytes=asked.min_bytes,
        sha256=asked.sha256,
        json_schema=asked.json_schema,
        records_min=least,
        records_max=most,
    )


def _bounds(asked: RecordsBody | None) -> tuple[int | None, int | None]:
    if asked is None:
        return None, None
    if asked.min is None and asked.max is None:
        raise fields.invalid(("expect.records", "give a number, or min, max or both"))
    if asked.min is not None and asked.max is not None and asked.min > asked.max:
        raise fields.invalid(("expect.records.min", "is more than max"))
    return asked.min, asked.max


def _request(body: CreateBody) -> bytes | None:
    if body.request is None:
        return None
    try:
        return jsontext.canonical(body.request)
    except jsontext.UnreadableJsonError as error:
        raise fields.invalid(("request", str(error))) from None


def _fingerprint(endpoint: Endpoint, body: CreateBody, action: str, mode: Mode, expect: Expect) -> str:
    """Return the fingerprint of MISSION A1: what another request under the same key must equal."""
    asked: dict[str, Any] = {
        "provider": endpoint.name,
        "origin": endpoint.origin,
        "action": action,
        "mode": str(mode),
        "request": body.request,
        "expect": {"media_type": expect.media_type, "max_bytes": expect.max_bytes, "min_bytes": expect.min_bytes, "sha256": expect.sha256},
    }
    # What older versions did not know stands in the fingerprint only where it is asked for: their keys stay valid.
    later = {"json_schema": expect.json_schema, "records_min": expect.records_min, "records_max": expect.records_max}
    asked["expect"] |= {name: value for name, value in later.items() if value is not None}
    for name in ("remote_job_id", "supersedes", "resumes"):  # part of the request where they are given
        if getattr(body, name) is not None:
            asked[name] = getattr(body, name)
    return jsontext.fingerprint(asked)

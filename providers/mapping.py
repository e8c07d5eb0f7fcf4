"""Mapping: what a verified delivery says it is about. All of it hints; total, whatever the body is.

The dedup key (MISSION B3, B8): a signed event id gives `id:` + SHA-256 of the id. An id that is outside the signed bytes, missing,
blank or no text or integer gives `digest:` + SHA-256 of the signed bytes (and the element's number in an array body), so that
nobody can present one genuine body again under another id (catalogue, section 4), and no two events collapse on a blank one (B029).
With `body_signed = false` the digest is the body's, and no id counts: a forged body is another hint and displaces no genuine one.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from providers.places import as_id, as_text, compile_expression, compile_place
from providers.verification.facts import RefusalError, fields_of, is_form
from providers.verification.times import event_time
from schemas.contract import Contract, EventMap
from schemas.delivery import Event, InboundRequest
from schemas.jsontext import UnreadableJsonError, parse

MAX_ELEMENTS: Final = 1_000  # events of one array body; providers batch up to some hundreds
_MAX_ID_BITS: Final = 2_048
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BARE: Final = re.compile(rf"\s*{_WORD.pattern}\s*(?:\|\|\s*{_WORD.pattern}\s*)*")

_Pairs = list[tuple[str, str]]


def events(contract: Contract, request: InboundRequest, verified_signed: bytes) -> tuple[Event, ...]:
    """Return the events of a verified request: one, or one per element of an array body (`event.each`).

    `verified_signed` are the bytes that the signature covers; empty (tokens, unsigned providers): the body stands in. A body
    that cannot be read gives one event with `readable=False`, the problem, and what the headers say. Never raises.
    """
    rules = contract.event
    # Where the signature does not bind the body, equal signed bytes say nothing about equal events (a second and a type, say).
    signed = (verified_signed or request.body) if rules.body_signed else (request.body or verified_signed)
    headers = header_pairs(request) if any(place.startswith("header:") for place in _places(rules)) else []
    query = query_pairs(request.query)
    try:
        body = body_value(request, needed=_needs_body(rules), opened=_opened((rules.each, *_places(rules))))
        elements = _elements(rules, body) if rules.each else None
    except UnreadableJsonError as error:
        known = _event(rules, headers, query, None, signed=signed, content=request.body, element=0)
        return (replace(known, readable=False, problem=as_text(str(error))),)
    if elements is None:
        return (_event(rules, headers, query, body, signed=signed, content=request.body, element=0),)
    return tuple(
        _event(rules, headers, query, item, signed=signed + b"\x00%d" % number, content=_content(item), element=number)
        for number, item in enumerate(elements)
    )


def _needs_body(rules: EventMap) -> bool:
    return bool(rules.each) or any(place.startswith("body:") for place in _places(rules))


def _places(rules: EventMap) -> tuple[str, ...]:
    return rules.id, rules.type, rules.job_id, rules.client_reference, rules.state, rules.time


def header_pairs(request: InboundRequest) -> _Pairs:
    """Return the header lines as text, names lower-case."""
    return [(name.decode("latin-1"), value.strip(b" \t").decode("utf-8", "replace")) for name, value in request.headers]


def body_value(request: InboundRequest, *, needed: bool, opened: frozenset[str] = frozenset()) -> Any:
    """Return the body's JSON value, or a form as an object; None where nothing of it is needed. Raises UnreadableJsonError.

    `opened` are the form fields that must be documents where they look like one; others may hold any text.
    """
    if is_form(request.headers):
        try:
            pairs = fields_of(request.body)
        except RefusalError as refusal:
            raise UnreadableJsonError(refusal.detail) from refusal
        return _form(pairs, opened)
    if not needed:
        return None
    return parse(request.body)


@lru_cache(maxsize=256)  # bound: places come from contract files only
def _opened(places: tuple[str, ...]) -> frozenset[str]:
    """Return the names in the expressions that look inside of something: more than bare names and the choice between them."""
    inside = [text for place in places if (text := place.removeprefix("body:")) and not _BARE.fullmatch(text)]
    return frozenset(name for text in inside for name in _WORD.findall(text))


def _form(pairs: list[tuple[bytes, bytes]], opened: frozenset[str]) -> dict[str, Any]:
    # A field that holds a JSON document (`payload` of GitHub and Slack) is opened, so that expressions can look inside. What a
    # person wrote may begin like one too ("[photo]" in a text message): only where the contract looks inside is that a fault.
    form: dict[str, Any] = {}
    for name, value in pairs:
        key = name.decode("utf-8", "replace")
        if key in form:
            raise UnreadableJsonError("the same form field twice")
        form[key] = value.decode("utf-8", "replace")
        if value[:1] in {b"{", b"["}:
            try:
                form[key] = parse(value)
            except UnreadableJsonError:
                if key in opened:
                    raise
    return form


def query_pairs(raw: bytes) -> _Pairs:
    """Return the decoded parameters of a raw query; none where there are too many."""
    try:
        return [(name.decode("utf-8", "replace"), value.decode("utf-8", "replace")) for name, value in fields_of(raw)]
    except RefusalError:
        return []


def _elements(rules: EventMap, body: Any) -> list[Any]:
    try:
        found = compile_expression(rules.each).search(body)
    except Exception:  # noqa: BLE001 - an expression meets whatever a stranger sent; no match is the answer
        found = None
    if not isinstance(found, list) or not found:
        raise UnreadableJsonError(f"no events at {rules.each}")
    if len(found) > MAX_ELEMENTS:
        raise UnreadableJsonError(f"more than {MAX_ELEMENTS} events at {rules.each}")
    return found


def _event(rules: EventMap, headers: _Pairs, query: _Pairs, body: Any, *, signed: bytes, content: bytes, element: int) -> Event:
    def find(place: str) -> Any:
        return compile_place(place).find(headers=headers, query=query, body=body) if place else None

    found = find(rules.id)
    return Event(
        dedup_key=_dedup_key(found if rules.id_signed and rules.body_signed else None, signed),
        content_sha256=hashlib.sha256(content).hexdigest(),
        event_id=as_text(found),
        event_type=as_text(find(rules.type)),
        remote_job_id=as_id(find(rules.job_id)),
        client_reference=as_id(find(rules.client_reference)),
        claimed_state=as_text(find(rules.state)),
        provider_time=event_time(find(rules.time), rules.time_unit),
        element=element,
    )


def _dedup_key(found: Any, signed: bytes) -> str:
    exact: str | None = None
    match found:
        case bool():
            pass
        case int() if found and found.bit_length() <= _MAX_ID_BITS:
            exact = str(found)
        case str() if found.strip():
            exact = found
        case _:
            pass
    if exact is None:
        return "digest:" + hashlib.sha256(signed).hexdigest()
    return "id:" + hashlib.sha256(exact.encode("utf-8", "surrogatepass")).hexdigest()


def _content(item: Any) -> bytes:
    # The element's own bytes are lost in parsing; this writing of its exact value is the same for the same value.
    return json.dumps(item, sort_keys=True, separators=(",", ":")).encode()


def describe(event: Event) -> Mapping[str, str]:
    """Return an event's fields as texts, for `gateway verify` and the tests of samples; empty ones are left out."""
    texts = {
        "event_id": event.event_id,
        "event_type": event.event_type,
        "remote_job_id": event.remote_job_id,
        "client_reference": event.client_reference,
        "claimed_state": event.claimed_state,
        "provider_time": "" if event.provider_time is None else str(event.provider_time),
        "problem": event.problem,
    }
    return {name: text for name, text in texts.items() if text}

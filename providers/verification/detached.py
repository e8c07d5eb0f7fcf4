"""Detached signatures (RFC 7515, appendix F): the middle of the token is empty, and the signed payload is the request itself.

Two kinds: `body` (the raw body) and `request` (method and path, the headers that the token lists, and the body).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from providers.verification.facts import Facts, RefusalError
from schemas.delivery import Reason

KINDS: Final = ("body", "request")
"""`detached.kind`."""

WORDS: Final = ("kind", "headers_in", "required_headers", "equals")
"""Keys of `detached`."""

MAX_HEADERS: Final = 32
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")  # a token of RFC 9110


@dataclass(frozen=True, slots=True, kw_only=True)
class Detached:
    """Compiled `detached`. `headers_in`: member of the token's header that lists the covered header names."""

    kind: str
    headers_in: str
    required: tuple[str, ...]  # lower case
    equals: tuple[tuple[str, str], ...]  # members of the token's header that must have these values


def compile_detached(value: Mapping[str, Any]) -> Detached:
    """Return compiled `detached`. Raises ValueError that says what is wrong."""
    kind, required, equals = value.get("kind"), value.get("required_headers", []), value.get("equals", {})
    headers_in = value.get("headers_in", "")
    if kind not in KINDS:
        raise ValueError("kind must be one of " + ", ".join(KINDS))
    if not isinstance(required, list | tuple) or not all(isinstance(name, str) and _NAME.fullmatch(name) for name in required):
        raise ValueError("required_headers must be a list of header names")
    if not isinstance(headers_in, str) or (required and not headers_in):
        raise ValueError("headers_in must name the member of the token's header that lists the covered headers")
    if not isinstance(equals, Mapping) or not all(isinstance(text, str) for text in equals.values()):
        raise ValueError("equals must be a table of texts")
    return Detached(kind=kind, headers_in=headers_in, required=tuple(name.lower() for name in required), equals=tuple(dict(equals).items()))


def payloads(rule: Detached, header: Mapping[str, Any], facts: Facts) -> list[bytes]:
    """Return the bytes that may have been signed. Raises RefusalError where something that must be covered is not."""
    for name, expected in rule.equals:
        if header.get(name) != expected:
            raise RefusalError(Reason.MALFORMED_SIGNATURE, f"the token's {name} is not {expected}")
    if rule.kind == "body":
        return [facts.request.body]
    names = _listed(header.get(rule.headers_in, ""))
    covered = [name.lower() for name in names]
    if len(set(covered)) != len(covered):
        raise RefusalError(Reason.MALFORMED_SIGNATURE, "the token lists a header twice")
    if any(name not in covered for name in rule.required):
        raise RefusalError(Reason.MISSING_FIELD, "the token does not cover a header that it must cover")
    lines = b"".join(name.encode() + b": " + _value(facts, name) + b"\n" for name in names)
    method, request = facts.request.method.encode("latin-1", "replace"), facts.request
    # Senders sign the path with its query or without: the bytes decide, and both bind the rest alike.
    targets = dict.fromkeys([facts.target(), request.path])
    return [method + b" " + target + b"\n" + lines + request.body for target in targets]


def _listed(text: Any) -> list[str]:
    if not isinstance(text, str):
        raise RefusalError(Reason.MALFORMED_SIGNATURE, "the token's list of headers is no text")
    names = [name.strip() for name in text.split(",", MAX_HEADERS)] if text.strip() else []
    if len(names) > MAX_HEADERS or not all(_NAME.fullmatch(name) for name in names):
        raise RefusalError(Reason.MALFORMED_SIGNATURE, "the token's list of headers is no bounded list of names")
    return names


def _value(facts: Facts, name: str) -> bytes:
    value = facts.header(name.lower().encode())
    if value is None:
        raise RefusalError(Reason.MISSING_FIELD, "a header that is signed is not there")
    return value

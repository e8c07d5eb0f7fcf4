"""Covered components of an HTTP message signature: what each is in this request, and the signature base (RFC 9421, section 2).

Host and scheme are those of the configured public address, never of a header that anybody can send (B013).
"""

import hashlib
import hmac
from collections.abc import Callable, Mapping
from typing import Final

from providers.verification.facts import Facts, RefusalError
from providers.verification.structured import Params, UnreadableFieldError, read_dictionary, written, written_params
from schemas.delivery import Reason

Components = tuple[tuple[str, Params], ...]

_DEFAULT_PORTS: Final = {b"https": b"443", b"http": b"80"}
_DIGESTS: Final = {"sha-256": "sha256", "sha-512": "sha512"}


def base_of(components: Components, params: Params, facts: Facts) -> bytes:
    """Return the signature base. Raises RefusalError for a component that is absent, ambiguous, repeated or not known."""
    lines: list[bytes] = []
    identifiers: list[bytes] = []
    for name, own in components:
        identifier = written(name) + written_params(own)
        if identifier in identifiers:
            raise RefusalError(Reason.MALFORMED_SIGNATURE, "the signature lists a component twice")
        identifiers.append(identifier)
        value = _value(name, own, facts)
        if b"\n" in value or b"\r" in value:
            raise RefusalError(Reason.MALFORMED_SIGNATURE, "a component holds a line break")
        lines.append(identifier + b": " + value)
    signature_params = b"(" + b" ".join(identifiers) + b")" + written_params(params)
    return b"\n".join([*lines, b'"@signature-params": ' + signature_params])


def names_of(components: Components) -> frozenset[str]:
    """Return the names of the covered components, without their parameters."""
    return frozenset(name for name, _ in components)


def check_content_digest(facts: Facts) -> None:
    """Return where Content-Digest is the body's (RFC 9530), by every algorithm in it that is known. Raises RefusalError."""
    try:
        members = read_dictionary(b", ".join(facts.headers(b"content-digest")))
    except UnreadableFieldError as error:
        raise RefusalError(Reason.MALFORMED_SIGNATURE, f"content-digest: {error}") from error
    known = [(members[name].value, digest) for name, digest in _DIGESTS.items() if name in members]
    if not known:
        raise RefusalError(Reason.MISSING_FIELD, "content-digest has no digest of a known algorithm")
    same = True
    for said, digest in known:
        same &= isinstance(said, bytes) and hmac.compare_digest(said, hashlib.new(digest, facts.request.body).digest())
    if not same:
        raise RefusalError(Reason.WRONG_SIGNATURE, "the body is not the one whose digest is signed")


def _value(name: str, own: Params, facts: Facts) -> bytes:
    if name == "@query-param":
        return _query_param(own, facts)
    if own:
        # `sf`, `bs`, `key`, `req` and `tr` change what is signed: refused rather than read as if they were not there.
        raise RefusalError(Reason.UNSUPPORTED, "a component has a parameter that is not supported")
    if name.startswith("@"):
        derived = _DERIVED.get(name)
        if derived is None:
            raise RefusalError(Reason.UNSUPPORTED, "a derived component that is not supported")
        return derived(facts)
    if name != name.lower():
        raise RefusalError(Reason.MALFORMED_SIGNATURE, "a component name that is not lower case")
    values = facts.headers(name.encode())
    if not values:
        raise RefusalError(Reason.MISSING_FIELD, "a header that is signed is not there")
    return b", ".join(values)


def _query_param(own: Params, facts: Facts) -> bytes:
    wanted = own.get("name")
    if not isinstance(wanted, str) or len(own) != 1:
        raise RefusalError(Reason.MALFORMED_SIGNATURE, "@query-param needs a name alone")
    values = facts.encoded_query().get(wanted.encode(), ())
    if len(values) != 1:
        raise RefusalError(Reason.MISSING_FIELD, "a signed parameter is not there exactly once")
    return values[0]


def _authority(facts: Facts) -> bytes:
    scheme, _, rest = facts.url().partition(b"://")
    authority = rest.partition(b"/")[0].partition(b"?")[0].lower()
    host, colon, port = authority.rpartition(b":")
    return host if colon and port == _DEFAULT_PORTS.get(scheme.lower()) else authority


def _query(facts: Facts) -> bytes:
    return b"?" + facts.request.query


def _status(facts: Facts) -> bytes:
    # A request has no status; only a stored answer that is verified again brings one along as a constant.
    status = facts.params.get("status")
    if status is None:
        raise RefusalError(Reason.MISSING_FIELD, "@status is signed, and a request has none")
    return status.encode()


_DERIVED: Final[Mapping[str, Callable[[Facts], bytes]]] = {
    "@method": lambda facts: facts.request.method.encode("latin-1", "replace"),
    "@target-uri": lambda facts: facts.url(),
    "@authority": _authority,
    "@scheme": lambda facts: facts.url().partition(b"://")[0].lower(),
    "@request-target": lambda facts: facts.target() or b"/",
    "@path": lambda facts: facts.request.path or b"/",
    "@query": _query,
    "@status": _status,
}
DERIVED: Final = (*_DERIVED, "@query-param")
"""Every derived component that is supported."""

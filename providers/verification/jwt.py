"""JSON Web Tokens (RFC 7519) as signatures of deliveries: `jwt` with shared secrets, public keys, key sets, or detached.

The contract names the algorithms and the key decides which one fits; the token's header only has to agree (B015). Its
`jku` and `x5u` count where the contract allows their address, its `jwk` and `x5c` never. Everything is strict: three parts of
unpadded base64url, JSON objects without a key twice (B139), no critical extensions, and bounds everywhere.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from providers.verification.algorithms import Key, fits, verifies
from providers.verification.certs import allowed_url, compile_rule, signing_key
from providers.verification.claims import ClaimRules, check_claims, compile_claims, judged_times
from providers.verification.detached import Detached, compile_detached, payloads
from providers.verification.encodings import base64url
from providers.verification.facts import Facts, RefusalError
from providers.verification.freshness import parsed, timestamp_text, window
from providers.verification.keys import public_key_of, symmetric_key
from providers.verification.sources import key_id, named_kid, published
from providers.verification.tokens import presented
from schemas.contract import SignatureScheme
from schemas.delivery import Reason, Refused, Secret, Verdict, Verified
from schemas.jsontext import UnreadableJsonError, parse
from schemas.operation import Micros

MAX_HEADER: Final = 4_096  # characters of the token's header; real ones have a hundred
_MAX_DEPTH: Final = 16
_PARTS: Final = 3
# With these a header changes what the signature is over; unknown critical members must be refused (RFC 7515, 4.1.11).
_REFUSED_MEMBERS: Final = ("crit", "b64", "zip", "enc")

_Keys = Sequence[tuple[str, Key]]
_Finder = Callable[[Mapping[str, Any], Facts, Micros, str], _Keys]


@dataclass(frozen=True, slots=True, kw_only=True)
class JwtChecker:
    """A prepared `jwt` scheme."""

    scheme: SignatureScheme
    algorithms: frozenset[str]
    find: _Finder
    claims: ClaimRules
    detached: Detached | None

    def check(self, facts: Facts, now: Micros) -> Verdict:
        """Return the verdict. The signature comes first, then what the token says, the time last: a late one is genuine."""
        head, body, tail = _parts(self.scheme.options["token"], facts)
        header = _object(head, MAX_HEADER, "header")
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in self.algorithms:
            raise RefusalError(Reason.MALFORMED_SIGNATURE, "the token's algorithm is not one of the contract")
        if any(member in header for member in _REFUSED_MEMBERS):
            raise RefusalError(Reason.MALFORMED_SIGNATURE, "the token's header has an extension that the contract does not know")
        signature = base64url(tail)
        if signature is None:
            raise RefusalError(Reason.MALFORMED_SIGNATURE, "the token's signature is not base64url")
        inputs = self._signed(head, body, header, facts)
        keys = self.find(header, facts, now, algorithm)
        matched = ""
        for name, key in keys:
            for data in inputs:
                if verifies(key, algorithm, signature, data) and not matched:
                    matched = name
        if not matched:
            raise RefusalError(Reason.WRONG_SIGNATURE, "no configured or published key made this token")
        return self._judged(body, matched, facts, now)

    def _signed(self, head: bytes, body: bytes, header: Mapping[str, Any], facts: Facts) -> list[bytes]:
        if self.detached is None:
            return [head + b"." + body]
        if body:
            raise RefusalError(Reason.MALFORMED_SIGNATURE, "the token brings its own payload; the request itself is signed")
        return [head + b"." + base64.urlsafe_b64encode(payload).rstrip(b"=") for payload in payloads(self.detached, header, facts)]

    def _judged(self, body: bytes, matched: str, facts: Facts, now: Micros) -> Verdict:
        if self.detached is not None:
            signed_at, fault = self._header_time(facts, now)
        else:
            claims = _object(body, len(body), "payload")
            check_claims(self.claims, claims, facts)
            signed_at, fault = judged_times(self.claims, claims, now)
        # A token that does not bind the body proves nothing about it: no bytes are signed then.
        signed = facts.request.body if self.detached is not None or self.claims.body_hash is not None else b""
        if fault is None:
            return Verified(scheme_id=self.scheme.id, secret_id=matched, signed_at=signed_at, signed=signed)
        reason, detail = fault
        return Refused(reason=reason, detail=detail, genuine=True, secret_id=matched, scheme_id=self.scheme.id, signed=signed)

    def _header_time(self, facts: Facts, now: Micros) -> tuple[Micros | None, tuple[Reason, str] | None]:
        rule = self.scheme.timestamp
        if rule is None:
            return None, None
        signed_at = parsed(rule, timestamp_text(rule, facts, None))
        return signed_at, window(rule.past_seconds, rule.future_seconds, signed_at, now)


def prepare_jwt(scheme: SignatureScheme, secrets: Sequence[Secret]) -> JwtChecker:
    """Return a checker for `jwt`. Raises KeyMaterialError for a secret or static key that is none."""
    return JwtChecker(
        scheme=scheme,
        algorithms=frozenset(scheme.options["algs"]),
        find=_finder(scheme, secrets),
        claims=compile_claims(scheme.options.get("claims") or {}),
        detached=compile_detached(scheme.options["detached"]) if "detached" in scheme.options else None,
    )


def _finder(scheme: SignatureScheme, secrets: Sequence[Secret]) -> _Finder:
    source: Mapping[str, Any] = scheme.options.get("keysource") or {}
    match source.get("kind", "secret"):
        case "jwks":
            return _from_set(source)
        case "cert_url":
            return _from_certificate(source)
        case "static":
            known: _Keys = [(secret.id, public_key_of(secret.value, str(source["format"]))) for secret in secrets]
        case _:
            known = [(secret.id, symmetric_key(secret.value, scheme.key)) for secret in secrets]

    def find(header: Mapping[str, Any], facts: Facts, now: Micros, algorithm: str) -> _Keys:
        del header, facts, now
        fitting = [(name, key) for name, key in known if fits(key, algorithm)]
        if not fitting:
            raise RefusalError(Reason.KEY_REFUSED, f"no configured key is one for {algorithm}")
        return fitting

    return find


def _from_set(source: Mapping[str, Any]) -> _Finder:
    each = "post" in source  # asked for one by one: without an id there is nothing to ask for
    url, allowed = str(source.get("url", "")), frozenset(str(item) for item in source.get("jku_allow", ()))

    def find(header: Mapping[str, Any], facts: Facts, now: Micros, algorithm: str) -> _Keys:
        address = header.get("jku", url) if allowed else url
        if allowed and (not isinstance(address, str) or address not in allowed | ({url} - {""})):
            raise RefusalError(Reason.KEY_REFUSED, "the token names a key set that the contract does not allow")
        kid = header.get("kid", "")
        if not isinstance(kid, str):
            raise RefusalError(Reason.MALFORMED_SIGNATURE, "the token's kid is no text")
        named = named_kid(kid.encode()) if kid else ""
        if each and not named:
            raise RefusalError(Reason.MISSING_FIELD, "the token does not name its key")
        return [(key_id(key), key.key) for key in published(facts, address, named, algorithm, now, each=each)]

    return find


def _from_certificate(source: Mapping[str, Any]) -> _Finder:
    rule = compile_rule(source)

    def find(header: Mapping[str, Any], facts: Facts, now: Micros, algorithm: str) -> _Keys:
        text = header.get("x5u")
        url = allowed_url(text.encode() if isinstance(text, str) else None, rule)
        key = signing_key(url, rule, facts, now)
        if not fits(key, algorithm):
            raise RefusalError(Reason.KEY_REFUSED, f"the certificate's key is none for {algorithm}")
        return [(url, key)]

    return find


def _parts(rule: dict[str, Any], facts: Facts) -> tuple[bytes, bytes, bytes]:
    tokens = presented(rule, facts)
    if not tokens or not tokens[0]:
        raise RefusalError(Reason.MISSING_SIGNATURE, "no token")
    parts = tokens[0].split(b".", _PARTS)
    if len(parts) != _PARTS:
        raise RefusalError(Reason.MALFORMED_SIGNATURE, "the token has not three parts")
    return parts[0], parts[1], parts[2]


def _object(part: bytes, limit: int, name: str) -> dict[str, Any]:
    data = base64url(part) if len(part) <= limit else None
    if data is None:
        raise RefusalError(Reason.MALFORMED_SIGNATURE, f"the token's {name} is not base64url of a bounded length")
    try:
        value = parse(data, max_depth=_MAX_DEPTH)
    except UnreadableJsonError as error:
        raise RefusalError(Reason.MALFORMED_SIGNATURE, f"the token's {name} is not readable JSON: {error}") from error
    if not isinstance(value, dict):
        raise RefusalError(Reason.MALFORMED_SIGNATURE, f"the token's {name} is no JSON object")
    return value

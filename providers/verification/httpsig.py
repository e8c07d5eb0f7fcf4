"""HTTP Message Signatures (RFC 9421): `httpsig`. Several labels may stand side by side; one that meets the contract is enough.

The key id only selects a key; the key has its algorithm, and an `alg` in the header must agree (B015). A covered
Content-Digest is compared with the body always: libraries that leave it out accept any body (catalogue, row 82).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from providers.verification.algorithms import HTTP_PUBLIC, HTTP_SECRET, Key, fits, verifies
from providers.verification.components import base_of, check_content_digest, names_of
from providers.verification.facts import DEPTH, Facts, RefusalError
from providers.verification.freshness import window
from providers.verification.jwk import Jwk
from providers.verification.keys import public_key, symmetric_key
from providers.verification.locations import MAX_TEXT
from providers.verification.sources import key_id, named_kid
from providers.verification.structured import Bare, Member, UnreadableFieldError, read_dictionary
from providers.verification.times import END_OF_TIME
from schemas.contract import SignatureScheme, TimestampRule
from schemas.delivery import Reason, Refused, Secret, Verdict, Verified, WantedKey
from schemas.operation import SECOND, Micros

WORDS: Final = ("label", "tag", "components")
"""Keys of `covers`: the label and the tag that count, and the components that must be covered."""

_WINDOW: Final = TimestampRule(place="sig", past_seconds=300, future_seconds=300)
_TYPES: Final = {"created": int, "expires": int, "nonce": str, "alg": str, "keyid": str, "tag": str}
_JWK_NAMES: Final = {"EdDSA": "ed25519", "Ed25519": "ed25519", "ES256": "ecdsa-p256-sha256", "ES384": "ecdsa-p384-sha384"}
_JWK_RSA: Final = {"PS512": "rsa-pss-sha512", "RS256": "rsa-v1_5-sha256"}

# Id that is recorded, algorithm, key.
_Candidates = Sequence[tuple[str, str, Key]]
_Finder = Callable[[Facts, Micros, str], _Candidates]


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSignatureChecker:
    """A prepared `httpsig` scheme."""

    scheme: SignatureScheme
    find: _Finder
    window: TimestampRule
    label: str
    tag: str
    required: frozenset[str]

    def check(self, facts: Facts, now: Micros) -> Verdict:
        """Return the verdict of the first label that is accepted, else of the one that came furthest."""
        inputs, signatures = _dictionary(facts, "signature-input"), _dictionary(facts, "signature")
        labels = [label for label in inputs if label in signatures and self.label in {"", label}]
        if not labels:
            raise RefusalError(Reason.MALFORMED_SIGNATURE, "no label of the contract stands in both Signature-Input and Signature")
        stale: Refused | None = None
        fault: RefusalError | None = None
        for label in labels:
            try:
                verdict = self._label(inputs[label], signatures[label], facts, now)
            except RefusalError as refusal:
                fault = refusal if fault is None or DEPTH[refusal.reason] > DEPTH[fault.reason] else fault
                continue
            if isinstance(verdict, Verified):
                return verdict
            stale = verdict
        if stale is not None:
            return stale
        assert fault is not None, "every label either gave a verdict or was refused"
        raise fault

    def _label(self, member: Member, signature: Member, facts: Facts, now: Micros) -> Verdict:
        components, params = member.value, member.params
        if not isinstance(components, tuple) or not isinstance(signature.value, bytes) or not signature.value:
            raise RefusalError(Reason.MALFORMED_SIGNATURE, "Signature-Input is no list, or Signature no bytes")
        if any(type(params[name]) is not kind for name, kind in _TYPES.items() if name in params):
            raise RefusalError(Reason.MALFORMED_SIGNATURE, "a parameter of the signature is of the wrong kind")
        if self.tag and params.get("tag") != self.tag:
            raise RefusalError(Reason.WRONG_CLAIM, "the signature's tag is another one")
        covered = names_of(components)
        if missing := self.required - covered:
            raise RefusalError(Reason.MISSING_FIELD, f"the signature does not cover {', '.join(sorted(missing))}")
        base = base_of(components, params, facts)
        matched = self._matched(params, signature.value, base, facts, now)
        if "content-digest" in covered:
            check_content_digest(facts)
        signed_at, late = self._time(params, now)
        signed = facts.request.body if "content-digest" in covered else b""
        if late is None:
            return Verified(scheme_id=self.scheme.id, secret_id=matched, signed_at=signed_at, signed=signed)
        reason, detail = late
        return Refused(reason=reason, detail=detail, genuine=True, secret_id=matched, scheme_id=self.scheme.id, signed=signed)

    def _matched(self, params: Mapping[str, Bare], signature: bytes, base: bytes, facts: Facts, now: Micros) -> str:
        kid = params.get("keyid", "")
        assert isinstance(kid, str), "judged by its kind before"
        named = named_kid(kid.encode()) if kid else ""
        said = params.get("alg")
        keys = [(name, algorithm, key) for name, algorithm, key in self.find(facts, now, named) if said in {None, algorithm}]
        if not keys:
            raise RefusalError(Reason.KEY_REFUSED, "the key is none for the algorithm that the signature names")
        matched = ""
        for name, algorithm, key in keys:
            if verifies(key, algorithm, signature, base) and not matched:
                matched = name
        if not matched:
            raise RefusalError(Reason.WRONG_SIGNATURE, "no key of this id made this signature over these components")
        return matched

    def _time(self, params: Mapping[str, Bare], now: Micros) -> tuple[Micros | None, tuple[Reason, str] | None]:
        created, expires = (_time(params.get(name)) for name in ("created", "expires"))
        if created is None and self.window.past_seconds is not None:
            raise RefusalError(Reason.MISSING_TIMESTAMP, "the signature does not say when it was made")
        if expires is not None and now > expires:
            return created, (Reason.TOO_OLD, f"the signature ended {(now - expires) // SECOND} s ago")
        if created is None:
            return None, None
        return created, window(self.window.past_seconds, self.window.future_seconds, created, now)


def prepare_httpsig(scheme: SignatureScheme, secrets: Sequence[Secret]) -> HttpSignatureChecker:
    """Return a checker for `httpsig`. Raises KeyMaterialError for a secret or static key that is none."""
    rule: Mapping[str, Any] = scheme.options.get("covers") or {}
    return HttpSignatureChecker(
        scheme=scheme,
        find=_finder(scheme, secrets),
        window=scheme.timestamp or _WINDOW,
        label=str(rule.get("label", "")),
        tag=str(rule.get("tag", "")),
        required=frozenset(str(name).lower() for name in rule.get("components", ())),
    )


def _finder(scheme: SignatureScheme, secrets: Sequence[Secret]) -> _Finder:
    source: Mapping[str, Any] = scheme.options.get("keysource") or {}
    if source.get("kind") == "jwks":
        url = str(source.get("url", ""))
        return lambda facts, now, kid: _from_set(facts, now, url, kid, scheme.algorithm)
    if source.get("kind") in {"static", "secret"}:
        known = [(secret.id, scheme.algorithm, _static(scheme, source, secret)) for secret in secrets]
        return _always(known)
    return _given


def _always(known: _Candidates) -> _Finder:
    def find(facts: Facts, now: Micros, kid: str) -> _Candidates:
        # The contract has one algorithm and no table of ids: whatever id is named, the configured keys are tried.
        del facts, now, kid
        return known

    return find


def _static(scheme: SignatureScheme, source: Mapping[str, Any], secret: Secret) -> Key:
    if scheme.algorithm in HTTP_SECRET:
        return symmetric_key(secret.value, scheme.key)
    return public_key(secret.value, str(source["format"]), scheme.algorithm)


def _given(facts: Facts, now: Micros, kid: str) -> _Candidates:
    del now
    if kid:
        found = facts.keys.named(kid)
        if found is None:
            raise RefusalError(Reason.KEY_UNAVAILABLE, "no key of this id is configured", WantedKey(url="", kid=kid))
        return [(f"kid:{kid}", *found)]
    if not facts.keys.all_named():
        raise RefusalError(Reason.KEY_UNAVAILABLE, "no key is configured", WantedKey(url=""))
    return [(f"kid:{name}", *found) for name, found in facts.keys.all_named().items()]


def _from_set(facts: Facts, now: Micros, url: str, kid: str, algorithm: str) -> _Candidates:
    known = facts.keys.key_set(url, kid)
    named = [key for key in known or () if not kid or key.kid == kid]
    if not named:
        raise RefusalError(Reason.KEY_UNAVAILABLE, "the key set, or this id of it, is not fetched yet", WantedKey(url=url, kid=kid))
    live = [key for key in named if key.ends is None or key.ends > now]
    found = [(key_id(key), name, key.key) for key in live for name in _names(key, algorithm) if fits(key.key, name)]
    if not found:
        raise RefusalError(Reason.KEY_REFUSED, "the key has expired, or names no algorithm of HTTP message signatures")
    return found


def _names(key: Jwk, algorithm: str) -> tuple[str, ...]:
    # The set's own word counts; without one the kind of the key decides, and for RSA only the contract can say.
    if key.algorithm:
        said = (_JWK_NAMES | _JWK_RSA).get(key.algorithm)
        return (said,) if said and algorithm in {"", said} else ()
    return (algorithm,) if algorithm else tuple(_JWK_NAMES.values())[1:]


def _dictionary(facts: Facts, name: str) -> dict[str, Member]:
    text = b", ".join(facts.headers(name.encode()))
    if not text:
        raise RefusalError(Reason.MISSING_SIGNATURE, f"no header {name}")
    if len(text) > MAX_TEXT:
        raise RefusalError(Reason.MALFORMED_SIGNATURE, f"{name} of more than {MAX_TEXT} bytes")
    try:
        return read_dictionary(text)
    except UnreadableFieldError as error:
        raise RefusalError(Reason.MALFORMED_SIGNATURE, f"{name}: {error}") from error


def _time(value: Bare | None) -> Micros | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < END_OF_TIME // SECOND:
        raise RefusalError(Reason.MALFORMED_TIMESTAMP, "created or expires is no time in unix seconds")
    return value * SECOND


ALGORITHMS: Final = (*HTTP_SECRET, *HTTP_PUBLIC)
"""`alg` of the primitive `httpsig`."""

"""Signatures over bytes: `hmac`, `hash` (a digest with the secret inside the template) and `asym` (public keys).

Every secret meets every signature and every message form, without an early exit: how long it takes says nothing about which
one matched. A right signature with a wrong time is told apart (`genuine`), for it earns one budgeted read (B8, B020).
"""

import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from providers.verification.algorithms import fits, verifies
from providers.verification.encodings import ENCODINGS, SPOKEN
from providers.verification.facts import Facts, RefusalError, scalar
from providers.verification.freshness import parsed, timestamp_text, window
from providers.verification.keys import public_key, symmetric_key
from providers.verification.locations import Locator, compile_location
from providers.verification.messages import Choice, Inputs, Message, Segments, compile_choice, compile_message, compile_segments
from providers.verification.sources import Keyed, Source, cert_source, jwks_source
from schemas.contract import SignatureScheme
from schemas.delivery import Reason, Refused, Secret, Verdict, Verified
from schemas.operation import Micros

DIGESTS: Final = {"sha1": 20, "sha256": 32, "sha384": 48, "sha512": 64}
"""Digest name -> its bytes."""

_Message = Message | Segments | Choice
_Signatures = Sequence[tuple[int, bytes]]  # each with the index of its header
# (message, inputs, signed bytes, signatures) -> the number of the key that made one of them, or -1
_Matcher = Callable[[_Message, Inputs, bytes, _Signatures], int]
# What is known only with the request: the ids of the keys and their matcher.
_Resolver = Callable[[Facts, Micros], tuple[Sequence[str], _Matcher]]
# JWS names of the contract's algorithms: a key set speaks of those.
_JWS: Final = {"ed25519": "EdDSA", "ecdsa-sha256": "ES256", "rsa-sha256": "RS256"}


@dataclass(frozen=True, slots=True)
class SignatureChecker:
    """A prepared scheme: parsed once, keys made once."""

    scheme: SignatureScheme
    secret_ids: tuple[str, ...]
    locate: Locator
    decode: Callable[[bytes], bytes | None]
    messages: tuple[_Message, ...]
    match: _Matcher
    required: tuple[tuple[bytes, bytes], ...]
    resolve: _Resolver | None = None

    def check(self, facts: Facts, now: Micros) -> Verdict:
        """Return the verdict of this scheme. RefusalError never leaves the engine."""
        for name, value in self.required:
            if facts.header(name) != value:
                raise RefusalError(Reason.MISSING_FIELD, f"header {name.decode('latin-1')} is not what the contract requires")
        found = self.locate(facts)
        rule = self.scheme.timestamp
        text = timestamp_text(rule, facts, found.timestamp) if rule else None
        signed_at = parsed(rule, text) if rule and text is not None else None
        signatures = [(index, data) for index, raw in found.signatures if (data := self.decode(raw)) is not None]
        if not signatures:
            raise RefusalError(Reason.MALFORMED_SIGNATURE, f"the signature is not {SPOKEN[self.scheme.encoding]}")
        header = rule.name.lower().encode() if rule and rule.place == "header" else b""
        inputs = Inputs(facts, text, found.pairs, header)
        ids, match = (self.secret_ids, self.match) if self.resolve is None else self.resolve(facts, now)
        signed, by = b"", -1
        for message in self.messages:
            data = message.render(inputs)
            key = match(message, inputs, data, signatures)
            if key >= 0 and by < 0:
                signed, by = data, key
        if by < 0:
            raise RefusalError(Reason.WRONG_SIGNATURE, "no configured secret made this signature over these bytes")
        self._check_body_digest(facts)
        return self._judged(signed, ids[by], signed_at, now)

    def _judged(self, signed: bytes, secret_id: str, signed_at: Micros | None, now: Micros) -> Verdict:
        rule = self.scheme.timestamp
        fault = window(rule.past_seconds, rule.future_seconds, signed_at, now) if rule and signed_at is not None else None
        if fault is None:
            return Verified(scheme_id=self.scheme.id, secret_id=secret_id, signed_at=signed_at, signed=signed)
        reason, detail = fault
        return Refused(
            reason=reason,
            detail=detail,
            genuine=True,
            secret_id=secret_id,
            scheme_id=self.scheme.id,
            signed=signed,
            signed_at=signed_at,
        )

    def _check_body_digest(self, facts: Facts) -> None:
        rule = self.scheme.options.get("body_digest")
        if not rule:
            return
        name = str(rule["name"]).encode()
        claimed = facts.query(name) if rule["in"] == "query" else facts.header(name.lower())
        if claimed is None:
            raise RefusalError(Reason.MISSING_FIELD, "the signed body digest is not there: the body is unprotected")
        actual = hashlib.new(str(rule.get("alg", "sha256")), facts.request.body).hexdigest().encode()
        if not hmac.compare_digest(claimed.lower(), actual):
            raise RefusalError(Reason.WRONG_SIGNATURE, "the body is not the one whose digest is signed")


def prepare_hmac(scheme: SignatureScheme, secrets: Sequence[Secret]) -> SignatureChecker:
    """Return a checker for `hmac`. Raises KeyMaterialError for a secret that is none."""
    # Keyed once and copied: half the work of a fresh one, and unlike hmac.digest it keeps the interpreter's lock, which a
    # thread that is busy with the record would give back only after its whole interval.
    keyed = [hmac.new(symmetric_key(secret.value, scheme.key), digestmod=scheme.algorithm) for secret in secrets]
    paired = _paired(scheme, len(keyed))

    def match(message: _Message, inputs: Inputs, data: bytes, signatures: _Signatures) -> int:
        del message, inputs
        return _compared([_mac(key, data) for key in keyed], signatures, paired=paired)

    return _checker(scheme, secrets, match)


def _mac(keyed: hmac.HMAC, data: bytes) -> bytes:
    mac = keyed.copy()
    mac.update(data)
    return mac.digest()


def prepare_hash(scheme: SignatureScheme, secrets: Sequence[Secret]) -> SignatureChecker:
    """Return a checker for `hash`. Raises KeyMaterialError for a secret that is none."""
    keys = [symmetric_key(secret.value, scheme.key) for secret in secrets]
    algorithm = scheme.algorithm
    paired = _paired(scheme, len(keys))

    def match(message: _Message, inputs: Inputs, data: bytes, signatures: _Signatures) -> int:
        del data  # without the secret: what may be stored, not what was hashed
        digests = [hashlib.new(algorithm, message.render(inputs, key)).digest() for key in keys]
        return _compared(digests, signatures, paired=paired)

    return _checker(scheme, secrets, match)


def prepare_asym(scheme: SignatureScheme, secrets: Sequence[Secret]) -> SignatureChecker:
    """Return a checker for `asym`. Raises KeyMaterialError for a static key that is none; fetched keys come with each request."""
    source: Mapping[str, Any] = scheme.options["keysource"]
    match source.get("kind", "static"):
        case "jwks":
            return _checker(scheme, (), _nothing, _resolver(scheme, jwks_source(source)))
        case "cert_url":
            return _checker(scheme, (), _nothing, _resolver(scheme, cert_source(source)))
        case _:
            keys = [(secret.id, public_key(secret.value, str(source["format"]), scheme.algorithm)) for secret in secrets]
            return _checker(scheme, secrets, _public_matcher(keys, scheme.algorithm))


def _resolver(scheme: SignatureScheme, source: Source) -> _Resolver:
    def resolve(facts: Facts, now: Micros) -> tuple[Sequence[str], _Matcher]:
        algorithm = _algorithm(scheme, facts)
        keys = source(facts, now, _JWS.get(algorithm, ""))
        if not any(fits(key, algorithm) for _, key in keys):
            raise RefusalError(Reason.KEY_REFUSED, f"the key is none for {algorithm}")
        return [key_id for key_id, _ in keys], _public_matcher(keys, algorithm)

    return resolve


def _algorithm(scheme: SignatureScheme, facts: Facts) -> str:
    rule = scheme.options.get("alg_by")
    if rule is None:
        return scheme.algorithm
    name = str(rule["name"])
    text = facts.header(name.lower().encode()) if rule["in"] == "header" else scalar(facts.json_at(tuple(name.split("."))))
    algorithm: str | None = rule["map"].get((text or b"").decode("latin-1"))
    if algorithm is None:
        raise RefusalError(Reason.MALFORMED_SIGNATURE, "the delivery names an algorithm that the contract does not allow")
    return algorithm


def _public_matcher(keys: Keyed, algorithm: str) -> _Matcher:
    def match(message: _Message, inputs: Inputs, data: bytes, signatures: _Signatures) -> int:
        del message, inputs
        matched = -1
        for number, (_, key) in enumerate(keys):
            for _, signature in signatures:
                if verifies(key, algorithm, signature, data) and matched < 0:
                    matched = number
        return matched

    return match


def _nothing(message: _Message, inputs: Inputs, data: bytes, signatures: _Signatures) -> int:
    del message, inputs, data, signatures
    return -1


def _checker(scheme: SignatureScheme, secrets: Sequence[Secret], match: _Matcher, resolve: _Resolver | None = None) -> SignatureChecker:
    assert scheme.location is not None, "the parameter parser refuses a signature without a place"
    messages: tuple[_Message, ...] = tuple(compile_message(template) for template in scheme.messages)
    if segments := scheme.options.get("segments"):
        messages = (compile_segments(list(segments)),)
    if choice := scheme.options.get("choice"):
        messages = (compile_choice(choice["by"], choice["of"]),)
    required = scheme.options.get("require_headers") or {}
    return SignatureChecker(
        scheme=scheme,
        secret_ids=tuple(secret.id for secret in secrets),
        locate=compile_location(scheme.location),
        decode=ENCODINGS[scheme.encoding],
        messages=messages,
        match=match,
        required=tuple((str(name).lower().encode(), str(value).encode()) for name, value in required.items()),
        resolve=resolve,
    )


def _paired(scheme: SignatureScheme, keys: int) -> bool:
    # As many fixed headers as secrets (Box: primary, secondary): each header is checked with its own secret only.
    assert scheme.location is not None, "the parameter parser refuses a signature without a place"
    names = scheme.location.options.get("names") or ()
    return len(names) > 1 and len(names) == keys


def _compared(digests: Sequence[bytes], signatures: _Signatures, *, paired: bool) -> int:
    matched = -1
    for number, digest in enumerate(digests):
        for index, signature in signatures:
            same = hmac.compare_digest(digest, signature)
            if same and matched < 0 and (not paired or index == number):
                matched = number
    return matched

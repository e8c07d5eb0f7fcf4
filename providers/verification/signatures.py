"""Signatures over bytes: `hmac`, `hash` (a digest with the secret inside the template) and `asym` (static public keys).

Every secret meets every signature and every message form, without an early exit: how long it takes says nothing about which
one matched. A right signature with a wrong time is told apart (`genuine`), for it earns one budgeted read (B8, B020).
"""

import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA1, SHA256

from providers.verification.encodings import ENCODINGS
from providers.verification.facts import Facts, RefusalError, scalar
from providers.verification.keys import PublicKey, public_key, symmetric_key
from providers.verification.locations import Found, Locator, compile_location
from providers.verification.messages import Inputs, Message, Segments, compile_message, compile_segments
from providers.verification.times import END_OF_TIME, parse_time
from schemas.contract import SignatureScheme, TimestampRule
from schemas.delivery import Reason, Refused, Secret, Verdict, Verified
from schemas.operation import SECOND, Micros

DIGESTS: Final = {"sha1": 20, "sha256": 32, "sha384": 48, "sha512": 64}
"""Digest name -> its bytes."""

_Message = Message | Segments
_Signatures = Sequence[tuple[int, bytes]]  # each with the index of its header
# (message, inputs, signed bytes, signatures) -> the number of the key that made one of them, or -1
_Matcher = Callable[[_Message, Inputs, bytes, _Signatures], int]


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

    def check(self, facts: Facts, now: Micros) -> Verdict:
        """Return the verdict of this scheme. RefusalError never leaves the engine."""
        for name, value in self.required:
            if facts.header(name) != value:
                raise RefusalError(Reason.MISSING_FIELD, f"header {name.decode('latin-1')} is not what the contract requires")
        found = self.locate(facts)
        rule = self.scheme.timestamp
        text = _timestamp_text(rule, facts, found) if rule else None
        signed_at = _parsed(rule, text) if rule and text is not None else None
        signatures = [(index, data) for index, raw in found.signatures if (data := self.decode(raw)) is not None]
        if not signatures:
            raise RefusalError(Reason.MALFORMED_SIGNATURE, f"the signature is not {self.scheme.encoding}")
        header = rule.name.lower().encode() if rule and rule.place == "header" else b""
        inputs = Inputs(facts, text, found.pairs, header)
        signed, by = b"", -1
        for message in self.messages:
            data = message.render(inputs)
            key = self.match(message, inputs, data, signatures)
            if key >= 0 and by < 0:
                signed, by = data, key
        if by < 0:
            raise RefusalError(Reason.WRONG_SIGNATURE, "no configured secret made this signature over these bytes")
        self._check_body_digest(facts)
        return self._judged(signed, self.secret_ids[by], signed_at, now)

    def _judged(self, signed: bytes, secret_id: str, signed_at: Micros | None, now: Micros) -> Verdict:
        fault = _window(self.scheme.timestamp, signed_at, now) if signed_at is not None else None
        if fault is None:
            return Verified(scheme_id=self.scheme.id, secret_id=secret_id, signed_at=signed_at, signed=signed)
        reason, detail = fault
        return Refused(reason=reason, detail=detail, genuine=True, secret_id=secret_id, scheme_id=self.scheme.id, signed=signed)

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
    """Return a checker for `asym` with static keys. Raises KeyMaterialError for a key that is none."""
    source: Mapping[str, Any] = scheme.options["keysource"]
    keys = [public_key(secret.value, str(source["format"]), scheme.algorithm) for secret in secrets]

    def match(message: _Message, inputs: Inputs, data: bytes, signatures: _Signatures) -> int:
        del message, inputs
        matched = -1
        for number, key in enumerate(keys):
            for _, signature in signatures:
                if _verifies(key, scheme.algorithm, signature, data) and matched < 0:
                    matched = number
        return matched

    return _checker(scheme, secrets, match)


def _checker(scheme: SignatureScheme, secrets: Sequence[Secret], match: _Matcher) -> SignatureChecker:
    assert scheme.location is not None, "the parameter parser refuses a signature without a place"
    messages: tuple[_Message, ...] = tuple(compile_message(template) for template in scheme.messages)
    if segments := scheme.options.get("segments"):
        messages = (compile_segments(list(segments)),)
    required = scheme.options.get("require_headers") or {}
    return SignatureChecker(
        scheme=scheme,
        secret_ids=tuple(secret.id for secret in secrets),
        locate=compile_location(scheme.location),
        decode=ENCODINGS[scheme.encoding],
        messages=messages,
        match=match,
        required=tuple((str(name).lower().encode(), str(value).encode()) for name, value in required.items()),
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


def _verifies(key: PublicKey, algorithm: str, signature: bytes, data: bytes) -> bool:
    try:
        match key:
            case Ed25519PublicKey():
                key.verify(signature, data)
            case EllipticCurvePublicKey():
                key.verify(signature, data, ECDSA(SHA256()))
            case _:
                key.verify(signature, data, PKCS1v15(), SHA1() if algorithm == "rsa-sha1" else SHA256())  # noqa: S303 - some providers still sign so
    except (InvalidSignature, ValueError):
        return False
    return True


def _timestamp_text(rule: TimestampRule, facts: Facts, found: Found) -> bytes:
    match rule.place:
        case "sig":
            text = found.timestamp
        case "json":
            text = scalar(facts.json_at(tuple(rule.name.split(".")))) or None
        case _:
            values = facts.headers(rule.name.lower().encode())
            if len(values) > 1:
                raise RefusalError(Reason.MALFORMED_TIMESTAMP, f"header {rule.name} is there more than once")
            text = values[0] if values else None
    if not text:
        raise RefusalError(Reason.MISSING_TIMESTAMP, "the signed timestamp is not there")
    return text


def _parsed(rule: TimestampRule, text: bytes) -> Micros:
    signed_at = parse_time(text, rule.unit)
    if signed_at is None or (rule.future_seconds is None and signed_at >= END_OF_TIME):
        raise RefusalError(Reason.MALFORMED_TIMESTAMP, f"the signed timestamp is not {rule.unit}")
    return signed_at


def _window(rule: TimestampRule | None, signed_at: Micros, now: Micros) -> tuple[Reason, str] | None:
    if rule is None:
        return None
    age = now - signed_at
    if rule.past_seconds is not None and age > rule.past_seconds * SECOND:
        return Reason.TOO_OLD, f"signed {age // SECOND} s ago; {rule.past_seconds} s are allowed"
    if rule.future_seconds is not None and -age > rule.future_seconds * SECOND:
        return Reason.IN_FUTURE, f"signed {-age // SECOND} s in the future; {rule.future_seconds} s are allowed (clock or unit?)"
    return None

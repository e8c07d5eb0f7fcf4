"""JSON Web Keys (RFC 7517): a fetched document becomes public keys, each with its id, its algorithm and its end.

What is no signature key of a known kind is left out, and a document without a usable key has none: nothing here guesses.
Symmetric keys (`oct`) are left out always: a published secret is none (B015).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, SECP384R1, SECP521R1, EllipticCurve, EllipticCurvePublicNumbers
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers

from providers.verification.algorithms import PublicKey, fits
from providers.verification.encodings import base64url
from providers.verification.keys import MAX_RSA_BITS, MIN_RSA_BITS, KeyMaterialError
from schemas.jsontext import UnreadableJsonError, parse
from schemas.operation import SECOND, Micros

MAX_DOCUMENT: Final = 262_144  # bytes of a key set; large providers publish ten kilobytes
MAX_KEYS: Final = 64  # keys of one set that are looked at
MAX_KID: Final = 256
_MAX_DEPTH: Final = 8
_MAX_NUMBER: Final = 4_096  # characters of one number's base64url
_MAX_EXPONENT: Final = 1 << 32  # larger ones only cost time
_CURVES: Final[Mapping[str, tuple[type[EllipticCurve], int]]] = {
    "P-256": (SECP256R1, 32),
    "P-384": (SECP384R1, 48),
    "P-521": (SECP521R1, 66),
}
_SAME: Final = {"Ed25519": "EdDSA"}  # RFC 9864 gave the one curve that we take a name of its own
_ENDS: Final = ("expired_at", "exp")  # members that end a key, in unix seconds


@dataclass(frozen=True, slots=True)
class Jwk:
    """One published key. `kid` and `algorithm` are empty where the document names none; `ends`: refused from then on."""

    kid: str
    algorithm: str
    key: PublicKey
    ends: Micros | None

    def allows(self, algorithm: str) -> bool:
        """Say whether a signature of `algorithm` (a JWS name) may be checked with this key."""
        return _SAME.get(self.algorithm, self.algorithm) in {"", _SAME.get(algorithm, algorithm)} and fits(self.key, algorithm)


def read_set(document: bytes) -> tuple[Jwk, ...]:
    """Return the usable keys of `{"keys": […]}`, of `{"key": {…}}` or of a bare key. Raises KeyMaterialError for anything else."""
    if len(document) > MAX_DOCUMENT:
        raise KeyMaterialError(f"is a key set of more than {MAX_DOCUMENT} bytes")
    try:
        value = parse(document, max_depth=_MAX_DEPTH)
    except UnreadableJsonError as error:
        raise KeyMaterialError(f"is no key set: {error}") from error
    match value:
        case {"keys": list(items)}:
            listed = items
        case {"key": dict(item)}:
            listed = [item]
        case {"kty": str()}:
            listed = [value]
        case _:
            raise KeyMaterialError("is no key set: it has no list `keys`")
    found = (_read(item) for item in listed[:MAX_KEYS] if isinstance(item, dict))
    return tuple(key for key in found if key is not None)


def _read(item: Mapping[str, Any]) -> Jwk | None:
    kid, algorithm = item.get("kid", ""), item.get("alg", "")
    if not isinstance(kid, str) or len(kid) > MAX_KID or not isinstance(algorithm, str):
        return None
    operations = item.get("key_ops", ["verify"])
    if item.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
        return None
    try:
        key = _public(item)
        return None if key is None else Jwk(kid, algorithm, key, _ends(item))
    except ValueError:
        return None  # numbers that are no key, or an end that cannot be read


def _public(item: Mapping[str, Any]) -> PublicKey | None:
    match item:
        case {"kty": "OKP", "crv": "Ed25519", "x": x}:
            return Ed25519PublicKey.from_public_bytes(_bytes(x))
        case {"kty": "EC", "crv": str(name), "x": x, "y": y} if name in _CURVES:
            curve, size = _CURVES[name]
            first, second = _bytes(x), _bytes(y)
            # RFC 7518 wants exactly `size` bytes; some providers strip leading zeros.
            if len(first) > size or len(second) > size:
                return None
            return EllipticCurvePublicNumbers(int.from_bytes(first), int.from_bytes(second), curve()).public_key()
        case {"kty": "RSA", "n": n, "e": e}:
            modulus, exponent = int.from_bytes(_bytes(n)), int.from_bytes(_bytes(e))
            if not MIN_RSA_BITS <= modulus.bit_length() <= MAX_RSA_BITS or exponent >= _MAX_EXPONENT:
                return None
            return RSAPublicNumbers(exponent, modulus).public_key()
        case _:
            return None


def _bytes(text: Any) -> bytes:
    value = base64url(text.encode()) if isinstance(text, str) and len(text) <= _MAX_NUMBER else None
    if value is None:
        raise ValueError("not base64url")
    return value


def _ends(item: Mapping[str, Any]) -> Micros | None:
    ends: Micros | None = None
    for name in _ENDS:
        match item.get(name):
            case None:
                continue
            case bool():
                raise ValueError("no time")
            case int() | float() as seconds if abs(seconds) < 10**11:
                end = int(seconds * SECOND)
                ends = end if ends is None else min(ends, end)
            case _:
                raise ValueError("no time")
    return ends

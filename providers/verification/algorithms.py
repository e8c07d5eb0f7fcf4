"""Signature algorithms by name: which kind of key each takes, and how it verifies. The key decides, never the sender (B015).

Names are those of contracts (`ed25519`, `rsa-sha256` …, ECDSA as DER), of JWS (RFC 7518, ECDSA as r‖s) and of HTTP message
signatures (RFC 9421, ECDSA as r‖s). A name takes one kind of key on one curve; a secret is never a public key nor the reverse.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, SECP384R1, SECP521R1, EllipticCurve, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS, AsymmetricPadding, PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA1, SHA256, SHA384, SHA512, HashAlgorithm

PublicKey = Ed25519PublicKey | EllipticCurvePublicKey | RSAPublicKey
Key = bytes | PublicKey
"""A shared secret (bytes) or a public key."""


@dataclass(frozen=True, slots=True)
class _Ec:
    curve: type[EllipticCurve]
    digest: HashAlgorithm
    half: int | None  # bytes of r and of s where they are written side by side; None: DER


@dataclass(frozen=True, slots=True)
class _Rsa:
    padding: AsymmetricPadding
    digest: HashAlgorithm


@dataclass(frozen=True, slots=True)
class _Ed:
    """Ed25519 has no parameters."""


@dataclass(frozen=True, slots=True)
class _Mac:
    digest: str


def _pss(digest: HashAlgorithm) -> _Rsa:
    return _Rsa(PSS(MGF1(digest), PSS.DIGEST_LENGTH), digest)


_RULES: Final[Mapping[str, _Ec | _Rsa | _Ed | _Mac]] = {
    "ed25519": _Ed(),
    "ecdsa-sha256": _Ec(SECP256R1, SHA256(), None),
    "rsa-sha256": _Rsa(PKCS1v15(), SHA256()),
    "rsa-sha1": _Rsa(PKCS1v15(), SHA1()),  # noqa: S303 - some providers still sign so
    "HS256": _Mac("sha256"),
    "HS384": _Mac("sha384"),
    "HS512": _Mac("sha512"),
    "RS256": _Rsa(PKCS1v15(), SHA256()),
    "RS384": _Rsa(PKCS1v15(), SHA384()),
    "RS512": _Rsa(PKCS1v15(), SHA512()),
    "PS256": _pss(SHA256()),
    "PS384": _pss(SHA384()),
    "PS512": _pss(SHA512()),
    "ES256": _Ec(SECP256R1, SHA256(), 32),
    "ES384": _Ec(SECP384R1, SHA384(), 48),
    "ES512": _Ec(SECP521R1, SHA512(), 66),
    "EdDSA": _Ed(),
    "Ed25519": _Ed(),
    "hmac-sha256": _Mac("sha256"),
    "ecdsa-p256-sha256": _Ec(SECP256R1, SHA256(), 32),
    "ecdsa-p384-sha384": _Ec(SECP384R1, SHA384(), 48),
    "rsa-pss-sha512": _pss(SHA512()),
    "rsa-v1_5-sha256": _Rsa(PKCS1v15(), SHA256()),
}

ALGORITHMS: Final = ("ed25519", "ecdsa-sha256", "rsa-sha256", "rsa-sha1")
"""`alg` of the primitive `asym`."""

JWS_SECRET: Final = ("HS256", "HS384", "HS512")
JWS_PUBLIC: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")
"""`algs` of the primitive `jwt`: with shared secrets, and with public keys. A scheme never mixes them."""

HTTP_SECRET: Final = ("hmac-sha256",)
HTTP_PUBLIC: Final = ("ed25519", "ecdsa-p256-sha256", "ecdsa-p384-sha384", "rsa-pss-sha512", "rsa-v1_5-sha256")
"""`alg` of the primitive `httpsig`, with shared secrets and with public keys."""


def fits(key: Key, algorithm: str) -> bool:
    """Say whether `algorithm` takes a key of this kind and curve. An unknown name takes none (`none`, `nOnE`, B015)."""
    match _RULES.get(algorithm), key:
        case _Mac(), bytes():
            return True
        case _Ed(), Ed25519PublicKey():
            return True
        case _Ec(curve=curve), EllipticCurvePublicKey():
            return isinstance(key.curve, curve)
        case _Rsa(), RSAPublicKey():
            return True
        case _:
            return False


def verifies(key: Key, algorithm: str, signature: bytes, data: bytes) -> bool:
    """Say whether `key` made `signature` over `data`. A key that does not fit made none; never raises."""
    if not fits(key, algorithm):
        return False
    try:
        match _RULES[algorithm], key:
            case _Mac(digest=digest), bytes():
                return hmac.compare_digest(hmac.digest(key, data, digest), signature)
            case _Ed(), Ed25519PublicKey():
                key.verify(signature, data)
            case _Ec(digest=hashed, half=half), EllipticCurvePublicKey():
                key.verify(_der(signature, half), data, ECDSA(hashed))
            case _Rsa(padding=padding, digest=hashed), RSAPublicKey():
                key.verify(signature, data, padding, hashed)
            case _:
                return False
    except (InvalidSignature, ValueError, UnsupportedAlgorithm):
        return False
    return True


def _der(signature: bytes, half: int | None) -> bytes:
    if half is None:
        return signature
    if len(signature) != 2 * half:
        raise InvalidSignature
    return encode_dss_signature(int.from_bytes(signature[:half]), int.from_bytes(signature[half:]))

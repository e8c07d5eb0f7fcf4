"""Key material: what operators paste becomes keys, once. Faults name the rule and never the secret (B008).

Every value is first stripped of surrounding white space. A `whsec_` secret means three different things; the contract says
which (catalogue, key transforms): it cannot be guessed from the secret.
"""

import hashlib
import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_der_public_key, load_pem_public_key

from providers.verification.algorithms import PublicKey, fits
from providers.verification.encodings import base64_padded, base64_unpadded, hex_any

MIN_WHSEC_BYTES: Final = 16  # Standard Webhooks says 24 to 64; below 16 it is a truncated paste
MIN_RSA_BITS: Final = 1_024  # providers' old keys exist; below this anybody can sign
MAX_RSA_BITS: Final = 8_192  # a longer modulus only costs time
_ED25519_BYTES: Final = 32
_WHSEC: Final = b"whsec_"
# A word and an underscore in front of base64, or a version tag: what was pasted is another kind of key.
_OTHER_PREFIX = re.compile(rb"[A-Za-z0-9]+[_,]")
_PUBLISHED = re.compile(rb"-----BEGIN (?:[A-Z ]*PUBLIC KEY|CERTIFICATE)-----")


class KeyMaterialError(ValueError):
    """The value is no key of the kind that the contract names. The message does not contain it."""


def _utf8(value: bytes) -> bytes:
    return value


def _whsec(value: bytes) -> bytes:
    if value.startswith(_WHSEC):
        value = value[len(_WHSEC) :]
    elif found := _OTHER_PREFIX.match(value):
        kind = "a version tag" if found[0].endswith(b",") else "another key's prefix"
        raise KeyMaterialError(f"starts with {kind}: paste the secret that begins with whsec_, alone")
    key = base64_unpadded(value)
    if not key:
        raise KeyMaterialError("is not base64 (alphabet A-Z a-z 0-9 + /) after whsec_: copy it again, whole")
    return key


def _whsec_or_utf8(value: bytes) -> bytes:
    return _whsec(value) if value.startswith(_WHSEC) else value


def _hex(value: bytes) -> bytes:
    key = hex_any(value)
    if not key:
        raise KeyMaterialError("is not hex: copy the key as the provider shows it")
    return key


def _sha1(value: bytes) -> bytes:
    return hashlib.sha1(value, usedforsecurity=False).digest()


def _nfkd(value: bytes) -> bytes:
    return unicodedata.normalize("NFKD", _text(value)).encode()


def _base64(value: bytes) -> bytes:
    key = base64_unpadded(value)
    if not key:
        raise KeyMaterialError("is not base64 (alphabet A-Z a-z 0-9 + /): copy it again, whole")
    return key


def _latin1(value: bytes) -> bytes:
    try:
        return _text(value).encode("latin-1")
    except UnicodeEncodeError as error:
        raise KeyMaterialError("has characters outside Latin-1") from error


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise KeyMaterialError("is not UTF-8 text") from error


TRANSFORMS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "utf8": _utf8,
    "whsec": _whsec,
    "whsec_or_utf8": _whsec_or_utf8,
    "hex": _hex,
    "base64": _base64,
    "sha1_utf8": _sha1,
    "nfkd": _nfkd,
    "latin1": _latin1,
}
"""Key transform of a contract -> what makes the HMAC key of a configured secret."""


def symmetric_key(value: bytes, transform: str) -> bytes:
    """Return the HMAC key of a configured secret. Raises KeyMaterialError."""
    stripped = value.strip()
    if not stripped:
        raise KeyMaterialError("is empty")
    if _PUBLISHED.match(stripped):
        # As a shared secret it would be one that everybody knows (B015).
        raise KeyMaterialError("is a public key or certificate: this scheme needs the secret that only the provider and you have")
    return TRANSFORMS[transform](stripped)


def _raw_ed25519(data: bytes | None) -> PublicKey:
    if data is None or len(data) != _ED25519_BYTES:
        raise KeyMaterialError(f"is no ed25519 public key ({_ED25519_BYTES} bytes)")
    return Ed25519PublicKey.from_public_bytes(data)


def _whpk(value: bytes) -> PublicKey:
    if not value.startswith(b"whpk_"):
        raise KeyMaterialError("does not begin with whpk_")
    return _raw_ed25519(base64_unpadded(value[5:]))


def _spki(value: bytes) -> PublicKey:
    data = base64_padded(b"".join(value.split()))
    if data is None:
        raise KeyMaterialError("is not base64")
    return loaded(load_der_public_key, data)


def _pem(value: bytes) -> PublicKey:
    return loaded(load_pem_public_key, value)


def loaded(load: Callable[[bytes], object], data: bytes) -> PublicKey:
    """Return what `load` reads, where it is a public key of a known kind and size. Raises KeyMaterialError."""
    try:
        key = load(data)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise KeyMaterialError("is no public key") from error
    return usable(key)


def usable(key: object) -> PublicKey:
    """Return the key where it is of a known kind and size. Raises KeyMaterialError."""
    match key:
        case RSAPublicKey() if not MIN_RSA_BITS <= key.key_size <= MAX_RSA_BITS:
            raise KeyMaterialError(f"is an RSA key outside {MIN_RSA_BITS} to {MAX_RSA_BITS} bits")
        case Ed25519PublicKey() | EllipticCurvePublicKey() | RSAPublicKey():
            return key
        case _:
            raise KeyMaterialError("is a public key of another kind")


FORMATS: Final[Mapping[str, Callable[[bytes], PublicKey]]] = {
    "ed25519_hex": lambda value: _raw_ed25519(hex_any(value)),
    "ed25519_base64": lambda value: _raw_ed25519(base64_unpadded(value)),
    "whpk": _whpk,
    "spki_base64": _spki,
    "pem": _pem,
}
"""Public key format of a contract (`keysource.format`) -> reader."""


def public_key_of(value: bytes, key_format: str) -> PublicKey:
    """Return the public key of a configured value, of whatever kind it is. Raises KeyMaterialError."""
    stripped = value.strip()
    if not stripped:
        raise KeyMaterialError("is empty")
    return FORMATS[key_format](stripped)


def public_key(value: bytes, key_format: str, algorithm: str) -> PublicKey:
    """Return the public key of a configured value. Raises KeyMaterialError where it is not one for `algorithm`."""
    key = public_key_of(value, key_format)
    if not fits(key, algorithm):
        kind = "is not on the curve P-256" if isinstance(key, EllipticCurvePublicKey) and "ecdsa" in algorithm else f"is no {algorithm} key"
        raise KeyMaterialError(kind)
    return key

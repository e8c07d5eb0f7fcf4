"""Key material that has to be fetched or is looked up by its id, as an argument: this room opens no socket.

The caller keeps documents by their address (a key set's JSON, a certificate chain's PEM) and makes a new KeyStore when one
changes. What a document says is read once and kept. What is not there is a `WantedKey`, never a reason to accept.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from cryptography.hazmat.primitives.serialization import load_pem_public_key
from cryptography.x509 import Certificate, InvalidVersion, load_pem_x509_certificates

from providers.verification.algorithms import Key, fits
from providers.verification.jwk import Jwk, read_set
from providers.verification.keys import KeyMaterialError, loaded

MAX_CHAIN: Final = 8  # certificates of one document
_MAX_PEM: Final = 131_072


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedKey:
    """A key that the operator gave together with its id: `value` is the secret's bytes for a MAC, else a PEM public key."""

    algorithm: str  # as in RFC 9421: hmac-sha256, ed25519, …
    value: bytes = field(repr=False)


class KeyStore:
    """Documents by address and keys by id. `documents` of one key each (Plaid) are kept under `URL#KID`."""

    __slots__ = ("_chains", "_documents", "_named", "_sets")

    def __init__(self, documents: Mapping[str, bytes] | None = None, named: Mapping[str, NamedKey] | None = None) -> None:
        self._documents = dict(documents or {})
        self._sets: dict[str, tuple[Jwk, ...] | None] = {}
        self._chains: dict[str, tuple[Certificate, ...] | None] = {}
        self._named: dict[str, tuple[str, Key]] = {}
        for kid, named_key in (named or {}).items():
            try:
                self._named[kid] = named_key.algorithm, _named(named_key)
            except KeyMaterialError:
                continue  # no key: as if it had not been given; a sender that names it is refused

    def key_set(self, url: str, kid: str) -> tuple[Jwk, ...] | None:
        """Return the keys that were fetched for `url`, or for this one key of it; None: not fetched, or unreadable."""
        for name in (f"{url}#{kid}", url):
            if name in self._documents:
                if name not in self._sets:
                    self._sets[name] = _key_set(self._documents[name])
                return self._sets[name]
        return None

    def chain(self, url: str) -> tuple[Certificate, ...] | None:
        """Return the certificates that were fetched from `url`, the signer's first; None: not fetched, or unreadable."""
        if url not in self._documents:
            return None
        if url not in self._chains:
            self._chains[url] = _chain(self._documents[url])
        return self._chains[url]

    def named(self, kid: str) -> tuple[str, Key] | None:
        """Return algorithm and key of an id that the operator gave."""
        return self._named.get(kid)

    def all_named(self) -> Mapping[str, tuple[str, Key]]:
        """Return every key that the operator gave, by id."""
        return self._named


NO_KEYS: Final = KeyStore()
"""Nothing fetched: schemes with published keys answer KEY_UNAVAILABLE."""


def _key_set(document: bytes) -> tuple[Jwk, ...] | None:
    try:
        return read_set(document)
    except KeyMaterialError:
        return None


def _chain(document: bytes) -> tuple[Certificate, ...] | None:
    if len(document) > _MAX_PEM:
        return None
    try:
        found = load_pem_x509_certificates(document)
    except (ValueError, InvalidVersion):
        return None
    return tuple(found) if 0 < len(found) <= MAX_CHAIN else None


def _named(named: NamedKey) -> Key:
    key: Key = named.value if named.algorithm.startswith("hmac-") else loaded(load_pem_public_key, named.value)
    if not key or not fits(key, named.algorithm):
        raise KeyMaterialError(f"is no {named.algorithm} key")
    return key

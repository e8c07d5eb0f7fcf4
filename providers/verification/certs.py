"""Certificates named by the delivery itself: which addresses may be asked, and which certificate may vouch (catalogue, cert_url).

The address comes from a stranger, so it is judged before anything is fetched or looked up: https alone, a host that the
contract's whole pattern matches, no port, user, query, fragment, escape or dot segment. Trust in the chain's root comes from
the fetch (TLS to that host); here every certificate must be in its time and be signed by the next one.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.x509 import (
    BasicConstraints,
    Certificate,
    DNSName,
    DuplicateExtension,
    ExtensionNotFound,
    SubjectAlternativeName,
    UnsupportedGeneralNameType,
)
from cryptography.x509.oid import NameOID

from providers.verification.algorithms import PublicKey
from providers.verification.facts import Facts, RefusalError
from providers.verification.keys import KeyMaterialError, usable
from schemas.delivery import Reason, WantedKey
from schemas.operation import Micros

MAX_URL: Final = 2_048
# Deliberately narrower than RFC 3986: what a provider never sends is only ever a trick on one of two URL parsers.
_URL = re.compile(rb"https://([A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?)((?:/[A-Za-z0-9._~+=@,-]+)+)")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class CertificateRule:
    """What a contract demands of the address and of the certificate behind it."""

    host: re.Pattern[str]
    path_suffix: str
    cn_suffix: str  # of the common name or of a DNS name; empty: any


def compile_rule(source: Mapping[str, Any]) -> CertificateRule:
    """Return the compiled rule of a `keysource` of kind `cert_url`. Raises re.error; KeyError without `host_re`."""
    return CertificateRule(re.compile(str(source["host_re"])), str(source.get("path_suffix", "")), str(source.get("cn_suffix", "")))


def allowed_url(text: bytes | None, rule: CertificateRule) -> str:
    """Return the address where the contract allows it. Raises RefusalError."""
    if not text:
        raise RefusalError(Reason.MISSING_FIELD, "the delivery names no certificate")
    found = _URL.fullmatch(text) if len(text) <= MAX_URL else None
    if found is None:
        raise RefusalError(Reason.KEY_REFUSED, "the address of the certificate is no plain https address")
    host, path = found[1].decode(), found[2].decode()
    if not rule.host.fullmatch(host) or ".." in host:
        raise RefusalError(Reason.KEY_REFUSED, "the certificate lies on a host that the contract does not allow")
    if not path.endswith(rule.path_suffix) or any(segment in {".", ".."} for segment in path.split("/")):
        raise RefusalError(Reason.KEY_REFUSED, "the certificate lies at a path that the contract does not allow")
    return text.decode()


def signing_key(url: str, rule: CertificateRule, facts: Facts, now: Micros) -> PublicKey:
    """Return the key of the certificate at an allowed address. Raises RefusalError; KEY_UNAVAILABLE where it is not fetched."""
    chain = facts.keys.chain(url)
    if chain is None:
        raise RefusalError(Reason.KEY_UNAVAILABLE, "the certificate is not fetched yet", WantedKey(url=url))
    try:
        if fault := _fault(chain, rule, _EPOCH + timedelta(microseconds=now)):
            raise RefusalError(Reason.KEY_REFUSED, fault)
        return usable(chain[0].public_key())
    except KeyMaterialError as error:
        raise RefusalError(Reason.KEY_REFUSED, f"the certificate's key {error}") from error
    except (ValueError, TypeError, OverflowError, UnsupportedAlgorithm, DuplicateExtension, UnsupportedGeneralNameType) as error:
        raise RefusalError(Reason.KEY_REFUSED, "the certificate cannot be read") from error


def _fault(chain: tuple[Certificate, ...], rule: CertificateRule, moment: datetime) -> str | None:
    for certificate in chain:
        if moment < certificate.not_valid_before_utc:
            return "a certificate is not valid yet"
        if moment > certificate.not_valid_after_utc:
            return "a certificate has expired"
    if rule.cn_suffix and not any(_ends_with(name, rule.cn_suffix) for name in _names(chain[0])):
        return "the certificate is made out to another name"
    for issued, issuer in pairwise(chain):
        if not _is_authority(issuer):
            return "a certificate was issued by one that may not issue any"
        try:
            issued.verify_directly_issued_by(issuer)
        except (InvalidSignature, ValueError, TypeError):
            return "the certificates are no chain"
    return None


def _names(certificate: Certificate) -> list[str]:
    names = [str(attribute.value) for attribute in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    with suppress(ExtensionNotFound):  # older certificates have only a common name
        names += certificate.extensions.get_extension_for_class(SubjectAlternativeName).value.get_values_for_type(DNSName)
    return names


def _ends_with(name: str, suffix: str) -> bool:
    return name.lower().endswith(suffix.lower()) and "\x00" not in name


def _is_authority(certificate: Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(BasicConstraints).value.ca
    except ExtensionNotFound:
        return False

"""Certificates whose address the delivery names: which address, which certificate, which time."""

import base64
import json
import zlib
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA1, SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from providers.verification import KeyStore
from providers.verification.certs import MAX_URL
from providers.verification.keystore import MAX_CHAIN
from schemas.delivery import Reason, Refused, Verdict, Verified, WantedKey
from tests.providers.signing import BODY, ED, NOW, RSA, b64, judged, reason, request, rs256, scheme

URL = "https://certs.provider.example/c/CERT-1.pem"
START = datetime.fromtimestamp(NOW, UTC)
SOURCE = {"kind": "cert_url", "header": "X-Cert", "host_re": r"(certs|api)\.provider\.example", "path_suffix": ".pem"}
HEADERS = {"in": "header", "name": "X-S"}


def certificate(
    name: str = "hooks.provider.example",
    *,
    key: Any = RSA,
    issuer: tuple[str, Any] | None = None,
    days: tuple[float, float] = (-1, 1),
    ca: bool | None = None,
    dns: str = "",
) -> bytes:
    by, signer = issuer or (name, key)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, by)]))
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(START + timedelta(days=days[0]))
        .not_valid_after(START + timedelta(days=days[1]))
    )
    if ca is not None:
        builder = builder.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    if dns:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(dns)]), critical=False)
    return builder.sign(signer, SHA256() if signer is not ED else None).public_bytes(Encoding.PEM)


def signed(document: bytes | None, url: str = URL, *, now: float = NOW, key: Any = RSA, **source: Any) -> Verdict:
    rules = scheme(primitive="asym", alg="rsa-sha256", message="{body}", encoding="base64", sig=HEADERS, keysource=SOURCE | source)
    lines = [(b"x-cert", url.encode("latin-1", "replace")), (b"x-s", base64.b64encode(rs256(BODY, key)))]
    return judged(rules, request(lines), keys=KeyStore({url: document} if document is not None else {}), now=now)


def test_the_certificate_at_an_allowed_address_verifies() -> None:
    """Accepted, and the address of the certificate is recorded."""
    verdict = signed(certificate())
    assert isinstance(verdict, Verified)
    assert verdict.secret_id == URL
    assert reason(signed(certificate(key=rsa.generate_private_key(65537, 2048)))) is Reason.WRONG_SIGNATURE


@pytest.mark.parametrize(
    "url",
    [
        "http://certs.provider.example/c.pem",
        "HTTPS://certs.provider.example/c.pem",
        "https://certs.provider.example.evil.test/c.pem",
        "https://evil.test/certs.provider.example/c.pem",
        "https://xcerts.provider.example/c.pem",
        "https://certs.provider.example:443/c.pem",
        "https://certs.provider.example:8443/c.pem",
        "https://user@certs.provider.example/c.pem",
        "https://evil.test@certs.provider.example/c.pem",
        "https://certs.provider.example@evil.test/c.pem",
        "https://certs.provider.example\\@evil.test/c.pem",
        "https://certs.provider.example/c.pem?x=1",
        "https://certs.provider.example/?x=.pem",
        "https://certs.provider.example/c#.pem",
        "https://certs.provider.example/../c.pem",
        "https://certs.provider.example/./c.pem",
        "https://certs.provider.example/%2e%2e/c.pem",
        "https://certs.provider.example//evil.test/c.pem",
        "https://certs.provider.example/c.pem\n",
        "https://certs.provider.example/c.pem\x00",
        "https://certs.provider.example/c .pem",
        "https://certs.provider.example./c.pem",
        "https://certs.provider.example/c.pem.exe",
        "https://certs.provider.example",
        "https://certs.provider.exämple/c.pem",
        "//certs.provider.example/c.pem",
        "file:///c.pem",
        "https://certs.provider.example/" + "c" * MAX_URL + ".pem",
    ],
)
def test_any_other_address_is_refused_before_it_is_looked_up(url: str) -> None:
    """Suffix, port, user, query, escape and dot tricks are refused, and never asked for, though the key would verify."""
    for document in (certificate(), None):
        verdict = signed(document, url)
        assert isinstance(verdict, Refused)
        assert verdict.reason is Reason.KEY_REFUSED
        assert verdict.wanted is None


def test_no_address_is_a_missing_field() -> None:
    """A delivery that names no certificate asks for nothing."""
    assert reason(signed(certificate(), "")) is Reason.MISSING_FIELD


@pytest.mark.parametrize("document", [None, b"", b"no pem", certificate()[:200], certificate() * (MAX_CHAIN + 1), b"-" * 200_000])
def test_a_certificate_that_is_not_there_is_wanted(document: bytes | None) -> None:
    """Not fetched or unreadable: the refusal names the address, which has passed the contract's rules."""
    verdict = signed(document)
    assert isinstance(verdict, Refused)
    assert (verdict.reason, verdict.wanted) == (Reason.KEY_UNAVAILABLE, WantedKey(url=URL))


def test_a_certificate_counts_in_its_time_alone() -> None:
    """Both ends of its validity are judged at the given time."""
    document = certificate(days=(-1, 1))
    for days, accepted in ((-1.01, False), (-0.99, True), (0.99, True), (1.01, False), (10**7, False)):
        assert isinstance(signed(document, now=NOW + days * 86_400), Verified) is accepted


@pytest.mark.parametrize(
    ("name", "dns", "accepted"),
    [
        ("hooks.provider.example", "", True),
        ("other", "hooks.provider.example", True),
        ("HOOKS.Provider.Example", "", True),
        ("hooks.evil.test", "", False),
        ("hooks.provider.example.evil.test", "also.evil.test", False),
        ("evilprovider.example", "", False),
        ("hooks.evil.test\x00.provider.example", "", False),
    ],
)
def test_the_certificate_is_made_out_to_the_provider(name: str, dns: str, accepted: bool) -> None:  # noqa: FBT001 - a column of the table
    """Common name or DNS name ends as the contract says, behind a dot."""
    assert isinstance(signed(certificate(name, dns=dns), cn_suffix=".provider.example"), Verified) is accepted


def test_the_certificates_of_a_document_are_a_chain() -> None:
    """Each is issued by the next, which may issue; every one is in its time."""
    authority = rsa.generate_private_key(65537, 2048)
    leaf = certificate(issuer=("root", authority))
    assert isinstance(signed(leaf + certificate("root", key=authority, ca=True)), Verified)
    for wrong in (
        certificate("root", key=authority, ca=False),
        certificate("root", key=authority),
        certificate("root", ca=True),
        certificate("other", key=authority, ca=True),
        certificate("root", key=authority, ca=True, days=(-9, -2)),
    ):
        assert reason(signed(leaf + wrong)) is Reason.KEY_REFUSED


def test_a_certificate_of_another_kind_of_key_is_none() -> None:
    """The algorithm of the contract decides which certificates are taken; weak keys are none (B015)."""
    assert reason(signed(certificate(key=ED))) is Reason.KEY_REFUSED


def test_the_algorithm_may_be_chosen_by_the_delivery_from_the_contract_s_table() -> None:
    """Their words are mapped; another word is refused, as is the right signature under another word."""
    rules = scheme(
        primitive="asym", message="{body}", encoding="base64", sig=HEADERS, keysource=SOURCE,
        alg={"header": "X-Alg", "map": {"SHA256withRSA": "rsa-sha256", "SHA1withRSA": "rsa-sha1"}},
    )  # fmt: skip
    keys = KeyStore({URL: certificate()})
    strong, weak = rs256(BODY), RSA.sign(BODY, padding.PKCS1v15(), SHA1())  # noqa: S303 - what an old sender makes
    for word, signature, expected in (
        (b"SHA256withRSA", strong, None),
        (b"SHA1withRSA", weak, None),
        (b"SHA1withRSA", strong, Reason.WRONG_SIGNATURE),
        (b"none", strong, Reason.MALFORMED_SIGNATURE),
        (b"sha256withrsa", strong, Reason.MALFORMED_SIGNATURE),
        (b"\xff", strong, Reason.MALFORMED_SIGNATURE),
        (b"", strong, Reason.MALFORMED_SIGNATURE),
    ):
        lines = [(b"x-cert", URL.encode()), (b"x-alg", word), (b"x-s", base64.b64encode(signature))]
        assert reason(judged(rules, request(lines), keys=keys)) is expected


def test_a_body_that_only_a_checksum_binds_can_be_forged() -> None:
    """Four chosen bytes give any body the CRC32 of a genuine one: such a contract must let every delivery earn a read (B8)."""
    rules = scheme(primitive="asym", alg="rsa-sha256", message="{crc32_body}", encoding="base64", sig=HEADERS, keysource=SOURCE)
    signature = base64.b64encode(rs256(b"%d" % zlib.crc32(BODY)))
    forged = _with_crc(b'{"id":"evil"}', zlib.crc32(BODY))
    lines = [(b"x-cert", URL.encode()), (b"x-s", signature)]
    for body, accepted in ((BODY, True), (forged, True), (b"{}", False)):
        assert isinstance(judged(rules, request(lines, body), keys=KeyStore({URL: certificate()})), Verified) is accepted


def _with_crc(data: bytes, wanted: int) -> bytes:
    table: list[int] = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (0xEDB88320 if value & 1 else 0)
        table.append(value)
    state, indexes = wanted ^ 0xFFFFFFFF, []
    for _ in range(4):
        index = next(number for number, value in enumerate(table) if value >> 24 == state >> 24)
        indexes.append(index)
        state = ((state ^ table[index]) << 8) & 0xFFFFFFFF
    register, tail = zlib.crc32(data) ^ 0xFFFFFFFF, b""
    for index in reversed(indexes):
        tail += bytes([(register ^ index) & 0xFF])
        register = (register >> 8) ^ table[index]
    assert zlib.crc32(data + tail) == wanted
    return data + tail


# --- a token's x5u


def test_a_token_may_name_its_certificate() -> None:
    """`x5u` obeys the same rules as every address that a delivery names."""
    rules = scheme(
        primitive="jwt", token={"in": "bearer"}, algs=["RS256"],
        keysource={"kind": "cert_url", "host_re": r"certs\.provider\.example", "path_suffix": ".pem"},
    )  # fmt: skip
    for url, document, expected in (
        (URL, certificate(), None),
        (URL, certificate(key=ED), Reason.KEY_REFUSED),
        ("https://evil.test/c.pem", certificate(), Reason.KEY_REFUSED),
        (5, certificate(), Reason.MISSING_FIELD),
    ):
        data = f"{b64(json.dumps({'alg': 'RS256', 'x5u': url}).encode())}.{b64(b'{}')}".encode()
        lines = [(b"authorization", b"Bearer " + data + b"." + b64(rs256(data)).encode())]
        assert reason(judged(rules, request(lines), keys=KeyStore({str(url): document}))) is expected


# --- the notification service's form

SNS_URL = "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-1.pem"
NOTICE = {
    "Type": "Notification", "MessageId": "m-1", "TopicArn": "arn:t", "Subject": "s", "Message": "hi\nthere",
    "Timestamp": "2026-01-01T00:00:00Z",
    "SignatureVersion": "2", "SigningCertURL": SNS_URL,
}  # fmt: skip
FIELDS = ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type")
SNS = scheme(
    primitive="asym", sig={"in": "sns"},
    keysource={"kind": "cert_url", "host_re": r"sns\.[a-z0-9-]{3,}\.amazonaws\.com", "path_suffix": ".pem"},
)  # fmt: skip


def notice(fields: tuple[str, ...] = FIELDS, *, digest: Any = None, changed: dict[str, Any] | None = None, **more: Any) -> Verdict:
    message = {name: value for name, value in (NOTICE | more).items() if value is not None}
    text = "".join(f"{name}\n{message[name]}\n" for name in fields if name in message).encode()
    signature = base64.b64encode(RSA.sign(text, padding.PKCS1v15(), digest or SHA256())).decode()
    body = json.dumps(message | {"Signature": signature} | (changed or {})).encode()
    return judged(SNS, request(body=body), keys=KeyStore({SNS_URL: certificate("sns.amazonaws.com")}))


CONFIRMATION = ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type")


def test_each_type_of_message_has_its_own_signed_fields() -> None:
    """Notifications with and without a subject, and both confirmations; version 1 is SHA-1 (catalogue, row 60)."""
    more: dict[str, Any] = {"Subject": None, "SubscribeURL": "https://s", "Token": "t"}
    assert isinstance(notice(), Verified)
    assert isinstance(notice(Subject=None), Verified)
    assert isinstance(notice(digest=SHA1(), SignatureVersion="1"), Verified)  # noqa: S303 - version 1 of the protocol
    for kind in ("SubscriptionConfirmation", "UnsubscribeConfirmation"):
        assert isinstance(notice(CONFIRMATION, Type=kind, **more), Verified)
        assert reason(notice(Type=kind, **more)) is Reason.WRONG_SIGNATURE
    assert reason(notice(Type="Other")) is Reason.MISSING_FIELD
    assert reason(notice(SignatureVersion="3")) is Reason.MALFORMED_SIGNATURE
    assert reason(notice(digest=SHA1())) is Reason.WRONG_SIGNATURE  # noqa: S303 - the wrong one


@pytest.mark.parametrize("name", FIELDS)
def test_no_signed_field_can_be_changed(name: str) -> None:
    """Each field that is signed is what was signed; an empty subject cannot be slipped in (B139)."""
    assert isinstance(notice(changed={name: "other"}), Refused)
    assert isinstance(notice(changed={name: ""}), Refused)
    assert isinstance(notice(Subject=None, changed={"Subject": ""}), Refused)
    assert isinstance(notice(changed={name: ["x"]}), Refused)

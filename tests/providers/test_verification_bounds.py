"""Bounds and ambiguities of the verification engine: each refusal with its reason."""

import base64
import hmac
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from providers.contract_faults import Faults
from providers.contract_signature import read_schemes
from providers.verification import check_secret, verify
from providers.verification.facts import MAX_FIELDS
from providers.verification.locations import MAX_SIGNATURES, MAX_TEXT
from providers.verification.tokens import MAX_ITEMS, MAX_TOKEN
from schemas.contract import SignatureScheme
from schemas.delivery import InboundRequest, Reason, Refused, Secret, Verdict, Verified
from schemas.operation import SECOND

NOW = 1_767_225_600
KEY = b"a-shared-secret"
Lines = list[tuple[bytes, bytes]]


def scheme(**parameters: Any) -> SignatureScheme:
    faults = Faults()
    (made,) = read_schemes([parameters], faults, listed=True)
    assert not faults.all()
    return made


def judged(rules: SignatureScheme, lines: Lines, body: bytes = b"{}", query: bytes = b"", key: bytes = KEY) -> Verdict:
    what = InboundRequest(method="POST", path=b"/", query=query, headers=tuple(lines), body=body)
    return verify(what, [rules], [Secret(id="a", value=key)], NOW * SECOND)


def reason(verdict: Verdict) -> Reason | None:
    return verdict.reason if isinstance(verdict, Refused) else None


def mac(data: bytes) -> bytes:
    return hmac.digest(KEY, data, "sha256").hex().encode()


HEADER = {"in": "header", "name": "X-S"}


def test_a_timestamp_header_that_is_there_twice_is_refused() -> None:
    """Which of two equal-named times was signed is not ours to choose, even if the first one is right."""
    rules = scheme(primitive="hmac", message="{ts}{body}", sig=HEADER, timestamp={"in": "header", "name": "X-T"})
    at = b"%d" % NOW
    lines = [(b"x-s", mac(at + b"{}")), (b"x-t", at)]
    assert isinstance(judged(rules, lines), Verified)
    assert reason(judged(rules, [*lines, (b"x-t", b"5")])) is Reason.MALFORMED_TIMESTAMP


def test_a_time_beyond_every_calendar_is_malformed_where_no_window_would_stop_it() -> None:
    """Without a tolerance a mistaken unit is still refused: the time would fit no record (B007)."""
    rules = scheme(primitive="hmac", message="{ts}{body}", sig=HEADER, timestamp={"in": "header", "name": "X-T", "tolerance": None})
    for at, expected in ((b"253402300799", None), (b"253402300800", Reason.MALFORMED_TIMESTAMP)):
        assert reason(judged(rules, [(b"x-s", mac(at + b"{}")), (b"x-t", at)])) is expected


def test_long_signature_texts_and_many_signatures_are_refused_unread() -> None:
    """A header is read up to a bound, whatever stands behind it (B004)."""
    rules = scheme(primitive="hmac", message="{body}", sig=HEADER | {"parser": "kv", "key": "v1"})
    good = b"v1=" + mac(b"{}")
    padding = b",x=" + b"y" * (MAX_TEXT - len(good) - 3)
    assert isinstance(judged(rules, [(b"x-s", good + padding)]), Verified)
    assert reason(judged(rules, [(b"x-s", good + padding + b"y")])) is Reason.MALFORMED_SIGNATURE
    assert isinstance(judged(rules, [(b"x-s", b"v1=00," * (MAX_SIGNATURES - 1) + good)]), Verified)
    assert reason(judged(rules, [(b"x-s", b"v1=00," * MAX_SIGNATURES + good)])) is Reason.MALFORMED_SIGNATURE


@pytest.mark.parametrize(
    ("message", "lines", "query", "body", "signed"),
    [
        ("{header:X-Id}", [(b"x-id", b"a"), (b"x-id", b"b")], b"", b"", b"a"),
        ("{query:id}", [], b"id=a&id=b", b"", b"a"),
        ("{form:id}", [], b"", b"id=a&id=b", b"a"),
    ],
)
def test_a_signed_field_that_is_there_twice_is_refused(message: str, lines: Lines, query: bytes, body: bytes, signed: bytes) -> None:
    """A second header, parameter or field of a signed name may have been added on the way."""
    rules = scheme(primitive="hmac", message=message, sig=HEADER)
    assert reason(judged(rules, [(b"x-s", mac(signed)), *lines], body, query)) is Reason.MISSING_FIELD


def test_form_fields_are_bounded() -> None:
    """A body of endless fields is refused before it is taken apart."""
    rules = scheme(primitive="hmac", message="{form:a}", sig=HEADER)
    for count, expected in ((MAX_FIELDS, None), (MAX_FIELDS + 1, Reason.MALFORMED_BODY)):
        body = b"&".join([b"a=1", *[b"b=2"] * (count - 1)])
        assert reason(judged(rules, [(b"x-s", mac(b"1"))], body)) is expected


def test_a_list_of_signed_headers_must_hold_the_time() -> None:
    """Where the sender lists what it signed, an unlisted time proves no freshness (B021)."""
    rules = scheme(
        primitive="hmac", message="{canonical_headers:X-List}", sig=HEADER, timestamp={"in": "header", "name": "X-T", "unit": "ms"}
    )
    at = b"%d" % (NOW * 1000)
    listed = [(b"x-list", b"x-list,x-t"), (b"x-t", at), (b"x-s", mac(b"x-list:x-list,x-t;x-t:" + at))]
    unlisted = [(b"x-list", b"x-list"), (b"x-t", at), (b"x-s", mac(b"x-list:x-list"))]
    assert isinstance(judged(rules, listed), Verified)
    assert reason(judged(rules, unlisted)) is Reason.MISSING_TIMESTAMP


def test_a_public_key_of_another_kind_curve_or_size_is_no_key() -> None:
    """The contract's algorithm decides which keys are taken; a weak or foreign key is refused when it is configured (B015)."""
    ed = ed25519.Ed25519PrivateKey.generate().public_key()
    curve = ec.generate_private_key(ec.SECP384R1()).public_key()
    small = rsa.RSAPublicNumbers(65537, (1 << 1022) + 12345).public_key()
    pair = rsa.generate_private_key(65537, 2048).public_key()
    for algorithm, key, fault in (
        ("rsa-sha256", ed, "no rsa-sha256 key"),
        ("ecdsa-sha256", curve, "P-256"),
        ("rsa-sha256", small, "bits"),
        ("ed25519", pair, "no ed25519 key"),
        ("rsa-sha256", pair, None),
    ):
        pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        rules = scheme(primitive="asym", alg=algorithm, message="{body}", sig=HEADER, keysource={"format": "pem"})
        found = check_secret(rules, pem)
        assert (found is None) if fault is None else (found is not None and fault in found)
        assert reason(judged(rules, [(b"x-s", b"00")], key=pem)) is (Reason.WRONG_SIGNATURE if fault is None else Reason.NO_SECRET)


def test_tokens_are_bounded_and_every_item_counts() -> None:
    """A foreign item in front of genuine ones, too many items and an endless token are refused."""
    each = scheme(primitive="token", token={"in": "json_each", "list": "value", "field": "t"})
    good, evil = b'{"t":"a-shared-secret"}', b'{"t":"evil"}'
    assert isinstance(judged(each, [], b'{"value":[' + b",".join([good] * MAX_ITEMS) + b"]}"), Verified)
    assert reason(judged(each, [], b'{"value":[' + b",".join([good] * (MAX_ITEMS + 1)) + b"]}")) is Reason.MALFORMED_BODY
    assert reason(judged(each, [], b'{"value":[' + evil + b"," + good + b"]}")) is Reason.WRONG_SIGNATURE
    assert reason(judged(each, [], b'{"value":[{},' + good + b"]}")) is Reason.MISSING_SIGNATURE
    header = scheme(primitive="token", token={"in": "header", "name": "X-T"})
    assert reason(judged(header, [(b"x-t", b"t" * (MAX_TOKEN + 1))])) is Reason.MALFORMED_SIGNATURE
    assert reason(judged(header, [(b"x-t", b"a"), (b"x-t", KEY)])) is Reason.MALFORMED_SIGNATURE


def test_as_many_headers_as_secrets_are_checked_pairwise() -> None:
    """Primary and secondary signatures belong to the first and second secret; a single secret may match either header."""
    rules = scheme(primitive="hmac", message="{body}", encoding="base64", sig={"in": "header", "name": ["X-One", "X-Two"]})
    text = base64.b64encode(hmac.digest(KEY, b"{}", "sha256"))
    for name, secrets, accepted in (
        (b"x-one", (KEY, b"other"), True),
        (b"x-two", (b"other", KEY), True),
        (b"x-two", (KEY, b"other"), False),
        (b"x-two", (KEY,), True),
    ):
        what = InboundRequest(method="POST", path=b"/", query=b"", headers=((name, text),), body=b"{}")
        known = [Secret(id=f"s{number}", value=value) for number, value in enumerate(secrets)]
        assert isinstance(verify(what, [rules], known, NOW * SECOND), Verified) is accepted

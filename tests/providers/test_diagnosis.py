"""Diagnosis (B12): every likely cause is named for a delivery that was broken in exactly this way, and nothing is given away."""

import base64
import gzip
import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.diagnosis import TEXTS, Account, Cause, diagnose
from schemas.contract import SignatureLocation, SignatureScheme, TimestampRule
from schemas.delivery import InboundRequest, Secret
from schemas.operation import SECOND

AT = 1_800_000_000
KEY = b"whsec_Q29ycmVjdC1Ib3JzZS1CYXR0ZXJ5LVN0YXBsZQ=="
BODY = '{"id": 7, "name": "Köln/Süd", "a": [1, 2]}'.encode()
URL = "https://hooks.example/webhooks/reports"
HEADER = SignatureLocation(place="header", name="X-Signature")
PLAIN = SignatureScheme(id="v1", primitive="hmac", algorithm="sha256", messages=("{body}",), encoding="hex", location=HEADER)
TIMED = replace(PLAIN, messages=("{ts}.{body}",), timestamp=TimestampRule(place="header", name="X-Timestamp"))
ADDRESSED = replace(PLAIN, messages=("{url}{body}",))


def mac(data: bytes, key: bytes = KEY) -> bytes:
    return hmac.new(key, data, hashlib.sha256).digest()


def request(body: bytes = BODY, signature: bytes | str = b"", **changes: Any) -> InboundRequest:
    text = signature.encode() if isinstance(signature, str) else signature
    headers = ((b"content-type", b"application/json"), (b"host", b"hooks.example"), (b"x-signature", text))
    values: dict[str, Any] = {"method": "POST", "path": b"/webhooks/reports", "query": b"", "headers": headers, "body": body}
    return InboundRequest(**{**values, "public_url": URL, **changes})


def account(scheme: SignatureScheme = PLAIN, secret: bytes = KEY, **changes: Any) -> Account:
    secrets = (Secret(id="env:HOOK", value=secret),)
    return Account(**{"schemes": (scheme,), "secrets": secrets, "params": {}, **changes})


def first(asked: InboundRequest, whose: Account, now: int = AT) -> Cause:
    return diagnose(asked, whose, now * SECOND)[0]


VALUE = json.loads(BODY)
REWRITTEN = [
    json.dumps(VALUE, ensure_ascii=False, separators=(",", ":")),
    json.dumps(VALUE, separators=(",", ":")),
    json.dumps(VALUE, sort_keys=True, separators=(",", ":")),
    json.dumps(VALUE, sort_keys=True, ensure_ascii=False),
    json.dumps(VALUE, indent=2, ensure_ascii=False),
    json.dumps(VALUE, ensure_ascii=False, separators=(",", ":")).replace("/", "\\/"),
]
BROKEN: list[tuple[str, bytes, bytes]] = [
    # code, the bytes that were signed, the bytes that arrived
    ("newline_added", BODY, BODY + b"\n"),
    ("newline_stripped", BODY + b"\n", BODY),
    ("newline_stripped", BODY + b"\r\n", BODY),
    ("line_ends", BODY + b"\r\nx", BODY + b"\nx"),
    ("line_ends", BODY + b"\nx", BODY + b"\r\nx"),
    ("white_space", BODY, b" " + BODY + b" "),
    ("byte_order_mark", BODY, b"\xef\xbb\xbf" + BODY),
    ("byte_order_mark", b"\xef\xbb\xbf" + BODY, BODY),
    ("compressed", BODY, gzip.compress(BODY, mtime=0)),
    ("charset", BODY.decode().encode("latin-1"), BODY),
    ("charset", BODY, BODY.decode().encode("latin-1")),
    ("body_not_signed", b"", BODY),
    *(("rewritten", text.encode(), BODY) for text in REWRITTEN),
    *(("rewritten", BODY, text.encode()) for text in [json.dumps(VALUE, ensure_ascii=False)] if text.encode() != BODY),
]


@pytest.mark.parametrize(("code", "signed", "arrived"), BROKEN)
def test_a_changed_body_is_named(code: str, signed: bytes, arrived: bytes) -> None:
    """B12: re-serialised JSON, character sets, line ends, compression: the one change that explains the signature."""
    cause = first(request(arrived, mac(signed).hex()), account())
    assert (cause.code, cause.certain, cause.secret_id) == (code, True, "env:HOOK")


def test_a_rewritten_form_is_named() -> None:
    """B12: a form whose spaces were encoded otherwise."""
    headers = ((b"content-type", b"application/x-www-form-urlencoded"), (b"x-signature", mac(b"a=b%20c").hex().encode()))
    assert first(request(b"a=b+c", headers=headers), account()).code == "rewritten"


@pytest.mark.parametrize(
    ("code", "signed"),
    [
        ("url_scheme", "http://hooks.example/webhooks/reports"),
        ("url_port", "https://hooks.example:443/webhooks/reports"),
        ("url_path", "https://hooks.example/webhooks/reports/"),
        ("url_host", "https://inner.example/webhooks/reports"),
    ],
)
def test_another_address_is_named(code: str, signed: str) -> None:
    """B12: http or https, host, port and path of the signed address, also where a constant fixes it (B012, B013)."""
    headers = ((b"host", b"inner.example:8080"), (b"x-signature", mac(signed.encode() + BODY).hex().encode()))
    asked = request(headers=headers)
    assert first(asked, account(ADDRESSED)).code == code
    assert first(replace(asked, public_url="http://other.example"), account(ADDRESSED, params={"url": URL})).code == code


def test_a_query_that_is_not_signed_is_named() -> None:
    """B12: the query was added on the way."""
    asked = request(signature=mac(URL.encode() + BODY).hex(), query=b"utm=1")
    assert first(asked, account(ADDRESSED)).code == "url_query"


@pytest.mark.parametrize(
    ("code", "scheme", "write"),
    [
        ("upper_case", PLAIN, lambda digest: digest.hex().upper().encode()),
        ("encoding", PLAIN, base64.b64encode),
        ("encoding", replace(PLAIN, encoding="base64"), lambda digest: digest.hex().encode()),
        ("encoding", replace(PLAIN, encoding="base64"), lambda digest: base64.b64encode(digest).rstrip(b"=")),
        ("encoding", replace(PLAIN, encoding="base64"), base64.urlsafe_b64encode),
        ("prefix_added", PLAIN, lambda digest: b"sha256=" + digest.hex().encode()),
        ("quoted", PLAIN, lambda digest: b'"' + digest.hex().encode() + b'"'),
        (
            "prefix_missing",
            replace(PLAIN, location=replace(HEADER, parser="prefix", options={"prefix": "sha256="})),
            lambda digest: digest.hex().encode(),
        ),
    ],
)
def test_a_signature_that_is_written_otherwise_is_named(code: str, scheme: SignatureScheme, write: Callable[[bytes], bytes]) -> None:
    """B12, B018: hex and base64, upper case, a prefix too many or too few, quotes."""
    cause = first(request(signature=write(mac(BODY))), account(scheme))
    assert (cause.code, cause.certain) == (code, True)


DECODED = base64.b64decode(KEY.removeprefix(b"whsec_"))


@pytest.mark.parametrize(
    ("code", "scheme", "configured", "used"),
    [
        ("secret_form", PLAIN, KEY, DECODED),
        ("secret_form", PLAIN, KEY, KEY.removeprefix(b"whsec_")),
        ("secret_form", replace(PLAIN, key="whsec"), KEY, KEY),
        ("secret_form", PLAIN, KEY.removeprefix(b"whsec_"), KEY),
        ("secret_form", PLAIN, b"00ff" * 16, bytes.fromhex("00ff" * 16)),
        ("secret_quoted", PLAIN, b'"' + KEY + b'"', KEY),
        ("secret_spaces", PLAIN, KEY, KEY + b"\n"),
        ("secret_case", PLAIN, b"ABCDEF0123", b"abcdef0123"),
    ],
)
def test_a_secret_in_another_form_is_named(code: str, scheme: SignatureScheme, configured: bytes, used: bytes) -> None:
    """B12, B008: `whsec_` has three meanings; quotes, spaces and case are pasted along. The form is named, never the value."""
    causes = diagnose(request(signature=mac(BODY, used).hex()), account(scheme, configured), AT * SECOND)
    assert (causes[0].code, causes[0].certain) == (code, True)


def test_a_secret_in_the_wrong_slot_is_named() -> None:
    """B12: the signature is another endpoint's; its reference is told, also together with a changed body."""
    others = (Secret(id="invoices env:B", value=b"another-secret"),)
    cause = first(request(signature=mac(BODY, b"another-secret").hex()), account(others=others))
    assert (cause.code, cause.secret_id) == ("other_secret", "invoices env:B")
    both = diagnose(request(BODY + b"\n", mac(BODY, b"another-secret").hex()), account(others=others), AT * SECOND)
    assert [cause.code for cause in both] == ["newline_added", "other_secret"]


@pytest.mark.parametrize(("code", "now", "words"), [("too_old", AT + 900, "900 s ago"), ("in_future", AT - 900, "900 s in the future")])
def test_a_wrong_clock_is_named_with_its_size(code: str, now: int, words: str) -> None:
    """B12, B006: the signature is right, and by how much the time is not."""
    headers = ((b"x-timestamp", b"%d" % AT), (b"x-signature", mac(b"%d.%s" % (AT, BODY)).hex().encode()))
    cause = first(request(headers=headers), account(TIMED), now)
    assert (cause.code, cause.certain) == (code, True)
    assert words in cause.text


@pytest.mark.parametrize(("unit", "text"), [("s", b"%d" % (AT * 1_000)), ("ms", b"%d" % AT)])
def test_another_unit_of_time_is_named(unit: str, text: bytes) -> None:
    """B12: milliseconds where the contract says seconds, and the reverse."""
    assert TIMED.timestamp is not None
    scheme = replace(TIMED, timestamp=replace(TIMED.timestamp, unit=unit))
    headers = ((b"x-timestamp", text), (b"x-signature", mac(text + b"." + BODY).hex().encode()))
    assert first(request(headers=headers), account(scheme)).code == "time_unit"


def test_headers_that_are_missing_renamed_repeated_or_of_another_scheme_are_named() -> None:
    """B12: what a proxy drops or renames, and the header of a scheme that the contract does not name."""
    digest = mac(BODY).hex().encode()
    gone = first(request(headers=()), account())
    assert (gone.code, gone.certain) == ("header_missing", False)
    assert "x-signature" in gone.text
    renamed = first(request(headers=((b"x_signature", digest),)), account())
    assert (renamed.code, renamed.certain) == ("header_renamed", True)
    assert first(request(headers=((b"x-hub-signature", digest),)), account()).code == "other_scheme"
    stamped = first(request(headers=((b"x-signature", digest),)), account(TIMED))
    assert (stamped.code, "x-timestamp" in stamped.text) == ("header_missing", True)
    assert first(request(headers=((b"x-timestamp", b"1"), (b"x-timestamp", b"2"), (b"x-signature", digest))), account(TIMED)).code == (
        "malformed"
    )


def test_a_secret_that_is_none_and_no_secret_are_named() -> None:
    """B008: a value that is no key of the scheme is told by its reference."""
    cause = first(request(signature="00"), account(replace(PLAIN, key="whsec"), b"whsec_!!!"))
    assert (cause.code, "env:HOOK" in cause.text) == ("secret_malformed", True)
    assert first(request(signature="00"), account(secrets=())).code == "no_secret"


def test_what_nothing_explains_is_said_to_be_unknown() -> None:
    """B12: no probe fits, and no certainty is invented."""
    cause = first(request(signature="00" * 32), account())
    assert (cause.code, cause.certain) == ("unknown", False)


def test_a_genuine_delivery_has_no_causes() -> None:
    """B12: there is nothing to explain."""
    assert diagnose(request(signature=mac(BODY).hex()), account(), AT * SECOND) == ()


@given(st.binary(max_size=200), st.binary(max_size=80), st.sampled_from([PLAIN, TIMED, ADDRESSED, replace(PLAIN, key="whsec")]))
def test_diagnosis_is_total_and_gives_nothing_away(body: bytes, signature: bytes, scheme: SignatureScheme) -> None:
    """B1, B12: any bytes give causes, each of the closed set, without the secret and without the signature."""
    asked = request(body, signature, headers=((b"x-signature", signature), (b"x-timestamp", signature), (signature, body)))
    for cause in diagnose(asked, account(scheme), AT * SECOND):
        assert cause.code in TEXTS
        assert KEY.decode() not in cause.text
        assert len(signature) < 8 or signature.decode("latin-1") not in cause.text

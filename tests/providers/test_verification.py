"""The verification engine: exact bytes, strict texts, two-sided windows, fail closed, and never an exception."""

import base64
import hashlib
import hmac
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA1, SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import example, given
from hypothesis import strategies as st

from providers.contract_faults import Faults
from providers.contract_signature import read_schemes
from providers.verification import check_secret, prepare, verify
from schemas.contract import SignatureScheme
from schemas.delivery import InboundRequest, Reason, Refused, Secret, Verdict, Verified
from schemas.operation import SECOND

NOW = 1_767_225_600
KEY = b"a-shared-secret"
BODY = b'{"id":"evt_1"}'
PREFIX = {"in": "header", "name": "X-Signature", "parser": "prefix", "prefix": "sha256="}
PLAIN: dict[str, Any] = {"primitive": "hmac", "message": "{body}", "sig": PREFIX}
STAMPED: dict[str, Any] = {
    "primitive": "hmac",
    "message": "{ts}.{body}",
    "sig": {"in": "header", "name": "X-Sig", "parser": "kv", "key": "v1", "ts_key": "t"},
    "timestamp": {"in": "sig", "tolerance": 300},
}


def schemes(*parameters: dict[str, Any]) -> tuple[SignatureScheme, ...]:
    faults = Faults()
    made = read_schemes(list(parameters), faults, listed=True)
    assert not faults.all(), faults.all()
    return made


def request(body: bytes = BODY, *, query: bytes = b"", public_url: str = "", **headers: bytes) -> InboundRequest:
    lines = tuple((name.replace("_", "-").lower().encode(), value) for name, value in headers.items())
    return InboundRequest(method="POST", path=b"/webhooks/p", query=query, headers=lines, body=body, public_url=public_url)


def with_headers(headers: dict[str, bytes]) -> InboundRequest:
    lines = tuple((name.replace("_", "-").encode(), value) for name, value in headers.items())
    return InboundRequest(method="POST", path=b"/webhooks/p", query=b"", headers=lines, body=BODY)


def mac(data: bytes, key: bytes = KEY) -> bytes:
    return hmac.digest(key, data, "sha256").hex().encode()


def judged(what: InboundRequest, *parameters: dict[str, Any], secrets: tuple[bytes, ...] = (KEY,), now: int = NOW) -> Verdict:
    known = [Secret(id=f"s{number}", value=value) for number, value in enumerate(secrets)]
    return verify(what, schemes(*(parameters or (PLAIN,))), known, now * SECOND)


def refused(verdict: Verdict) -> Reason:
    assert isinstance(verdict, Refused), verdict
    return verdict.reason


def stamped(at: bytes, body: bytes = BODY, key: bytes = KEY) -> bytes:
    return b"t=" + at + b",v1=" + mac(at + b"." + body, key)


# --- the signed bytes


@pytest.mark.parametrize(
    "body",
    [
        b'{"b":1.0,"a":"\\u00e9","u":"http:\\/\\/x"}',
        b'{ "b" : 1.0 , "a":"x" }',
        '{"e":"😀"}'.encode(),
        b'{"e":"\\ud83d\\ude00"}',
        b'{"a":1}\n',
        b'{"a":1}\r\n',
        b'\xff\xfe{"not":"utf-8"}',
        b"",
    ],
)
def test_the_bytes_as_received_are_signed_and_nothing_else(body: bytes) -> None:
    """Spacing, escapes, line ends and bytes that are not UTF-8 count as they came; one changed byte is refused (B001, B003)."""
    verdict = judged(request(body, x_signature=b"sha256=" + mac(body)))
    assert isinstance(verdict, Verified)
    assert verdict.signed == body
    for changed in (body + b"\n", body[:-1] + b"~", b" " + body):
        if changed != body:
            assert refused(judged(request(changed, x_signature=b"sha256=" + mac(body)))) is Reason.WRONG_SIGNATURE


# --- strict texts


def spellings() -> list[tuple[bytes, bool]]:
    good = mac(BODY)
    raw = bytes.fromhex(good.decode())
    return [
        (b"sha256=" + good, True),
        (b"  sha256=" + good + b"\t", True),
        (b"sha256= " + good, True),
        (b"sha256=" + good.upper(), False),
        (b"sha256=" + base64.b64encode(raw), False),
        (b"sha256=" + good[:20] + b" " + good[20:], False),
        (b"sha256=" + good[:-2], False),
        (b"sha256=" + good + b"00", False),
        (b"SHA256=" + good, False),
        (b"sha1=" + good, False),
        (good, False),
        (b"sha256=", False),
        (b"sha256=\xe9", False),
        (b"   ", False),
        (b"", False),
        (b"sha256=" + b"a" * 10_240, False),
    ]


@pytest.mark.parametrize(("header", "accepted"), spellings())
def test_only_the_contract_s_spelling_of_a_signature_is_taken(header: bytes, accepted: bool) -> None:  # noqa: FBT001 - a column of the table
    """White space around is trimmed; inner spaces, other encodings, other prefixes and odd bytes are refused (B004, B018)."""
    assert isinstance(judged(request(x_signature=header)), Verified) is accepted


def test_a_contract_may_allow_upper_case_hex() -> None:
    """Where a provider is known to send upper case, `hex_any` reads it, still without inner spaces (B018)."""
    loose = PLAIN | {"encoding": "hex_any"}
    assert isinstance(judged(request(x_signature=b"sha256=" + mac(BODY).upper()), loose), Verified)
    assert isinstance(judged(request(x_signature=b"sha256=AB cd"), loose), Refused)


@pytest.mark.parametrize("encoding", ["base64", "base64url"])
def test_one_text_stands_for_one_signature(encoding: str) -> None:
    """Missing padding, another alphabet, line ends and loose last bits are refused: the text cannot be varied."""
    key = b"k" * 20
    body = next(
        b"%d" % n for n in range(500) if {b"+", b"/"} & {bytes([c]) for c in base64.b64encode(hmac.digest(key, b"%d" % n, "sha256"))}
    )
    raw = hmac.digest(key, body, "sha256")
    standard, url = base64.b64encode(raw), base64.urlsafe_b64encode(raw).rstrip(b"=")
    rules = {"primitive": "hmac", "message": "{body}", "encoding": encoding, "sig": {"in": "header", "name": "X-S"}}
    good, others = (standard, [url]) if encoding == "base64" else (url, [standard])
    assert isinstance(judged(request(body, x_s=good), rules, secrets=(key,)), Verified)
    loose = standard[:-2] + bytes([standard[-2] + 1]) + b"="
    for text in [*others, standard[:-1], loose, standard + b"\n=", good[:10] + b"\n" + good[10:]]:
        assert isinstance(judged(request(body, x_s=text), rules, secrets=(key,)), Refused), text


def test_a_signature_header_that_is_there_twice_is_refused() -> None:
    """Two headers of one name are ambiguous, even when one is right."""
    good = (b"x-signature", b"sha256=" + mac(BODY))
    twice = InboundRequest(method="POST", path=b"/", query=b"", headers=(good, good), body=BODY)
    assert refused(judged(twice)) is Reason.MALFORMED_SIGNATURE


# --- time


@pytest.mark.parametrize(
    ("offset", "reason"), [(-301, Reason.TOO_OLD), (-300, None), (-299, None), (0, None), (299, None), (301, Reason.IN_FUTURE)]
)
def test_the_window_has_two_sides(offset: int, reason: Reason | None) -> None:
    """Too old and too far ahead are both refused, and the reason says which (B006)."""
    verdict = judged(request(x_sig=stamped(b"%d" % (NOW + offset))), STAMPED)
    if reason is None:
        assert isinstance(verdict, Verified)
        assert verdict.signed_at == (NOW + offset) * SECOND
    else:
        assert refused(verdict) is reason


def test_a_stale_delivery_is_told_apart_from_a_forged_one() -> None:
    """A right signature of six hours ago is refused but genuine, with its secret; a wrong one is not genuine (B020, B8)."""
    late = judged(request(x_sig=stamped(b"%d" % (NOW - 21_600))), STAMPED)
    assert isinstance(late, Refused)
    assert (late.reason, late.genuine, late.secret_id) == (Reason.TOO_OLD, True, "s0")
    assert late.signed == b"%d." % (NOW - 21_600) + BODY
    forged = judged(request(x_sig=stamped(b"%d" % (NOW - 21_600), key=b"another")), STAMPED)
    assert isinstance(forged, Refused)
    assert not forged.genuine
    assert not forged.secret_id


def test_the_unit_of_a_timestamp_is_the_contract_s_and_never_guessed() -> None:
    """Milliseconds under a seconds contract are refused without overflow, and the other way round (B007)."""
    in_ms = STAMPED | {"timestamp": {"in": "sig", "unit": "ms", "tolerance": 300}}
    ms, s = b"%d" % (NOW * 1000), b"%d" % NOW
    assert isinstance(judged(request(x_sig=stamped(ms)), in_ms), Verified)
    assert refused(judged(request(x_sig=stamped(ms)), STAMPED)) is Reason.IN_FUTURE
    assert refused(judged(request(x_sig=stamped(s)), in_ms)) is Reason.TOO_OLD


@pytest.mark.parametrize("text", [b"", b"abc", b"-5", b"+5", b"1e9", b" 5", b"5.0", b"\xd9\xa1", b"9" * 40, b"0x10", b"5_0", b"5\x00"])
def test_a_signed_timestamp_is_digits_alone(text: bytes) -> None:
    """Signs, exponents, foreign digits and other texts are no time, though correctly signed."""
    verdict = judged(request(x_sig=stamped(text)), STAMPED | {"sig": STAMPED["sig"] | {"trim": False}})
    assert refused(verdict) in {Reason.MALFORMED_TIMESTAMP, Reason.MISSING_TIMESTAMP}


def test_freshness_is_judged_by_signed_time_only() -> None:
    """A fresh time beside an old signature fails; a contract whose time is not signed is refused when loaded (B021)."""
    old = stamped(b"%d" % (NOW - 9_000))
    fresh = old.replace(b"t=%d" % (NOW - 9_000), b"t=%d" % NOW)
    assert refused(judged(request(x_sig=fresh), STAMPED)) is Reason.WRONG_SIGNATURE
    faults = Faults()
    read_schemes([PLAIN | {"timestamp": {"in": "header", "name": "X-Time"}}], faults, listed=True)
    assert "prove nothing" in faults.all()[0].message


def test_two_different_times_are_ambiguous() -> None:
    """Which of two times was signed is not for us to choose."""
    assert refused(judged(request(x_sig=stamped(b"%d" % NOW) + b",t=5"), STAMPED)) is Reason.MALFORMED_TIMESTAMP


# --- secrets


@pytest.mark.parametrize("secrets", [(), (b"",), (b"   ",), (b"\n",)])
def test_without_a_usable_secret_everything_is_refused(secrets: tuple[bytes, ...]) -> None:
    """An unset, empty or blank secret fails closed, even for a signature made with it (B010)."""
    for key in (*secrets, b""):
        assert refused(judged(request(x_signature=b"sha256=" + mac(BODY, key)), secrets=secrets)) is Reason.NO_SECRET
    assert refused(judged(request(x_token=b""), {"primitive": "token", "token": {"in": "header", "name": "X-Token"}}, secrets=secrets)) is (
        Reason.NO_SECRET
    )


@pytest.mark.parametrize("headers", [{}, {"x_signature": b""}, {"x_signature": b" "}])
def test_a_missing_signature_is_refused(headers: dict[str, bytes]) -> None:
    """An absent, empty or blank header is no signature (B010)."""
    assert refused(judged(with_headers(headers))) is Reason.MISSING_SIGNATURE


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_any_live_secret_may_match_any_signature(order: tuple[int, int]) -> None:
    """Several values of a label are all tried, trimmed after commas; which secret matched is known by its id (B017)."""
    at = b"%d" % NOW
    values = [b"v1=" + b"0" * 64, b"v1=" + mac(at + b"." + BODY, b"new-secret")]
    header = b"t=" + at + b", " + b", ".join(values[index] for index in order)
    verdict = judged(request(x_sig=header), STAMPED, secrets=(b"old-secret", b"new-secret"))
    assert isinstance(verdict, Verified)
    assert verdict.secret_id == "s1"
    assert isinstance(judged(request(x_sig=header), STAMPED, secrets=(b"old-secret",)), Refused)


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (b"v1,whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "version tag"),
        (b"whpk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "prefix"),
        (b"whsec_MfKQ9r8GKYqrTwjUPD8-_PZIo2LaLaSw", "base64"),
        (b"whsec_", "base64"),
        (b"whsec_c2hvcnQ=", "too short"),
        (b"  ", "empty"),
        (b" whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n", None),
        (b"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", None),
        (b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwBr", None),
    ],
)
def test_a_pasted_secret_is_checked_when_it_is_configured(value: bytes, fault: str | None) -> None:
    """White space around is stripped, padding optional; other prefixes and alphabets are refused without showing the value (B008)."""
    rules = {"primitive": "hmac", "key": "whsec", "message": "{body}", "encoding": "base64", "sig": {"in": "header", "name": "X"}}
    (scheme,) = schemes(rules)
    found = check_secret(scheme, value)
    if fault is None:
        assert found is None
    else:
        assert found is not None
        assert fault in found
        assert not value.strip() or value.strip()[6:].decode() not in found or len(value.strip()) <= 6


# --- URLs


def test_a_url_is_rebuilt_from_raw_bytes_and_the_public_address() -> None:
    """Order, `+` and escapes of the query count as received; Host and forwarded headers never do (B012, B013)."""
    rules = {"primitive": "hmac", "message": "{url}{body}", "sig": {"in": "header", "name": "X-S"}}
    query = b"b=2&a=1+1&c=%2B&c=%20"
    signed = mac(b"https://h.example/hooks/p?" + query + BODY)
    genuine = request(query=query, public_url="https://h.example/hooks/p", x_s=signed)
    spoofed = ((b"host", b"evil.example"), (b"x-forwarded-host", b"evil.example"), (b"x-forwarded-proto", b"http"))
    for extra in ((), spoofed):
        assert isinstance(judged(replace(genuine, headers=genuine.headers + extra), rules), Verified)
    assert refused(judged(request(query=b"a=1+1&b=2&c=%2B&c=%20", public_url="https://h.example/hooks/p", x_s=signed), rules)) is (
        Reason.WRONG_SIGNATURE
    )
    assert refused(judged(request(query=query, x_s=signed, host=b"h.example"), rules)) is Reason.MISSING_FIELD


def test_the_port_is_tried_both_ways_only_where_the_contract_says_so() -> None:
    """`{url_noport}` and `{url_port}` differ from `{url}` in the port alone (B013)."""
    both = {"primitive": "hmac", "message": ["{url_noport}", "{url_port}"], "sig": {"in": "header", "name": "X-S"}}
    strict = both | {"message": "{url}"}
    for public, signed in (
        ("https://h:8443/hooks/p", b"https://h:8443/hooks/p"),
        ("https://h:8443/hooks/p", b"https://h/hooks/p"),
        ("https://h/hooks/p", b"https://h:443/hooks/p"),
        ("http://h/hooks/p", b"http://h:80/hooks/p"),
        ("https://[::1]/hooks/p", b"https://[::1]:443/hooks/p"),
    ):
        what = request(public_url=public, x_s=mac(signed))
        assert isinstance(judged(what, both), Verified), (public, signed)
        assert isinstance(judged(what, strict), Verified) is (public.encode() == signed)


# --- the other primitives


def test_a_hash_scheme_never_hands_out_its_secret() -> None:
    """The signed bytes of a digest scheme are kept without the secret that was hashed with them."""
    rules = {"primitive": "hash", "message": "{body}{secret}", "sig": {"in": "header", "name": "X-S"}}
    digest = hashlib.sha256(BODY + KEY).hexdigest().encode()
    verdict = judged(request(x_s=digest), rules)
    assert isinstance(verdict, Verified)
    assert verdict.signed == BODY


def test_static_public_keys_verify_what_their_private_keys_signed() -> None:
    """ed25519, ECDSA P-256 and RSA in every key format; another key, or a key of another kind, is refused (B015)."""
    ed, ecdsa, pair = ed25519.Ed25519PrivateKey.generate(), ec.generate_private_key(ec.SECP256R1()), rsa.generate_private_key(65537, 2048)
    raw = ed.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    spki = base64.b64encode(ecdsa.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))
    pem = pair.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    cases = [
        ("ed25519", "ed25519_hex", raw.hex().encode(), ed.sign(BODY)),
        ("ed25519", "ed25519_base64", base64.b64encode(raw), ed.sign(BODY)),
        ("ed25519", "whpk", b"whpk_" + base64.b64encode(raw), ed.sign(BODY)),
        ("ecdsa-sha256", "spki_base64", spki, ecdsa.sign(BODY, ec.ECDSA(SHA256()))),
        ("rsa-sha256", "pem", pem, pair.sign(BODY, PKCS1v15(), SHA256())),
        ("rsa-sha1", "pem", pem, pair.sign(BODY, PKCS1v15(), SHA1())),  # noqa: S303 - some providers still sign so
    ]
    for algorithm, key_format, key, signature in cases:
        rules = {
            "primitive": "asym", "alg": algorithm, "message": "{body}", "encoding": "base64",
            "sig": {"in": "header", "name": "X-S"}, "keysource": {"kind": "static", "format": key_format},
        }  # fmt: skip
        text = base64.b64encode(signature)
        assert isinstance(judged(request(x_s=text), rules, secrets=(b"junk", key)), Verified), algorithm
        assert refused(judged(request(b"other", x_s=text), rules, secrets=(key,))) is Reason.WRONG_SIGNATURE
        assert refused(judged(request(x_s=base64.b64encode(mac(BODY, key))), rules, secrets=(key,))) is Reason.WRONG_SIGNATURE
        assert refused(judged(request(x_s=text), rules, secrets=(b"x" * 32,))) is Reason.NO_SECRET
        (scheme,) = schemes(rules)
        assert check_secret(scheme, key) is None
        assert check_secret(scheme, b"junk")


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        ({"in": "header", "name": "X-T"}, {"x_t": b"tok-1"}, {"x_t": b"tok-12"}),
        ({"in": "bearer"}, {"authorization": b"bearer tok-1"}, {"authorization": b"tok-1"}),
        ({"in": "basic"}, {"authorization": b"Basic dG9rLTE="}, {"authorization": b"Basic dG9rLTI="}),
    ],
)
def test_a_token_is_compared_whole(rule: dict[str, str], good: dict[str, bytes], bad: dict[str, bytes]) -> None:
    """The one configured value passes; a longer one, another scheme or none do not."""
    rules = {"primitive": "token", "token": rule}
    verdict = judged(with_headers(good), rules, secrets=(b"other", b"tok-1"))
    assert isinstance(verdict, Verified)
    assert (verdict.secret_id, verdict.signed) == ("s1", b"")
    assert isinstance(judged(with_headers(bad), rules, secrets=(b"tok-1",)), Refused)
    assert refused(judged(request(), rules, secrets=(b"tok-1",))) is Reason.MISSING_SIGNATURE


def test_every_item_of_a_list_must_carry_the_token() -> None:
    """One foreign item among genuine ones refuses the whole delivery; an empty list is no proof."""
    rules = {"primitive": "token", "token": {"in": "json_each", "list": "value", "field": "clientState"}}
    for body, accepted in (
        (b'{"value":[{"clientState":"tok-1"},{"clientState":"tok-1"}]}', True),
        (b'{"value":[{"clientState":"tok-1"},{"clientState":"evil"}]}', False),
        (b'{"value":[{"clientState":"tok-1"},{}]}', False),
        (b'{"value":[]}', False),
        (b'{"value":{"clientState":"tok-1"}}', False),
    ):
        assert isinstance(judged(request(body), rules, secrets=(b"tok-1",)), Verified) is accepted


def test_an_unsigned_provider_is_a_hint_and_needs_no_secret() -> None:
    """`refetch` accepts everything as a hint, names no secret and covers no byte (B8)."""
    verdict = judged(request(), {"primitive": "refetch"}, secrets=())
    assert verdict == Verified(scheme_id="refetch", secret_id="")


def test_form_fields_do_not_cover_another_kind_of_body() -> None:
    """A scheme over sorted form fields refuses a JSON body, which it would leave unprotected."""
    rules = {"primitive": "hmac", "message": "{url}{sorted_form}", "sig": {"in": "header", "name": "X-S"}}
    signed = mac(b"https://h/p")
    what = request(b'{"paid":true}', public_url="https://h/p", x_s=signed, content_type=b"application/json")
    assert refused(judged(what, rules)) is Reason.MALFORMED_BODY
    assert isinstance(judged(request(b"", public_url="https://h/p", x_s=signed), rules), Verified)


def test_the_refusal_that_says_most_is_reported() -> None:
    """Of several schemes' refusals the deepest one is told; an accepting one wins wherever it stands."""
    other = PLAIN | {"id": "other", "sig": {"in": "header", "name": "X-Other"}}
    assert refused(judged(request(x_signature=b"sha256=" + b"0" * 64), other, PLAIN)) is Reason.WRONG_SIGNATURE
    assert isinstance(judged(request(x_other=mac(BODY)), PLAIN, other), Verified)


# --- totality

HEADER = {"in": "header", "name": "X-Signature"}
LISTED = HEADER | {"parser": "list", "sep_re": " +", "version": "v1"}
EVERY = schemes(
    PLAIN,
    STAMPED | {"id": "kv"},
    {
        "id": "list",
        "primitive": "hmac",
        "key": "whsec",
        "message": "{header:webhook-id}.{ts}.{body}",
        "encoding": "base64",
        "sig": LISTED,
        "timestamp": {"in": "header", "name": "X-Time", "unit": "iso8601"},
    },
    {
        "id": "json",
        "primitive": "hmac",
        "message": "{json:a.0.b}{json:c}",
        "sig": {"in": "json", "path": "sig"},
        "timestamp": {"in": "json", "path": "c", "unit": "ms"},
    },
    {
        "id": "form",
        "primitive": "hmac",
        "key": "sha1_utf8",
        "message": ["{form:p}", "{form:p}\\n"],
        "sig": {"in": "form", "name": "s", "parser": "pairs"},
    },
    {
        "id": "query",
        "primitive": "hmac",
        "message": "{method}{path}{query:q?|lower}{sorted_query_encoded}",
        "sig": {"in": "query", "name": "s"},
    },
    {
        "id": "url",
        "primitive": "hmac",
        "message": ["{url_noport}{sorted_form}", "{url_port}"],
        "sig": HEADER,
        "body_digest": {"in": "query", "name": "bodySHA256"},
        "require_headers": {"X-Version": "1"},
    },
    {
        "id": "contentful",
        "primitive": "hmac",
        "message": "{canonical_headers:x-signed}{json_string_body}",
        "sig": HEADER,
        "timestamp": {"in": "header", "name": "X-Time", "unit": "rfc1123"},
    },
    {"id": "numbered", "primitive": "hash", "message": "{secret}{crc32_body}", "sig": {"in": "headers_numbered", "name": "X-Sig-{n}"}},
    {
        "id": "asym",
        "primitive": "asym",
        "alg": "ed25519",
        "message": "{sha256_body_hex}{sha256_body_raw}",
        "sig": HEADER,
        "keysource": {"format": "ed25519_hex"},
    },
    {"id": "token", "primitive": "token", "token": {"in": "json_each", "list": "value", "field": "t"}},
    {"id": "basic", "primitive": "token", "token": {"in": "basic"}},
)
READY = [prepare([scheme], [Secret(id="a", value=b"aa" * 32), Secret(id="b", value=b"secret")], {"public_key": "pk"}) for scheme in EVERY]
NAMES = st.sampled_from(
    [b"x-signature", b"x-sig", b"x-time", b"x-sig-1", b"webhook-id", b"x-signed", b"content-type", b"authorization", b"x-version"]
)
VALUES = st.binary(max_size=60) | st.sampled_from(
    [b"1", b"t=1,v1=00", b"v1,AAAA", b"Thu, 01 Jan 2026 00:00:00 GMT", b"2026-01-01T00:00:00Z", b"application/x-www-form-urlencoded",
     b"x-time,x-signed", b"Basic dG9rLTE=", b"00" * 32, b"9999-12-31T23:59:59-23:59", b"0000-00-00T00:00:00Z"]
)  # fmt: skip
BODIES = st.binary(max_size=200) | st.sampled_from(
    [b'{"sig":"00","a":[{"b":1.5}],"c":1}', b'{"sig":5}', b"s=pk|00&p=1", b"[" * 100_000,
     b'{"value":[{"t":"x"},3]}', b'{"c":1e999}', b'{"c":' + b"9" * 5000 + b"}"]
)  # fmt: skip


@given(
    st.lists(st.tuples(NAMES, VALUES), max_size=8),
    BODIES,
    st.binary(max_size=60),
    st.sampled_from(["", "https://h:8443/p", "nonsense", "https://h:99999/p"]),
)
@example([(b"x-signature", b"sha256=\xe9")], b"", b"", "")
@example([(b"x-time", b"1700000000000")], b"[" * 100_000, b"&" * 60, "")
def test_whatever_comes_there_is_a_verdict(headers: list[tuple[bytes, bytes]], body: bytes, query: bytes, public_url: str) -> None:
    """No bytes raise, and nobody without a key is accepted, for every primitive, parser and place (B1, B004, B134)."""
    what = InboundRequest(method="POST", path=b"/p\xff", query=query, headers=tuple(headers), body=body, public_url=public_url)
    for verifier in READY:
        assert isinstance(verifier.verify(what, NOW * SECOND), Refused)

"""HTTP message signatures: the signature base, what must be covered, and the body behind its digest."""

import base64
import hashlib
import hmac
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.hashes import SHA256, SHA512

from providers.verification import KeyStore, NamedKey
from providers.verification.structured import MAX_ITEMS, MAX_MEMBERS, Member, Token, UnreadableFieldError, read_dictionary
from schemas.contract import SignatureScheme
from schemas.delivery import Reason, Refused, Verdict, Verified, WantedKey
from tests.providers.signing import BODY, EC, ED, NOW, RSA, URL, judged, jwk, key_set, pem, reason, request, scheme, side_by_side

SECRET = b"a-shared-secret"
DIGEST = b"sha-256=:" + base64.b64encode(hashlib.sha256(BODY).digest()) + b":"
LINES = [(b"content-digest", DIGEST), (b"content-type", b"application/json"), (b"host", b"evil.test"), (b"x-a", b"1"), (b"x-a", b" 2 ")]
COVERED = '"@method" "@authority" "@path" "content-digest"'
VALUES = {
    '"@method"': "POST",
    '"@authority"': "hooks.example.com",
    '"@path"': "/webhooks/p",
    '"@scheme"': "https",
    '"@query"': "?Pet=a%20b&q=1",
    '"@target-uri"': "https://hooks.example.com/webhooks/p?Pet=a%20b&q=1",
    '"@request-target"': "/webhooks/p?Pet=a%20b&q=1",
    '"@query-param";name="Pet"': "a%20b",
    '"content-digest"': DIGEST.decode(),
    '"content-type"': "application/json",
    '"x-a"': "1, 2",
}
QUERY = b"Pet=a%20b&q=1"
ANY = scheme(primitive="httpsig")
KEYS = KeyStore(named={"k": NamedKey(algorithm="ed25519", value=pem(ED.public_key()))})


def base_of(covered: str, params: str) -> bytes:
    names = covered.replace('" "', '"\n"').split("\n") if covered else []
    return "\n".join([*(f"{name}: {VALUES[name]}" for name in names), f'"@signature-params": ({covered}){params}']).encode()


def lines(
    covered: str = COVERED, params: str = f';created={NOW};keyid="k"', *, label: str = "sig1", sign: Callable[[bytes], bytes] = ED.sign
) -> list[tuple[bytes, bytes]]:
    signature = base64.b64encode(sign(base_of(covered, params))).decode()
    return [(b"signature-input", f"{label}=({covered}){params}".encode()), (b"signature", f"{label}=:{signature}:".encode())]


def told(
    more: list[tuple[bytes, bytes]],
    rules: SignatureScheme = ANY,
    *,
    headers: Any = LINES,
    body: bytes = BODY,
    query: bytes = QUERY,
    keys: KeyStore = KEYS,
    now: float = NOW,
    **given: Any,
) -> Verdict:
    return judged(rules, request([*headers, *more], body, query), keys=keys, now=now, **given)


@pytest.mark.parametrize("covered", [COVERED, *VALUES, " ".join(VALUES), ""], ids=lambda text: text[:30])
def test_every_component_is_signed_as_the_standard_says(covered: str) -> None:
    """Derived components come from the configured address, never from Host (B013); equal headers are joined."""
    verdict = told(lines(covered))
    assert isinstance(verdict, Verified), verdict
    assert (verdict.secret_id, verdict.signed_at) == ("kid:k", NOW * 1_000_000)
    assert verdict.signed == (BODY if "content-digest" in covered else b"")


def test_what_is_covered_cannot_be_changed() -> None:
    """Query, header and their absence; the body through its digest, always (catalogue, row 82)."""
    everything = lines(" ".join(VALUES))
    assert reason(told(everything, query=b"Pet=a%20b&q=2")) is Reason.WRONG_SIGNATURE
    assert reason(told(everything, query=b"Pet=a%20b&q=1&Pet=x")) is Reason.MISSING_FIELD
    assert reason(told(everything, headers=[*LINES, (b"x-a", b"3")])) is Reason.WRONG_SIGNATURE
    assert reason(told(everything, headers=LINES[:3])) is Reason.MISSING_FIELD
    assert reason(told(everything, body=BODY + b" ")) is Reason.WRONG_SIGNATURE
    assert isinstance(told(lines('"@method"'), body=b"anything"), Verified)  # a contract that wants less says so


@pytest.mark.parametrize(
    ("digest", "expected"),
    [
        (DIGEST + b", sha-512=:" + base64.b64encode(hashlib.sha512(BODY).digest()) + b":", None),
        (DIGEST + b", unixsum=:AAAA:", None),
        (DIGEST + b", sha-512=:AAAA:", Reason.WRONG_SIGNATURE),
        (b"unixsum=:AAAA:", Reason.MISSING_FIELD),
        (b"sha-256=:AAAA:", Reason.WRONG_SIGNATURE),
        (b"sha-256=5", Reason.WRONG_SIGNATURE),
        (DIGEST + b", " + DIGEST, Reason.MALFORMED_SIGNATURE),
        (b"sha-256", Reason.WRONG_SIGNATURE),
        (b"\xff", Reason.MALFORMED_SIGNATURE),
        (b"", Reason.MISSING_FIELD),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_covered_digest_is_the_body_s(digest: bytes, expected: Reason | None) -> None:
    """Every known algorithm must agree, and one must be known; a right signature over a wrong digest is refused."""
    base = base_of('"content-digest"', f";created={NOW}").replace(DIGEST, digest.strip())
    signature = base64.b64encode(ED.sign(base))
    more = [(b"signature-input", b's=("content-digest");created=%d' % NOW), (b"signature", b"s=:" + signature + b":")]
    assert reason(told(more, headers=[(b"content-digest", digest)])) is expected


def test_the_contract_says_what_must_be_covered() -> None:
    """A genuine signature over less, or under another label or tag, is refused."""
    strict = scheme(primitive="httpsig", covers={"components": ["@method", "Content-Digest"], "label": "sig1", "tag": "app"})
    params = f';created={NOW};keyid="k";tag="app"'
    assert isinstance(told(lines(COVERED, params), strict), Verified)
    assert reason(told(lines('"@method"', params), strict)) is Reason.MISSING_FIELD
    assert reason(told(lines(COVERED), strict)) is Reason.WRONG_CLAIM
    assert reason(told(lines(COVERED, params, label="sig2"), strict)) is Reason.MALFORMED_SIGNATURE


def test_one_good_label_is_enough_and_bad_ones_do_not_harm() -> None:
    """A proxy may add its own signature; the order does not matter, and a stale one is told apart (B017, B020)."""
    good, bad = lines(label="good"), lines(label="bad", sign=lambda data: ED.sign(data + b"x"))
    late = lines(params=f';created={NOW - 301};keyid="k"', label="late")
    unknown = lines(params=f';created={NOW};keyid="other"', label="other")
    for order in ([good, bad, unknown], [unknown, bad, good], [late, good]):
        assert isinstance(told([line for each in order for line in each]), Verified)
    stale = told([*bad, *late, *unknown])
    assert isinstance(stale, Refused)
    assert (stale.reason, stale.genuine) == (Reason.TOO_OLD, True)
    assert reason(told([*unknown, *bad])) is Reason.KEY_UNAVAILABLE
    assert reason(told([*bad, *bad])) is Reason.MALFORMED_SIGNATURE


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (f";created={NOW - 300}", None),
        (f";created={NOW - 301}", Reason.TOO_OLD),
        (f";created={NOW + 300}", None),
        (f";created={NOW + 301}", Reason.IN_FUTURE),
        (f";created={NOW};expires={NOW}", None),
        (f";created={NOW};expires={NOW - 1}", Reason.TOO_OLD),
        (f";expires={NOW + 1}", Reason.MISSING_TIMESTAMP),
        ("", Reason.MISSING_TIMESTAMP),
        (f';created="{NOW}"', Reason.MALFORMED_SIGNATURE),
        (";created", Reason.MALFORMED_SIGNATURE),
        (";created=-1", Reason.MALFORMED_TIMESTAMP),
        (";created=999999999999999", Reason.MALFORMED_TIMESTAMP),
        (f';created={NOW};nonce="n";tag="t"', None),
        (f';created={NOW};alg="ed25519"', None),
        (f';created={NOW};alg="hmac-sha256"', Reason.KEY_REFUSED),
        (f";created={NOW};alg=ed25519", Reason.MALFORMED_SIGNATURE),
        (f';created={NOW};keyid="x"', Reason.KEY_UNAVAILABLE),
        (f";created={NOW};keyid=k", Reason.MALFORMED_SIGNATURE),
        (f';created={NOW};keyid="{"k" * 300}"', Reason.MALFORMED_SIGNATURE),
    ],
)
def test_parameters_of_a_signature(params: str, expected: Reason | None) -> None:
    """Created has two sides, expires ends, the algorithm must be the key's, and kinds are exact (B006, B007, B015)."""
    assert reason(told(lines(COVERED, params))) is expected


def test_an_open_window_is_the_contract_s_word() -> None:
    """Only `none` leaves a side open; then a signature without a time is taken too."""
    open_past = scheme(primitive="httpsig", timestamp={"in": "sig", "tolerance": "none"})
    assert isinstance(told(lines(params=';keyid="k"'), open_past), Verified)
    assert isinstance(told(lines(params=';created=5;keyid="k"'), open_past), Verified)


def test_each_key_has_its_own_algorithm() -> None:
    """A key id selects a key and its algorithm; a public key is never a secret for a MAC (B015)."""
    store = KeyStore(
        named={
            "ed": NamedKey(algorithm="ed25519", value=pem(ED.public_key())),
            "ec": NamedKey(algorithm="ecdsa-p256-sha256", value=pem(EC.public_key())),
            "pss": NamedKey(algorithm="rsa-pss-sha512", value=pem(RSA.public_key())),
            "rsa": NamedKey(algorithm="rsa-v1_5-sha256", value=pem(RSA.public_key())),
            "mac": NamedKey(algorithm="hmac-sha256", value=SECRET),
        }
    )
    makers: dict[str, Callable[[bytes], bytes]] = {
        "ed": ED.sign,
        "ec": side_by_side,
        "pss": lambda data: RSA.sign(data, padding.PSS(padding.MGF1(SHA512()), 64), SHA512()),
        "rsa": lambda data: RSA.sign(data, padding.PKCS1v15(), SHA256()),
        "mac": lambda data: hmac.digest(SECRET, data, "sha256"),
        "confused": lambda data: hmac.digest(pem(RSA.public_key()), data, "sha256"),
    }
    for maker, sign in makers.items():
        for kid in ("ed", "ec", "pss", "rsa", "mac"):
            verdict = told(lines(params=f';created={NOW};keyid="{kid}"', sign=sign), keys=store)
            assert isinstance(verdict, Verified) is (maker == kid)
        without_id = told(lines(params=f";created={NOW}", sign=sign), keys=store)
        assert isinstance(without_id, Verified) is (maker != "confused")


def test_keys_of_a_set_and_configured_keys() -> None:
    """A key set gives id and algorithm; static keys have the contract's; what is missing is wanted."""
    by_set = scheme(primitive="httpsig", keysource={"kind": "jwks", "url": URL})
    assert isinstance(told(lines(), by_set, keys=key_set(jwk(ED.public_key(), "k"))), Verified)
    assert isinstance(told(lines(), by_set, keys=key_set(jwk(ED.public_key(), "k", alg="EdDSA"))), Verified)
    for more in ({"alg": "RS256"}, {"alg": "HS256"}, {"expired_at": NOW}):
        assert reason(told(lines(), by_set, keys=key_set(jwk(ED.public_key(), "k", **more)))) is Reason.KEY_REFUSED
    refused = told(lines(), by_set, keys=KeyStore())
    assert isinstance(refused, Refused)
    assert refused.wanted == WantedKey(url=URL, kid="k")
    assert reason(told(lines(params=f";created={NOW}"), keys=KeyStore())) is Reason.KEY_UNAVAILABLE
    static = scheme(primitive="httpsig", alg="ed25519", keysource={"kind": "static", "format": "pem"})
    assert isinstance(told(lines(), static, secrets=[pem(ED.public_key())]), Verified)
    assert reason(told(lines(), static, secrets=[pem(RSA.public_key())])) is Reason.NO_SECRET
    shared = scheme(primitive="httpsig", alg="hmac-sha256", key="base64", keysource={"kind": "secret"})
    mine = lines(sign=lambda data: hmac.digest(SECRET, data, "sha256"))
    assert isinstance(told(mine, shared, secrets=[base64.b64encode(SECRET)]), Verified)
    assert reason(told(mine, shared, secrets=[pem(RSA.public_key())])) is Reason.NO_SECRET


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('sig1=("@method" "@method")', Reason.MALFORMED_SIGNATURE),
        ('sig1=("@signature-params")', Reason.UNSUPPORTED),
        ('sig1=("@status")', Reason.MISSING_FIELD),
        ('sig1=("@query-param")', Reason.MALFORMED_SIGNATURE),
        ('sig1=("@query-param";name="Pet";req)', Reason.MALFORMED_SIGNATURE),
        ('sig1=("content-type";sf)', Reason.UNSUPPORTED),
        ('sig1=("content-type";bs)', Reason.UNSUPPORTED),
        ('sig1=("Content-Type")', Reason.MALFORMED_SIGNATURE),
        ('sig1=("x-absent")', Reason.MISSING_FIELD),
        ('sig1="@method"', Reason.MALFORMED_SIGNATURE),
        ("sig1=(@method)", Reason.MALFORMED_SIGNATURE),
        ('sig1=("@method""@path")', Reason.MALFORMED_SIGNATURE),
        ('sig1=("@method"', Reason.MALFORMED_SIGNATURE),
        ('sig1=("@method"),', Reason.MALFORMED_SIGNATURE),
        ('sig1=(),sig1=("@method")', Reason.MALFORMED_SIGNATURE),
        ("sig1=(" + '"a" ' * (MAX_ITEMS + 1) + ")", Reason.MALFORMED_SIGNATURE),
        ("sig1=()" + "".join(f",a{number}=()" for number in range(MAX_MEMBERS)), Reason.MALFORMED_SIGNATURE),
        ("sig1=()" + "x" * 9_000, Reason.MALFORMED_SIGNATURE),
        ("", Reason.MISSING_SIGNATURE),
        ("é", Reason.MALFORMED_SIGNATURE),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_malformed_or_unknown_input_is_refused(text: str, expected: Reason) -> None:
    """Nothing that cannot be read exactly, or would be read otherwise than the sender meant it, is taken (B004, B139)."""
    assert reason(told([(b"signature-input", text.encode("latin-1")), (b"signature", b"sig1=:AAAA:")])) is expected


@pytest.mark.parametrize(
    "text", [b"sig1=AAAA", b"sig1=:AAA:", b"sig1=:AAAB=:", b"sig1=::", b"sig1", b"sig2=:AAAA:", b":", b"", b"sig1=:AA AA:"]
)
def test_a_malformed_signature_is_refused(text: bytes) -> None:
    """Bytes are canonical base64 between colons, under a label of the input (B018)."""
    assert reason(told([lines()[0], (b"signature", text)])) in {Reason.MALFORMED_SIGNATURE, Reason.MISSING_SIGNATURE}


def test_a_component_with_a_line_break_cannot_forge_another() -> None:
    """The signature base is made of lines: a value with one in it is refused."""
    headers = [(b"content-type", b'a\n"@path": /x')]
    more = [(b"signature-input", b's=("content-type");created=%d' % NOW), (b"signature", b"s=:AAAA:")]
    assert reason(told(more, headers=headers)) is Reason.MALFORMED_SIGNATURE


def test_structured_fields_are_read_exactly() -> None:
    """Each kind of value has one form."""
    assert read_dictionary(rb'a=("x\"\\";k=1 "y");p=?0;q=t/x, b=:AA==:, c') == {
        "a": Member((('x"\\', {"k": 1}), ("y", {})), {"p": False, "q": Token("t/x")}),
        "b": Member(b"\x00", {}),
        "c": Member(True, {}),
    }
    for text in (
        b"a=1.5",
        b"a=1234567890123456",
        b"A=1",
        b'a="\x01"',
        b'a="x',
        b"a=?2",
        b"a=1;k=1;k=2",
        b"a=1 b=2",
        b"a=",
        b"a=-",
        rb'a="\x"',
    ):
        with pytest.raises(UnreadableFieldError):
            read_dictionary(text)

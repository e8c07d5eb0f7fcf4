"""Published key sets: what is fetched is an argument, and what is not there is named instead of guessed."""

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from providers.contract_faults import Faults
from providers.contract_signature import read_schemes
from providers.key_requests import KeyRequest, key_request
from providers.verification import KeyStore, check_secret, key_urls, prepare
from providers.verification.jwk import MAX_DOCUMENT, MAX_KEYS, read_set
from providers.verification.keys import KeyMaterialError
from schemas.contract import SignatureScheme
from schemas.delivery import Reason, Refused, Verdict, Verified, WantedKey
from schemas.operation import SECOND
from tests.providers.signing import BODY, EC, ED, NOW, RSA, URL, b64, judged, jwk, key_set, number, reason, request, rs256, scheme

OTHER = ed25519.Ed25519PrivateKey.generate()


def rules(**source: Any) -> SignatureScheme:
    return scheme(
        primitive="asym", alg="ed25519", message="{header:X-Kid?}{body}", sig={"in": "header", "name": "X-S"},
        keysource={"kind": "jwks", "url": URL, **source},
    )  # fmt: skip


def signed(keys: KeyStore | None, kid: str = "", *, rule: SignatureScheme | None = None, now: float = NOW) -> Verdict:
    lines = [(b"x-s", ED.sign(kid.encode() + BODY).hex().encode()), *([(b"x-kid", kid.encode())] if kid else [])]
    return judged(rule or rules(), request(lines), keys=keys, now=now)


BY_KID = rules(kid_header="X-Kid")


def test_every_key_is_tried_where_none_is_named() -> None:
    """A provider without key ids rotates by publishing both; the one that matched is recorded (B017)."""
    for keys in ([OTHER, ED], [ED, OTHER]):
        verdict = signed(key_set(*(jwk(key.public_key(), f"k{number}") for number, key in enumerate(keys))))
        assert isinstance(verdict, Verified)
        assert verdict.secret_id == f"kid:k{keys.index(ED)}"
    assert reason(signed(key_set(jwk(OTHER.public_key())))) is Reason.WRONG_SIGNATURE


def test_the_named_key_alone_counts() -> None:
    """A key of another id does not stand in for the one that the delivery names."""
    mine, other = jwk(ED.public_key(), "k1"), jwk(OTHER.public_key(), "k2")
    assert isinstance(signed(key_set(mine, other), "k1", rule=BY_KID), Verified)
    assert reason(signed(key_set(mine, other), "k2", rule=BY_KID)) is Reason.WRONG_SIGNATURE
    assert reason(signed(key_set(mine, other), rule=BY_KID)) is Reason.MISSING_FIELD


@pytest.mark.parametrize("keys", [None, KeyStore({"https://provider.example/other": b"{}"}), KeyStore({URL: b"<html>"})])
def test_a_key_set_that_is_not_there_is_wanted(keys: KeyStore | None) -> None:
    """Not fetched or unreadable: neither accepted nor called forged; the address and id are named for the fetch."""
    verdict = signed(keys, "k1", rule=BY_KID)
    assert isinstance(verdict, Refused)
    assert (verdict.reason, verdict.wanted) == (Reason.KEY_UNAVAILABLE, WantedKey(url=URL, kid="k1"))
    assert not verdict.genuine


def test_an_unknown_id_is_wanted_and_a_missing_signature_is_not() -> None:
    """A fetch is asked for only by what could be a delivery: no signature, or an unbounded id, asks for nothing."""
    store = key_set(jwk(OTHER.public_key(), "old"))
    verdict = signed(store, "new", rule=BY_KID)
    assert isinstance(verdict, Refused)
    assert verdict.wanted == WantedKey(url=URL, kid="new")
    for lines in ([(b"x-kid", b"new")], [(b"x-kid", b"new"), (b"x-s", b"zz")], [(b"x-kid", b"n" * 300), (b"x-s", b"00")]):
        refused = judged(BY_KID, request(lines), keys=store)
        assert isinstance(refused, Refused)
        assert refused.reason is not Reason.KEY_UNAVAILABLE
        assert refused.wanted is None
    bad = judged(BY_KID, request([(b"x-kid", b"a\x00\xff"), (b"x-s", b"00")]), keys=store)
    assert reason(bad) is Reason.MALFORMED_SIGNATURE


def test_one_document_for_each_id_is_found_by_its_id() -> None:
    """Where a provider gives out single keys, each answer is kept under the address and its id (catalogue, row 31)."""
    single = json.dumps({"key": jwk(ED.public_key(), "k1", expired_at=None), "request_id": "r"}).encode()
    assert isinstance(signed(KeyStore({f"{URL}#k1": single}), "k1", rule=BY_KID), Verified)
    assert reason(signed(KeyStore({f"{URL}#k1": single}), "k2", rule=BY_KID)) is Reason.KEY_UNAVAILABLE
    # A document under another id than its own key's serves nobody.
    assert reason(signed(KeyStore({f"{URL}#k2": single}), "k2", rule=BY_KID)) is Reason.KEY_UNAVAILABLE


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"expired_at": NOW + 1}, None),
        ({"expired_at": NOW}, Reason.KEY_REFUSED),
        ({"expired_at": NOW - 0.5}, Reason.KEY_REFUSED),
        ({"exp": NOW}, Reason.KEY_REFUSED),
        ({"exp": NOW + 9, "expired_at": NOW - 9}, Reason.KEY_REFUSED),
        ({"expired_at": "soon"}, Reason.KEY_UNAVAILABLE),
        ({"expired_at": True}, Reason.KEY_UNAVAILABLE),
        ({"expired_at": 10**400}, Reason.KEY_UNAVAILABLE),
        ({"use": "sig", "alg": "EdDSA", "key_ops": ["verify"]}, None),
        ({"alg": "Ed25519"}, None),
        ({"alg": "RS256"}, Reason.KEY_REFUSED),
        ({"alg": "none"}, Reason.KEY_REFUSED),
        ({"use": "enc"}, Reason.KEY_UNAVAILABLE),
        ({"key_ops": ["sign"]}, Reason.KEY_UNAVAILABLE),
        ({"kty": "oct", "k": "c2VjcmV0"}, Reason.KEY_UNAVAILABLE),
        ({"crv": "X25519"}, Reason.KEY_UNAVAILABLE),
        ({"x": "AAAA"}, Reason.KEY_UNAVAILABLE),
        ({"x": 5}, Reason.KEY_UNAVAILABLE),
        ({"kid": ["k1"]}, Reason.KEY_UNAVAILABLE),
    ],
    ids=str,
)
def test_a_key_that_may_not_be_used_is_not_used(more: dict[str, Any], expected: Reason | None) -> None:
    """An ended key, one for another purpose or algorithm, one that is none: refused, whatever it would verify (B015)."""
    assert reason(signed(key_set(jwk(ED.public_key(), "k1") | more), "k1", rule=BY_KID)) is expected


def test_the_kind_of_the_key_must_be_the_algorithm_s() -> None:
    """A set that names an RSA key for an id is no Ed25519 key, and is not called missing either."""
    assert reason(signed(key_set(jwk(RSA.public_key(), "k1")), "k1", rule=BY_KID)) is Reason.KEY_REFUSED


def test_key_sets_are_read_strictly_and_within_bounds() -> None:
    """Duplicate members, endless sets, tiny and huge RSA keys and points off the curve are no keys (B139)."""
    good = jwk(ED.public_key(), "k")
    for document in (b"", b"[]", b"{}", b'{"keys":{}}', b'{"keys":[],"keys":[]}', b"[" * 100, b" " * (MAX_DOCUMENT + 1), b'{"keys":NaN}'):
        with pytest.raises(KeyMaterialError):
            read_set(document)
    assert len(read_set(json.dumps({"keys": [good] * (MAX_KEYS + 5)}).encode())) == MAX_KEYS
    assert len(read_set(json.dumps(good).encode())) == 1
    numbers = RSA.public_key().public_numbers()
    rejected = [
        {"kty": "RSA", "n": number((1 << 1022) + 12345), "e": "AQAB"},
        {"kty": "RSA", "n": number((1 << 9000) + 1), "e": "AQAB"},
        {"kty": "RSA", "n": number(numbers.n), "e": "AQ"},
        {"kty": "RSA", "n": number(numbers.n), "e": number((1 << 33) + 1)},
        {"kty": "RSA", "n": "A" * 5000, "e": "AQAB"},
        jwk(EC.public_key()) | {"y": b64(b"\x01" * 32)},
        jwk(EC.public_key()) | {"crv": "P-192"},
        jwk(EC.public_key()) | {"x": b64(b"\x00" + EC.public_key().public_numbers().x.to_bytes(32))},
        {"kty": "RSA"},
        "text",
    ]
    assert read_set(json.dumps({"keys": rejected}).encode()) == ()


def test_leading_zeros_of_a_coordinate_may_be_missing() -> None:
    """Some providers strip them (catalogue, row 81); the point is the same."""
    while True:
        key = ec.generate_private_key(ec.SECP256R1()).public_key()
        x, y = key.public_numbers().x, key.public_numbers().y
        if x >> 248 == 0:
            break
    (read,) = read_set(json.dumps({"kty": "EC", "crv": "P-256", "x": number(x), "y": b64(y.to_bytes(32))}).encode())
    assert isinstance(read.key, ec.EllipticCurvePublicKey)
    assert read.key.public_numbers().x == x


def test_a_scheme_with_published_keys_needs_no_secret_and_says_what_it_will_ask_for() -> None:
    """The addresses are the contract's own; a configured secret is told that nobody needs it."""
    assert key_urls(rules()) == (URL,)
    by_jku = scheme(
        primitive="jwt", token={"in": "bearer"}, algs=["ES256"], keysource={"kind": "jwks", "jku_allow": [URL, "https://b.example/k"]}
    )
    assert key_urls(by_jku) == (URL, "https://b.example/k")
    assert key_urls(scheme(primitive="hmac", message="{body}", sig={"in": "header", "name": "X"})) == ()
    assert "published" in str(check_secret(rules(), b"anything"))
    assert all(checker is not None for _, checker in prepare([rules()], []).checkers)


def test_a_token_may_name_only_an_allowed_key_set() -> None:
    """`jku` is compared whole; another address is refused without being asked for, and `jwk` and `x5u` of the token never count."""
    by_jku = scheme(primitive="jwt", token={"in": "bearer"}, algs=["RS256"], keysource={"kind": "jwks", "jku_allow": [URL]})
    evil = rsa.generate_private_key(65537, 2048)
    keys = KeyStore(
        {
            URL: json.dumps({"keys": [jwk(RSA.public_key(), "k")]}).encode(),
            "https://evil.example/k": json.dumps({"keys": [jwk(evil.public_key(), "k")]}).encode(),
        }
    )

    def told(header: dict[str, Any], key: rsa.RSAPrivateKey = RSA) -> Verdict:
        data = f"{b64(json.dumps({'alg': 'RS256', 'kid': 'k', **header}).encode())}.{b64(b'{}')}".encode()
        return judged(by_jku, request([(b"authorization", b"Bearer " + data + b"." + b64(rs256(data, key)).encode())]), keys=keys)

    assert isinstance(told({"jku": URL}), Verified)
    for jku in ("https://evil.example/k", URL + "/", URL.upper(), URL + "#", "", 5, None, [URL]):
        refused = told({"jku": jku}, evil)
        assert reason(refused) is Reason.KEY_REFUSED
    assert reason(told({}, evil)) is Reason.KEY_REFUSED
    assert reason(told({"jku": URL, "jwk": jwk(evil.public_key())}, evil)) is Reason.WRONG_SIGNATURE
    assert reason(told({"jku": URL, "kid": 5})) is Reason.MALFORMED_SIGNATURE
    pinned = scheme(primitive="jwt", token={"in": "bearer"}, algs=["RS256"], keysource={"kind": "jwks", "url": URL})
    data = f"{b64(json.dumps({'alg': 'RS256', 'jku': 'https://evil.example/k'}).encode())}.{b64(b'{}')}".encode()
    lines = [(b"authorization", b"Bearer " + data + b"." + b64(rs256(data, evil)).encode())]
    assert reason(judged(pinned, request(lines), keys=keys)) is Reason.WRONG_SIGNATURE


def test_what_a_document_says_is_read_once() -> None:
    """A flood of deliveries costs one reading of the key set, and a new store is needed for a new one."""
    documents = {URL: json.dumps({"keys": [jwk(ED.public_key())]}).encode()}
    store = KeyStore(documents)
    assert isinstance(signed(store), Verified)
    first = store.key_set(URL, "")
    documents[URL] = b"{}"
    assert store.key_set(URL, "") is first
    assert isinstance(prepare([rules()], []).verify(request([(b"x-s", ED.sign(BODY).hex().encode())]), NOW * SECOND, store), Verified)


POST = {"key_id": "{kid}", "client_id": "{param:client_id}", "note": "plain {text}"}
ONE_BY_ONE = scheme(primitive="jwt", token={"in": "bearer"}, algs=["EdDSA"], keysource={"kind": "jwks", "url": URL, "post": POST})


def tokened(header: dict[str, str], keys: KeyStore | None = None) -> Verdict:
    head, claims = (b64(json.dumps(item).encode()) for item in ({"alg": "EdDSA", **header}, {"iat": NOW}))
    token = f"{head}.{claims}.{b64(ED.sign(f'{head}.{claims}'.encode()))}"
    return judged(ONE_BY_ONE, request([(b"authorization", f"Bearer {token}".encode())]), keys=keys)


def test_a_key_that_is_given_out_one_by_one_is_wanted_by_its_id() -> None:
    """What is wanted is the one of this id, as an address of its own; a token without an id is refused: there is nothing to ask for."""
    missing = tokened({"kid": "k1"})
    assert isinstance(missing, Refused)
    assert missing.wanted == WantedKey(url=f"{URL}#k1", kid="k1")
    document = json.dumps({"key": jwk(ED.public_key(), "k1")}).encode()
    assert isinstance(tokened({"kid": "k1"}, KeyStore({f"{URL}#k1": document})), Verified)
    assert reason(tokened({"kid": "k2"}, KeyStore({f"{URL}#k2": document}))) is Reason.KEY_UNAVAILABLE
    assert reason(tokened({}, KeyStore({f"{URL}#": document, URL: document}))) is Reason.MISSING_FIELD


def test_how_a_key_is_asked_for_is_the_contract_s() -> None:
    """The id goes out as JSON to the contract's address; another address is read plainly; a missing constant asks nothing."""
    asked = key_request([ONE_BY_ONE], {"client_id": "c"}, f'{URL}#k"}}#2')
    assert asked is not None
    assert (asked.method, asked.url) == ("POST", URL)
    assert json.loads(asked.body) == {"key_id": 'k"}#2', "client_id": "c", "note": "plain {text}"}
    assert key_request([ONE_BY_ONE], {}, f"{URL}#k1") is None
    assert key_request([ONE_BY_ONE, BY_KID], {"client_id": "c"}, "https://other.example/#k1") == KeyRequest(
        method="GET", url="https://other.example/#k1"
    )
    assert key_request([ONE_BY_ONE], {"client_id": "{kid}"}, f"{URL}#k1") is not None
    assert b'"{kid}"' in (key_request([ONE_BY_ONE], {"client_id": "{kid}"}, f"{URL}#k1") or KeyRequest(method="", url="")).body


@pytest.mark.parametrize(
    "source",
    [
        {"kind": "jwks", "url": URL, "post": "x"},
        {"kind": "jwks", "url": URL, "post": {}},
        {"kind": "jwks", "url": URL, "post": {"key_id": 1}},
        {"kind": "jwks", "url": URL, "post": {"key_id": "k"}},
        {"kind": "jwks", "url": URL, "jku_allow": [URL], "post": POST},
        {"kind": "jwks", "jku_allow": [URL], "post": POST},
        {"kind": "static", "format": "pem", "post": POST},
    ],
)
def test_asking_one_by_one_needs_the_contract_s_own_address(source: dict[str, Any]) -> None:
    """Credentials go to no address that a sender names, and never without an id."""
    faults = Faults()
    read_schemes([{"primitive": "jwt", "token": {"in": "bearer"}, "algs": ["EdDSA"], "keysource": source}], faults, listed=True)
    assert faults.all()

"""Signed tokens: the key decides on the algorithm, the claims are the contract's, the body is bound or it is not."""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

from providers.verification.algorithms import verifies
from schemas.contract import SignatureScheme
from schemas.delivery import Reason, Refused, Verdict, Verified
from tests.providers.signing import (
    BODY,
    EC,
    ED,
    NOW,
    PUBLIC_URL,
    RSA,
    URL,
    b64,
    judged,
    jwk,
    key_set,
    pem,
    reason,
    request,
    rs256,
    scheme,
    side_by_side,
)

SECRET = b"a-shared-secret-of-32-characters"
BODY_HASH = {"claim": "h", "encoding": "hex"}
HASHED = {"iat": NOW, "h": hashlib.sha256(BODY).hexdigest()}


def hs(data: bytes, key: bytes = SECRET, digest: str = "sha256") -> bytes:
    return hmac.digest(key, data, digest)


def token(claims: Any, header: Any = None, sign: Callable[[bytes], bytes] = hs) -> bytes:
    head = header if isinstance(header, bytes) else json.dumps(header or {"alg": "HS256"}).encode()
    payload = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
    signed = f"{b64(head)}.{b64(payload)}".encode()
    return signed + b"." + b64(sign(signed)).encode()


def rules(**claims: Any) -> SignatureScheme:
    return scheme(primitive="jwt", token={"in": "bearer"}, algs=["HS256"], keysource={"kind": "secret"}, claims=claims)


def bearer(text: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"authorization", b"Bearer " + text)]


def said(claims: Any, *, now: float = NOW, body: bytes = BODY, query: bytes = b"", header: Any = None, **wanted: Any) -> Verdict:
    return judged(rules(**wanted), request(bearer(token(claims, header)), body, query), secrets=[SECRET], now=now)


def test_a_genuine_token_binds_the_body_and_names_its_time() -> None:
    """Accepted with the secret that matched; the signed bytes are the body (B3)."""
    verdict = said(HASHED, body_hash=BODY_HASH)
    assert isinstance(verdict, Verified)
    assert (verdict.secret_id, verdict.signed_at, verdict.signed) == ("s0", NOW * 1_000_000, BODY)
    assert reason(said(HASHED, body=BODY + b" ", body_hash=BODY_HASH)) is Reason.WRONG_SIGNATURE
    assert reason(said({"iat": NOW}, body_hash=BODY_HASH)) is Reason.MISSING_FIELD


def test_a_token_that_does_not_bind_the_body_signs_no_byte_of_it() -> None:
    """Google re-uses one token for an hour of deliveries: the token must not become the dedup key."""
    verdict = said({"iat": NOW})
    assert isinstance(verdict, Verified)
    assert verdict.signed == b""


@pytest.mark.parametrize(
    "header",
    [
        {"alg": "none"},
        {"alg": "nOnE"},
        {"alg": "HS512"},
        {"alg": ["HS256"]},
        {"alg": None},
        {},
        b'{"alg":"HS256","alg":"none"}',
        b'{"alg":"none","\\u0061lg":"HS256"}',
        {"alg": "HS256", "crit": ["exp"]},
        {"alg": "HS256", "b64": False},
        {"alg": "HS256", "zip": "DEF"},
        b"[]",
        b'"HS256"',
        b"\xff",
        b"{",
    ],
    ids=str,
)
def test_only_the_contract_s_algorithm_counts(header: Any) -> None:
    """`none` in any spelling, another algorithm, a key twice (also escaped) or an extension: refused (B015, B139)."""
    assert reason(said(HASHED, header=header or b"{}")) is Reason.MALFORMED_SIGNATURE


def test_a_token_without_a_signature_is_no_token() -> None:
    """`alg` none with an empty third part is malformed before any key is looked at (B015)."""
    head, payload, _ = token(HASHED, {"alg": "none"}).split(b".")
    for text in (head + b"." + payload + b".", head + b"." + payload, b"..", b"a.b.c.d"):
        assert reason(judged(rules(), request(bearer(text)), secrets=[SECRET])) is Reason.MALFORMED_SIGNATURE


def test_a_public_key_is_never_a_shared_secret() -> None:
    """HS256 over the published PEM, in every spelling of it, is refused for every kind of key source (B015)."""
    public = pem(RSA.public_key())
    for kind, keys in (("jwks", key_set(jwk(RSA.public_key(), "k1"))), ("static", None)):
        source = {"kind": kind, **({"url": URL} if kind == "jwks" else {"format": "pem"})}
        by_key = scheme(primitive="jwt", token={"in": "bearer"}, algs=["RS256"], keysource=source)
        genuine = token(HASHED, {"alg": "RS256", "kid": "k1"}, rs256)
        assert isinstance(judged(by_key, request(bearer(genuine)), secrets=[public], keys=keys), Verified)
        for key in (public, public.strip(), b64(public).encode()):
            for algorithm in ("HS256", "RS256"):
                confused = token(HASHED, {"alg": algorithm, "kid": "k1"}, lambda data, key=key: hs(data, key))  # type: ignore[misc]
                assert isinstance(judged(by_key, request(bearer(confused)), secrets=[public], keys=keys), Refused)
    confused = token(HASHED, {"alg": "HS256"}, lambda data: hs(data, public.strip()))
    assert reason(judged(rules(), request(bearer(confused)), secrets=[public])) is Reason.NO_SECRET


@pytest.mark.parametrize(
    ("algorithm", "sign", "key"),
    [("RS256", rs256, RSA.public_key()), ("ES256", side_by_side, EC.public_key()), ("EdDSA", ED.sign, ED.public_key())],
    ids=["RS256", "ES256", "EdDSA"],
)
def test_each_kind_of_key_verifies_its_own_algorithm_alone(algorithm: str, sign: Any, key: Any) -> None:
    """A token that names another algorithm than its key's is refused, even if the contract lists both (B015)."""
    either = scheme(
        primitive="jwt", token={"in": "bearer"}, algs=["RS256", "ES256", "EdDSA"], keysource={"kind": "static", "format": "pem"}
    )
    for named in ("RS256", "ES256", "EdDSA"):
        text = token(HASHED, {"alg": named}, sign)
        expected = None if named == algorithm else Reason.KEY_REFUSED
        assert reason(judged(either, request(bearer(text)), secrets=[pem(key)])) is expected


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_any_live_secret_may_have_made_the_token(order: tuple[int, int]) -> None:
    """Current and next key are tried, and the one that matched is recorded (B017)."""
    secrets = [(SECRET, b"the-next-secret")[index] for index in order]
    verdict = judged(rules(), request(bearer(token(HASHED))), secrets=secrets)
    assert isinstance(verdict, Verified)
    assert verdict.secret_id == f"s{order.index(0)}"


@pytest.mark.parametrize(
    ("claims", "now", "expected"),
    [
        ({"exp": NOW}, NOW, Reason.TOO_OLD),
        ({"exp": NOW + 1}, NOW, None),
        ({"nbf": NOW}, NOW, None),
        ({"nbf": NOW + 1}, NOW, Reason.IN_FUTURE),
        ({"iat": NOW}, NOW + 300, None),
        ({"iat": NOW}, NOW + 301, Reason.TOO_OLD),
        ({"iat": NOW}, NOW - 300, None),
        ({"iat": NOW}, NOW - 301, Reason.IN_FUTURE),
        ({"iat": NOW + 0.5}, NOW, None),
        ({"iat": str(NOW)}, NOW, Reason.MALFORMED_TIMESTAMP),
        ({"iat": True}, NOW, Reason.MALFORMED_TIMESTAMP),
        ({"iat": NOW, "exp": -1}, NOW, Reason.MALFORMED_TIMESTAMP),
        ({"iat": NOW, "exp": 10**400}, NOW, Reason.MALFORMED_TIMESTAMP),
        ({"iat": NOW * 1000}, NOW, Reason.MALFORMED_TIMESTAMP),
        ({}, NOW, Reason.MISSING_FIELD),
    ],
)
def test_the_times_of_a_token_have_two_sides(claims: dict[str, Any], now: float, expected: Reason | None) -> None:
    """`exp` ends, nbf begins, iat has a largest age and a future; a time of another kind is none (B006, B007)."""
    largest: dict[str, Any] = {"max_age": 300} if "iat" in claims or not claims else {}
    verdict = said(claims, now=now, **largest)
    assert reason(verdict) is expected
    # Right in all but the time: such a delivery earns one read (B020). A time that is none earns nothing.
    if isinstance(verdict, Refused):
        assert verdict.genuine is (expected in {Reason.TOO_OLD, Reason.IN_FUTURE})


def test_leeway_moves_both_ends_and_nothing_else() -> None:
    """Two clocks may differ by the contract's leeway (B006)."""
    for offset, expected in ((0, None), (60.9, None), (61, Reason.TOO_OLD), (-1, None), (-1.5, Reason.IN_FUTURE)):
        assert reason(said({"nbf": NOW, "exp": NOW + 60}, now=NOW + offset, leeway=1)) is expected


@pytest.mark.parametrize(
    ("wanted", "claims", "expected"),
    [
        ({"iss": "p"}, {"iss": "p"}, None),
        ({"iss": ["q", "p"]}, {"iss": "p"}, None),
        ({"iss": "p"}, {"iss": ["p"]}, Reason.WRONG_CLAIM),
        ({"iss": "p"}, {}, Reason.WRONG_CLAIM),
        ({"iss": "p"}, {"iss": "P"}, Reason.WRONG_CLAIM),
        ({"aud": ["me", "mine"]}, {"aud": "mine"}, None),
        ({"aud": "me"}, {"aud": ["you", "me"]}, None),
        ({"aud": "me"}, {"aud": ["you"]}, Reason.WRONG_CLAIM),
        ({"aud": "me"}, {"aud": []}, Reason.WRONG_CLAIM),
        ({"aud": "me"}, {"aud": [["me"]]}, Reason.WRONG_CLAIM),
        ({"sub": "{url}"}, {"sub": PUBLIC_URL}, None),
        ({"sub": "{url}"}, {"sub": PUBLIC_URL + "/"}, Reason.WRONG_CLAIM),
        ({"equals": {"ok": True}}, {"ok": True}, None),
        ({"equals": {"ok": True}}, {"ok": 1}, Reason.WRONG_CLAIM),
        ({"equals": {"n": 1}}, {"n": 1.0}, Reason.WRONG_CLAIM),
        ({"equals": {"email": "a@b"}}, {"email": "A@b"}, Reason.WRONG_CLAIM),
        ({"require": ["jti"]}, {"jti": "x"}, None),
        ({"require": ["jti"]}, {"jti": None}, Reason.MISSING_FIELD),
        ({"url_claim": "u"}, {"u": PUBLIC_URL}, None),
        ({"url_claim": "u"}, {"u": PUBLIC_URL + "?a=1"}, Reason.WRONG_CLAIM),
        ({"url_hash_claim": "u"}, {"u": hashlib.sha256(PUBLIC_URL.encode()).hexdigest()}, None),
        ({"url_hash_claim": "u"}, {"u": ""}, Reason.WRONG_CLAIM),
    ],
    ids=str,
)
def test_claims_are_compared_by_value_and_type(wanted: dict[str, Any], claims: dict[str, Any], expected: Reason | None) -> None:
    """A genuine token of another sender, account or address is refused, and never called genuine but stale."""
    verdict = said(claims, **wanted)
    assert reason(verdict) is expected
    assert not (isinstance(verdict, Refused) and verdict.genuine)


def test_the_address_in_a_token_is_the_configured_one_with_the_query_as_received() -> None:
    """Order and escapes of the query are the sender's; a Host header changes nothing (B012, B013)."""
    query = b"b=2&a=1+1&c=%2B&c=%20"
    claims = {"u": PUBLIC_URL + "?" + query.decode()}
    assert isinstance(said(claims, query=query, url_claim="u"), Verified)
    assert reason(said(claims, query=b"a=1+1&b=2&c=%2B&c=%20", url_claim="u")) is Reason.WRONG_CLAIM


def test_constants_of_the_account_fail_closed() -> None:
    """A contract that names a constant accepts nothing where the account does not give it (B010)."""
    account = rules(aud="{param:audience}")
    what = request(bearer(token({"aud": "me"})))
    assert isinstance(judged(account, what, secrets=[SECRET], params={"audience": "me"}), Verified)
    assert reason(judged(account, what, secrets=[SECRET], params={"audience": "you"})) is Reason.WRONG_CLAIM
    assert reason(judged(account, what, secrets=[SECRET])) is Reason.MISSING_FIELD
    assert reason(judged(account, request(bearer(token({"aud": ""}))), secrets=[SECRET])) is Reason.MISSING_FIELD


@pytest.mark.parametrize("encoding", ["hex", "base64", "base64url"])
@pytest.mark.parametrize("digest", ["sha256", "sha512"])
def test_the_digest_of_the_body_has_the_contract_s_form(encoding: str, digest: str) -> None:
    """Padding does not count, for the claim is signed; another encoding or digest is refused."""
    value = hashlib.new(digest, BODY).digest()
    forms = {"hex": value.hex(), "base64": base64.b64encode(value).decode(), "base64url": base64.urlsafe_b64encode(value).decode()}
    rule = {"claim": "h", "alg": digest, "encoding": encoding}
    for form, text in forms.items():
        accepted = isinstance(said({"h": text}, body_hash=rule), Verified)
        assert accepted is (form == encoding or (encoding != "hex" and form != "hex" and forms["base64"] == forms["base64url"]))
        assert isinstance(said({"h": text.rstrip("=")}, body_hash=rule), Verified) is accepted
    for wrong in (None, 5, "", text.rstrip("=")[:-1], [text]):
        assert isinstance(said({"h": wrong}, body_hash=rule), Refused)


@pytest.mark.parametrize(
    ("claimed", "body", "accepted"),
    [(b"", b"", False), (None, b"", True), (BODY, b"", False), (None, BODY, False), (BODY, BODY, True)],
)
def test_an_optional_digest_is_there_exactly_when_there_is_a_body(claimed: bytes | None, body: bytes, accepted: bool) -> None:  # noqa: FBT001 - a column of the table
    """A body may be neither added nor taken away (catalogue, row 80)."""
    claims = {} if claimed is None else {"h": hashlib.sha256(claimed).hexdigest()}
    verdict = said(claims, body=body, body_hash=BODY_HASH | {"optional_when_empty": True})
    assert isinstance(verdict, Verified) is accepted


@pytest.mark.parametrize(
    ("rule", "value", "accepted"),
    [
        ({"in": "header", "name": "X-T"}, b"%s", True),
        ({"in": "header", "name": "X-T"}, b"Bearer %s", False),
        ({"in": "header", "name": "X-T", "scheme": "Bearer"}, b"bearer %s", True),
        ({"in": "header", "name": "X-T", "scheme": "Bearer"}, b"%s", False),
        ({"in": "header", "name": "X-T", "optional_scheme": True}, b"%s", True),
        ({"in": "header", "name": "X-T", "optional_scheme": True}, b"Bearer %s", True),
        ({"in": "header", "name": "X-T", "optional_scheme": True}, b"Basic %s", False),
    ],
)
def test_a_token_stands_where_the_contract_says(rule: dict[str, Any], value: bytes, accepted: bool) -> None:  # noqa: FBT001 - a column of the table
    """With or without the word Bearer, once, and bounded."""
    here = scheme(primitive="jwt", token=rule, algs=["HS256"])
    line = (b"x-t", value % token(HASHED))
    assert isinstance(judged(here, request([line]), secrets=[SECRET]), Verified) is accepted
    assert isinstance(judged(here, request([line, line]), secrets=[SECRET]), Refused)
    assert reason(judged(here, request(), secrets=[SECRET])) is Reason.MISSING_SIGNATURE
    assert reason(judged(here, request([(b"x-t", value % (b"a" * 9_000))]), secrets=[SECRET])) in {
        Reason.MALFORMED_SIGNATURE,
        Reason.MISSING_SIGNATURE,
    }


@pytest.mark.parametrize("spoil", [lambda text: text + b"=", lambda text: text[:-1], lambda text: text.replace(b".", b"..", 1)])
def test_base64url_is_strict(spoil: Callable[[bytes], bytes]) -> None:
    """Padding, a missing character or a further part make another token (B018)."""
    assert isinstance(judged(rules(), request(bearer(spoil(token(HASHED)))), secrets=[SECRET]), Refused)


# --- detached


DETACHED = {"kind": "request", "headers_in": "hs", "required_headers": ["X-Time"], "equals": {"ver": "2"}}
SIGNED_LINES = [(b"x-time", b"2026-01-01T00:00:00Z"), (b"content-type", b"application/json")]


def detached(payload: bytes, names: str = "X-Time,Content-Type", **header: Any) -> bytes:
    head = b64(json.dumps({"alg": "ES256", "ver": "2", "hs": names, "kid": "k", **header}).encode())
    return f"{head}..{b64(side_by_side(f'{head}.{b64(payload)}'.encode()))}".encode()


def by_request(**more: Any) -> SignatureScheme:
    return scheme(
        primitive="jwt", token={"in": "header", "name": "X-Sig"}, algs=["ES256"], keysource={"kind": "jwks", "url": URL},
        detached=DETACHED, **more,
    )  # fmt: skip


PAYLOAD = b"POST /webhooks/p\nX-Time: 2026-01-01T00:00:00Z\nContent-Type: application/json\n" + BODY
KEYS = key_set(jwk(EC.public_key(), "k"))


def requested(text: bytes, lines: Any = SIGNED_LINES, *, now: float = NOW, rule: SignatureScheme | None = None, **what: Any) -> Verdict:
    return judged(rule or by_request(), request([*lines, (b"x-sig", text)], **what), keys=KEYS, now=now)


def test_a_detached_signature_covers_method_path_listed_headers_and_body() -> None:
    """Changing any of them, or leaving a required header out of the list, is refused (catalogue, row 81)."""
    assert isinstance(requested(detached(PAYLOAD)), Verified)
    assert reason(requested(detached(PAYLOAD), body=b"{}")) is Reason.WRONG_SIGNATURE
    assert reason(requested(detached(PAYLOAD), path=b"/webhooks/p/")) is Reason.WRONG_SIGNATURE
    assert reason(requested(detached(PAYLOAD), [(b"x-time", b"2026-01-02T00:00:00Z"), SIGNED_LINES[1]])) is Reason.WRONG_SIGNATURE
    assert reason(requested(detached(PAYLOAD), SIGNED_LINES[:1])) is Reason.MISSING_FIELD
    assert reason(requested(detached(PAYLOAD), [*SIGNED_LINES, SIGNED_LINES[0]])) is Reason.MISSING_FIELD
    lists: tuple[Any, ...] = ("Content-Type", "", "X-Time,x-time", "X Time", 5, ",".join(["a"] * 40))
    for names in lists:
        assert reason(requested(detached(PAYLOAD, names))) in {Reason.MISSING_FIELD, Reason.MALFORMED_SIGNATURE}
    assert reason(requested(detached(PAYLOAD, ver="1"))) is Reason.MALFORMED_SIGNATURE


def test_a_detached_token_brings_no_payload_of_its_own() -> None:
    """A middle part is refused, also the right one: libraries have signed one thing and read another."""
    head, _, tail = detached(PAYLOAD).partition(b"..")
    assert reason(requested(head + b"." + b64(PAYLOAD).encode() + b"." + tail)) is Reason.MALFORMED_SIGNATURE


def test_a_required_header_may_be_the_time() -> None:
    """It is covered, so its freshness proves something (B021); a late one is genuine (B020)."""
    timed = by_request(timestamp={"in": "header", "name": "X-Time", "unit": "iso8601", "tolerance": 60})
    assert isinstance(requested(detached(PAYLOAD), rule=timed), Verified)
    late = requested(detached(PAYLOAD), rule=timed, now=NOW + 61)
    assert isinstance(late, Refused)
    assert (late.reason, late.genuine) == (Reason.TOO_OLD, True)


def test_a_detached_body_is_the_raw_body() -> None:
    """The bytes as received are encoded and verified, never a parsed copy (B001)."""
    raw = scheme(
        primitive="jwt", token={"in": "header", "name": "X-Sig"}, algs=["ES256"], keysource={"kind": "jwks", "url": URL},
        detached={"kind": "body"},
    )  # fmt: skip
    text = detached(BODY)
    assert isinstance(requested(text, rule=raw), Verified)
    assert reason(requested(text, rule=raw, body=json.dumps(json.loads(BODY)).encode())) is Reason.WRONG_SIGNATURE


def test_a_signature_has_one_length_and_a_key_one_curve() -> None:
    """Zeros between r and s make the same numbers and another signature; a key on another curve is none (B015, B018)."""
    signature, data = side_by_side(b"x"), b"x"
    assert verifies(EC.public_key(), "ES256", signature, data)
    for spoiled in (signature[:32] + b"\x00" + signature[32:], signature[:-1], signature + b"\x00", b"", b"\x00" * 64):
        assert not verifies(EC.public_key(), "ES256", spoiled, data)
    other = ec.generate_private_key(ec.SECP384R1())
    r, s = decode_dss_signature(other.sign(data, ec.ECDSA(SHA256())))
    for half in (32, 48):
        short = (r % 2 ** (8 * half)).to_bytes(half) + (s % 2 ** (8 * half)).to_bytes(half)
        assert not verifies(other.public_key(), "ES256", short, data)
    assert not verifies(other.public_key(), "ecdsa-sha256", other.sign(data, ec.ECDSA(SHA256())), data)
    assert not verifies(b"secret", "none", b"", data)

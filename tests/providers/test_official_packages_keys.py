"""The packages that sign addresses, tokens and messages, beside this engine: Twilio's, PyJWT and http-message-signatures."""

import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import urlencode

import jwt
import pytest
from http_message_signatures import HTTPMessageSigner, HTTPMessageVerifier, HTTPSignatureKeyResolver, algorithms
from twilio.request_validator import RequestValidator

from providers.verification import KeyStore, NamedKey, prepare
from schemas.delivery import InboundRequest, Refused, Secret, Verified
from schemas.operation import SECOND
from tests.providers.official import now, sent, shipped, verifier
from tests.providers.signing import ED, RSA, URL, judged, jwk, key_set, pem, scheme

ADDRESS: Final = "https://hooks.example.com/webhooks/p"
TOKEN: Final = "12345678901234567890123456789012"
FORM: Final = {"MessageSid": "SM1", "MessageStatus": "delivered", "To": "+15005550006", "Body": "caf\u00e9 & co", "Empty": ""}
JSON: Final = b'{"id":"evt_1","note":"caf\xc3\xa9"}'


# Twilio: the address and the sorted form, or the address with a digest of the body in it.


def twilio_ours(url: str, body: bytes, signature: str, kind: str = "application/x-www-form-urlencoded") -> bool:
    headers = {"Content-Type": kind, "X-Twilio-Signature": signature}
    return isinstance(verifier("twilio", TOKEN).verify(sent(headers, body, url), now() * SECOND), Verified)


def twilio_theirs(url: str, content: dict[str, str] | str, signature: str) -> bool:
    return bool(RequestValidator(TOKEN).validate(url, content, signature))


@pytest.mark.parametrize("query", ["", "?foo=1&bar=2"])
def test_twilio_form(query: str) -> None:
    """B1: an address and a form that the package signs are accepted; another address, value, field or secret neither takes."""
    url, body = ADDRESS + query, urlencode(FORM).encode()
    signature = RequestValidator(TOKEN).compute_signature(url, FORM)
    with_port = RequestValidator(TOKEN).compute_signature(url.replace(".com", ".com:443"), FORM)
    for genuine in (signature, with_port):
        assert twilio_ours(url, body, genuine)
        assert twilio_theirs(url, FORM, genuine)
    forged = RequestValidator("another").compute_signature(url, FORM)
    for wrong_url, wrong_form, wrong in (
        (url + "x", FORM, signature),
        (url.replace("https", "http"), FORM, signature),
        (url, {**FORM, "MessageStatus": "failed"}, signature),
        (url, {**FORM, "More": "1"}, signature),
        (url, FORM, forged),
        (url, FORM, signature.swapcase()),
        (url, FORM, ""),
    ):
        assert not twilio_ours(wrong_url, urlencode(wrong_form).encode(), wrong)
        assert not twilio_theirs(wrong_url, wrong_form, wrong)


def test_twilio_json() -> None:
    """B1: with the body's digest in the address both accept, and refuse another body or digest.

    Without a digest nobody signed the body: handed no fields, the package accepts the address alone; this engine does not.
    """
    url = f"{ADDRESS}?bodySHA256={RequestValidator(TOKEN).compute_hash(JSON.decode())}"
    signature = RequestValidator(TOKEN).compute_signature(url, {})
    assert twilio_ours(url, JSON, signature, "application/json")
    assert twilio_theirs(url, JSON.decode(), signature)
    for wrong_url, body in ((url, JSON + b" "), (url[:-1] + ("0" if url[-1] != "0" else "1"), JSON)):
        assert not twilio_ours(wrong_url, body, signature, "application/json")
        assert not twilio_theirs(wrong_url, body.decode(), signature)
    bare = RequestValidator(TOKEN).compute_signature(ADDRESS, {})
    assert not twilio_ours(ADDRESS, JSON, bare, "application/json")
    assert RequestValidator(TOKEN).validate(ADDRESS, {}, bare)


# Tokens. PyJWT signs for LiveKit and others; it is what their own packages verify with.

SECRET: Final = "an-example-secret-of-livekit-0123456789"


def livekit_claims(at: int, body: bytes = JSON, **more: Any) -> dict[str, Any]:
    digest = base64.b64encode(hashlib.sha256(body).digest()).decode()
    return {"iss": "APIexample", "nbf": at - 10, "exp": at + 300, "sha256": digest} | more


Tokens = Callable[[int], str]
HS256: Final[dict[str, tuple[bool, Tokens]]] = {
    "as sent": (True, lambda at: jwt.encode(livekit_claims(at), SECRET, "HS256")),
    "ended": (False, lambda at: jwt.encode(livekit_claims(at, exp=at - 400), SECRET, "HS256")),
    "not yet": (False, lambda at: jwt.encode(livekit_claims(at, nbf=at + 400), SECRET, "HS256")),
    "another issuer": (False, lambda at: jwt.encode(livekit_claims(at, iss="other"), SECRET, "HS256")),
    "another secret": (False, lambda at: jwt.encode(livekit_claims(at), SECRET[::-1], "HS256")),
    "another algorithm": (False, lambda at: jwt.encode(livekit_claims(at), SECRET * 2, "HS512")),
    "no algorithm": (False, lambda at: jwt.encode(livekit_claims(at), "", "none")),
    "no end": (False, lambda at: jwt.encode({k: v for k, v in livekit_claims(at).items() if k != "exp"}, SECRET, "HS256")),
    "no signature": (False, lambda at: jwt.encode(livekit_claims(at), SECRET, "HS256").rpartition(".")[0] + "."),
    "two parts": (False, lambda at: jwt.encode(livekit_claims(at), SECRET, "HS256").rpartition(".")[0]),
}


@pytest.mark.parametrize("case", HS256)
def test_tokens_by_secret(case: str) -> None:
    """B1: PyJWT's tokens are judged by the LiveKit contract as PyJWT judges them; the body's digest in them counts too."""
    good, make = HS256[case]
    at = now()
    token = make(at)
    try:
        jwt.decode(token, SECRET, algorithms=["HS256"], issuer="APIexample", options={"require": ["exp"]})
        theirs = True
    except jwt.PyJWTError:
        theirs = False
    judge = prepare(shipped("livekit"), [Secret(id="s", value=SECRET.encode())], {"iss": "APIexample"})
    assert theirs is good
    assert isinstance(judge.verify(sent({"Authorization": token}, JSON), at * SECOND), Verified if good else Refused)
    assert isinstance(judge.verify(sent({"Authorization": token}, JSON + b" "), at * SECOND), Refused)


def test_tokens_by_published_key() -> None:
    """B1: a token that PyJWT signs with RS256 passes by its key set; one signed with the public key as a secret, with neither."""
    at = now()
    rules = scheme(primitive="jwt", token={"in": "bearer"}, algs=["RS256"], claims={"aud": "me"}, keysource={"kind": "jwks", "url": URL})
    keys = key_set(jwk(RSA.public_key(), "k"))
    claims = {"aud": "me", "iat": at, "exp": at + 60}
    token = jwt.encode(claims, RSA, "RS256", {"kid": "k"})
    published = jwt.PyJWK(jwk(RSA.public_key(), "k", alg="RS256"))
    assert jwt.decode(token, published, algorithms=["RS256"], audience="me")["aud"] == "me"
    assert isinstance(judged(rules, sent({"Authorization": f"Bearer {token}"}, JSON), keys=keys, now=at), Verified)
    confused = jwt.encode(claims, hashlib.sha256(pem(RSA.public_key())).digest(), "HS256", {"kid": "k"})
    other = jwt.encode({**claims, "aud": "you"}, RSA, "RS256", {"kid": "k"})
    for wrong in (confused, other, token[:-8] + "AAAAAAAA"):
        with pytest.raises(jwt.PyJWTError):
            jwt.decode(wrong, published, algorithms=["RS256"], audience="me")
        assert isinstance(judged(rules, sent({"Authorization": f"Bearer {wrong}"}, JSON), keys=keys, now=at), Refused)


# HTTP message signatures (RFC 9421).


class Keys(HTTPSignatureKeyResolver):
    """One key under one name."""

    def resolve_public_key(self, key_id: str) -> Any:
        return ED.public_key() if key_id == "k1" else None

    def resolve_private_key(self, key_id: str) -> Any:
        assert key_id == "k1"
        return ED


@dataclass(slots=True)
class Message:
    """What the package signs and verifies."""

    headers: dict[str, str]
    method: str = "POST"
    url: str = ADDRESS


COVERED: Final = ("@method", "@target-uri", "content-digest")
STORE: Final = KeyStore(named={"k1": NamedKey(algorithm="ed25519", value=pem(ED.public_key()))})


def message(at: int, covered: tuple[str, ...] = COVERED) -> Message:
    made = Message({})
    signer = HTTPMessageSigner(signature_algorithm=algorithms.ED25519, key_resolver=Keys())
    signer.sign(made, key_id="k1", created=datetime.fromtimestamp(at, UTC), covered_component_ids=covered, body=JSON)
    return made


def message_theirs(made: Message, body: bytes | None = JSON) -> bool:
    judge = HTTPMessageVerifier(signature_algorithm=algorithms.ED25519, key_resolver=Keys())
    try:
        return bool(judge.verify(made, max_age=timedelta(seconds=300), body=body))
    except Exception:  # noqa: BLE001 - whatever it raises is its way to refuse
        return False


def message_ours(made: Message, at: int, body: bytes = JSON) -> bool:
    request: InboundRequest = sent(made.headers, body, made.url)
    return isinstance(prepare(shipped("rfc9421"), []).verify(request, at * SECOND, STORE), Verified)


def test_message_signatures() -> None:
    """B1: what the package signs is accepted; other bytes, address, algorithm, key or covered header neither takes.

    Without the body handed to it the package leaves the digest to the caller; here a covered digest always counts.
    """
    at = now()
    made = message(at)
    assert message_theirs(made)
    assert message_ours(made, at)
    assert message_theirs(made, None)
    assert not message_theirs(made, JSON + b" ")
    assert not message_ours(made, at, JSON + b" ")
    changes: list[tuple[str, str, str]] = [
        ("Signature-Input", 'keyid="k1"', 'keyid="k2"'),
        ("Signature-Input", '"@method" ', ""),
        ("Signature-Input", "ed25519", "hmac-sha256"),
        ("Signature-Input", f"created={at}", f"created={at - 1}"),
        ("Content-Digest", "sha-256", "sha-512"),
        ("Signature", "=:", "=:A"),
    ]
    for name, old, new in changes:
        assert old in made.headers[name]
        wrong = Message(made.headers | {name: made.headers[name].replace(old, new)})
        assert not message_theirs(wrong)
        assert not message_ours(wrong, at)
    elsewhere = Message(made.headers, url=ADDRESS + "?x=1")
    assert not message_theirs(elsewhere)
    assert not message_ours(elsewhere, at)

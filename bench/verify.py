"""Verification alone, per scheme, beside the verifier of the official package, in one run, as a ratio.

    python bench/verify.py [--seconds 1] [--body 1024] [--json]

One core, one thread, a delivery of so many bytes, keys made ready before on both sides where the package allows it. The two
sides take turns of a twentieth of their time, so that both see the same machine. "bare" is the signature check of
`cryptography` by itself, where no light package verifies the scheme: what is left then is parsing, time and policy.
Before anything is measured each side must accept the delivery and refuse it with one byte changed.
"""

import argparse
import base64
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TURNS = 20
Check = Callable[[bytes], object]  # body -> truth; raises or returns a falsehood for what it refuses


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A scheme: how each side verifies a body under the one genuine signature."""

    scheme: str
    ours: Check
    package: str
    theirs: Check


def rows(body: bytes) -> Iterator[Row]:
    yield from hashed(body)
    yield twilio()
    yield from asymmetric(body)
    yield from tokens(body)
    yield message(body)


def hashed(body: bytes) -> Iterator[Row]:
    from tests.providers.official import PEERS, now, verifier

    named = {"stripe": "hmac, Stripe", "standardwebhooks": "Standard Webhooks", "slack_sdk": "hmac, Slack", "gidgethub": "hmac, GitHub"}
    for package, scheme in named.items():
        peer, at = PEERS[package], now()
        headers = peer.headers(str(at), peer.digest(str(at), body))

        def theirs(sent: bytes, peer: Any = peer, headers: Any = headers) -> object:
            return peer.accepts(headers, sent, peer.secret)

        yield Row(scheme=scheme, ours=ours(verifier(peer.contract, peer.secret), headers), package=package, theirs=theirs)


def twilio() -> Row:
    from urllib.parse import parse_qsl

    from twilio.request_validator import RequestValidator

    from tests.providers.official import verifier

    secret, url = "12345678901234567890123456789012", "https://hooks.example.com/webhooks/p"
    peer = RequestValidator(secret)
    signature = peer.compute_signature(url, dict(parse_qsl(FORM.decode())))
    headers = {"Content-Type": "application/x-www-form-urlencoded", "X-Twilio-Signature": signature}

    def theirs(sent: bytes) -> object:
        return peer.validate(url, dict(parse_qsl(sent.decode())), signature)

    return Row(scheme="hmac-sha1, Twilio form", ours=ours(verifier("twilio", secret), headers), package="twilio", theirs=theirs)


FORM = b"MessageSid=SM1&MessageStatus=delivered&To=%2B15005550006&From=%2B15005550001&AccountSid=AC1&ApiVersion=2010-04-01"


def asymmetric(body: bytes) -> Iterator[Row]:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    from tests.providers.official import now, verifier
    from tests.providers.signing import EC, ED

    stamp = str(now())
    signature = ED.sign(stamp.encode() + body)
    yield Row(
        scheme="ed25519, Discord",
        ours=ours(
            verifier("discord", ED.public_key().public_bytes_raw().hex()),
            {"X-Signature-Timestamp": stamp, "X-Signature-Ed25519": signature.hex()},
        ),
        package="cryptography, bare",
        theirs=lambda sent: ED.public_key().verify(signature, stamp.encode() + sent) is None,
    )
    der, public = EC.sign(stamp.encode() + body, ec.ECDSA(SHA256())), EC.public_key()
    prefix = "X-Twilio-Email-Event-Webhook-"
    yield Row(
        scheme="ECDSA P-256, SendGrid",
        ours=ours(
            verifier("sendgrid", base64.b64encode(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).decode()),
            {f"{prefix}Timestamp": stamp, f"{prefix}Signature": base64.b64encode(der).decode()},
        ),
        package="cryptography, bare",
        theirs=lambda sent: public.verify(der, stamp.encode() + sent, ec.ECDSA(SHA256())) is None,
    )


def tokens(body: bytes) -> Iterator[Row]:
    """Yield both kinds of token; each claims the body's digest, which PyJWT leaves to its caller."""
    import jwt

    from providers.verification import prepare
    from schemas.delivery import Secret
    from tests.providers.official import now
    from tests.providers.signing import RSA, URL, jwk, key_set, scheme

    claims = {"aud": "me", "exp": now() + 3_600, "h": hashlib.sha256(body).hexdigest()}
    wanted = {"aud": "me", "require": ["exp"], "body_hash": {"claim": "h", "encoding": "hex"}}
    secret = "a-shared-secret-of-32-characters"
    published = key_set(jwk(RSA.public_key(), "k"))
    by_secret = scheme(primitive="jwt", token={"in": "bearer"}, algs=["HS256"], claims=wanted)
    by_set = scheme(primitive="jwt", token={"in": "bearer"}, algs=["RS256"], claims=wanted, keysource={"kind": "jwks", "url": URL})
    sides: list[tuple[str, str, Any, Any, Any]] = [
        ("JWT HS256", "HS256", secret, secret, prepare([by_secret], [Secret(id="s", value=secret.encode())])),
        ("JWT RS256, JWKS", "RS256", RSA, jwt.PyJWK(jwk(RSA.public_key(), "k", alg="RS256")), prepare([by_set], [])),
    ]
    for name, algorithm, private, public, judge in sides:
        token = jwt.encode(claims, private, algorithm, {"kid": "k"})

        def theirs(sent: bytes, token: str = token, public: Any = public, algorithm: str = algorithm) -> object:
            found = jwt.decode(token, public, algorithms=[algorithm], audience="me", options={"require": ["exp"]})
            return found["h"] == hashlib.sha256(sent).hexdigest()

        yield Row(scheme=name, ours=ours(judge, {"Authorization": f"Bearer {token}"}, published), package="pyjwt", theirs=theirs)


def message(body: bytes) -> Row:
    from datetime import UTC, datetime, timedelta

    from http_message_signatures import HTTPMessageSigner, HTTPMessageVerifier, algorithms

    from providers.verification import prepare
    from tests.providers.official import now, shipped
    from tests.providers.test_official_packages_keys import COVERED, STORE, Keys, Message

    made = Message({})
    created = datetime.fromtimestamp(now(), UTC)
    signer = HTTPMessageSigner(signature_algorithm=algorithms.ED25519, key_resolver=Keys())
    signer.sign(made, key_id="k1", created=created, covered_component_ids=COVERED, body=body)
    judge = HTTPMessageVerifier(signature_algorithm=algorithms.ED25519, key_resolver=Keys())
    return Row(
        scheme="RFC 9421, ed25519",
        ours=ours(prepare(shipped("rfc9421"), []), made.headers, STORE),
        package="http-message-signatures",
        theirs=lambda sent: judge.verify(made, max_age=timedelta(hours=1), body=sent),
    )


def ours(judge: Any, headers: Any, keys: Any = None) -> Check:
    """Return our side: the request is made anew each time, as the receiver makes it."""
    from providers.verification import NO_KEYS
    from schemas.delivery import InboundRequest, Verified
    from schemas.operation import SECOND
    from tests.providers.official import now, sent

    at, first, store = now() * SECOND, sent(headers, b""), keys or NO_KEYS
    lines, url = first.headers, first.public_url

    def check(body: bytes) -> object:
        request = InboundRequest(method="POST", path=b"/webhooks/p", query=b"", headers=lines, body=body, public_url=url)
        return isinstance(judge.verify(request, at, store), Verified)

    return check


def accepts(check: Check, body: bytes) -> bool:
    try:
        return bool(check(body))
    except Exception:  # noqa: BLE001 - whatever a package raises is its way to refuse
        return False


def measure(row: Row, body: bytes, seconds: float) -> tuple[float, float]:
    """Return how often a second we and they verify it."""
    for name, check in (("we", row.ours), (row.package, row.theirs)):
        if not accepts(check, body) or accepts(check, body.replace(b"e", b"f", 1)):
            raise SystemExit(f"{row.scheme}: {name} would not accept the genuine delivery, or accepted a changed one")
    counts, spent = [0, 0], [0.0, 0.0]
    for _ in range(TURNS):
        for side, check in enumerate((row.ours, row.theirs)):
            began = time.perf_counter()
            while (passed := time.perf_counter() - began) < seconds / TURNS:
                check(body)
                counts[side] += 1
            spent[side] += passed
    return counts[0] / spent[0], counts[1] / spent[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each side of each scheme")
    parser.add_argument("--body", type=int, default=1_024, help="bytes of the delivery (Twilio: a form of its own)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))  # the peers live beside the tests
    body = json.dumps({"id": "evt_1", "type": "job.done", "data": {"id": "job_42", "text": "x" * max(0, options.body - 73)}}).encode()
    if not options.json:
        print(f"{len(body)} bytes; verified a second:\n{'scheme':<24}{'here':>10}{'package':>10}{'ratio':>8}  beside")
    for row in rows(body):
        what = FORM if row.package == "twilio" else body
        here, there = measure(row, what, options.seconds)
        if options.json:
            print(json.dumps({"scheme": row.scheme, "here": round(here), "package": row.package, "there": round(there)}), flush=True)
        else:
            print(f"{row.scheme:<24}{here:>10,.0f}{there:>10,.0f}{here / there:>8.2f}  {row.package}", flush=True)


if __name__ == "__main__":
    main()

"""What the providers' own packages sign is accepted, and no change of it is."""

from datetime import UTC, datetime
from pathlib import Path

import stripe
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook

from providers.contract import load
from providers.verification import prepare
from schemas.delivery import InboundRequest, Refused, Secret, Verdict, Verified
from schemas.operation import SECOND

CONTRACTS = Path(__file__).parents[2] / "providers" / "contracts"
STANDARD = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
STRIPE = "whsec_test_secret"
TEXTS = st.text(st.characters(codec="utf-8"), max_size=200)
Change = tuple[int, int]
SKEWS = st.integers(-300, 300)
CHANGES = st.tuples(st.integers(0), st.integers(1, 255))
TIMES = st.integers(min_value=1, max_value=4_000_000_000)
standard = prepare(load((CONTRACTS / "standard-webhooks.toml").read_bytes()).signatures, [Secret(id="a", value=STANDARD.encode())])
striped = prepare(load((CONTRACTS / "stripe.toml").read_bytes()).signatures, [Secret(id="a", value=STRIPE.encode())])


def standard_verdict(body: bytes, identity: bytes, at: int, signature: bytes, now: int) -> Verdict:
    headers = ((b"webhook-id", identity), (b"webhook-timestamp", b"%d" % at), (b"webhook-signature", signature))
    return standard.verify(InboundRequest(method="POST", path=b"/", query=b"", headers=headers, body=body), now * SECOND)


def stripe_verdict(body: bytes, header: bytes, now: int) -> Verdict:
    headers = ((b"stripe-signature", header),)
    return striped.verify(InboundRequest(method="POST", path=b"/", query=b"", headers=headers, body=body), now * SECOND)


@given(body=TEXTS, identity=st.from_regex(r"msg_[A-Za-z0-9]{1,30}", fullmatch=True), at=TIMES, skew=SKEWS, change=CHANGES)
def test_standard_webhooks(*, body: str, identity: str, at: int, skew: int, change: Change) -> None:
    """The official package's signature passes within the window; one flipped byte of anything signed does not (B001, B006)."""
    signature = Webhook(STANDARD).sign(identity, datetime.fromtimestamp(at, UTC), body).encode()
    data = body.encode()
    verdict = standard_verdict(data, identity.encode(), at, signature, at + skew)
    assert isinstance(verdict, Verified)
    assert verdict.signed == f"{identity}.{at}.".encode() + data
    assert isinstance(standard_verdict(data, identity.encode(), at, signature, at + 301), Refused)
    assert isinstance(standard_verdict(data + b" ", identity.encode(), at, signature, at), Refused)
    assert isinstance(standard_verdict(data, identity.encode() + b"x", at, signature, at), Refused)
    assert isinstance(standard_verdict(data, identity.encode(), at + 1, signature, at), Refused)
    assert isinstance(standard_verdict(data, identity.encode(), at, flipped(signature, change), at), Refused)
    if data:
        assert isinstance(standard_verdict(flipped(data, change), identity.encode(), at, signature, at), Refused)


@given(body=TEXTS, at=TIMES, skew=SKEWS, change=CHANGES)
def test_stripe(*, body: str, at: int, skew: int, change: Change) -> None:
    """The official package's signature passes within the window; one flipped byte of body or digest does not (B001, B006)."""
    digest = stripe.WebhookSignature._compute_signature(f"{at}.{body}", STRIPE)
    data, header = body.encode(), f"t={at},v1={digest}".encode()
    assert stripe.WebhookSignature.verify_header(body, header.decode(), STRIPE, tolerance=None)
    assert isinstance(stripe_verdict(data, header, at + skew), Verified)
    assert isinstance(stripe_verdict(data, header, at - 301), Refused)
    assert isinstance(stripe_verdict(data + b" ", header, at), Refused)
    assert isinstance(stripe_verdict(data, header[: -len(digest)] + flipped(digest.encode(), change), at), Refused)
    if data:
        assert isinstance(stripe_verdict(flipped(data, change), header, at), Refused)


def flipped(data: bytes, change: Change) -> bytes:
    where, flip = change
    place = where % len(data)
    return data[:place] + bytes([data[place] ^ flip]) + data[place + 1 :]

"""The providers' own packages and this engine judge the same bytes alike, genuine or changed; where not, the reason stands here."""

import hmac
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import pytest
import stripe
from hypothesis import given, settings
from hypothesis import strategies as st
from slack_sdk.signature import SignatureVerifier
from standardwebhooks import Webhook as StandardWebhook
from svix.webhooks import Webhook

from schemas.delivery import Refused, Verified
from schemas.operation import SECOND
from simulator import signing
from tests.providers.official import PEERS, TEXT_SECRET, WHSEC, Headers, Peer, now, sent, verifier

BODY: Final = b'{"id":"evt_1","type":"job.done","note":"caf\xc3\xa9 \\u00e9","data":{"id":"job_42"}}'
LATER: Final = 400  # seconds outside every window here
Case = Callable[[Peer, int], tuple[Headers, bytes]]


def genuine(peer: Peer, at: int, body: bytes = BODY) -> tuple[Headers, bytes]:
    return peer.headers(str(at), peer.digest(str(at), body)), body


def stamped(peer: Peer, written: str) -> tuple[Headers, bytes]:
    """Return a delivery whose time is written so, and genuinely signed."""
    return peer.headers(written, peer.digest(written, BODY)), BODY


def under(peer: Peer, at: int, body: bytes) -> tuple[Headers, bytes]:
    """Return another body under the signature of the genuine one."""
    return genuine(peer, at)[0], body


def written(peer: Peer, at: int, old: str, new: str) -> tuple[Headers, bytes]:
    return {name: value.replace(old, new) for name, value in genuine(peer, at)[0].items()}, BODY


def without(peer: Peer, at: int) -> tuple[Headers, bytes]:
    return {name: value for name, value in genuine(peer, at)[0].items() if "signature" not in name.lower()}, BODY


def older(peer: Peer, _: int) -> tuple[Headers, bytes]:
    return {"X-Hub-Signature": "sha1=" + hmac.digest(peer.key, BODY, "sha1").hex()}, BODY


GENUINE: Final[dict[str, Case]] = {
    "as sent": genuine,
    "empty": lambda peer, at: genuine(peer, at, b""),
    "pretty": lambda peer, at: genuine(peer, at, json.dumps(json.loads(BODY), indent=2).encode()),
    "no JSON": lambda peer, at: genuine(peer, at, b"a=1&b=%20"),
    "NUL": lambda peer, at: genuine(peer, at, b"\0" + BODY + b"\0"),
    "CRLF": lambda peer, at: genuine(peer, at, BODY + b"\r\n"),
    "no UTF-8": lambda peer, at: genuine(peer, at, b'{"note":"caf\xe9"}'),
    "a minute old": lambda peer, at: genuine(peer, at - 60),
}
CHANGED: Final[dict[str, Case]] = {
    "another body": lambda peer, at: under(peer, at, BODY.replace(b"job_42", b"job_43")),
    "no body": lambda peer, at: under(peer, at, b""),
    "serialised anew": lambda peer, at: under(peer, at, json.dumps(json.loads(BODY)).encode()),
    "a newline more": lambda peer, at: under(peer, at, BODY + b"\n"),
    "no signature": without,
    "an empty signature": lambda peer, at: (peer.headers(str(at), ""), BODY),
    "half a signature": lambda peer, at: (peer.headers(str(at), peer.digest(str(at), BODY)[:32]), BODY),
    "signed by another secret": lambda peer, at: (peer.headers(str(at), peer.digest(str(at), BODY, b"another")), BODY),
    "signature of another case": lambda peer, at: (peer.headers(str(at), peer.digest(str(at), BODY).swapcase()), BODY),
    "another version": lambda peer, at: written(peer, at, peer.tag, "x9" + peer.tag[-1]),
    "no version": lambda peer, at: written(peer, at, peer.tag, ""),
    "another time": lambda peer, at: (peer.headers(str(at - 1), peer.digest(str(at), BODY)), BODY),
    "old": lambda peer, at: genuine(peer, at - LATER),
    "ahead": lambda peer, at: genuine(peer, at + LATER),
    "in milliseconds": lambda peer, at: genuine(peer, at * 1_000),
    "no number": lambda peer, _: stamped(peer, "yesterday"),
    "a fraction": lambda peer, at: stamped(peer, f"{at}.0"),
    "a fraction, unsigned": lambda peer, at: (peer.headers(f"{at}.5", peer.digest(str(at), BODY)), BODY),
    "a sign": lambda peer, at: stamped(peer, f"+{at}"),
    "digits of another script": lambda peer, at: stamped(peer, "".join(chr(0x660 + int(digit)) for digit in str(at))),
    "two times": lambda peer, at: written(peer, at, peer.stamp.format(at=at), peer.stamp.format(at=at) + peer.stamp.format(at=1)),
    "two times, ours last": lambda peer, at: written(
        peer, at, peer.stamp.format(at=at), peer.stamp.format(at=1) + peer.stamp.format(at=at)
    ),
    "an older hash alone": older,
}
_TEXT: Final = "it makes text of the body and refuses what is no UTF-8, though genuinely signed"
_FLOAT: Final = "it reads a float and signs its whole part: two forms of one time; digits alone here"
_INT: Final = "it reads what `int` reads and signs what was sent; a time is ASCII digits here"
DISAGREE: Final[dict[tuple[str, str], str]] = {
    ("standardwebhooks", "no UTF-8"): _TEXT,
    ("standardwebhooks", "a fraction, unsigned"): _FLOAT,
    ("svix", "no UTF-8"): _TEXT,
    ("svix", "a fraction, unsigned"): _FLOAT,
    ("stripe", "no UTF-8"): _TEXT,
    ("stripe", "ahead"): "it never looks whether a time is in the future",
    ("stripe", "in milliseconds"): "the same: these are in the future",
    ("stripe", "two times"): "it takes the first of two; ambiguous is refused here",
    ("slack_sdk", "no UTF-8"): _TEXT,
    ("slack_sdk", "a sign"): _INT,
    ("slack_sdk", "digits of another script"): _INT,
    ("gidgethub", "an older hash alone"): "it falls back to SHA-1; a contract's scheme is pinned here",
}
"""(package, case) -> why it answers otherwise than what a genuine or changed delivery deserves; this engine never does."""


OF_TIME: Final = {"another time", "old", "ahead", "in milliseconds", "no number", "a fraction", "a fraction, unsigned", "a sign"}


def applies(peer: Peer, case: str) -> bool:
    match case:
        case "two times" | "two times, ours last":
            return bool(peer.stamp)
        case "an older hash alone":
            return peer.contract == "github"
        case _:
            return peer.timed or case not in {*OF_TIME, "digits of another script"}


@pytest.mark.parametrize(
    ("name", "case"), [(name, case) for name, peer in PEERS.items() for case in (*GENUINE, *CHANGED) if applies(peer, case)]
)
def test_agreement(name: str, case: str) -> None:
    """B1: signed by us, judged by both: the genuine ones are accepted and the changed ones refused, save what is written down."""
    peer, at = PEERS[name], now()
    headers, body = {**GENUINE, **CHANGED}[case](peer, at)
    verdict = verifier(peer.contract, peer.secret).verify(sent(headers, body), at * SECOND)
    assert isinstance(verdict, Verified if case in GENUINE else Refused)
    assert peer.agrees(headers, body) is ((case in GENUINE) != ((name, case) in DISAGREE)), DISAGREE.get((name, case), "agreement")


def test_every_known_disagreement_is_tried() -> None:
    """A reason that no case shows any longer is removed."""
    assert [key for key in DISAGREE if key[1] not in {**GENUINE, **CHANGED} or not applies(PEERS[key[0]], key[1])] == []


SIGNERS: Final[dict[str, Callable[[str, str], str]]] = {
    "standardwebhooks": lambda at, body: (
        StandardWebhook(WHSEC).sign("msg_1", datetime.fromtimestamp(int(at), UTC), body).removeprefix("v1,")
    ),
    "svix": lambda at, body: Webhook(WHSEC).sign("msg_1", datetime.fromtimestamp(int(at), UTC), body).removeprefix("v1,"),
    "stripe": lambda at, body: stripe.WebhookSignature._compute_signature(f"{at}.{body}", TEXT_SECRET),
    "slack_sdk": lambda at, body: str(SignatureVerifier(TEXT_SECRET).generate_signature(timestamp=at, body=body)).removeprefix("v0="),
}
"""What a package signs with: time and body to the digest. The GitHub package only verifies."""


@pytest.mark.parametrize("name", SIGNERS)
@given(
    body=st.text(st.characters(codec="utf-8"), max_size=200),
    at=st.integers(min_value=1, max_value=4_000_000_000),
    where=st.integers(min_value=0),
    flip=st.integers(1, 255),
)
@settings(max_examples=50)
def test_what_a_package_signs_is_accepted(*, name: str, body: str, at: int, where: int, flip: int) -> None:
    """B1, B6: its own signer's digest passes and is the one we make; one byte of body or digest changed does not."""
    peer = PEERS[name]
    digest, data = SIGNERS[name](str(at), body), body.encode()
    headers = peer.headers(str(at), digest)
    judge = verifier(peer.contract, peer.secret)
    assert digest == peer.digest(str(at), data)
    assert isinstance(judge.verify(sent(headers, data), at * SECOND), Verified)
    assert isinstance(judge.verify(sent(headers, data + b" "), at * SECOND), Refused)
    place = where % len(digest)
    other = "A" if digest[place] != "A" else "B"
    if digest[place] != "=" and place < len(digest.rstrip("=")) - 1:  # the last one holds bits that no byte has
        assert isinstance(
            judge.verify(sent(peer.headers(str(at), digest[:place] + other + digest[place + 1 :]), data), at * SECOND), Refused
        )
    if data:
        place = where % len(data)
        bent = data[:place] + bytes([data[place] ^ flip]) + data[place + 1 :]
        assert isinstance(judge.verify(sent(headers, bent), at * SECOND), Refused)


@pytest.mark.parametrize("forged", [False, True])
@pytest.mark.parametrize("name", ["standardwebhooks", "svix"])
def test_the_simulators_reports_are_standard_webhooks(name: str, forged: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """What the simulator's reports API signs, both packages and the shipped contract accept; what it forges, none of them does."""
    at = now()
    headers = signing.standard_webhook(secret=WHSEC, event_id="evt_1", at=at * SECOND, body=BODY, forged=forged)
    assert PEERS[name].agrees(headers, BODY) is not forged
    assert isinstance(verifier("reports", WHSEC).verify(sent(headers, BODY), at * SECOND), Refused if forged else Verified)


@pytest.mark.parametrize("forged", [False, True])
def test_the_simulators_batches_are_signed_as_stripe_signs(forged: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """What the batches API signs in a rotation, the package accepts under either secret; what it forges, under none."""
    at, secrets = now(), (TEXT_SECRET, "another_secret_of_the_rotation")
    headers = signing.stripe_like(secrets=secrets, at=at * SECOND, body=BODY, forged=forged)
    for secret in secrets:
        try:
            took = bool(stripe.WebhookSignature.verify_header(BODY, headers["Batch-Signature"], secret, tolerance=300))
        except stripe.SignatureVerificationError:
            took = False
        assert took is not forged
        assert isinstance(verifier("batches", secret).verify(sent(headers, BODY), at * SECOND), Refused if forged else Verified)

"""The providers' own packages as peers: how each delivery is laid out, and what the package says of it."""

import base64
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import stripe
from gidgethub.sansio import validate_event
from slack_sdk.signature import SignatureVerifier as SlackVerifier
from standardwebhooks import Webhook as StandardWebhook
from svix.webhooks import Webhook as SvixWebhook

from cli.world import RealWorld
from providers.contract import load
from providers.verification import Verifier, prepare
from schemas.contract import SignatureScheme
from schemas.delivery import InboundRequest, Secret
from schemas.operation import SECOND

CONTRACTS: Final = Path(__file__).parents[2] / "providers" / "contracts"
WHSEC: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
TEXT_SECRET: Final = "whsec_test_secret_4eC39HqLyjWDarjtT1zdp7dc"
Headers = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A scheme that a package verifies. `accepts` raises or returns False for what it refuses; most ask the machine's clock."""

    contract: str
    secret: str
    key: bytes
    signed: Callable[[str, bytes], bytes]  # time, body -> signed bytes
    headers: Callable[[str, str], dict[str, str]]  # time, digest -> headers
    accepts: Callable[[Headers, bytes, str], bool]  # headers, body, secret
    tag: str  # the version before the digest
    stamp: str = ""  # where a header holds the time: its form
    base64: bool = False
    timed: bool = True

    def digest(self, at: str, body: bytes, key: bytes | None = None) -> str:
        made = hmac.digest(key or self.key, self.signed(at, body), "sha256")
        return base64.b64encode(made).decode() if self.base64 else made.hex()

    def agrees(self, headers: Headers, body: bytes) -> bool:
        """Say whether the package accepts; whatever it raises is its way to refuse."""
        try:
            return self.accepts(headers, body, self.secret)
        except Exception:  # noqa: BLE001 - the packages raise what they please, ValueError and AttributeError among it
            return False


def now() -> int:
    """Return the second at hand: the packages ask the machine, so that these tests must too."""
    return RealWorld().now() // SECOND


@cache
def verifier(contract: str, secret: str) -> Verifier:
    return prepare(shipped(contract), [Secret(id="s", value=secret.encode())])


def shipped(contract: str) -> tuple[SignatureScheme, ...]:
    return load((CONTRACTS / f"{contract}.toml").read_bytes()).signatures


def sent(headers: Headers, body: bytes, url: str = "https://hooks.example.com/webhooks/p") -> InboundRequest:
    lines = tuple((name.lower().encode(), value.encode()) for name, value in headers.items())
    address, _, query = url.partition("?")
    path = "/" + address.split("/", 3)[3]
    return InboundRequest(method="POST", path=path.encode(), query=query.encode(), headers=lines, body=body, public_url=address)


def _standard(headers: Headers, body: bytes, secret: str) -> bool:
    StandardWebhook(secret).verify(body, dict(headers), json_parse=False)
    return True


def _svix(headers: Headers, body: bytes, secret: str) -> bool:
    SvixWebhook(secret).verify(body, dict(headers))
    return True


def _stripe(headers: Headers, body: bytes, secret: str) -> bool:
    return bool(stripe.WebhookSignature.verify_header(body, headers.get("Stripe-Signature"), secret, tolerance=300))


def _slack(headers: Headers, body: bytes, secret: str) -> bool:
    return SlackVerifier(secret).is_valid_request(body, dict(headers))


def _github(headers: Headers, body: bytes, secret: str) -> bool:
    # The package's `Event.from_http` takes the SHA-256 header if there is one, else the older.
    signature = headers.get("X-Hub-Signature-256") or headers["X-Hub-Signature"]
    validate_event(body, signature=signature, secret=secret)
    return True


def _family(name: str) -> Callable[[str, str], dict[str, str]]:
    def headers(at: str, digest: str) -> dict[str, str]:
        return {f"{name}-id": "msg_1", f"{name}-timestamp": at, f"{name}-signature": f"v1,{digest}"}

    return headers


def _standard_bytes(at: str, body: bytes) -> bytes:
    return f"msg_1.{at}.".encode() + body


def _dotted(at: str, body: bytes) -> bytes:
    return at.encode() + b"." + body


_KEY: Final = base64.b64decode(WHSEC.removeprefix("whsec_"))
_TEXT_KEY: Final = TEXT_SECRET.encode()
PEERS: Final = {
    "standardwebhooks": Peer(
        contract="standard-webhooks",
        secret=WHSEC,
        key=_KEY,
        signed=_standard_bytes,
        headers=_family("webhook"),
        accepts=_standard,
        tag="v1,",
        base64=True,
    ),
    "svix": Peer(
        contract="svix",
        secret=WHSEC,
        key=_KEY,
        signed=_standard_bytes,
        headers=_family("svix"),
        accepts=_svix,
        tag="v1,",
        base64=True,
    ),
    "stripe": Peer(
        contract="stripe",
        secret=TEXT_SECRET,
        key=_TEXT_KEY,
        signed=_dotted,
        headers=lambda at, digest: {"Stripe-Signature": f"t={at},v1={digest}"},
        accepts=_stripe,
        tag="v1=",
        stamp="t={at},",
    ),
    "slack_sdk": Peer(
        contract="slack",
        secret=TEXT_SECRET,
        key=_TEXT_KEY,
        signed=lambda at, body: f"v0:{at}:".encode() + body,
        headers=lambda at, digest: {"X-Slack-Request-Timestamp": at, "X-Slack-Signature": f"v0={digest}"},
        accepts=_slack,
        tag="v0=",
    ),
    "gidgethub": Peer(
        contract="github",
        secret=TEXT_SECRET,
        key=_TEXT_KEY,
        signed=lambda _, body: body,
        headers=lambda _, digest: {"X-Hub-Signature-256": f"sha256={digest}"},
        accepts=_github,
        tag="sha256=",
        timed=False,
    ),
}
"""Those whose signature is a keyed hash of a time and the body: the rest stands in the tests themselves."""

"""How callbacks are signed: the reports API by the official Standard Webhooks package, the batches API in Stripe's scheme."""

import hmac
from collections.abc import Sequence
from datetime import UTC, datetime

from standardwebhooks import Webhook

from schemas.operation import SECOND, Micros

_FORGED = b"this is nobody's secret, only a forger's"


def standard_webhook(*, secret: str, event_id: str, at: Micros, body: bytes, forged: bool) -> dict[str, str]:
    """Return the headers of a Standard Webhook (standardwebhooks.com, specification, section "Signature scheme")."""
    signer = Webhook(_FORGED if forged else secret)
    seconds = at // SECOND
    signature = signer.sign(event_id, datetime.fromtimestamp(seconds, tz=UTC), body.decode())
    return {"webhook-id": event_id, "webhook-timestamp": str(seconds), "webhook-signature": signature}


def stripe_like(*, secrets: Sequence[str], at: Micros, body: bytes, forged: bool) -> dict[str, str]:
    """Return the header `Batch-Signature` in the scheme of docs.stripe.com/webhooks: `t=…,v1=…`, one v1 for each secret."""
    seconds = at // SECOND
    message = str(seconds).encode() + b"." + body
    keys = [_FORGED] if forged else [secret.encode() for secret in secrets]
    signatures = [f"v1={hmac.new(key, message, 'sha256').hexdigest()}" for key in keys]
    return {"Batch-Signature": ",".join([f"t={seconds}", *signatures])}

"""Words of `[signature]` that stand for several parameters: a published protocol said once, as data of the general grammar.

`sig = { in = "sns" }`: Amazon's Simple Notification Service signs a list of named fields that depends on the message's type, names
its certificate and its algorithm in the body. `detached = { kind = "truelayer" }`: version 2 of TrueLayer's request signature.
"""

from collections.abc import Mapping
from typing import Any, Final

_CONFIRMATION: Final = ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type")
_NOTIFICATION: Final = ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type")
_OPTIONAL: Final = frozenset({"Subject"})


def _lines(names: tuple[str, ...]) -> list[list[str]]:
    return [[f"{name}\n{{json:{name}}}\n", *([f"json:{name}"] if name in _OPTIONAL else [])] for name in names]


_SNS: Final[Mapping[str, Any]] = {
    "alg": {"json": "SignatureVersion", "map": {"1": "rsa-sha1", "2": "rsa-sha256"}},
    "encoding": "base64",
    "message": {
        "by": "json:Type",
        "of": {
            "Notification": _lines(_NOTIFICATION),
            "SubscriptionConfirmation": _lines(_CONFIRMATION),
            "UnsubscribeConfirmation": _lines(_CONFIRMATION),
        },
    },
}
_SNS_SIG: Final[Mapping[str, Any]] = {"in": "json", "path": "Signature"}
_SNS_KEYS: Final[Mapping[str, Any]] = {"kind": "cert_url", "json": "SigningCertURL"}
_TRUELAYER: Final[Mapping[str, Any]] = {"kind": "request", "headers_in": "tl_headers", "equals": {"tl_version": "2"}}

SHORTHANDS: Final = ("sns", "truelayer")
"""The words that are spelled out here."""


def expanded(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters with the shorthand spelled out; what the file says itself wins."""
    sig, detached, source = value.get("sig"), value.get("detached"), value.get("keysource")
    if isinstance(sig, Mapping) and sig.get("in") == "sns":
        rest = {name: item for name, item in value.items() if name not in {"sig", "keysource"}}
        own = source if isinstance(source, Mapping) else {}
        return {**_SNS, **rest, "sig": _SNS_SIG, "keysource": {**_SNS_KEYS, **own}}
    if isinstance(detached, Mapping) and detached.get("kind") == "truelayer":
        return {**value, "detached": {**_TRUELAYER, **{name: item for name, item in detached.items() if name != "kind"}}}
    return value

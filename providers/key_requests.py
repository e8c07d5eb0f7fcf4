"""How a published key is asked for: a `GET` of its address, or the contract's `POST` for one key by its id (Plaid). Pure.

A document of one key is known as `URL#KID`. The address is the contract's; only the id is a stranger's, and it goes out as a
JSON text, so it cannot change what is asked, or whom.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from schemas.contract import SignatureScheme

_FIELD: Final = re.compile(r"\{(kid|param:[^{}]+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRequest:
    """What is to be sent. `body` holds the account's constants: never shown."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = field(default=b"", repr=False)


def key_request(schemes: Sequence[SignatureScheme], params: Mapping[str, str], wanted: str) -> KeyRequest | None:
    """Return the request for a wanted address; None where the account lacks a constant that it needs."""
    address, hash_sign, kid = wanted.partition("#")
    for scheme in schemes:
        source = scheme.options.get("keysource") or {}
        if not hash_sign or "post" not in source or source.get("url") != address:
            continue
        body = _body(source["post"], {"kid": kid, **{f"param:{name}": value for name, value in params.items()}})
        return None if body is None else KeyRequest(method="POST", url=address, headers=(("Content-Type", "application/json"),), body=body)
    return KeyRequest(method="GET", url=wanted)


def _body(post: Mapping[str, str], values: Mapping[str, str]) -> bytes | None:
    if any(name not in values for text in post.values() for name in _FIELD.findall(text)):
        return None
    return json.dumps({name: _FIELD.sub(lambda found: values[found[1]], text) for name, text in post.items()}).encode()

"""The idempotency token in the form that a provider takes. Made once, when the operation is registered (MISSION A4)."""

import base64
import hashlib
import re
import uuid
from typing import Final

from schemas.contract import Contract, TokenRule

LEAST: Final = {"text": 16, "uuid": 36, "alphanumeric": 16, "hex": 20, "digits": 24}
"""Shortest token of each form, in characters: about 80 bits of chance, so that two operations never share one."""
_LONGEST: Final = 32
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")


def shaped(token: str, contract: Contract) -> str:
    """Return the provider's form of a fresh random `token`. The same token gives the same form."""
    rule = contract.create.token if contract.create is not None else TokenRule()
    digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
    length = min(rule.max_length, _LONGEST)
    match rule.form:
        case "text" if len(token) <= rule.max_length and _PLAIN.fullmatch(token):
            return token
        case "uuid":
            return str(uuid.UUID(bytes=digest[:16], version=4))
        case "hex":
            return digest.hex()[:length]
        case "digits":
            return str(int.from_bytes(digest, "big") % 10**length).zfill(length)
        case _:
            return base64.b32encode(digest).decode("ascii").lower()[:length]

"""Strict text forms of bytes: one text for one value, so that a changed signature text is a changed signature."""

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from typing import Final

_HEX = re.compile(rb"(?:[0-9a-f]{2})+")


def hex_lower(text: bytes) -> bytes | None:
    """Decode lower-case hex without white space; providers send no other, and the vectors refuse the rest."""
    return binascii.unhexlify(text) if _HEX.fullmatch(text) else None


def hex_any(text: bytes) -> bytes | None:
    """Decode hex of any case without white space (B018), for contracts that say so."""
    return hex_lower(text.lower())


def base64_padded(text: bytes) -> bytes | None:
    """Decode standard base64: alphabet `+/`, padded, canonical (unused bits are zero)."""
    value = _base64(text)
    return value if value is not None and binascii.b2a_base64(value, newline=False) == text else None


def base64_unpadded(text: bytes) -> bytes | None:
    """Decode base64 with or without its padding, unused bits ignored: keys are pasted so, and official libraries take it (B008)."""
    return _base64(text if text.endswith(b"=") else text + b"=" * (-len(text) % 4))


def _base64(text: bytes) -> bytes | None:
    if not text:
        return None
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError):
        return None


def base64url(text: bytes) -> bytes | None:
    """Decode base64url without padding, canonical (RFC 4648 section 5, RFC 7515)."""
    if b"=" in text or b"+" in text or b"/" in text:
        return None
    value = base64_padded(text.replace(b"-", b"+").replace(b"_", b"/") + b"=" * (-len(text) % 4))
    return value if value is not None and base64.urlsafe_b64encode(value).rstrip(b"=") == text else None


ENCODINGS: Final[Mapping[str, Callable[[bytes], bytes | None]]] = {
    "hex": hex_lower,
    "hex_any": hex_any,
    "base64": base64_padded,
    "base64url": base64url,
}
"""Name in a contract -> decoder of a signature's text; None: not that encoding."""

SPOKEN: Final[Mapping[str, str]] = {
    "hex": "hex in lower case",
    "hex_any": "hex",
    "base64": "base64 with its padding",
    "base64url": "base64url without padding",
}
"""Name in a contract -> what a signature must be, for people."""

"""Text from strangers made safe to show: one line, no terminal commands, no users or queries of URLs, bounded (B141, B142)."""

import re
from typing import Final

MAX_VALUE: Final = 2_000  # characters of one value

# C0, DEL, C1, line and paragraph separators, bidirectional controls, lone surrogates, zero-width marks
_UNSAFE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff]")
_URL: Final = re.compile(
    r"(?P<head>[a-z][a-z0-9+.-]{1,20}://)(?P<user>[^\s/?#@]*@)?(?P<path>[^\s?#\"'<>]*)(?P<rest>[?#][^\s\"'<>]*)?", re.IGNORECASE
)


def safe(text: str, limit: int = MAX_VALUE) -> str:
    """Return `text` on one line: controls escaped, users and queries of URLs removed, cut at `limit` characters."""
    cut = text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"
    return _UNSAFE.sub(_escape, _URL.sub(_bare_url, cut))


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"  # noqa: PLR2004 - what two hex digits hold


def _bare_url(match: re.Match[str]) -> str:
    rest = match["rest"]
    return f"{match['head']}{match['path']}{rest[0] + '…' if rest else ''}"

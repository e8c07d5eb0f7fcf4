"""Origins: scheme, host and port in one canonical form, so that what was judged is what is called (F3; B094, B146, B148).

One strict reader for all: an address that two parsers could read differently (userinfo, backslashes, percent signs or
controls in the host, numbers that some resolvers take for IPv4) is none at all.
"""

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

MAX_URL: Final = 8_192  # characters; longer ones are taken by few servers
_MAX_HOST: Final = 253  # RFC 1035 section 2.3.4
_MAX_PORT: Final = 65_535
_PORTS: Final = {"http": 80, "https": 443}
_ANY: Final = "*."  # never below one name alone: `*.com` would be everybody

# RFC 3986 section 3.2 without userinfo and percent signs; what follows the authority is printable ASCII without backslash.
_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9a-f:.]{2,45}\]|[^\[\]:@/?#\\%\s\"'<>^`{|}\x00-\x20\x7f]{1,255})(?::(?P<port>[0-9]{0,5}))?"
    r"(?P<rest>(?:[/?#][\x21-\x5b\x5d-\x7e]*)?)",
    re.IGNORECASE,
)
UNUSABLE = re.compile(r"[\x00-\x20\\\x7f]")
"""What a reference must not have before it is joined to a base: the standard's reader would drop it, or read it otherwise."""
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
# "Ends in a number" (WHATWG URL section 3.5): decimal, octal, hexadecimal and short forms of IPv4 end so.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A URL in canonical form. `origin` is scheme://host:port, always with the port."""

    url: str
    origin: str
    https: bool
    host: str


def address(url: str) -> Address | None:
    """Return the canonical form of an absolute http(s) URL, without its fragment, or None where it is none that may be called.

    The host is lower-case, in its ASCII form (RFC 3490) and without the trailing dot; the scheme's own port is left out of `url`.
    """
    found = _URL.fullmatch(url) if len(url) <= MAX_URL else None
    if found is None:
        return None
    scheme, host = found["scheme"].lower(), _host(found["host"])
    port = int(found["port"] or _PORTS[scheme])
    if not host or not 0 < port <= _MAX_PORT:
        return None
    shown = host if port == _PORTS[scheme] else f"{host}:{port}"
    rest = found["rest"].partition("#")[0]
    return Address(url=f"{scheme}://{shown}{rest}", origin=f"{scheme}://{host}:{port}", https=scheme == "https", host=host)


def origin_of(url: str) -> str:
    """Return scheme://host:port of a URL, or the empty text, which is the origin of nothing."""
    found = address(url)
    return found.origin if found is not None else ""


def same_base(one: str, other: str) -> bool:
    """Say whether two base addresses (an origin with or without a path) are the same, however they are written."""
    first, second = address(one), address(other)
    if first is None or second is None:
        return one == other
    return first.url.rstrip("/") == second.url.rstrip("/")


def is_any(entry: str) -> bool:
    """Say whether an entry of a list of origins stands for all hosts below one, as in `https://*.files.example`."""
    return f"//{_ANY}" in entry


def fault_of(entry: str) -> str:
    """Return what is wrong with an entry of a list of origins, or the empty text."""
    found = address(entry.replace(f"//{_ANY}", "//", 1))
    if found is None or found.url.removesuffix("/").count("/") != len("//") or "?" in found.url:
        return "must be an origin alone, as in https://files.example.com (no path)"
    if is_any(entry) and (not found.https or "." not in found.host or found.host[0] == "[" or _NUMBER.fullmatch(_last(found.host))):
        return "may stand for all hosts below one (https://*.files.example), by https and below two names at least"
    return ""


def listed(origin: str, entries: Iterable[str]) -> str | None:
    """Return the entry of a list that allows an origin: the same one, or `https://*.host` for every host below it."""
    for entry in entries:
        if not is_any(entry):
            if origin and origin_of(entry) == origin:
                return entry
            continue
        above = "" if fault_of(entry) else origin_of(entry.replace(f"//{_ANY}", "//", 1))
        scheme, _, place = above.partition("://")
        if above and origin.startswith(f"{scheme}://") and origin.endswith(f".{place}"):
            return entry
    return None


def _host(text: str) -> str:
    """Return a host in canonical form, or the empty text."""
    if text.startswith("["):
        try:
            return f"[{ipaddress.IPv6Address(text[1:-1]).compressed}]"
        except ValueError:
            return ""
    try:
        host = (text if text.isascii() else text.encode("idna").decode("ascii")).lower().removesuffix(".")
    except UnicodeError:
        return ""
    labels = host.split(".")
    if len(host) > _MAX_HOST or not all(_LABEL.fullmatch(label) for label in labels):
        return ""
    if _NUMBER.fullmatch(labels[-1]):
        try:
            return str(ipaddress.IPv4Address(host))  # four decimals without leading zeros, and nothing else
        except ValueError:
            return ""
    return host


def _last(host: str) -> str:
    return host.rpartition(".")[2]

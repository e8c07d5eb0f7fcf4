"""Which addresses may be dialled when a provider, not the operator, named the host (MISSION F3, B146).

A name is resolved once, every address it has is judged, and exactly those addresses are dialled; the name stays the
TLS name. Each socket is judged again when it is made, so that a literal address takes the same way.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp.abc import AbstractResolver, ResolveResult

Resolve = Callable[[str, int], Awaitable[list[str]]]
Permitted = Callable[[str], bool]
_AddressInfo = tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, tuple[str, int] | tuple[str, int, int, int]]

# ipaddress.is_global passes these (some only in older Pythons) although they lead, or may lead, back inside: IPv4 in IPv6
# in its several forms (RFC 6052, RFC 8215, RFC 3056, RFC 4291 section 2.5.5, RFC 4380), the former site-local range
# (RFC 3879), protocol assignments (RFC 6890, RFC 9637, RFC 9602).
_INWARD: Final = tuple(
    ipaddress.ip_network(text)
    for text in (
        "192.0.0.0/24", "192.88.99.0/24", "64:ff9b::/96", "64:ff9b:1::/48", "2001::/23", "2002::/16", "3fff::/20", "5f00::/16",
        "::/96", "::ffff:0:0/96", "fec0::/10",
        "168.63.129.16/32",  # Azure's own service of every virtual machine, at an address that is public by number
    )
)  # fmt: skip


class ForbiddenAddressError(OSError):
    """The host has an address that is not public. The message never repeats it: it would answer a port scan."""


def is_public(address: str) -> bool:
    """Return whether `address` (a literal, as the resolver gives it) is a unicast address of the public internet."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    if not parsed.is_global or parsed.is_multicast or parsed.is_reserved:
        return False
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.scope_id is not None:
        return False
    return not any(parsed in network for network in _INWARD)  # an address is in no network of the other version


async def resolve_by_system(host: str, port: int) -> list[str]:
    """Return the addresses of `host` by the system's resolver, in its order. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(str(item[4][0]) for item in found))


class Resolver(AbstractResolver):
    """Resolves for aiohttp's connector; with `permitted`, refuses a host as soon as one of its addresses is not."""

    def __init__(self, resolve: Resolve, permitted: Permitted | None = None) -> None:
        self._resolve = resolve
        self._permitted = permitted

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC) -> list[ResolveResult]:
        """Return every address of `host`. Raises ForbiddenAddressError, OSError."""
        addresses = await self._resolve(host, port)
        if self._permitted is not None and not all(self._permitted(address) for address in addresses):
            raise ForbiddenAddressError("an address of the host is not public")
        families = [(address, socket.AF_INET6 if ":" in address else socket.AF_INET) for address in addresses]
        return [
            ResolveResult(hostname=host, host=address, port=port, family=kind, proto=socket.IPPROTO_TCP, flags=socket.AI_NUMERICHOST)
            for address, kind in families
            if family in (socket.AF_UNSPEC, kind)
        ]

    async def close(self) -> None:
        """Hold nothing, close nothing."""


def guarded_socket(permitted: Permitted) -> Callable[[_AddressInfo], socket.socket]:
    """Return a socket factory that judges the very address about to be dialled."""

    def make(info: _AddressInfo) -> socket.socket:
        family, kind, proto, _, address = info
        if not permitted(address[0]):
            raise ForbiddenAddressError("the address is not public")
        return socket.socket(family=family, type=kind, proto=proto)

    return make

"""A stored request made whole again, judged at the time of its receipt and mapped by today's contract. Pure.

A delivery is kept as header lines and body. Where its address had a query, a first line `:path` keeps the raw target: no header
can be named so on the wire.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from providers import mapping
from providers.verification import NO_KEYS, KeyStore, Verifier
from schemas.contract import Contract
from schemas.delivery import Event, InboundRequest, Refused, Verdict
from schemas.operation import Micros

_TARGET: Final = b":path"
Headers = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """What a stored request is worth today. `right`: its signature is, whatever its time was."""

    request: InboundRequest
    verdict: Verdict
    events: tuple[Event, ...]

    @property
    def right(self) -> bool:
        """Return whether the bytes are the provider's."""
        return not isinstance(self.verdict, Refused) or self.verdict.genuine


def headers_of(request: InboundRequest) -> Headers:
    """Return the header lines by which a delivery is stored."""
    if not request.query:
        return request.headers
    return (_TARGET, request.path + b"?" + request.query), *request.headers


def delivery_request(row: Mapping[str, Any], public_url: str) -> InboundRequest:
    """Return the request of a stored delivery (`headers` and `body` opened; None: empty)."""
    return _request("POST", b"", row, public_url)


def refusal_request(row: Mapping[str, Any], public_url: str) -> InboundRequest | None:
    """Return the request of a kept refusal; None where it was too large to be kept."""
    if row["body"] is None or row["headers"] is None or row["target"] is None:
        return None
    return _request(row["method"], row["target"], row, public_url)


def review(verifier: Verifier, contract: Contract, request: InboundRequest, at: Micros, keys: KeyStore = NO_KEYS) -> Review:
    """Verify at the time of receipt and map anew. Total, as verification and mapping are."""
    verdict = verifier.verify(request, at, keys)
    return Review(request=request, verdict=verdict, events=mapping.events(contract, request, verdict.signed))


def element(events: tuple[Event, ...], number: int) -> Event:
    """Return the event of an element; an unreadable one where today's contract finds no such element."""
    if number < len(events):
        return events[number]
    return Event(dedup_key="", content_sha256="", element=number, readable=False, problem="the contract finds no such element")


def _request(method: str, target: bytes, row: Mapping[str, Any], public_url: str) -> InboundRequest:
    pairs = [line.partition(b": ") for line in (row["headers"] or b"").split(b"\r\n") if line]
    headers = [(name, value) for name, _, value in pairs]
    if headers and headers[0][0] == _TARGET:
        target = headers.pop(0)[1]
    path, _, query = (target or b"/webhooks/" + row["provider"].encode()).partition(b"?")
    return InboundRequest(method=method, path=path, query=query, headers=tuple(headers), body=row["body"] or b"", public_url=public_url)

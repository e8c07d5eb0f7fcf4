"""What happened, for tests and people: every request that came in, every callback that went out. Bounded, oldest forgotten."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from schemas.operation import Micros
from simulator.options import MAX_KEPT_BODY_BYTES

HEADERS_OF_INTEREST = frozenset(
    {"content-type", "idempotency-key", "prefer", "traceparent", "tracestate", "user-agent", "x-request-id", "x-simulate", "x-trace-id"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request as it came in. The credential is never kept, only whether there was one."""

    at: Micros
    request_id: str
    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    authorized: bool
    body_bytes: int
    body_sha256: str
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One try to deliver a callback. `status` None: no answer, and `error` says why.

    `note` is original, retry, copy, late_copy, lost, or says why there was no try.
    """

    at: Micros
    job: str
    event_id: str
    type: str
    note: str
    status: int | None = None
    error: str = ""


class Journal:
    """The two logs."""

    def __init__(self, limit: int) -> None:
        self._calls: deque[Call] = deque(maxlen=limit)
        self._sent: deque[Sent] = deque(maxlen=limit)

    def called(self, call: Call) -> None:
        """Keep a request, and the beginning of its body."""
        self._calls.append(replace(call, body=call.body[:MAX_KEPT_BODY_BYTES]))

    def sent(self, entry: Sent) -> None:
        """Keep a try to deliver."""
        self._sent.append(entry)

    def calls(self, method: str | None = None, path: str | None = None) -> list[Call]:
        """Return the requests, oldest first, of this method and exact path where given."""
        return [call for call in self._calls if method in {None, call.method} and path in {None, call.path}]

    def deliveries(self, job: str | None = None) -> list[Sent]:
        """Return the tries to deliver, oldest first, about this job where given."""
        return [entry for entry in self._sent if job in {None, entry.job}]

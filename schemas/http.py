"""HTTP as values: what is to be sent to a provider, and what came of it."""

from dataclasses import dataclass, field
from typing import Literal

from schemas.operation import Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """One outbound call. `secret_headers` names headers that never reach a log, history row or exchange."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = field(default=b"", repr=False)
    secret_headers: tuple[str, ...] = ()
    max_bytes: int = 1_048_576
    connect_seconds: float = 5.0
    total_seconds: float = 30.0
    allow_private: bool = True  # False: an address that a provider named; only public addresses may be dialled


@dataclass(frozen=True, slots=True, kw_only=True)
class NotSentOutcome:
    """Surely not executed: no byte of the request left (DNS, refused, pool, TLS before bytes, too late to send)."""

    error: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaybeOutcome:
    """Bytes left and no complete answer came: it may have executed."""

    error: str
    detail: str = ""
    status: int | None = None  # the head of an answer whose body was cut or too large


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredOutcome:
    """A complete answer, whatever it says. Header names are lower-case."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = field(default=b"", repr=False)

    def header(self, name: str) -> str:
        """Return the first value of header `name` (any case), or the empty text."""
        wanted = name.lower()
        return next((value for key, value in self.headers if key == wanted), "")


Outcome = NotSentOutcome | MaybeOutcome | AnsweredOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """The recorded request and response of one call, sanitised: no credential, no query of a URL, bounded body."""

    id: str
    errand: str
    method: str
    url: str  # without query and fragment
    started_at: Micros
    finished_at: Micros
    outcome: Literal["answered", "not_sent", "maybe"]
    status: int | None = None
    error: str = ""
    provider_request_id: str = ""
    response_digest: str = ""  # SHA-256 (hex) of the whole body
    response_body: bytes = field(default=b"", repr=False)  # the first 16 KiB

"""What a request says, read lazily and exactly: header values, parameters, form fields, JSON scalars, URLs.

Everything works on bytes: a body that is not UTF-8 can be signed just as well (catalogue, section 3).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, unquote_to_bytes

from providers.verification.keystore import NO_KEYS, KeyStore
from schemas.delivery import InboundRequest, Reason, WantedKey
from schemas.jsontext import UnreadableJsonError, parse

MAX_FIELDS: Final = 1_000  # form fields or parameters; real deliveries have tens
_UNSET: Final = object()
_FORM: Final = b"application/x-www-form-urlencoded"


# Of several refusals the one that says most is reported: how far the delivery came. A key that can still be fetched comes late:
# the same delivery may be accepted then.
DEPTH: Final = {
    reason: depth
    for depth, reason in enumerate(
        (
            Reason.NO_SECRET,
            Reason.UNSUPPORTED,
            Reason.MISSING_SIGNATURE,
            Reason.MISSING_FIELD,
            Reason.MALFORMED_BODY,
            Reason.MALFORMED_SIGNATURE,
            Reason.MISSING_TIMESTAMP,
            Reason.MALFORMED_TIMESTAMP,
            Reason.WRONG_SIGNATURE,
            Reason.KEY_REFUSED,
            Reason.WRONG_CLAIM,
            Reason.KEY_UNAVAILABLE,
            Reason.TOO_OLD,
            Reason.IN_FUTURE,
        )
    )
}


class RefusalError(Exception):
    """Control flow inside this room only: the engine turns it into a `Refused` verdict."""

    def __init__(self, reason: Reason, detail: str, wanted: WantedKey | None = None) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.wanted = wanted


def fields_of(raw: bytes) -> list[tuple[bytes, bytes]]:
    """Return the decoded pairs of a query or form body in their order. Raises RefusalError above MAX_FIELDS."""
    if not raw:
        return []
    pieces = raw.split(b"&", MAX_FIELDS)
    if len(pieces) > MAX_FIELDS:
        raise RefusalError(Reason.MALFORMED_BODY, f"more than {MAX_FIELDS} fields")
    pairs = (piece.partition(b"=") for piece in pieces if piece)
    return [(unquote_to_bytes(name.replace(b"+", b" ")), unquote_to_bytes(value.replace(b"+", b" "))) for name, _, value in pairs]


def media_type(headers: tuple[tuple[bytes, bytes], ...]) -> bytes:
    """Return the lower-case media type of the first Content-Type header, without its parameters."""
    value = next((value for name, value in headers if name == b"content-type"), b"")
    return value.partition(b";")[0].strip().lower()


def is_form(headers: tuple[tuple[bytes, bytes], ...]) -> bool:
    """Say whether the content type declares a urlencoded form."""
    return media_type(headers) == _FORM


class Facts:
    """One request and the contract's constants. Values are computed once and only when a scheme asks for them."""

    __slots__ = ("_encoded", "_form", "_json", "_query", "keys", "params", "request")

    def __init__(self, request: InboundRequest, params: Mapping[str, str], keys: KeyStore = NO_KEYS) -> None:
        self.request = request
        self.params = params
        self.keys = keys
        self._form: Any = _UNSET
        self._json: Any = _UNSET
        self._query: Any = _UNSET
        self._encoded: dict[bytes, list[bytes]] | None = None

    def headers(self, name: bytes) -> list[bytes]:
        """Return every value of header `name` (lower-case), without optional white space (RFC 9110, section 5.5)."""
        return [value.strip(b" \t") for key, value in self.request.headers if key == name]

    def header(self, name: bytes) -> bytes | None:
        """Return the one value of header `name`, None when absent. Raises RefusalError when it is there twice: ambiguous."""
        values = self.headers(name)
        if len(values) > 1:
            raise RefusalError(Reason.MISSING_FIELD, f"header {name.decode('latin-1')} is there more than once")
        return values[0] if values else None

    def query(self, name: bytes) -> bytes | None:
        """Return the one decoded value of parameter `name`. Raises RefusalError when it is there twice."""
        if self._query is _UNSET:
            self._query = fields_of(self.request.query)
        return _only(self._query, name, "parameter")

    def encoded_query(self) -> Mapping[bytes, Sequence[bytes]]:
        """Return the parameters of the query by name, both encoded again as RFC 9421, section 2.2.8, wants them.

        Made once: a signature may speak of dozens of parameters, and a query may have a thousand.
        """
        if self._encoded is None:
            found: dict[bytes, list[bytes]] = {}
            for name, value in fields_of(self.request.query):
                found.setdefault(_encoded(name), []).append(value)
            self._encoded = {name: [_encoded(value) for value in values] for name, values in found.items()}
        return self._encoded

    def form(self) -> list[tuple[bytes, bytes]]:
        """Return the form fields of the body."""
        if self._form is _UNSET:
            self._form = fields_of(self.request.body)
        fields: list[tuple[bytes, bytes]] = self._form
        return fields

    def form_field(self, name: bytes) -> bytes | None:
        """Return the one value of form field `name`. Raises RefusalError when it is there twice."""
        return _only(self.form(), name, "form field")

    def declared_form(self) -> list[tuple[bytes, bytes]]:
        """Return the form fields; a body of another kind is refused, for a scheme over fields would not cover it."""
        if self.request.body and not is_form(self.request.headers):
            raise RefusalError(Reason.MALFORMED_BODY, "the scheme signs form fields and the body is no form")
        return self.form()

    def json(self) -> Any:
        """Return the body's JSON value. Raises RefusalError when it is not strict JSON."""
        if self._json is _UNSET:
            try:
                self._json = parse(self.request.body)
            except UnreadableJsonError as error:
                raise RefusalError(Reason.MALFORMED_BODY, f"the body is not readable JSON: {error}") from error
        return self._json

    def json_at(self, path: tuple[str, ...]) -> Any:
        """Return the value at a dotted path (numbers index lists), None when absent."""
        return walk(self.json(), path)

    def url(self) -> bytes:
        """Return the public URL with the raw query as received. Never built from Host or forwarded headers (B012, B013)."""
        configured = self.params.get("url")
        if configured:
            return configured.encode()
        if not self.request.public_url:
            raise RefusalError(Reason.MISSING_FIELD, "the scheme signs the URL: set public_url")
        base = self.request.public_url.encode()
        return base + b"?" + self.request.query if self.request.query else base

    def target(self) -> bytes:
        """Return the raw path with the raw query."""
        query = self.request.query
        return self.request.path + b"?" + query if query else self.request.path


def walk(value: Any, path: tuple[str, ...]) -> Any:
    """Return what stands at `path` in a parsed document, None when it is not there."""
    for step in path:
        match value:
            case dict():
                value = value.get(step)
            case list():
                value = value[int(step)] if step.isascii() and step.isdigit() and len(step) < 7 and int(step) < len(value) else None  # noqa: PLR2004 - six digits index any bounded list
            case _:
                return None
    return value


def scalar(value: Any) -> bytes:
    """Return a JSON scalar as the text that providers sign: missing and null are empty, booleans `true` and `false`."""
    match value:
        case None:
            return b""
        case bool():
            return b"true" if value else b"false"
        case str():
            return value.encode()
        case int():
            return b"%d" % value
        case float():
            return repr(value).encode()
        case _:
            raise RefusalError(Reason.MISSING_FIELD, "a signed field is no text or number")


def _encoded(value: bytes) -> bytes:
    # As forms encode, but a space as %20.
    return quote(value, safe="*-._").replace("~", "%7E").encode()


def _only(pairs: list[tuple[bytes, bytes]], name: bytes, kind: str) -> bytes | None:
    values = [value for key, value in pairs if key == name]
    if len(values) > 1:
        raise RefusalError(Reason.MISSING_FIELD, f"{kind} {name.decode('latin-1')} is there more than once")
    return values[0] if values else None

r"""The message template language: which bytes a signature covers (catalogue, section 2).

`{body} {ts} {header:N} {method} {url} {url_noport} {url_port} {path} {query:N} {param:N} {json:a.0.b} {form:N} {sig:N}
{sha256_body_hex} {sha256_body_raw} {crc32_body} {sorted_form} {sorted_query_encoded} {canonical_headers:N}
{json_string_body} {secret}`; `{header:N?}` may be absent (empty); `{…|lower}` lower-cases; `\n` is a line feed.
Other braces are plain text. Templates are compiled once; rendering joins bytes.
"""

import hashlib
import json
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote_plus, urlsplit

from providers.verification.facts import Facts, RefusalError, fields_of, scalar
from schemas.delivery import Reason

_TOKEN = re.compile(r"\{([a-z][a-z0-9_]*)(?::([^{}|?]*))?(\?)?(\|lower)?\}")
_NAMED: Final = frozenset({"header", "query", "param", "json", "form", "sig", "canonical_headers"})
_PLAIN: Final = frozenset(
    {
        "body", "ts", "method", "url", "url_noport", "url_port", "path", "sha256_body_hex", "sha256_body_raw", "crc32_body",
        "sorted_form", "sorted_query_encoded", "json_string_body", "secret",
    }
)  # fmt: skip
TOKENS: Final = _NAMED | _PLAIN
"""Every token of the language, without braces."""

_ESCAPES: Final = {"\\n": "\n", "\\t": "\t", "\\\\": "\\"}
_DEFAULT_PORTS: Final = {"https": 443, "http": 80}
_MAX_LISTED: Final = 32  # headers that a sender may list as signed; real lists have a few


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a template may speak of. `timestamp` is the text exactly as received; `pairs` the signature header's others."""

    facts: Facts
    timestamp: bytes | None
    pairs: Mapping[bytes, bytes]
    timestamp_header: bytes = b""


_Part = bytes | Callable[[Inputs], bytes]


@dataclass(frozen=True, slots=True)
class Message:
    """A compiled template. `tokens` are its token names with arguments (`ts`, `json:data.id`): what it covers."""

    parts: tuple[_Part | None, ...]  # None: the place of the secret
    tokens: frozenset[str]

    def render(self, inputs: Inputs, secret: bytes = b"") -> bytes:
        """Return the signed bytes. Raises RefusalError where something that is signed is missing."""
        return b"".join([secret if part is None else part if isinstance(part, bytes) else part(inputs) for part in self.parts])


@dataclass(frozen=True, slots=True)
class Segments:
    """Templates that are dropped when a value is absent (Mercado Pago), joined."""

    pieces: tuple[tuple[Message, Callable[[Inputs], bytes | bool] | None], ...]
    tokens: frozenset[str]

    def render(self, inputs: Inputs, secret: bytes = b"") -> bytes:
        """Return the joined bytes of the segments whose condition has a value."""
        return b"".join([message.render(inputs, secret) for message, present in self.pieces if present is None or present(inputs)])


@dataclass(frozen=True, slots=True)
class Choice:
    """Messages of which a value of the request selects one (SNS: by `Type`). `tokens` are what all of them cover."""

    by: Callable[[Inputs], bytes]
    of: Mapping[bytes, Message | Segments]
    tokens: frozenset[str]

    def render(self, inputs: Inputs, secret: bytes = b"") -> bytes:
        """Return the bytes of the selected message. Raises RefusalError for a value that the contract does not name."""
        selected = self.of.get(self.by(inputs))
        if selected is None:
            raise RefusalError(Reason.MISSING_FIELD, "the contract has no signed form for a delivery of this kind")
        return selected.render(inputs, secret)


def compile_message(template: str) -> Message:
    """Return the compiled template. Raises ValueError that names an unknown token and the known ones."""
    parts: list[_Part | None] = []
    tokens: set[str] = set()
    end = 0
    for found in _TOKEN.finditer(template):
        _literal(parts, template[end : found.start()])
        end = found.end()
        name, argument, optional, lower = found[1], found[2], bool(found[3]), bool(found[4])
        tokens.add(name if argument is None else f"{name}:{argument}")
        parts.append(None if name == "secret" else _part(name, argument, optional=optional, lower=lower))
    _literal(parts, template[end:])
    return Message(tuple(parts), frozenset(tokens))


def compile_segments(segments: Sequence[tuple[str, str | None]]) -> Segments:
    """Return compiled segments: (template, `kind:name` that must have a value, or None)."""
    pieces = [(compile_message(template), _condition(condition) if condition else None) for template, condition in segments]
    return Segments(tuple(pieces), frozenset().union(*(message.tokens for message, _ in pieces)))


def compile_choice(by: str, of: Mapping[str, Sequence[tuple[str, str | None]]]) -> Choice:
    """Return a compiled choice: `kind:name` of the value that selects, and the segments for each value. Raises ValueError."""
    kind, _, name = by.partition(":")
    forms = {value.encode(): compile_segments(segments) for value, segments in of.items()}
    if not forms:
        raise ValueError("names no form")
    covered = frozenset.intersection(*(form.tokens for form in forms.values()))
    if by not in covered:
        raise ValueError(f"selects by {by}, which is not among the signed bytes of every form")
    return Choice(_part(kind, name, optional=False, lower=False), forms, covered)


def _condition(text: str) -> Callable[[Inputs], bytes | bool]:
    kind, _, name = text.partition(":")
    part = _part(kind, name, optional=True, lower=False)
    if kind == "json":
        # A field of a document is there or not: an empty text is signed like any other, and cannot be slipped in.
        path = tuple(name.split("."))
        return lambda inputs: inputs.facts.json_at(path) is not None
    return part


def _literal(parts: list[_Part | None], text: str) -> None:
    if text:
        parts.append(re.sub(r"\\[nt\\]", lambda found: _ESCAPES[found[0]], text).encode())


def _part(name: str, argument: str | None, *, optional: bool, lower: bool) -> Callable[[Inputs], bytes]:
    if name in _NAMED and not argument:
        raise ValueError(f"{{{name}}} needs a name: {{{name}:NAME}}")
    if name in _PLAIN and argument is not None:
        raise ValueError(f"{{{name}}} takes no name")
    if name not in _NAMED and name not in _PLAIN:
        raise ValueError(f"{{{name}}} is not known: use one of {', '.join(sorted(_NAMED | _PLAIN))}")
    part = _named(name, argument, optional=optional) if argument else _SIMPLE[name]
    return (lambda inputs: part(inputs).lower()) if lower else part


def _named(kind: str, name: str, *, optional: bool) -> Callable[[Inputs], bytes]:
    raw = name.lower().encode() if kind in {"header", "canonical_headers"} else name.encode()
    path = tuple(name.split("."))

    def need(value: bytes | None) -> bytes:
        if value is None and not optional:
            raise RefusalError(Reason.MISSING_FIELD, f"{kind} {name} is signed and not there")
        return value or b""

    def param(inputs: Inputs) -> bytes:
        value = inputs.facts.params.get(name)
        return need(None if value is None else value.encode())

    match kind:
        case "header":
            return lambda inputs: need(inputs.facts.header(raw))
        case "query":
            return lambda inputs: need(inputs.facts.query(raw))
        case "form":
            return lambda inputs: need(inputs.facts.form_field(raw))
        case "sig":
            return lambda inputs: need(inputs.pairs.get(raw))
        case "json":
            return lambda inputs: scalar(inputs.facts.json_at(path))
        case "param":
            return param
        case _:
            return lambda inputs: _canonical_headers(inputs, raw)


def _timestamp(inputs: Inputs) -> bytes:
    if inputs.timestamp is None:
        raise RefusalError(Reason.MISSING_TIMESTAMP, "the timestamp is signed and not there")
    return inputs.timestamp


def _url_without_port(inputs: Inputs) -> bytes:
    return _with_port(inputs.facts.url(), add=False)


def _url_with_port(inputs: Inputs) -> bytes:
    return _with_port(inputs.facts.url(), add=True)


def _with_port(url: bytes, *, add: bool) -> bytes:
    # The rest of the URL is kept byte for byte: only the port behind the host changes (B012, B013).
    scheme, separator, rest = url.partition(b"://")
    cut = min((rest.find(mark) for mark in b"/?#" if rest.find(mark) >= 0), default=len(rest))
    authority, tail = rest[:cut], rest[cut:]
    try:
        parts = urlsplit((scheme + b"://" + authority).decode())
        port = parts.port
    except ValueError as error:
        raise RefusalError(Reason.MISSING_FIELD, "public_url is no URL") from error
    bare = authority.rpartition(b":")[0] if port is not None else authority
    if not add:
        return scheme + separator + bare + tail
    wanted = port if port is not None else _DEFAULT_PORTS.get(parts.scheme, 443)
    return scheme + separator + bare + b":%d" % wanted + tail


def _sorted_form(inputs: Inputs) -> bytes:
    # Twilio: names by code point; of a repeated name the distinct values, sorted. No delimiters.
    values: dict[bytes, set[bytes]] = {}
    for name, value in inputs.facts.declared_form():
        values.setdefault(name, set()).add(value)
    return b"".join([name + value for name in sorted(values) for value in sorted(values[name])])


def _sorted_query(inputs: Inputs) -> bytes:
    pairs = sorted(fields_of(inputs.facts.request.query))
    return "&".join(f"{quote_plus(name)}={quote_plus(value)}" for name, value in pairs).encode()


def _canonical_headers(inputs: Inputs, list_header: bytes) -> bytes:
    # Contentful: the sender lists which headers it signed; the timestamp must be among them or freshness proves nothing (B021).
    listed = inputs.facts.header(list_header)
    if not listed:
        raise RefusalError(Reason.MISSING_FIELD, f"header {list_header.decode('latin-1')} is not there")
    names = [name.strip().lower() for name in listed.split(b",", _MAX_LISTED)]
    # Once each: a long list that repeats one long header would make a hundred megabytes of one small head.
    if len(names) > _MAX_LISTED or len(set(names)) != len(names):
        raise RefusalError(Reason.MALFORMED_SIGNATURE, "the list of signed headers is too long, or names one twice")
    if inputs.timestamp_header and inputs.timestamp_header not in names:
        raise RefusalError(Reason.MISSING_TIMESTAMP, "the timestamp header is not among the signed headers")
    pieces: list[bytes] = []
    for name in names:
        value = inputs.facts.header(name)
        if value is None:
            raise RefusalError(Reason.MISSING_FIELD, "a header that is signed is not there")
        pieces.append(name + b":" + value)
    return b";".join(pieces)


def _json_string(inputs: Inputs) -> bytes:
    try:
        return json.dumps(inputs.facts.request.body.decode(), ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise RefusalError(Reason.MALFORMED_BODY, "the body is not UTF-8") from error


_SIMPLE: Final[Mapping[str, Callable[[Inputs], bytes]]] = {
    "body": lambda inputs: inputs.facts.request.body,
    "ts": _timestamp,
    "method": lambda inputs: inputs.facts.request.method.encode("latin-1", "replace"),
    "url": lambda inputs: inputs.facts.url(),
    "url_noport": _url_without_port,
    "url_port": _url_with_port,
    "path": lambda inputs: inputs.facts.target(),
    "sha256_body_hex": lambda inputs: hashlib.sha256(inputs.facts.request.body).hexdigest().encode(),
    "sha256_body_raw": lambda inputs: hashlib.sha256(inputs.facts.request.body).digest(),
    "crc32_body": lambda inputs: b"%d" % zlib.crc32(inputs.facts.request.body),
    "sorted_form": _sorted_form,
    "sorted_query_encoded": _sorted_query,
    "json_string_body": _json_string,
}

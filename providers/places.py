"""Places and templates: where a value stands in a request or answer, and texts with `{name}` fields.

A place is `header:NAME`, `query:NAME` or `body:EXPRESSION` (JMESPath). Places are compiled when a contract is loaded;
finding never raises, whatever a provider sends.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote

import jmespath
from jmespath.exceptions import JMESPathError

# Token characters of a header name, RFC 9110 section 5.6.2.
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FIELD = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")
MAX_SEGMENTS: Final = 16  # of a value that stands for several: resource names have up to ten
_FIELD_NAME = re.compile(r"\+?[a-z][a-z0-9_]*(?:\.[A-Za-z0-9_-]+)?")
# What must never reach a log line, a database text column or a header: controls, line separators, half characters.
_UNFIT = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_MAX_INT_BITS: Final = 2_048  # an id of more than 600 digits is none; also far below Python's own limit of 4,300 digits


# Chains of plain names and alternatives of them are walked directly: an interpreted expression costs 6 us and more, this
# under 1 us, and nearly all places are so.
_NAMES: Final = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*"
_CHAINS = re.compile(rf"{_NAMES}(?: *\|\| *{_NAMES})*")


class TemplateError(ValueError):
    """A template cannot be filled with these values; the message never repeats a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A compiled place. `kind` is header, query or body; `name` the lower-case header, the parameter or the expression."""

    kind: str
    name: str
    _program: Any = field(default=None, repr=False, compare=False)
    _chains: tuple[tuple[str, ...], ...] = field(default=(), repr=False, compare=False)

    def find(self, *, headers: Iterable[tuple[str, str]] = (), query: Iterable[tuple[str, str]] = (), body: Any = None) -> Any | None:
        """Return the value at this place, or None. Header names are lower-case; the first of several values counts. Never raises."""
        match self.kind:
            case "header":
                return next((value for name, value in headers if name == self.name), None)
            case "query":
                return next((value for name, value in query if name == self.name), None)
            case _ if self._chains:
                return _walk(self._chains, body)
            case _:
                try:
                    return self._program.search(body)
                except Exception:  # noqa: BLE001 - an expression meets whatever a stranger sent; no match is the answer
                    return None


def _walk(chains: tuple[tuple[str, ...], ...], body: Any) -> Any | None:
    """Return what JMESPath's `a.b || c.d` gives: the first alternative that is not false there, else the last one."""
    value: Any = None
    for chain in chains:
        value = body
        for step in chain:
            if not isinstance(value, dict):
                value = None
                break
            value = value.get(step)
        if value or (value is not False and isinstance(value, int | float)):  # zero is a value there
            return value
    return value


@lru_cache(maxsize=2_048)  # bound: expressions come from contract files only
def compile_expression(text: str) -> Any:
    """Return the compiled JMESPath `text`. Raises ValueError with the cure."""
    try:
        return jmespath.compile(text)
    except (JMESPathError, ValueError, RecursionError) as error:
        hint = " (names with other characters than letters, digits and _ need double quotes inside the expression)" if "-" in text else ""
        raise ValueError(f"{text!r} is not a JMESPath expression{hint}") from error


@lru_cache(maxsize=2_048)
def compile_place(text: str) -> Place:
    """Return the compiled place `text`. Raises ValueError with the cure."""
    kind, colon, name = text.partition(":")
    if not colon or kind not in {"header", "query", "body"}:
        raise ValueError(f"{text!r} is not a place: write header:NAME, query:NAME or body:EXPRESSION")
    if not name.strip():
        raise ValueError(f"{text!r} names nothing: write header:NAME, query:NAME or body:EXPRESSION")
    match kind:
        case "header":
            if not _HEADER_NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not a header name: remove spaces and separators")
            return Place(kind=kind, name=name.lower())
        case "query":
            return Place(kind=kind, name=name)
        case _:
            chains = tuple(tuple(part.strip().split(".")) for part in name.split("||")) if _CHAINS.fullmatch(name) else ()
            return Place(kind=kind, name=name, _program=compile_expression(name), _chains=chains)


def is_fit(text: str) -> bool:
    """Say whether `text` is free of NUL, controls, line separators and lone surrogates (B137, B141)."""
    return _UNFIT.search(text) is None


def as_text(value: Any, limit: int = 200) -> str:
    """Return `value` as bounded text to show or compare: exact decimal for integers, empty for what is no word or number.

    Empty for None, booleans, floats (an id that went through one is damaged), containers and blank text. NUL, controls,
    line separators and lone surrogates are removed (B137, B141); what is longer than `limit` characters is cut.
    """
    match value:
        case bool():
            return ""
        case int():
            text = str(value) if value.bit_length() <= _MAX_INT_BITS else ""
            return text if len(text) <= limit else ""
        case str():
            # Cut first: removing from a megabyte to keep 200 characters would be the stranger's way to spend our time.
            text = _UNFIT.sub("", value[: 4 * limit])[:limit]
            return text if text.strip() else ""
        case _:
            return ""


def as_id(value: Any, limit: int = 200) -> str:
    """Return `value` as an exact identifier, or the empty text where it cannot be kept exactly (too long, with controls).

    Cutting or cleaning an id could make it equal to another job's.
    """
    if isinstance(value, str) and (len(value) > limit or not is_fit(value)):
        return ""
    return as_text(value, limit)


@lru_cache(maxsize=2_048)
def _parts(template: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    literals: list[str] = [""]
    names: list[str] = []
    end = 0
    for found in _FIELD.finditer(template):
        literals[-1] += _plain(template[end : found.start()])
        end = found.end()
        if found[0] in {"{{", "}}"}:
            literals[-1] += found[0][0]
        else:
            names.append(found[1])
            literals.append("")
    literals[-1] += _plain(template[end:])
    for name in names:
        if not _FIELD_NAME.fullmatch(name):
            raise TemplateError(f"{{{name}}} is not a field: names are lower-case letters, digits and _, as in {{remote_job_id}}")
    return tuple(literals), tuple(names)


def _plain(text: str) -> str:
    if "{" in text or "}" in text:
        raise TemplateError("a brace without its partner: fields are written {name}, a brace itself {{ or }}")
    return text


def template_fields(template: str) -> tuple[str, ...]:
    """Return the names of the fields of `template` in their order. Raises TemplateError where a brace or name is wrong."""
    return tuple(name.removeprefix("+") for name in _parts(template)[1])


def render(template: str, values: Mapping[str, str], *, in_path: bool) -> str:
    """Return `template` with its fields filled.

    In a path every field becomes one percent-encoded segment: `/`, `?`, `#` and dots cannot lead elsewhere; `{+name}` keeps the
    slashes and each of its segments is encoded alone. Raises TemplateError for a field without value, for an empty, `.` or `..`
    segment, and for values with control characters.
    """
    literals, names = _parts(template)
    pieces: list[str] = [literals[0]]
    for written, literal in zip(names, literals[1:], strict=True):
        name = written.removeprefix("+")
        if name not in values:
            raise TemplateError(f"no value for {{{name}}}")
        value = values[name]
        if not is_fit(value):
            raise TemplateError(f"the value of {{{name}}} has control characters")
        if in_path:
            segments = value.split("/") if written != name else [value]
            if not all(segments) or {".", ".."} & set(segments) or len(segments) > MAX_SEGMENTS:
                raise TemplateError(f"the value of {{{name}}} is no path segment")
            value = "/".join(quote(segment, safe="") for segment in segments)
        pieces += (value, literal)
    return "".join(pieces)


def first_unknown(template: str, known: Sequence[str]) -> str | None:
    """Return the first field of `template` that is not in `known` (`param.*` stands for every name of that kind)."""
    for name in template_fields(template):
        kind, dot, _ = name.partition(".")
        if name not in known and not (dot and f"{kind}.*" in known):
            return name
    return None

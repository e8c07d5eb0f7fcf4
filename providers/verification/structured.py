"""Structured fields (RFC 9651): as much as HTTP message signatures need, strictly, within bounds.

Dictionaries whose members are byte sequences or inner lists of texts, with parameters. Where the standard lets the last of two
equal keys win, this refuses: two readers of one signed header must never see different values (B139).
"""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from providers.verification.encodings import base64_padded

MAX_MEMBERS: Final = 32
MAX_ITEMS: Final = 64

_KEY = re.compile(rb"[a-z*][a-z0-9_.*-]{0,127}")
_TEXT = re.compile(rb'"((?:[ !#-\[\]-~]|\\["\\])*)"')
_INTEGER = re.compile(rb"-?[0-9]{1,15}(?![0-9.])")
_TOKEN = re.compile(rb"[A-Za-z*][A-Za-z0-9!#$%&'*+.^_`|~:/-]*")
_BINARY = re.compile(rb":([A-Za-z0-9+/=]*):")
_SPACES = re.compile(rb" *")
_COMMA = re.compile(rb"[ \t]*,[ \t]*")


class UnreadableFieldError(ValueError):
    """The header is no structured field of the kinds that are read here."""


@dataclass(frozen=True, slots=True)
class Token:
    """A bare word, told apart from a text in quotes."""

    text: str


Bare = str | int | bool | bytes | Token
Params = Mapping[str, Bare]


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a dictionary: a bare value, or an inner list of texts, each with its parameters."""

    value: Bare | tuple[tuple[str, Params], ...]
    params: Params


def read_dictionary(text: bytes) -> dict[str, Member]:
    """Return the members of a dictionary field in their order. Raises UnreadableFieldError."""
    members: dict[str, Member] = {}
    position, text = 0, text.strip(b" \t")
    if not text:
        return members
    while True:
        key, position = _take(_KEY, text, position)
        name = key[0].decode()
        if name in members:
            raise UnreadableFieldError("the same key twice")
        members[name], position = _member(text, position)
        if position == len(text):
            return members
        if len(members) >= MAX_MEMBERS:
            raise UnreadableFieldError(f"more than {MAX_MEMBERS} members")
        _, position = _take(_COMMA, text, position)


def written(value: Bare) -> bytes:
    """Return the canonical form of a bare value (RFC 9651, section 4.1)."""
    match value:
        case bool():
            return b"?1" if value else b"?0"
        case int():
            return b"%d" % value
        case bytes():
            return b":" + base64.b64encode(value) + b":"
        case Token(text=text):
            return text.encode()
        case str():
            return b'"' + value.encode().replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


def written_params(params: Params) -> bytes:
    """Return parameters in their canonical form; a true one is its name alone."""
    return b"".join(b";" + name.encode() + (b"" if value is True else b"=" + written(value)) for name, value in params.items())


def _member(text: bytes, position: int) -> tuple[Member, int]:
    if text[position : position + 1] != b"=":
        params, position = _params(text, position)
        return Member(True, params), position  # a key alone is the value true
    position += 1
    if text[position : position + 1] == b"(":
        items, position = _inner_list(text, position + 1)
        params, position = _params(text, position)
        return Member(items, params), position
    value, position = _bare(text, position)
    params, position = _params(text, position)
    return Member(value, params), position


def _inner_list(text: bytes, position: int) -> tuple[tuple[tuple[str, Params], ...], int]:
    items: list[tuple[str, Params]] = []
    while True:
        _, position = _take(_SPACES, text, position)
        if text[position : position + 1] == b")":
            return tuple(items), position + 1
        if len(items) >= MAX_ITEMS:
            raise UnreadableFieldError(f"more than {MAX_ITEMS} items")
        value, position = _bare(text, position)
        if not isinstance(value, str):
            raise UnreadableFieldError("an item that is no text")
        params, position = _params(text, position)
        items.append((value, params))
        if text[position : position + 1] not in {b" ", b")"}:
            raise UnreadableFieldError("items without a space between them")


def _params(text: bytes, position: int) -> tuple[Params, int]:
    params: dict[str, Bare] = {}
    while text[position : position + 1] == b";":
        _, position = _take(_SPACES, text, position + 1)
        key, position = _take(_KEY, text, position)
        name, value = key[0].decode(), True
        if name in params or len(params) >= MAX_MEMBERS:
            raise UnreadableFieldError("a parameter twice, or too many of them")
        params[name] = value
        if text[position : position + 1] == b"=":
            params[name], position = _bare(text, position + 1)
    return params, position


def _bare(text: bytes, position: int) -> tuple[Bare, int]:
    match text[position : position + 1]:
        case b'"':
            found, position = _take(_TEXT, text, position)
            return re.sub(rb"\\(.)", rb"\1", found[1]).decode(), position
        case b":":
            found, position = _take(_BINARY, text, position)
            value = base64_padded(found[1]) if found[1] else b""
            if value is None:
                raise UnreadableFieldError("bytes that are not base64")
            return value, position
        case b"?":
            flag = text[position + 1 : position + 2]
            if flag not in {b"0", b"1"}:
                raise UnreadableFieldError("a boolean that is none")
            return flag == b"1", position + 2
        case first if first.isdigit() or first == b"-":
            found, position = _take(_INTEGER, text, position)
            return int(found[0]), position
        case _:
            found, position = _take(_TOKEN, text, position)
            return Token(found[0].decode()), position


def _take(pattern: re.Pattern[bytes], text: bytes, position: int) -> tuple[re.Match[bytes], int]:
    found = pattern.match(text, position)
    if found is None:
        raise UnreadableFieldError(f"unreadable at byte {position}")
    return found, found.end()

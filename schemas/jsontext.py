"""Strict JSON in, canonical JSON out. Two parsers of one signed document must never see different values (B139).

Refused: duplicate keys (also escaped ones), NaN and infinities, depth and number of lists and objects over their limits, bad
UTF-8, lone surrogates.
"""

import hashlib
import json
import re
from typing import Any, NoReturn

import rfc8785

MAX_DEPTH = 64
MAX_CONTAINERS = 65_536  # lists and objects of one document; a megabyte of real ones has some thousands
_OPENING = frozenset(b"[{")
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
# A text whole, or the rest of a document whose last text has no end. No way back: linear, whatever the bytes are.
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)', re.DOTALL)


class UnreadableJsonError(ValueError):
    """The bytes are not JSON by our rules; the message says which rule and never repeats the content."""


def parse(data: bytes, *, max_depth: int = MAX_DEPTH) -> Any:
    """Return the value of `data`. Integers are exact; numbers with a fraction are floats.

    Raises UnreadableJsonError; never RecursionError.
    """
    _check_depth(data, max_depth)
    try:
        text = data.decode("utf-8")
        value = _DECODER.decode(text)
    except UnreadableJsonError:
        raise
    except UnicodeDecodeError as error:
        raise UnreadableJsonError("not UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise UnreadableJsonError("not JSON") from error
    if "\\u" in text:
        _check_surrogates(value)
    return value


def canonical(value: Any) -> bytes:
    """Return RFC 8785 canonical JSON. Integers of 2^53 and more have no canonical form there and are refused."""
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as error:
        raise UnreadableJsonError("has no canonical form (integers must be below 2^53)") from error


def fingerprint(value: Any) -> str:
    """Return `sha256:<hex>` of the canonical form.

    Key order and white space do not matter; 1 and 1.0, Unicode forms, null and absent do (B058). RFC 8785 writes
    1.0 as 1, so floats with an integral value are marked before hashing.
    """
    return "sha256:" + hashlib.sha256(canonical(_marked(value))).hexdigest()


def _marked(value: Any) -> Any:
    match value:
        case float() if value.is_integer():
            return {"\x00float": repr(value)}
        case dict():
            return {key: _marked(item) for key, item in value.items()}
        case list():
            return [_marked(item) for item in value]
        case _:
            return value


def _check_depth(data: bytes, limit: int) -> None:
    # Before the parser recurses. Most documents have few brackets; of the others only the brackets outside of texts are walked,
    # for a stranger sends a megabyte of anything, and nobody else is served meanwhile.
    if data.count(b"[") + data.count(b"{") <= limit:
        return
    brackets = _TEXT.sub(b"", data).translate(None, _NO_BRACKETS)
    depth = 0
    for byte in brackets[: 2 * MAX_CONTAINERS]:
        if byte in _OPENING:
            depth += 1
            if depth > limit:
                raise UnreadableJsonError(f"nested deeper than {limit}")
        else:
            depth -= 1
    if brackets.count(b"[") + brackets.count(b"{") > MAX_CONTAINERS:
        raise UnreadableJsonError(f"more than {MAX_CONTAINERS} lists and objects")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise UnreadableJsonError("the same key twice")
    return value


def _no_constant(_: str) -> NoReturn:
    raise UnreadableJsonError("NaN and infinities are not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if value in {float("inf"), float("-inf")}:
        raise UnreadableJsonError("a number out of range")
    return value


# Made once: `json.loads` with hooks makes a decoder each time, which costs as much as reading a small body.
_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)


def _check_surrogates(value: Any) -> None:
    stack = [value]
    while stack:
        item = stack.pop()
        match item:
            case str():
                try:
                    item.encode("utf-8")
                except UnicodeEncodeError as error:
                    raise UnreadableJsonError("a lone surrogate") from error
            case dict():
                stack.extend(item.keys())
                stack.extend(item.values())
            case list():
                stack.extend(item)
            case _:
                pass

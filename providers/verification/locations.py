"""Where signatures stand and how their text is split (catalogue, Signature location and parser)."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from providers.verification.facts import Facts, RefusalError
from schemas.contract import SignatureLocation
from schemas.delivery import Reason

MAX_TEXT: Final = 8_192  # bytes of one signature header: a hundred signatures; longer is an attack (B004)
MAX_SIGNATURES: Final = 32  # tried per delivery: rotation needs two or three
MAX_NUMBERED: Final = 100  # DocuSign's own limit of numbered headers


@dataclass(slots=True)
class Found:
    """What a location held: signature texts with the index of their header, the timestamp text, other pairs."""

    signatures: list[tuple[int, bytes]] = field(default_factory=list)
    timestamp: bytes | None = None
    pairs: dict[bytes, bytes] = field(default_factory=dict)


Parser = Callable[[bytes, int, Found, Facts], None]
Locator = Callable[[Facts], Found]


def compile_location(location: SignatureLocation) -> Locator:
    """Return a function that finds the signatures of a request. It raises RefusalError where there are none."""
    parse = PARSERS[location.parser](location.options)
    read = _reader(location)

    def locate(facts: Facts) -> Found:
        found = Found()
        texts = read(facts)
        if not any(text for _, text in texts):
            raise RefusalError(Reason.MISSING_SIGNATURE, f"no signature in {location.place} {location.name}")
        for index, text in texts:
            if len(text) > MAX_TEXT:
                raise RefusalError(Reason.MALFORMED_SIGNATURE, f"a signature of more than {MAX_TEXT} bytes")
            parse(text, index, found, facts)
        if not found.signatures:
            raise RefusalError(Reason.MALFORMED_SIGNATURE, "no signature of the contract's form")
        if len(found.signatures) > MAX_SIGNATURES:
            raise RefusalError(Reason.MALFORMED_SIGNATURE, f"more than {MAX_SIGNATURES} signatures")
        return found

    return locate


def _reader(location: SignatureLocation) -> Callable[[Facts], list[tuple[int, bytes]]]:
    raw = location.name.encode()
    path = tuple(location.name.split("."))
    names = [name.lower().encode() for name in location.options.get("names") or (location.name,)]

    def headers(facts: Facts) -> list[tuple[int, bytes]]:
        values: list[tuple[int, bytes]] = []
        for index, name in enumerate(names):
            here = facts.headers(name)
            # One of two equal headers may have been added on the way: ambiguous, so refused.
            if len(here) > 1:
                raise RefusalError(Reason.MALFORMED_SIGNATURE, f"header {location.name} is there more than once")
            values += [(index, value) for value in here]
        return values

    def numbered(facts: Facts) -> list[tuple[int, bytes]]:
        prefix, _, suffix = location.name.lower().partition("{n}")
        values: list[tuple[int, bytes]] = []
        for number in range(1, MAX_NUMBERED + 1):
            here = facts.headers(f"{prefix}{number}{suffix}".encode())
            if len(here) > 1:
                raise RefusalError(Reason.MALFORMED_SIGNATURE, f"header {location.name} is there more than once")
            if not here:
                break
            values += [(0, value) for value in here]
        return values

    def json(facts: Facts) -> list[tuple[int, bytes]]:
        value = facts.json_at(path)
        if value is None:
            return []
        if not isinstance(value, str):
            raise RefusalError(Reason.MALFORMED_SIGNATURE, "the signature in the body is no text")
        return [(0, value.encode())]

    def one(value: bytes | None) -> list[tuple[int, bytes]]:
        return [] if value is None else [(0, value)]

    readers: dict[str, Callable[[Facts], list[tuple[int, bytes]]]] = {
        "header": headers,
        "headers_numbered": numbered,
        "json": json,
        "form": lambda facts: one(facts.form_field(raw)),
        "query": lambda facts: one(facts.query(raw)),
    }
    return readers[location.place]


PLACES: Final = ("header", "headers_numbered", "json", "form", "query")


def _raw(_: Mapping[str, Any]) -> Parser:
    def parse(text: bytes, index: int, found: Found, _: Facts) -> None:
        if text:
            found.signatures.append((index, text))

    return parse


def _prefix(options: Mapping[str, Any]) -> Parser:
    prefix = str(options["prefix"]).encode()

    def parse(text: bytes, index: int, found: Found, _: Facts) -> None:
        if text.startswith(prefix):
            found.signatures.append((index, text[len(prefix) :].strip(b" \t")))

    return parse


def _splitter(options: Mapping[str, Any], default: str) -> Callable[[bytes], list[bytes]]:
    if "sep_re" in options:
        return re.compile(str(options["sep_re"]).encode()).split
    separator = str(options.get("sep", default)).encode()
    return lambda text: text.split(separator)


def _kv(options: Mapping[str, Any]) -> Parser:
    split = _splitter(options, ",")
    key = str(options["key"]).encode()
    ts_key = str(options["ts_key"]).encode() if "ts_key" in options else None
    trim = options.get("trim", True)

    def parse(text: bytes, index: int, found: Found, _: Facts) -> None:
        for item in split(text):
            name, equals, value = item.partition(b"=")
            if trim:
                name, value = name.strip(b" \t"), value.strip(b" \t")
            if not equals:
                continue
            if name == key:
                found.signatures.append((index, value))
            elif name == ts_key:
                # Two different times: which one was signed is ambiguous, so refused.
                if found.timestamp is not None and found.timestamp != value:
                    raise RefusalError(Reason.MALFORMED_TIMESTAMP, "two different timestamps in the signature")
                found.timestamp = value
            else:
                found.pairs.setdefault(name, value)

    return parse


def _list(options: Mapping[str, Any]) -> Parser:
    split = _splitter(options, " ")
    separator = str(options.get("ver_sep", ",")).encode()
    version = str(options["version"]).encode()

    def parse(text: bytes, index: int, found: Found, _: Facts) -> None:
        for item in split(text):
            tag, comma, value = item.partition(separator)
            if comma and tag == version:
                found.signatures.append((index, value))

    return parse


def _pairs(options: Mapping[str, Any]) -> Parser:
    # Braintree: `public_key|signature` joined by `&`; with our own public key as a constant, only its pair counts.
    own = str(options.get("own", "public_key"))

    def parse(text: bytes, index: int, found: Found, facts: Facts) -> None:
        wanted = facts.params.get(own)
        for item in text.split(b"&"):
            name, bar, value = item.partition(b"|")
            if bar and (wanted is None or name == wanted.encode()):
                found.signatures.append((index, value.strip()))

    return parse


PARSERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Parser]]] = {
    "raw": _raw,
    "prefix": _prefix,
    "kv": _kv,
    "list": _list,
    "pairs": _pairs,
}
"""Parser of a contract -> what splits a signature's text."""

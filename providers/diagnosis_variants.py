"""What may have happened to a request on its way: each variant undoes one such change, for `providers/diagnosis.py` to try.

Candidates only; none is ever accepted. Pure, and bounded in number and in the bytes that are made.
"""

import base64
import binascii
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote_plus, urlsplit

from providers.verification.encodings import ENCODINGS
from providers.verification.facts import RefusalError, fields_of, is_form
from providers.verification.keys import KeyMaterialError, symmetric_key
from schemas.contract import SignatureScheme
from schemas.delivery import InboundRequest, Secret

MAX_BODY: Final = 4_194_304  # of a body that is written anew; larger ones are compared as they are
_GZIP: Final = b"\x1f\x8b"
_BOM: Final = b"\xef\xbb\xbf"
_HEX = re.compile(rb"[0-9A-Fa-f]{16,}")
_SYMMETRIC: Final = frozenset({"hmac", "hash"})
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}

Bodies = Iterator[tuple[str, InboundRequest]]
Schemes = tuple[SignatureScheme, ...]


def bodies(request: InboundRequest) -> Bodies:
    """Yield (code of the cause, request with another body), the most likely first."""
    for code, body in _texts(request):
        if body != request.body:
            yield code, replace(request, body=body)


def _texts(request: InboundRequest) -> Iterator[tuple[str, bytes]]:
    body = request.body
    yield "newline_added", body.rstrip(b"\r\n")
    yield "newline_stripped", body + b"\n"
    yield "newline_stripped", body + b"\r\n"
    yield "line_ends", body.replace(b"\r\n", b"\n")
    yield "line_ends", body.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    yield "byte_order_mark", body.removeprefix(_BOM)
    yield "byte_order_mark", _BOM + body
    yield "white_space", body.strip()
    if body[:2] == _GZIP:
        yield "compressed", _inflated(body)
    if len(body) > MAX_BODY:
        return
    yield from _charsets(body)
    yield from _rewritten(body)
    if is_form(request.headers):
        yield from _forms(body)
    yield "body_not_signed", b""


def _inflated(body: bytes) -> bytes:
    try:
        return zlib.decompressobj(31).decompress(body, MAX_BODY)
    except zlib.error:
        return body


def _charsets(body: bytes) -> Iterator[tuple[str, bytes]]:
    for read, written in (("utf-8", "latin-1"), ("utf-8", "cp1252"), ("latin-1", "utf-8"), ("cp1252", "utf-8"), ("utf-16", "utf-8")):
        try:
            yield "charset", body.decode(read).encode(written)
        except UnicodeError:
            continue


def _rewritten(body: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the ways in which libraries write the value of a JSON body: compact or spaced, sorted or not, escaped or not."""
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError):
        return
    styles: tuple[dict[str, Any], ...] = ({"separators": (",", ":")}, {"separators": (", ", ": ")}, {"indent": 2}, {"indent": 4})
    for style in styles:
        for ascii_only in (False, True):
            for sort in (False, True):
                try:
                    text = json.dumps(value, ensure_ascii=ascii_only, sort_keys=sort, **style)
                except (ValueError, RecursionError):
                    continue
                yield "rewritten", text.encode("utf-8", "surrogatepass")
                if "/" in text:
                    yield "rewritten", text.replace("/", "\\/").encode("utf-8", "surrogatepass")


def _forms(body: bytes) -> Iterator[tuple[str, bytes]]:
    yield "rewritten", body.replace(b"%20", b"+")
    yield "rewritten", body.replace(b"+", b"%20")
    try:
        pairs = fields_of(body)
    except RefusalError:
        return
    for ordered in (pairs, sorted(pairs)):
        yield "rewritten", "&".join(f"{quote_plus(name)}={quote_plus(value)}" for name, value in ordered).encode()


# --- addresses


def addresses(request: InboundRequest, configured: str) -> Iterator[tuple[str, InboundRequest]]:
    """Yield (code, request with another public address): scheme, host, port, path, the slash at the end, the query."""
    address = configured or request.public_url
    try:
        parts = urlsplit(address)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return
    if not host or not parts.scheme:
        return
    own_host = f"[{host}]" if ":" in host else host
    other = "http" if parts.scheme == "https" else "https"
    hosts: list[tuple[str, str]] = [(own_host, ""), *_hosts(request)]
    bare = parts.path.rstrip("/")
    ends = {**dict.fromkeys((bare, f"{bare}/", request.path.decode("latin-1")), "url_path"), parts.path: ""}
    for name, host_code in hosts:
        for scheme, scheme_code in ((parts.scheme, ""), (other, "url_scheme")):
            ports = {**dict.fromkeys((None, _DEFAULT_PORTS.get(scheme)), "url_port"), port: ""}
            for number, port_code in ports.items():
                for path, path_code in ends.items():
                    code = host_code or scheme_code or port_code or path_code
                    if code:
                        shown = f"{scheme}://{name}{'' if number is None else f':{number}'}{path}"
                        yield code, replace(request, public_url=shown)
    if request.query:
        yield "url_query", replace(request, query=b"", public_url=address)


def _hosts(request: InboundRequest) -> Iterator[tuple[str, str]]:
    for name in (b"host", b"x-forwarded-host"):
        for key, value in request.headers:
            if key == name and re.fullmatch(rb"[A-Za-z0-9.\-]{1,253}(?::[0-9]{1,5})?", value):
                yield value.decode("ascii").partition(":")[0], "url_host"


# --- how the signature is written


def schemes(known: Sequence[SignatureScheme]) -> Iterator[tuple[str, Schemes]]:
    """Yield (code, schemes that read the signature's text otherwise): another encoding, no prefix, another unit of time."""
    for scheme in known:
        if scheme.location is None:
            continue
        for encoding in ENCODINGS:
            if encoding != scheme.encoding:
                yield ("upper_case" if encoding == "hex_any" else "encoding"), (replace(scheme, encoding=encoding),)
        if scheme.location.parser != "raw":
            bare = replace(scheme.location, parser="raw", options={k: v for k, v in scheme.location.options.items() if k == "names"})
            yield "prefix_missing", (replace(scheme, location=bare),)
        if scheme.timestamp is not None:
            for unit in ("s", "ms", "iso8601", "rfc1123"):
                if unit != scheme.timestamp.unit:
                    yield "time_unit", (replace(scheme, timestamp=replace(scheme.timestamp, unit=unit)),)


def signature_texts(request: InboundRequest, known: Sequence[SignatureScheme]) -> Iterator[tuple[str, InboundRequest]]:
    """Yield (code, request whose signature header is written otherwise): a prefix dropped, quotes, base64 padding and alphabet."""
    names = {scheme.location.name.lower().encode() for scheme in known if scheme.location is not None and scheme.location.place == "header"}
    for index, (name, value) in enumerate(request.headers):
        if name not in names:
            continue
        for code, text in (
            ("prefix_added", value.partition(b"=")[2]),
            ("prefix_added", value.partition(b" ")[2]),
            ("quoted", value.strip(b"\"' \t")),
            ("upper_case", value.lower()),
            ("encoding", value + b"=" * (-len(value) % 4)),
            ("encoding", value.replace(b"-", b"+").replace(b"_", b"/") + b"=" * (-len(value) % 4)),
            ("encoding", value.replace(b" ", b"+")),
        ):
            if text and text != value:
                headers = (*request.headers[:index], (name, text), *request.headers[index + 1 :])
                yield code, replace(request, headers=headers)


# --- secrets


def key_forms(known: Sequence[SignatureScheme], secrets: Sequence[Secret]) -> Iterator[tuple[str, Schemes, Secret]]:
    """Yield (code, schemes, secret) with each secret taken in another form: as text, decoded, with or without its prefix or spaces."""
    for scheme in known:
        if scheme.primitive not in _SYMMETRIC:
            continue
        for secret in secrets:
            try:
                used = symmetric_key(secret.value, scheme.key)
            except KeyMaterialError:
                used = b""
            seen = {used, b""}
            for code, raw in _forms_of(secret.value):
                if raw not in seen:
                    seen.add(raw)
                    yield code, (replace(scheme, key="hex"),), Secret(id=secret.id, value=raw.hex().encode())


def _forms_of(value: bytes) -> Iterator[tuple[str, bytes]]:
    text = value.strip()
    for bare in (text, text.strip(b"\"'")):
        rest = bare.removeprefix(b"whsec_")
        code = "secret_form" if bare == text else "secret_quoted"
        yield code, bare
        yield code, rest
        yield code, b"whsec_" + rest
        for decode in (_base64, _hex):
            yield code, decode(rest)
    yield "secret_spaces", value
    yield "secret_spaces", text + b"\n"
    yield "secret_spaces", b" " + text
    yield "secret_spaces", text + b" "
    yield "secret_case", text.lower()


def _base64(text: bytes) -> bytes:
    try:
        return base64.b64decode(text.replace(b"-", b"+").replace(b"_", b"/") + b"=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        return b""


def _hex(text: bytes) -> bytes:
    return binascii.unhexlify(text) if _HEX.fullmatch(text) and len(text) % 2 == 0 else b""

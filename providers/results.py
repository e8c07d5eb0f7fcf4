"""Results: which files a finished job leaves, how they are asked for, and whether what came is what was agreed (F1, F2).

A credential goes to the pinned origin only. A URL that a provider names is fetched only from an origin that the contract
or the operator lists, without credential, and (unless the operator listed it) from public addresses over https (B094, B146).
"""

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

from providers.answers import find, is_page, looks_like_html, media_type, read_json, retry_after
from providers.places import as_id, as_text
from providers.requests import (
    USER_AGENT,
    UnbuildableError,
    UnusableCredentialError,
    auth_header,
    call,
    fields,
    path_of,
    traceparent,
)
from schemas.contract import Contract, ResultFile, ResultRule
from schemas.evidence import CollectFailed, ResultGone
from schemas.http import AnsweredOutcome, HttpRequest, MaybeOutcome, NotSentOutcome, Outcome
from schemas.operation import Micros, Operation
from schemas.states import Errand, Reading

_MAX_URL: Final = 8_192
_URL_TEXT = re.compile(r"[\x21-\x7e]+")
_SHA256 = re.compile(r"[0-9a-f]{64}")
# RFC 9530 section 2 (`sha-256=:…:`) and the older RFC 3230 (`SHA-256=…`), both base64.
_DIGEST = re.compile(r"(?i)(?:^|[,\s])sha-256=:?([A-Za-z0-9+/]{43}=):?")

RETRIED: Final = frozenset({"size_mismatch", "looks_like_html", "checksum"})
"""Codes of `check_file` that a cut transfer or a passing proxy can cause: worth another try inside the collection clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What one file must be. Sizes in bytes; None and empty text: not demanded."""

    media_types: tuple[str, ...] = ()  # all of them must match; a type may end in `/*`
    min_bytes: int | None = None
    max_bytes: int | None = None
    bytes: int | None = None  # declared by the provider: exact
    sha256: tuple[str, ...] = ()  # lower-case hex; all of them must match


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRequest:
    """One file to fetch, and what it must be."""

    file: ResultFile
    request: HttpRequest
    expected: Expected


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """What the downloads are made from: the status answer with its parsed body, and the operator's settings."""

    answer: AnsweredOutcome
    body: Any
    rule: ResultRule
    credential: str | None = field(repr=False)
    result_origins: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Link:
    url: str
    own: bool  # on the pinned origin
    private: bool  # the operator wrote its origin: private addresses and http are allowed


def has_result(contract: Contract, reading: Reading, answer: AnsweredOutcome) -> bool:
    """Say whether this ending has something to fetch.

    A success that the contract gives a result always has: a file that is missing then is a fault which collecting names,
    never a success with nothing (B097). Other endings have what their answer names (partial results, B087).
    """
    if contract.result is None or reading not in contract.result.readings:
        return contract.result is None and reading is Reading.SUCCEEDED
    if reading is Reading.SUCCEEDED and any(not file.optional for file in contract.result.files):
        return True
    body = read_json(answer).value
    return any(_named(file, contract.result, answer, body) for file in contract.result.files)


def collect_requests(
    operation: Operation,
    contract: Contract,
    status_answer: AnsweredOutcome,
    *,
    credential: str | None,
    result_origins: Sequence[str] = (),
) -> tuple[FileRequest, ...] | ResultGone | CollectFailed:
    """Return the downloads of a finished job from a fresh status answer, in the order of the contract's files.

    After a success every file that is not optional must be named; after other endings what is there is fetched.
    `result_origins` are the operator's. Never raises.
    """
    rule = contract.result
    if rule is None:
        return ResultGone(code="no_result", message="the contract has no result to fetch")
    body = read_json(status_answer).value
    source = _Source(answer=status_answer, body=body, rule=rule, credential=credential, result_origins=result_origins)
    requests: list[FileRequest] = []
    for file in rule.files:
        if not _named(file, rule, status_answer, body):
            if not file.optional and operation.ending in {None, Reading.SUCCEEDED}:
                return ResultGone(code="result_missing", message=f"the provider's answer names no {file.role} file")
            continue
        try:
            request = _download(operation, contract, file, source)
        except UnusableCredentialError as error:
            return CollectFailed(error=error.code)
        except UnbuildableError as error:
            return ResultGone(code=error.code, message=str(error))
        if isinstance(request, ResultGone):
            return request
        requests.append(FileRequest(file=file, request=request, expected=expected(operation, contract, file, status_answer)))
    return tuple(requests) or ResultGone(code="result_missing", message="the provider's answer names no file")


def expected(operation: Operation, contract: Contract, file: ResultFile, status_answer: AnsweredOutcome) -> Expected:
    """Return what `file` must be: the provider's declared size and checksum, the contract's and the caller's demands.

    The caller's demands concern the main file, the first of the contract.
    """
    body = read_json(status_answer).value
    rule = contract.result
    main = rule is None or not rule.files or file == rule.files[0]
    demand = operation.expect if main else None
    declared_size = find(file.bytes, status_answer, body)
    declared_sum = as_text(find(file.sha256, status_answer, body)).lower().removeprefix("sha256:")
    bounds = [value for value in (rule.max_bytes if rule else None, demand.max_bytes if demand else None) if value is not None]
    sums = (declared_sum if _SHA256.fullmatch(declared_sum) else "", (demand.sha256 or "").lower() if demand else "")
    types = (file.media_type.lower(), (demand.media_type or "").partition(";")[0].strip().lower() if demand else "")
    return Expected(
        media_types=tuple(dict.fromkeys(text for text in types if text)),
        min_bytes=demand.min_bytes if demand else None,
        max_bytes=min(bounds, default=None),
        bytes=declared_size if isinstance(declared_size, int) and not isinstance(declared_size, bool) and declared_size >= 0 else None,
        sha256=tuple(dict.fromkeys(text for text in sums if text)),
    )


def download(outcome: Outcome, file: FileRequest, operation: Operation, now: Micros) -> CollectFailed | ResultGone | None:
    """Return None when the answer carries the file, else why not. `outcome.body` may be empty: only its head is judged.

    On the provider's own origin 404 and 410 are its word that nothing is there. A link on another origin may have expired
    (B088): a new status read brings a new one. Partial content was not asked for (B099).
    """
    match outcome:
        case NotSentOutcome(error=error) | MaybeOutcome(error=error):
            return CollectFailed(error=error)
        case AnsweredOutcome(status=200):
            return None
        case AnsweredOutcome(status=404 | 410 as status) if _origin(file.request.url) == _origin(operation.origin) and not is_page(outcome):
            return ResultGone(code=f"http_{status}", message="the provider has no such result (any more)")
        case AnsweredOutcome(status=status):
            return CollectFailed(error=f"http_{status}", retry_after=retry_after(outcome, now))


def check_file(expected: Expected, answer: AnsweredOutcome, *, size: int, sha256: str, head: bytes) -> str | None:
    """Return why the stored file is not the agreed one, or None.

    `answer` is the download's head, `size` and `sha256` (hex) are of the stored bytes, `head` its first bytes (512 are
    enough). Codes: looks_like_html, media_type, size_mismatch, too_small, too_large, checksum.
    """
    kind = media_type(answer)
    wants_markup = any("html" in text or "xml" in text or text.endswith("/*") for text in expected.media_types)
    if looks_like_html(head) and not wants_markup:
        return "looks_like_html"
    if not all(_is_type(kind, text) for text in expected.media_types):
        return "media_type"
    if any(size != declared for declared in (expected.bytes, _content_length(answer)) if declared is not None):
        return "size_mismatch"
    if expected.min_bytes is not None and size < expected.min_bytes:
        return "too_small"
    if expected.max_bytes is not None and size > expected.max_bytes:
        return "too_large"
    stated = _header_sums(answer)
    return None if all(text == sha256.lower() for text in (*expected.sha256, *stated)) else "checksum"


def _is_type(kind: str, wanted: str) -> bool:
    return kind == wanted or (wanted.endswith("/*") and kind.startswith(wanted[:-1]))


def _content_length(answer: AnsweredOutcome) -> int | None:
    text = answer.header("content-length").strip()
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None


def _header_sums(answer: AnsweredOutcome) -> tuple[str, ...]:
    found = []
    for name in ("content-digest", "repr-digest", "digest"):
        if digest := _DIGEST.search(answer.header(name)[:_MAX_URL]):
            try:
                found.append(base64.b64decode(digest[1], validate=True).hex())
            except (binascii.Error, ValueError):
                continue
    return tuple(found)


def _named(file: ResultFile, rule: ResultRule, answer: AnsweredOutcome, body: Any) -> bool:
    if file.url:
        return isinstance(link := find(file.url, answer, body), str) and bool(link.strip())
    return bool(file.path) and all(_value(name, rule, answer, body) for name in _values_of(file))


def _values_of(file: ResultFile) -> list[str]:
    return re.findall(r"\{result\.([A-Za-z0-9_-]+)\}", file.path)


def _value(name: str, rule: ResultRule, answer: AnsweredOutcome, body: Any) -> str:
    return as_id(find(rule.values.get(name, ""), answer, body), 512)


def _download(operation: Operation, contract: Contract, file: ResultFile, source: _Source) -> HttpRequest | ResultGone:
    rule = source.rule
    if file.url:
        link = _link(find(file.url, source.answer, source.body), operation, rule, source.result_origins)
        if isinstance(link, ResultGone):
            return link
    else:
        values = fields(operation, contract) | {f"result.{name}": _value(name, rule, source.answer, source.body) for name in rule.values}
        plain = call("GET", path_of(file.path, values), operation, contract, Errand.COLLECT, credential=None)
        link = _Link(url=plain.url, own=True, private=True)
    secret = auth_header(contract, source.credential) if link.own and file.authenticated else ()
    own_trace = ((contract.trace_header, operation.trace_id),) if contract.trace_header and link.own else ()
    return HttpRequest(
        method="GET",
        url=link.url,
        headers=(
            ("Accept", "*/*"),
            ("Accept-Encoding", "identity"),
            ("User-Agent", USER_AGENT),
            ("traceparent", traceparent(operation, Errand.COLLECT)),
            *own_trace,
            *secret,
        ),
        secret_headers=tuple(name for name, _ in secret),
        max_bytes=min(rule.max_bytes, operation.expect.max_bytes or rule.max_bytes),
        connect_seconds=contract.limits.connect_seconds,
        total_seconds=float(max(operation.collect_seconds, 1)),  # the collection clock is the only bound of a long transfer
        allow_private=link.private,
    )


def _link(value: Any, operation: Operation, rule: ResultRule, result_origins: Sequence[str]) -> _Link | ResultGone:
    refused = ResultGone(code="unusable_url", message="the provider's result address cannot be used")
    text = value.strip() if isinstance(value, str) else ""
    if not text or len(text) > _MAX_URL or not _URL_TEXT.fullmatch(text) or "\\" in text:
        return refused
    try:
        url = urljoin(operation.origin.rstrip("/") + "/", text).partition("#")[0]
        parts = urlsplit(url)
    except ValueError:
        return refused
    origin = _origin(url)
    if not origin or "@" in parts.netloc:
        return refused
    if origin == _origin(operation.origin):
        return _Link(url=url, own=True, private=True)
    if any(origin == _origin(allowed) for allowed in result_origins):
        return _Link(url=url, own=False, private=True)
    if parts.scheme == "https" and any(origin == _origin(allowed) for allowed in rule.origins):
        return _Link(url=url, own=False, private=False)
    return ResultGone(
        code="foreign_origin",
        message="the provider's result lies on an origin that is not listed: add it to `result_origins` of this provider, then retry",
    )


def _origin(url: str) -> str:
    """Return scheme://host:port of a URL in lower case, or the empty text."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 0)
    except ValueError:
        return ""
    return f"{parts.scheme}://{parts.hostname.rstrip('.')}:{port}" if parts.hostname and port else ""

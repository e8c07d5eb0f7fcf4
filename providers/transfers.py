"""One file on its way: may its transfer go on after a cut, is what came what was agreed, what does a refusal mean (F2, F3). Pure."""

import base64
import binascii
import re
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from typing import Final

from providers.answers import is_page, looks_like_html, media_type, retry_after
from providers.targets import home
from schemas.contract import ResultFile
from schemas.evidence import CollectFailed, ResultGone
from schemas.http import AnsweredOutcome, HttpRequest, MaybeOutcome, NotSentOutcome, Outcome
from schemas.operation import Micros, Operation

_MAX_HEADER: Final = 8_192
_ETAG = re.compile(r'"[\x21\x23-\x7e]{0,500}"')
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)")
_UNSATISFIED = re.compile(r"bytes \*/([0-9]{1,18})")
# RFC 9530 section 2 (`sha-256=:…:`) and the older RFC 3230 (`SHA-256=…`), both base64.
_DIGEST = re.compile(r"(?i)(?:^|[,\s])sha-256=:?([A-Za-z0-9+/]{43}=):?")
_GOOGLE_MD5 = re.compile(r"(?:^|[,\s])md5=([A-Za-z0-9+/]{22}==)")
_PARTIAL: Final = 206

RETRIED: Final = frozenset({"size_mismatch", "looks_like_html", "media_type", "checksum", "truncated", "unreadable", "items_missing"})
"""Codes that a cut transfer, a passing proxy or a store that lags can cause: worth another try inside the collection clock."""

EXPIRED: Final = frozenset({401, 403, 404, 410})
"""Statuses by which a link that a provider gave says that its time is over (B088): a status read brings a new one."""

NOT_READ: Final = frozenset({401, 403, 408, 425, 429, 503})
"""Answers by which nothing has been read: a result that reading consumes is still there."""


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
class Came:
    """The bytes that came, before a content coding was undone: their number and digests (hex; empty: not computed)."""

    bytes: int
    sha256: str = ""
    md5: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What a 206 brings: from `start` to `end` (inclusive) of `total` bytes (None: not said)."""

    start: int
    end: int
    total: int | None


# --- going on after a cut


def validator(head: AnsweredOutcome) -> str:
    """Return what `If-Range` may say about this representation, or the empty text: then its transfer cannot go on after a cut.

    RFC 9110 section 13.1.5: a strong entity tag, or a date that is strong in the sense of section 8.8.2.2 (a second older than
    the answer). A weak tag vouches for no bytes, and so does its date. An encoded body is not resumed.
    """
    if head.header("content-encoding").strip().lower() not in {"", "identity"} or head.header("accept-ranges").strip().lower() == "none":
        return ""
    tag = head.header("etag").strip()
    if tag:
        return tag if _ETAG.fullmatch(tag) else ""
    modified, date = _date(head, "last-modified"), _date(head, "date")
    return head.header("last-modified").strip() if modified is not None and date is not None and date - modified >= 1 else ""


def continued(request: HttpRequest, at: int, mark: str) -> HttpRequest:
    """Return the request for what is missing from byte `at` on, if the file is still the one that `mark` stands for."""
    return replace(request, headers=(*request.headers, ("Range", f"bytes={at}-"), ("If-Range", mark)))


def continues(head: AnsweredOutcome, at: int, mark: str, total: int | None) -> Part | None:
    """Return the part that a 206 brings where it goes on from byte `at` of the same file, else None (B099)."""
    found = _CONTENT_RANGE.fullmatch(head.header("content-range").strip())
    if found is None:
        return None
    part = Part(start=int(found[1]), end=int(found[2]), total=None if found[3] == "*" else int(found[3]))
    length = content_length(head)
    same = validator(head) in {mark, ""} and not (mark.startswith('"') and head.header("etag").strip() not in {mark, ""})
    fits = part.start == at and part.end >= part.start and (part.total is None or part.end < part.total)
    known = part.total is None or total is None or part.total == total
    return part if same and fits and known and (length is None or length == part.end - part.start + 1) else None


def whole_size(answer: AnsweredOutcome) -> int | None:
    """Return the size of the file that a 416 tells, or None."""
    found = _UNSATISFIED.fullmatch(answer.header("content-range").strip())
    return int(found[1]) if found else None


def content_length(answer: AnsweredOutcome) -> int | None:
    """Return the declared length of the body, or None."""
    text = answer.header("content-length").strip()
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None


# --- what a refusal means


def download(outcome: Outcome, file: FileRequest, operation: Operation, now: Micros) -> CollectFailed | ResultGone | None:
    """Return None when the answer carries the file, else why not. `outcome.body` may be empty: only its head is judged.

    On the provider's own origin 404 and 410 are its word that nothing is there. A link on another origin may have expired
    (B088): a new status read brings a new one. Partial content that was not asked for is none (B099).
    """
    match outcome:
        case NotSentOutcome(error=error) | MaybeOutcome(error=error):
            return CollectFailed(error=error)
        case AnsweredOutcome(status=200):
            return None
        case AnsweredOutcome(status=404 | 410 as status) if home(file.request.url, operation.origin) and not is_page(outcome):
            return ResultGone(code=f"http_{status}", message="the provider has no such result (any more)")
        case AnsweredOutcome(status=status):
            return CollectFailed(error=f"http_{status}", retry_after=retry_after(outcome, now))


# --- is it what was agreed


def check_file(expected: Expected, answer: AnsweredOutcome, *, size: int, sha256: str, head: bytes, came: Came | None = None) -> str | None:
    """Return why the stored file is not the agreed one, or None.

    `answer` is the download's head, `size` and `sha256` (hex) are of the stored bytes, `head` its first bytes (512 are
    enough), `came` what came on the wire where that differs or was put together. Headers speak of what came; a declared size
    or checksum may mean either. Codes: looks_like_html, media_type, size_mismatch, too_small, too_large, checksum.
    """
    kind = media_type(answer)
    wire = came or Came(bytes=size, sha256=sha256)
    wants_markup = any("html" in text or "xml" in text or text.endswith("/*") for text in expected.media_types)
    if (looks_like_html(head) or (kind == "text/html" and not expected.media_types)) and not wants_markup:
        return "looks_like_html"
    if not all(_is_type(kind, text) for text in expected.media_types):
        return "media_type"
    length = content_length(answer)
    if (expected.bytes is not None and expected.bytes not in {size, wire.bytes}) or (length is not None and length != wire.bytes):
        return "size_mismatch"
    if expected.min_bytes is not None and size < expected.min_bytes:
        return "too_small"
    if expected.max_bytes is not None and size > expected.max_bytes:
        return "too_large"
    declared = all(text in {sha256.lower(), wire.sha256.lower()} for text in expected.sha256)
    stated = all(text == wire.sha256.lower() for text in _sha256_sums(answer))
    return None if declared and stated and all(wire.md5 in {text, ""} for text in md5_sums(answer)) else "checksum"


def md5_sums(answer: AnsweredOutcome) -> tuple[str, ...]:
    """Return the MD5 digests (hex) that the head states: Content-MD5 (RFC 1864) and Google's x-goog-hash."""
    found = [answer.header("content-md5").strip()]
    found += [match[1] for name, value in answer.headers if name == "x-goog-hash" and (match := _GOOGLE_MD5.search(value[:_MAX_HEADER]))]
    return tuple(text for text in map(_hex, found) if len(text) == 32)  # noqa: PLR2004 - hex digits of an MD5


def _sha256_sums(answer: AnsweredOutcome) -> tuple[str, ...]:
    """Return the SHA-256 digests (hex) that the head states. Content-Digest speaks of one message, so not of a part's whole."""
    found = [answer.header("x-amz-checksum-sha256").strip()]
    names = ("repr-digest", "digest") if answer.status == _PARTIAL else ("content-digest", "repr-digest", "digest")
    found += [match[1] for name in names if (match := _DIGEST.search(answer.header(name)[:_MAX_HEADER]))]
    return tuple(text for text in map(_hex, found) if len(text) == 64)  # noqa: PLR2004 - hex digits of a SHA-256


def _hex(text: str) -> str:
    try:
        return base64.b64decode(text[:100], validate=True).hex()
    except (binascii.Error, ValueError):
        return ""


def _is_type(kind: str, wanted: str) -> bool:
    return kind == wanted or (wanted.endswith("/*") and kind.startswith(wanted[:-1]))


def _date(head: AnsweredOutcome, name: str) -> float | None:
    try:
        return parsedate_to_datetime(head.header(name).strip()[:100]).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None

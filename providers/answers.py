"""Reading an answer: is it an answer at all, what stands at a place, when to come back, what may be shown of it.

Everything here is total: whatever a provider answers, there is a value and no exception.
"""

import json
import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final

from providers.places import as_id, as_text, compile_place
from schemas.contract import Contract
from schemas.http import AnsweredOutcome
from schemas.jsontext import UnreadableJsonError, parse
from schemas.operation import SECOND, Micros

MAX_REMEMBERED: Final = 2_048  # characters of one value of a create answer that is kept
MAX_JOB_ID: Final = 512  # longer ids fit neither an index key nor a URL of every server
MAX_WAIT: Final = 86_400 * SECOND  # hard cap of Retry-After: a provider may slow us for a day, not for years (B066)
MAX_MESSAGE: Final = 500
_MAX_WORK = 16_384  # characters of a text that are looked at, so that redaction stays cheap
_SNIFF = 512  # bytes at the start of a body in which a markup document shows itself

_TOO_MANY, _FORBIDDEN = 429, 403
# A reset is a count of seconds for some providers and a Unix time for others, in seconds or milliseconds: nobody waits 31 years.
_EPOCH_SECONDS, _EPOCH_MILLISECONDS = 1_000_000_000, 100_000_000_000

_DELTA = re.compile(r"([0-9]{1,400})(\.[0-9]{1,400})?")  # far below the digits that Python refuses to convert
_MARKUP = (b"<!doctype", b"<html", b"<head", b"<body", b"<?xml", b"<!--", b"<title", b"<script", b"<meta")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# What must not survive in a recorded text: URL userinfo, queries and fragments (signed links), credentials (B142).
_URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,20}:\\?/\\?/)(?:[^\s/?#\"'<>\\@]{1,400}@)?"
    r"(?P<rest>[^\s?#\"'<>]*)(?P<tail>[?#][^\s\"'<>]*)?"
)
_PAIR = re.compile(
    r"(?i)(?<![A-Za-z0-9])(?P<name>(?:proxy-)?authorization|x-api-key|api[_-]?key|apikey|access[_-]?token|refresh[_-]?token|id[_-]?token"
    r"|client[_-]?secret|secret|password|passwd|signature|token|cookie)(?P<sep>\\?[\"']?\s{0,4}[:=]\s{0,4}\\?[\"']?)"
    r"(?P<scheme>(?:bearer|basic|token|digest)\s{1,4})?(?P<value>[^\s\"',;&<>\\}{\]\[]{1,4096})"
)
_SCHEME = re.compile(r"(?i)\b(?P<scheme>bearer|basic)\s{1,4}(?P<value>[A-Za-z0-9._~+/=*-]{6,4096})")
_KEY = re.compile(
    r"(?<![A-Za-z0-9_.-])(?:(?:sk|pk|rk|rgk|ghp|gho|ghs|ghu|xox[abprs]|whsec|glpat|hf|r8)[-_][A-Za-z0-9_*-]{6,}+|AKIA[A-Z0-9]{12,32}"
    r"|eyJ[A-Za-z0-9_-]{5,}+\.[A-Za-z0-9_-]{5,}+(?:\.[A-Za-z0-9_-]*+)?)"
)
_GONE = "[removed]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A body after parsing. `problem`: why there is no JSON value: empty, html, unreadable, not_object."""

    value: Any = None
    problem: str = ""


def read_json(answer: AnsweredOutcome) -> Body:
    """Return the JSON value of the answer, or the word for why there is none (B069). A media type is not asked for."""
    if not answer.body.strip():
        return Body(problem="empty")
    try:
        return Body(value=parse(answer.body))
    except UnreadableJsonError:
        return Body(problem="html" if looks_like_html(answer.body) or media_type(answer) == "text/html" else "unreadable")


def read_object(answer: AnsweredOutcome) -> Body:
    """Return the JSON object of the answer. Any other value (null, a list, a number) is `not_object`."""
    body = read_json(answer)
    if body.problem or isinstance(body.value, dict):
        return body
    return Body(problem="not_object")


def is_page(answer: AnsweredOutcome) -> bool:
    """Say whether a markup page came where data was due: a login form or a proxy's error page. Its status says nothing."""
    if looks_like_html(answer.body):
        return True
    return media_type(answer) == "text/html" and bool(read_json(answer).problem)


def looks_like_html(head: bytes) -> bool:
    """Say whether bytes start like a markup document, whatever their declared type (B098)."""
    start = head[:_SNIFF].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    return start.startswith(_MARKUP)


def media_type(answer: AnsweredOutcome) -> str:
    """Return the media type in lower case without parameters, or the empty text."""
    return as_text(answer.header("content-type").partition(";")[0].strip().lower(), 100)


def find(place: str, answer: AnsweredOutcome, body: Any) -> Any | None:
    """Return what stands at `place` (empty: nothing) in the answer whose parsed body is `body`."""
    if not place:
        return None
    try:
        compiled = compile_place(place)
    except ValueError:
        return None  # the loader refuses such a contract; a hand-made one finds nothing
    return compiled.find(headers=answer.headers, body=body)


def remember(contract: Contract, *, answer: AnsweredOutcome | None, body: Any) -> dict[str, str]:
    """Return what `create.remember` finds in a create answer, or in the item of a list (then there are no headers)."""
    rule = contract.create
    if rule is None:
        return {}
    there = answer or AnsweredOutcome(status=0)
    found = {name: as_id(find(place, there, body), MAX_REMEMBERED) for name, place in rule.remember.items()}
    return {name: text for name, text in found.items() if text}


def job_id_text(value: Any) -> str:
    """Return a job id exactly as a provider gave it, or the empty text where it is none that we could use in a path."""
    text = as_id(value, MAX_JOB_ID)
    return "" if text.strip() in {"", ".", ".."} else text


def finite(value: Any) -> float | None:
    """Return a finite number as a float; None for anything else, booleans and numbers beyond a float included."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def instant(value: Any) -> Micros | None:
    """Return a provider's time: ISO 8601 text (naive means UTC) or Unix seconds, as number or digits. None for nonsense."""
    if isinstance(value, str):
        text = value.strip()[:64]
        number = finite(float(text)) if re.fullmatch(r"[0-9]{1,12}(?:\.[0-9]{1,9})?", text) else None
        if number is None:
            try:
                return _micros(datetime.fromisoformat(text))
            except (ValueError, OverflowError):
                return None
    else:
        number = finite(value)
    if number is None or not 0 <= number < 253_402_300_800:  # noqa: PLR2004 - the year 10000, beyond every calendar here
        return None
    return round(number * SECOND)


def retry_after(answer: AnsweredOutcome, now: Micros) -> Micros | None:
    """Return the absolute time before which the provider does not want to hear from us, or None.

    Delta seconds and all HTTP dates (RFC 9110 section 10.2.3; a date without a zone is UTC). Negative, past and
    unreadable values are ignored (B064), huge ones are capped at a day (B066); within the cap it is never earlier than
    asked (B067). Where the header says nothing, a rate limit's milliseconds or reset time does.
    """
    text = answer.header("retry-after").strip(" \t")
    moment = None
    if delta := _DELTA.fullmatch(text):
        # A started second counts whole: earlier than asked would be wrong, a second later is not.
        seconds = int(delta[1]) + (1 if delta[2] and delta[2].strip(".0") else 0)
        return now + min(seconds * SECOND, MAX_WAIT)
    if text:
        try:
            moment = _micros(parsedate_to_datetime(text[:100]))
        except (ValueError, OverflowError):
            moment = None
    if moment is None or moment <= now:
        moment = _reset(answer, now)
    return min(moment, now + MAX_WAIT) if moment is not None and moment > now else None


def _reset(answer: AnsweredOutcome, now: Micros) -> Micros | None:
    """Return the time that a rate limit's own headers name, of an answer that says that the limit is reached."""
    spent = answer.header("x-ratelimit-remaining").strip() == "0" or answer.header("ratelimit-remaining").strip() == "0"
    if answer.status != _TOO_MANY and not (answer.status == _FORBIDDEN and spent):
        return None  # on other answers they describe a window, and ask for nothing
    for name in ("retry-after-ms", "x-ms-retry-after-ms"):
        if delta := _DELTA.fullmatch(answer.header(name).strip()):
            return now + min((int(delta[1]) + 1) * SECOND // 1_000, MAX_WAIT)
    for name in ("x-ratelimit-reset", "ratelimit-reset", "x-rate-limit-reset"):
        if delta := _DELTA.fullmatch(answer.header(name).strip()):
            value = int(delta[1]) + 1  # the second that has begun
            if value > _EPOCH_MILLISECONDS:
                return value * SECOND // 1_000
            return value * SECOND if value > _EPOCH_SECONDS else now + min(value * SECOND, MAX_WAIT)
    return None


def _micros(moment: datetime) -> Micros:
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1)


def redact(text: str) -> str:
    """Return `text` without URL queries, fragments and userinfo, and without what looks like a credential (B142)."""
    text = _PAIR.sub(lambda found: f"{found['name']}{found['sep']}{_GONE}", text)
    text = _SCHEME.sub(lambda found: f"{found['scheme']} {_GONE}", text)
    text = _KEY.sub(_GONE, text)
    return _URL.sub(lambda found: f"{found['scheme']}{found['rest']}{'?' + _GONE if found['tail'] else ''}", text)


def sanitise(text: str, limit: int = MAX_MESSAGE) -> str:
    """Return a stranger's text, fit for history and logs: one line, no controls, no secrets, at most `limit` characters."""
    # Unprintable: controls, line separators, direction marks, half characters (B141).
    words = "".join(char if char.isprintable() else " " for char in text[:_MAX_WORK])
    return " ".join(redact(words).split())[:limit].strip()


def explanation(answer: AnsweredOutcome, place: str) -> tuple[str, str]:
    """Return (code, message) of an answer's error, both sanitised; empty where it says nothing readable.

    `place` is the contract's; without one the customary members of JSON error bodies are tried (RFC 9457 among them).
    """
    value = read_json(answer).value
    found = find(place, answer, value) if place else None
    if found is None and isinstance(value, dict):
        found = value.get("error") or value.get("errors") or value
    return explained(found)


def explained(found: Any) -> tuple[str, str]:
    """Return (code, message) of an error value: a text, an object with customary members, or a list of such."""
    if isinstance(found, list):
        found = found[0] if found else None
    match found:
        case str():
            return "", sanitise(found)
        case dict():
            code = next((text for key in ("code", "type", "status", "error") if (text := as_text(found.get(key), 100))), "")
            message = next((text for key in _MESSAGES if (text := _shown(found.get(key)))), "")
            return sanitise(code, 100), message
        case _:
            return "", ""


_MESSAGES = ("message", "detail", "description", "error_description", "title", "reason", "error")


def _shown(value: Any) -> str:
    if isinstance(value, list | dict):
        try:
            return sanitise(json.dumps(value, ensure_ascii=False))
        except (ValueError, RecursionError):
            return ""
    return sanitise(value) if isinstance(value, str) else ""

"""Reading answers: Retry-After, media types, sanitised texts, recorded exchanges, checked files."""

import base64
import hashlib
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.answers import is_page, redact
from providers.interpret import check_file, download, expected, looks_like_html, media_type, record, retry_after, sanitise
from providers.requests import build
from providers.transfers import Expected, FileRequest
from schemas.contract import ResultFile
from schemas.evidence import CollectFailed, ResultGone
from schemas.http import HttpRequest, MaybeOutcome, NotSentOutcome
from schemas.operation import SECOND, Expect
from schemas.states import Errand
from tests.providers.job_values import BATCHES, HTML, NOW, REPORTS, an_operation, answer

DAY = 86_400


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120", 120),
        (" 120 ", 120),
        ("\t120", 120),
        ("0", 0),
        ("00120", 120),
        ("1.5", 2),  # never earlier than asked
        ("1.0", 1),
        ("3600", 3_600),  # B067
        ("86400", DAY),
        ("86401", DAY),
        ("9999999999", DAY),  # B066
        ("1" + "0" * 30, DAY),  # B066
        ("9" * 400, DAY),
        ("-5", None),  # B064
        ("+5", None),
        ("", None),
        ("   ", None),
        ("soon", None),
        ("1e3", None),
        ("0x10", None),
        ("١٢", None),  # digits, but not of HTTP
        ("NaN", None),
        ("12 seconds", None),
        ("120, 120", None),
        ("9" * 5_000, None),  # beyond any header of sense; Python refuses to convert it
        ("Mon, 21 Sep 2026 14:14:20 GMT", 60),
        ("Mon, 21 Sep 2026 14:14:20 -0000", 60),  # naive: UTC (B064)
        ("Mon, 21 Sep 2026 14:14:20", 60),
        ("Monday, 21-Sep-26 14:14:20 GMT", 60),
        ("Mon Sep 21 14:14:20 2026", 60),
        ("Mon, 21 Sep 2026 16:14:20 +0200", 60),
        ("Mon, 21 Sep 2026 14:13:20 GMT", None),  # now is no wait
        ("Mon, 21 Sep 2020 14:13:20 GMT", None),  # past (B064)
        ("Fri, 31 Dec 9999 23:59:59 GMT", DAY),  # B066
        ("Fri, 31 Dec 99999 23:59:59 GMT", None),
        ("Fri, 31 Dec 2026 23:59:59 +9999", None),
        ("Fri, 31 Dec 2026 23:59:59 +" + "9" * 30, None),
        ("Fri, 31 Dec 2026 " + "9" * 20 + ":00:00 GMT", None),
        ("Fri, 32 Dec 2026 25:61:61 GMT", None),
    ],
)
def test_retry_after_in_all_its_forms(text: str, seconds: int | None) -> None:
    """Deltas and dates as asked, nonsense ignored, huge values capped, nothing raised (B064, B066, B067, C3)."""
    assert NOW == 1_790_000_000 * SECOND, "the dates above are written for this moment, 2026-09-21 14:13:20"
    assert retry_after(answer(429, retry_after=text), NOW) == (None if seconds is None else NOW + seconds * SECOND)


@given(
    text=st.text()
    | st.from_regex(r"[+-]?\d+(\.\d+)?", fullmatch=True)
    | st.from_regex(r"\w{3}, \d+ \w{3} \d+ \d+:\d+:\d+ [+-]?\w+", fullmatch=True)
)
def test_any_retry_after_is_a_bounded_moment_or_nothing(text: str) -> None:
    """Whatever the header holds (B066)."""
    wait = retry_after(answer(503, retry_after=text), NOW)
    assert wait is None or NOW <= wait <= NOW + DAY * SECOND


@pytest.mark.parametrize(
    ("status", "headers", "seconds"),
    [
        (429, {"retry_after_ms": "1500"}, 1.501),
        (429, {"x_ms_retry_after_ms": "20"}, 0.021),
        (429, {"x_ratelimit_reset": "60"}, 61),
        (429, {"ratelimit_reset": "60"}, 61),
        (429, {"x_ratelimit_reset": "1790000060"}, 61),  # Unix time
        (429, {"x_ratelimit_reset": "1790000060000"}, 60.001),  # the same in milliseconds
        (429, {"x_ratelimit_reset": "1789999000"}, None),  # past
        (429, {"x_ratelimit_reset": "-5"}, None),
        (429, {"x_ratelimit_reset": "soon"}, None),
        (429, {"x_ratelimit_reset": "9" * 300}, DAY),
        (429, {"x_ratelimit_reset": "999999999"}, DAY),
        (429, {"retry_after": "7", "x_ratelimit_reset": "60"}, 7),
        (429, {"retry_after": "-7", "x_ratelimit_reset": "60"}, 61),
        (403, {"x_ratelimit_reset": "60", "x_ratelimit_remaining": "0"}, 61),
        (403, {"x_ratelimit_reset": "60", "x_ratelimit_remaining": "4"}, None),
        (403, {"x_ratelimit_reset": "60"}, None),
        (200, {"x_ratelimit_reset": "60", "x_ratelimit_remaining": "0"}, None),
        (500, {"x_ratelimit_reset": "60"}, None),
    ],
)
def test_a_reached_rate_limit_says_when_to_come_back(status: int, headers: dict[str, str], seconds: float | None) -> None:
    """Milliseconds, seconds or Unix time, where Retry-After says nothing; one that is only described asks for nothing (B066, C3)."""
    found = retry_after(answer(status, **headers), NOW)
    assert found == (None if seconds is None else NOW + round(seconds * SECOND))


def test_media_types_are_compared_without_case_and_parameters() -> None:
    """RFC 9110 section 8.3.1."""
    assert media_type(answer(200, content_type=" Text/CSV ; charset=utf-8")) == "text/csv"
    assert media_type(answer(200)) == ""


@pytest.mark.parametrize("head", [HTML, b"\xef\xbb\xbf\n <HTML>", b"<!-- x --><html>", b"<head>", b"<?xml version='1.0'?><error/>"])
def test_markup_is_recognised_whatever_its_label(head: bytes) -> None:
    """Login and error pages come with 200 and any type (B069, B098)."""
    assert looks_like_html(head)
    assert is_page(answer(404, head, content_type="application/json"))


@pytest.mark.parametrize("head", [b"", b"a,b\n<html>,1", b"{}", b"<1,2", b"\x00<html>"])
def test_data_is_no_markup(head: bytes) -> None:
    """The sniff looks only at the start."""
    assert not looks_like_html(head)


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer c4nary-c4nary",
        'headers {"authorization": "Bearer c4nary-c4nary"}',
        "Authorization=Basic c4nary64==",
        "got bearer c4nary-c4nary!",
        "X-Api-Key: c4nary",
        "api_key=c4nary&x=1",
        "password = 'c4nary'",
        'client_secret":"c4nary"',
        "session_token=c4nary",
        "Incorrect API key provided: sk-c4nary1234",
        "whsec_c4naryc4nary",
        "jwt eyJhbGciOi.c4naryc4nary.c4nary",
        "see https://user:c4nary@files.example/x",
        "see https://files.example/x?X-Sig=c4nary&a=b",
        "see https://files.example/x#c4nary",
        '{"url":"https:\\/\\/files.example\\/x?sig=c4nary"}',
        "Cookie: c4nary",
    ],
)
def test_no_secret_survives_in_a_recorded_text(text: str) -> None:
    """URL queries and userinfo, credentials and keys are removed before anything is kept (D6, B142)."""
    assert "c4nary" not in sanitise(text)
    assert "c4nary" not in redact(text)


def test_ordinary_words_survive() -> None:
    """A person must still be able to read what the provider said."""
    text = "row 17 of https://files.example/in.csv: column 'tokens' is not a number; max_tokens was 5, bearer of bad news"
    assert sanitise(text) == text


def test_a_log_line_cannot_be_forged() -> None:
    """One line, no escapes, bounded (B141)."""
    clean = sanitise("x\r\n2026 INFO paid\u2028\u202e\x1b[0m\x00" + "y" * 100_000)
    assert clean.isprintable()
    assert len(clean) <= 500


@pytest.mark.parametrize(
    "unit",
    [
        "eyJ",
        "eyJ-",
        "eyJaaaaaa.",
        "sk-",
        "https://",
        "a:",
        "token=",
        "bearer ",
        "https://a@",
        '"',
        "a.",
        "AKIA",
        "authorization:",
        " ",
        "http:\\/",
    ],
)
def test_redaction_takes_bounded_time(unit: str) -> None:
    """A hostile error text is no way to spend our processor: 16 kB of any repeated beginning stay cheap."""
    text = unit * (20_000 // len(unit))
    started = time.perf_counter()
    sanitise(text)
    redact(text)
    assert time.perf_counter() - started < 1.0


# --- exchanges


def a_request() -> HttpRequest:
    return build(Errand.READ, an_operation(), REPORTS, credential="c4nary-credential", now=NOW)


def test_an_exchange_keeps_what_explains_and_no_secret() -> None:
    """URL without query, fragment and userinfo; provider request id; digest of the whole, redacted start of the body (C4, D6)."""
    request = replace(a_request(), url="https://u:p@c4nary@reports.example/v1/reports/rep_1?key=c4nary#c4nary")
    body = b'{"result":{"url":"https://f.example/x?sig=c4nary"},"pad":"' + b"z" * 40_000 + b'"}'
    outcome = answer(200, body, x_request_id="req_7", authorization="Bearer c4nary")
    exchange = record(request, outcome, id="exc_1", errand="read", started_at=1, finished_at=2)
    assert exchange.url == "https://reports.example/v1/reports/rep_1"
    assert (exchange.outcome, exchange.status, exchange.provider_request_id) == ("answered", 200, "req_7")
    assert exchange.response_digest == hashlib.sha256(body).hexdigest()
    assert len(exchange.response_body) == 16_384
    assert b"https://f.example/x?[removed]" in exchange.response_body
    assert "c4nary" not in repr(exchange) + exchange.response_body.decode()


def test_a_secret_at_the_cut_is_not_kept_in_half() -> None:
    """Redaction comes before the cut."""
    body = b"z" * 16_370 + b" sk-c4naryc4naryc4nary"
    assert b"c4nary" not in record(a_request(), answer(200, body), id="e", errand="read", started_at=1, finished_at=2).response_body


@pytest.mark.parametrize("name", ["request-id", "x-request-id", "x-amzn-requestid", "cf-ray"])
def test_the_providers_request_id_is_found(name: str) -> None:
    """Support wants it (E4)."""
    exchange = record(
        a_request(), answer(500, **{name.replace("-", "_"): " id-1\x1b "}), id="e", errand="read", started_at=1, finished_at=2
    )
    assert exchange.provider_request_id == "id-1"


def test_calls_without_an_answer_are_recorded_too() -> None:
    """What is known of them: the error, and the status of a cut answer."""
    cut = record(
        a_request(),
        MaybeOutcome(error="body_cut", detail="400 of 1000 bytes", status=200),
        id="e",
        errand="read",
        started_at=1,
        finished_at=2,
    )
    assert (cut.outcome, cut.status, cut.error) == ("maybe", 200, "body_cut: 400 of 1000 bytes")
    unsent = record(a_request(), NotSentOutcome(error="dns"), id="e", errand="read", started_at=1, finished_at=2)
    assert (unsent.outcome, unsent.status, unsent.error) == ("not_sent", None, "dns")


# --- files

CSV = b"a,b\n1,2\n"
SUM = hashlib.sha256(CSV).hexdigest()


def checked(demand: Expected, body: bytes = CSV, kind: str = "text/csv; charset=utf-8", **headers: str) -> str | None:
    digest = hashlib.sha256(body).hexdigest()
    return check_file(demand, answer(200, content_type=kind, **headers), size=len(body), sha256=digest, head=body[:512])


FULL = Expected(media_types=("text/csv",), min_bytes=1, max_bytes=100, bytes=len(CSV), sha256=(SUM,))


def test_the_agreed_file_passes() -> None:
    """Type, size and checksum as agreed (F2)."""
    assert checked(FULL) is None
    assert checked(FULL, content_length="8", digest="SHA-256=" + base64.b64encode(hashlib.sha256(CSV).digest()).decode()) is None
    assert checked(replace(FULL, media_types=("text/*",))) is None
    assert checked(Expected()) is None


@pytest.mark.parametrize(
    ("demand", "body", "kind", "headers", "code"),
    [
        (FULL, HTML, "text/html", {}, "looks_like_html"),  # B098
        (FULL, HTML, "text/csv", {}, "looks_like_html"),  # B098
        (Expected(), HTML, "", {}, "looks_like_html"),
        (FULL, CSV, "text/html", {}, "media_type"),
        (FULL, CSV, "", {}, "media_type"),
        (FULL, CSV, "text/csvx", {}, "media_type"),
        (replace(FULL, media_types=("text/csv", "application/json")), CSV, "text/csv", {}, "media_type"),
        (FULL, CSV[:4], "text/csv", {}, "size_mismatch"),  # B090
        (Expected(), CSV[:4], "text/csv", {"content_length": "8"}, "size_mismatch"),  # B090
        (Expected(min_bytes=9), CSV, "text/csv", {}, "too_small"),
        (Expected(max_bytes=7), CSV, "text/csv", {}, "too_large"),
        (FULL, b"a,b\n1,3\n", "text/csv", {}, "checksum"),
        (Expected(sha256=(SUM, "0" * 64)), CSV, "text/csv", {}, "checksum"),
        (Expected(), CSV, "text/csv", {"content_digest": f"sha-256=:{base64.b64encode(bytes(32)).decode()}:"}, "checksum"),  # B098
    ],
)
def test_another_file_is_refused_by_name(demand: Expected, body: bytes, kind: str, headers: dict[str, str], code: str) -> None:
    """HTML in place of data, wrong type, cut, too small, too large, wrong checksum (F2, B090, B098)."""
    assert checked(demand, body, kind, **headers) == code


def test_markup_that_was_ordered_is_no_fault() -> None:
    """A report may be HTML."""
    assert checked(Expected(media_types=("text/html",)), HTML, "text/html") is None


def test_declared_and_demanded_values_are_all_held() -> None:
    """The provider's declaration, the contract's type and the caller's demand are looked up; nonsense declares nothing (F2)."""
    assert REPORTS.result is not None
    file = REPORTS.result.files[0]
    operation = an_operation(expect=Expect(media_type="Text/CSV; header=present", max_bytes=50, min_bytes=2, sha256=SUM.upper()))
    body = {"result": {"url": "/x", "bytes": 8, "sha256": "A" * 64}}
    assert expected(operation, REPORTS, file, answer(200, body)) == Expected(
        media_types=("text/csv",), min_bytes=2, max_bytes=50, bytes=8, sha256=("a" * 64, SUM)
    )
    for bytes_, sha256 in ((-1, "xyz"), (True, 5), (1.5, None), ("8", [])):
        strange = expected(operation, REPORTS, file, answer(200, {"result": {"bytes": bytes_, "sha256": sha256}}))
        assert (strange.bytes, strange.sha256) == (None, (SUM,))


def test_the_callers_demands_concern_the_main_file() -> None:
    """An error file is not held to the media type of the output."""
    assert BATCHES.result is not None
    errors = BATCHES.result.files[1]
    demand = expected(an_operation(expect=Expect(media_type="text/csv", sha256=SUM, min_bytes=5)), BATCHES, errors, answer(200, {}))
    assert (demand.media_types, demand.sha256, demand.min_bytes) == ((), (), None)


def a_file(url: str) -> FileRequest:
    return FileRequest(file=ResultFile(), request=HttpRequest(method="GET", url=url), expected=Expected())


def test_what_a_download_answers_is_told_apart() -> None:
    """At home 404 and 410 are final; a foreign link may have expired (B088); partial content was not asked for (B099)."""
    home, away = a_file("https://reports.example/r/1"), a_file("https://files.example/x")
    operation = an_operation()
    assert download(answer(200), home, operation, NOW) is None
    for code in (404, 410):
        assert isinstance(download(answer(code), home, operation, NOW), ResultGone)
        assert isinstance(download(answer(code), away, operation, NOW), CollectFailed)
        assert isinstance(download(answer(code, content_type="text/html"), home, operation, NOW), CollectFailed)
    for code in (206, 204, 301, 401, 403, 416, 500):
        assert isinstance(download(answer(code), home, operation, NOW), CollectFailed)
    assert download(answer(429, retry_after="7"), away, operation, NOW) == CollectFailed(error="http_429", retry_after=NOW + 7 * SECOND)
    assert download(MaybeOutcome(error="cut"), home, operation, NOW) == CollectFailed(error="cut")

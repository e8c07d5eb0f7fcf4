"""Going on after a cut, and what heads say of the bytes that came (F2, F3, B090, B099)."""

import base64
import hashlib
from typing import Any

import pytest

from providers.transfers import Came, Expected, check_file, continued, continues, validator, whole_size
from schemas.http import AnsweredOutcome, HttpRequest

DATE = "Sun, 06 Nov 2022 08:49:37 GMT"
LATER = "Sun, 06 Nov 2022 08:49:38 GMT"
BODY = b"a,b\n1,2\n"
SUM = hashlib.sha256(BODY)
MD5 = hashlib.md5(BODY, usedforsecurity=False)


def of(headers: dict[str, str], status: int = 200) -> AnsweredOutcome:
    return AnsweredOutcome(status=status, headers=tuple((name.replace("_", "-"), value) for name, value in headers.items()))


def head(status: int = 200, **headers: str) -> AnsweredOutcome:
    return of(headers, status)


@pytest.mark.parametrize(
    ("headers", "mark"),
    [
        ({"etag": '"v1"'}, '"v1"'),
        ({"etag": 'W/"v1"'}, ""),
        ({"etag": 'W/"v1"', "last_modified": DATE, "date": LATER}, ""),  # a weak tag vouches for no bytes
        ({"etag": "v1"}, ""),
        ({"etag": '"a\tb"'}, ""),
        ({"last_modified": DATE, "date": LATER}, DATE),
        ({"last_modified": DATE, "date": DATE}, ""),  # the file may have changed twice in that second
        ({"last_modified": DATE}, ""),
        ({"last_modified": "yesterday", "date": LATER}, ""),
        ({"etag": '"v1"', "accept_ranges": "none"}, ""),
        ({"etag": '"v1"', "content_encoding": "gzip"}, ""),
        ({}, ""),
    ],
)
def test_only_a_strong_validator_lets_a_transfer_go_on(headers: dict[str, str], mark: str) -> None:
    """RFC 9110 sections 8.8.2.2 and 13.1.5: a strong tag, or a date that is strong (B099)."""
    assert validator(of(headers)) == mark


def test_the_request_for_the_rest() -> None:
    """From the first byte that is missing, and only of the same file."""
    asked = continued(HttpRequest(method="GET", url="https://x/", headers=(("Accept", "*/*"),)), 400, '"v1"')
    assert asked.headers == (("Accept", "*/*"), ("Range", "bytes=400-"), ("If-Range", '"v1"'))


@pytest.mark.parametrize(
    ("headers", "fits"),
    [
        ({"content_range": "bytes 400-999/1000", "etag": '"v1"', "content_length": "600"}, True),
        ({"content_range": "bytes 400-999/1000"}, True),
        ({"content_range": "bytes 400-499/1000"}, True),  # a part of the rest: it is asked for again
        ({"content_range": "bytes 400-999/*"}, True),
        ({"content_range": "bytes 300-999/1000"}, False),
        ({"content_range": "bytes 401-999/1000"}, False),
        ({"content_range": "bytes 400-999/2000"}, False),
        ({"content_range": "bytes 400-1000/1000"}, False),
        ({"content_range": "bytes 400-399/1000"}, False),
        ({"content_range": "items 400-999/1000"}, False),
        ({"content_range": "bytes 400-999/1000", "content_length": "7"}, False),
        ({"content_range": "bytes 400-999/1000", "etag": '"v2"'}, False),
        ({"content_range": "bytes 400-999/1000", "etag": 'W/"v1"'}, False),
        ({}, False),
    ],
)
def test_a_part_goes_on_where_the_file_was_cut(headers: dict[str, str], *, fits: bool) -> None:
    """Other offset, other size, other tag, no range at all: never appended (B099)."""
    assert (continues(of(headers, 206), 400, '"v1"', 1000) is not None) is fits


def test_a_416_tells_the_size() -> None:
    """RFC 9110 section 15.5.17."""
    assert whole_size(head(416, content_range="bytes */1000")) == 1000
    assert whole_size(head(416, content_range="bytes 0-1/1000")) is None


def b64(digest: Any) -> str:
    return base64.b64encode(digest.digest()).decode()


@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        ({"content_md5": b64(MD5)}, None),
        ({"content_md5": b64(hashlib.md5(b"x", usedforsecurity=False))}, "checksum"),
        ({"x_goog_hash": f"crc32c=AAAAAA==,md5={b64(MD5)}"}, None),
        ({"x_goog_hash": f"md5={b64(hashlib.md5(b'x', usedforsecurity=False))}"}, "checksum"),
        ({"x_amz_checksum_sha256": b64(SUM)}, None),
        ({"x_amz_checksum_sha256": b64(hashlib.sha256(b"x"))}, "checksum"),
        ({"x_amz_checksum_sha256": f"{b64(hashlib.sha256(b'x'))}-3"}, None),  # of parts, not of the file
        ({"repr_digest": f"sha-256=:{b64(SUM)}:"}, None),
        ({"repr_digest": f"md5=:x:, sha-256=:{b64(hashlib.sha256(b'x'))}:"}, "checksum"),
        ({"digest": f"SHA-256={b64(hashlib.sha256(b'x'))}"}, "checksum"),
        ({"content_digest": f"sha-256=:{b64(hashlib.sha256(b'x'))}:"}, "checksum"),
        ({"content_md5": "nonsense"}, None),
        ({"content_type": "text/html"}, "looks_like_html"),
    ],
)
def test_digests_in_the_head_are_held_against_the_bytes(headers: dict[str, str], problem: str | None) -> None:
    """Content-MD5, x-goog-hash, S3's checksum, Digest, Repr-Digest, Content-Digest (F2, B098)."""
    came = Came(bytes=len(BODY), sha256=SUM.hexdigest(), md5=MD5.hexdigest())
    assert check_file(Expected(), of(headers), size=len(BODY), sha256=SUM.hexdigest(), head=BODY, came=came) == problem


def test_an_encoded_body_is_judged_by_what_came() -> None:
    """Length and digests of the head are of the encoded bytes; what the provider declared may be of either."""
    packed = Came(bytes=30, sha256="e" * 64)
    for declared in (8, 30):
        wanted = Expected(bytes=declared, sha256=("e" * 64,), media_types=("text/csv",))
        answer = head(content_length="30", content_type="text/csv; charset=utf-8")
        assert check_file(wanted, answer, size=8, sha256=SUM.hexdigest(), head=BODY, came=packed) is None
    assert check_file(Expected(bytes=9), head(), size=8, sha256="", head=BODY, came=packed) == "size_mismatch"

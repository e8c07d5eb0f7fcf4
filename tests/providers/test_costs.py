"""What a stranger's request may cost before its signature is known to be wrong: work and memory stay near its size (B10)."""

import json
import time
import tracemalloc
from collections.abc import Callable

import pytest

from providers.verification import KeyStore, NamedKey, prepare
from providers.verification.messages import compile_message
from schemas.delivery import InboundRequest, Reason, Refused, Secret, Verdict
from schemas.jsontext import MAX_CONTAINERS, UnreadableJsonError, parse
from schemas.operation import SECOND
from tests.providers.signing import NOW, PUBLIC_URL, Lines, judged, reason, request, scheme

LISTED = scheme(
    primitive="hmac",
    message="{ts}{canonical_headers:x-signed}{body}",
    sig={"in": "header", "name": "X-Sig"},
    timestamp={"in": "header", "name": "X-Time", "unit": "s"},
)
HTTPSIG = prepare([scheme(primitive="httpsig")], [])
KEYS = KeyStore(named={"k": NamedKey(algorithm="hmac-sha256", value=b"a-shared-secret")})


def listed(names: bytes, long: bytes = b"x" * 14_000) -> Verdict:
    lines = [(b"x-sig", b"00" * 32), (b"x-time", str(NOW).encode()), (b"x-signed", names), (b"a", long)]
    return judged(LISTED, request(lines), secrets=[b"secret"])


def test_a_list_of_signed_headers_does_not_multiply_a_long_one() -> None:
    """A head of 28 kB that lists one long header seven thousand times is refused, not rendered to a hundred megabytes."""
    tracemalloc.start()
    try:
        verdict = listed(b"x-time," + b"a," * 7_000 + b"a")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert reason(verdict) is Reason.MALFORMED_SIGNATURE
    assert peak < 4_000_000


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (b"x-time,a", Reason.WRONG_SIGNATURE),
        (b"x-time, A", Reason.WRONG_SIGNATURE),
        (b"x-time,a,a", Reason.MALFORMED_SIGNATURE),
        (b"x-time,a, A ", Reason.MALFORMED_SIGNATURE),
        (b"x-time," + b",".join(b"h%d" % number for number in range(32)), Reason.MALFORMED_SIGNATURE),
        (b"a", Reason.MISSING_TIMESTAMP),
        (b"x-time,,", Reason.MALFORMED_SIGNATURE),
    ],
)
def test_signed_headers_are_listed_once_and_few(names: bytes, expected: Reason) -> None:
    """Each name counts once, in whatever case, and thirty-two are the most (B021)."""
    assert reason(listed(names, b"1")) is expected


def test_a_signature_over_many_parameters_reads_the_query_once() -> None:
    """Three hundred covered parameters of a query of a thousand cost about what one of them costs."""
    query = b"&".join(b"q%d=%%41" % number for number in range(1_000))

    def lines(labels: int, each: int) -> Lines:
        covered = b" ".join(b'"@query-param";name="q%d"' % number for number in range(each))
        inputs = b",".join(b'l%d=(%s);created=%d;keyid="k"' % (label, covered, NOW) for label in range(labels))
        return [(b"signature-input", inputs), (b"signature", b",".join(b"l%d=:AAAA:" % label for label in range(labels)))]

    def told(labels: int, each: int) -> float:
        what = request(lines(labels, each), query=query)
        return seconds(lambda: HTTPSIG.verify(what, NOW * SECOND, KEYS))

    assert isinstance(HTTPSIG.verify(request(lines(5, 60), query=query), NOW * SECOND, KEYS), Refused)
    assert told(5, 60) < 20 * told(1, 1)


def test_a_document_of_very_many_lists_is_refused_before_it_is_built() -> None:
    """A megabyte of empty lists would be a third of a second in which nobody else is served."""
    many = b"[" + b"[]," * MAX_CONTAINERS + b"[]]"
    with pytest.raises(UnreadableJsonError, match="lists and objects"):
        parse(many)
    text = json.dumps("[{" * MAX_CONTAINERS)
    assert parse(b"[" + text.encode() + b"]") == ["[{" * MAX_CONTAINERS]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (b"[" * 65 + b"]" * 65, "deeper"),
        (b'{"a":' * 65 + b"1" + b"}" * 65, "deeper"),
        (b'["' + b'\\"[' * 100 + b'"' + b"[" * 65, "deeper"),
        (b"]" * 10 + b"[" * 100, "deeper"),
        (b'"' + b"[" * 100, "not JSON"),
        (b'"\\', "not JSON"),
        (b'["\\\\",' + b"[" * 64 + b"]" * 64 + b"]", "deeper"),
    ],
)
def test_depth_is_counted_outside_of_texts(document: bytes, message: str) -> None:
    """Brackets in texts, escaped quotes and texts without an end do not hide depth (B139)."""
    with pytest.raises(UnreadableJsonError, match=message):
        parse(document)
    assert parse(b'["' + b"[" * 1_000 + b'\\"' + b"[" * 1_000 + b'"]')
    assert parse(b"[" * 64 + b"]" * 64)


def test_seconds_are_not_taken_for_milliseconds() -> None:
    """Where any age is allowed, a unit that cannot be right is refused although the signature is (B007)."""
    rules = scheme(
        primitive="hmac",
        message="{ts}.{body}",
        sig={"in": "header", "name": "X-Sig"},
        timestamp={"in": "header", "name": "X-Time", "unit": "ms", "tolerance": "none", "future": "none"},
    )
    early = scheme(
        primitive="hmac",
        message="{ts}.{body}",
        sig={"in": "header", "name": "X-Sig"},
        timestamp={"in": "header", "name": "X-Time", "unit": "s", "tolerance": "none", "future": "none", "earliest": 1_609_459_200},
    )
    assert reason(signed(rules, b"1767225600000")) is None
    assert reason(signed(rules, b"1767225600")) is Reason.MALFORMED_TIMESTAMP
    assert reason(signed(rules, b"253402300800000")) is Reason.MALFORMED_TIMESTAMP
    assert reason(signed(early, b"1609459200")) is None
    assert reason(signed(early, b"1609459199")) is Reason.MALFORMED_TIMESTAMP


def signed(rules: object, at: bytes) -> Verdict:
    import hashlib
    import hmac

    body = b"{}"
    mac = hmac.digest(b"secret", at + b"." + body, hashlib.sha256).hex().encode()
    what = InboundRequest(method="POST", path=b"/", query=b"", headers=((b"x-sig", mac), (b"x-time", at)), body=body, public_url=PUBLIC_URL)
    return prepare([rules], [Secret(id="s", value=b"secret")]).verify(what, NOW * SECOND)  # type: ignore[list-item]


def seconds(work: Callable[[], object]) -> float:
    """Return the least processor time of three goes: other processes do not count."""
    taken = []
    for _ in range(3):
        start = time.thread_time()
        work()
        taken.append(time.thread_time() - start)
    return max(min(taken), 1e-5)


def test_templates_know_the_list() -> None:
    """The token of the first test is the language's."""
    assert "canonical_headers:x-signed" in compile_message("{canonical_headers:x-signed}").tokens

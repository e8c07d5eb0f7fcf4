"""Requests: what goes to a provider, byte for byte."""

import json
from dataclasses import replace
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.requests import UnbuildableError, UnusableCredentialError, UnusableJobIdError, build, check_request, refusal
from providers.results import collect_requests, has_result
from providers.transfers import FileRequest
from schemas.contract import Contract, ResultFile, ResultRule, TokenRule
from schemas.evidence import CancelRefused, CollectFailed, CreateAmbiguous, CreateRejected, NotSent, ReadFailed, ResultGone
from schemas.http import HttpRequest
from schemas.operation import SECOND, Expect, Operation
from schemas.states import Errand, Reading, State
from tests.providers.job_values import BATCHES, NOW, REPORTS, TRACE, an_operation, answer, json_values

SECRET = "rk-very-secret-credential"


def made(errand: Errand, operation: Operation | None = None, contract: Contract = REPORTS, credential: str | None = SECRET) -> HttpRequest:
    return build(errand, operation or an_operation(), contract, credential=credential, now=NOW)


def header(request: HttpRequest, name: str) -> str | None:
    found = [value for key, value in request.headers if key.lower() == name.lower()]
    assert len(found) <= 1, f"{name} twice"
    return found[0] if found else None


def test_a_create_carries_request_echo_token_trace_and_credential() -> None:
    """Everything that the contract asks for stands where it asks (A4, D7)."""
    request = made(Errand.CREATE)
    assert (request.method, request.url) == ("POST", "https://reports.example/v1/reports")
    assert request.body == b'{"client_reference":"op_0198","month":"2026-01","rows":3}'
    assert header(request, "Content-Type") == "application/json"
    assert header(request, "Accept") == "application/json"
    assert header(request, "Accept-Encoding") == "identity"
    assert header(request, "User-Agent") == "reconciliation-gateway"
    assert header(request, "Idempotency-Key") == "tok_0123456789abcdef0123456789"
    assert header(request, "X-Trace-Id") == TRACE
    assert header(request, "Authorization") == f"Bearer {SECRET}"
    assert request.secret_headers == ("Authorization",)
    assert SECRET not in request.url


@pytest.mark.parametrize("later", [1, 3_600 * SECOND])
def test_a_resend_is_the_same_request_to_the_byte(later: int) -> None:
    """The token and the body never change between sends, whatever else the record has learned (A4, B053)."""
    first = made(Errand.CREATE)
    operation = an_operation(sends=4, state=State.CREATE_UNKNOWN, revision=9, last_read_error="x", remote_job_id=None)
    assert build(Errand.CREATE, operation, REPORTS, credential=SECRET, now=NOW + later) == first


def test_the_token_can_stand_in_the_body() -> None:
    """A contract may want the token as a member, also below another one (A4)."""
    assert REPORTS.create is not None
    rule = replace(REPORTS.create, token=TokenRule(place="body", name="meta.idempotency_key", window_seconds=60))
    body = json.loads(made(Errand.CREATE, contract=replace(REPORTS, create=rule)).body)
    assert body["meta"] == {"idempotency_key": "tok_0123456789abcdef0123456789"}
    assert header(made(Errand.CREATE, contract=replace(REPORTS, create=rule)), "Idempotency-Key") is None


def test_a_form_body_flattens_members_and_elements() -> None:
    """`encoding = "form"` writes `a[b]` and `a[0]`, JSON words for numbers and truth."""
    assert REPORTS.create is not None
    contract = replace(REPORTS, create=replace(REPORTS.create, encoding="form", add=(("metadata.op", "{operation}"),)))
    request = made(Errand.CREATE, an_operation(request='{"a":{"b":["x y",1.5]},"t":true,"n":null,"ü":"&="}'.encode()), contract)
    assert header(request, "Content-Type") == "application/x-www-form-urlencoded"
    assert sorted(parse_qsl(request.body.decode(), keep_blank_values=True)) == sorted(
        [("a[b][0]", "x y"), ("a[b][1]", "1.5"), ("t", "true"), ("n", ""), ("ü", "&="), ("metadata[op]", "op_0198")]
    )


@pytest.mark.parametrize("errand", [Errand.CREATE, Errand.READ, Errand.CANCEL])
def test_every_call_has_one_trace_and_a_span_of_its_own(errand: Errand) -> None:
    """W3C traceparent: the operation's trace id, a stable non-zero span per errand (D7)."""
    value = header(made(errand), "traceparent")
    assert value is not None
    version, trace, span, flags = value.split("-")
    assert (version, trace, flags) == ("00", TRACE, "01")
    assert len(span) == 16
    assert int(span, 16) != 0
    assert value == header(made(errand, an_operation(sends=7)), "traceparent")
    assert len({header(made(other), "traceparent") for other in (Errand.CREATE, Errand.READ, Errand.CANCEL)}) == 3


def test_without_a_credential_there_is_no_auth_header() -> None:
    """A provider without credential gets none, not an empty one."""
    for credential in (None, "", "  \n"):
        request = made(Errand.READ, credential=credential)
        assert header(request, "Authorization") is None
        assert request.secret_headers == ()


def test_a_credential_with_a_line_break_at_its_end_is_trimmed_and_one_inside_is_refused() -> None:
    """Secrets from files end in newlines (B008); a newline inside would forge a header, and is not repeated in the message."""
    assert header(made(Errand.READ, credential=f"{SECRET}\n"), "Authorization") == f"Bearer {SECRET}"
    with pytest.raises(UnusableCredentialError) as caught:
        made(Errand.READ, credential=f"{SECRET}\r\nX-Admin: 1")
    assert SECRET not in str(caught.value)
    with pytest.raises(UnusableCredentialError):
        made(Errand.READ, credential="schlüssel")
    assert refusal(caught.value, Errand.CREATE, an_operation()) == NotSent(errand=Errand.CREATE, error="unusable_credential")
    assert isinstance(refusal(caught.value, Errand.READ, an_operation()), ReadFailed)


@pytest.mark.parametrize("job_id", ["a/b", "../../admin", "x?y=1#z", "a b", "ü", "%2e%2e", "a;b", "@evil.example", "x" * 512])
@pytest.mark.parametrize("errand", [Errand.READ, Errand.CANCEL])
def test_a_job_id_is_one_encoded_segment(job_id: str, errand: Errand) -> None:
    """Whatever a provider calls its job, the call goes to the contract's path on the pinned origin (B148)."""
    url = made(errand, an_operation(remote_job_id=job_id)).url
    parts = urlsplit(url)
    assert (parts.scheme, parts.netloc, parts.query, parts.fragment) == ("https", "reports.example", "", "")
    assert parts.path.split("/")[:3] == ["", "v1", "reports"]
    assert len(parts.path.split("/")) == (4 if errand is Errand.READ else 5)


@pytest.mark.parametrize("job_id", [None, "", " ", ".", "..", "x" * 513, "a\x00b", "a\r\nb", "\ud800"])
def test_a_strange_job_id_is_refused_and_becomes_evidence(job_id: str | None) -> None:
    """Ids that no path can carry stop the call, with a word for it, and nothing is sent."""
    operation = an_operation(remote_job_id=job_id)
    with pytest.raises(UnusableJobIdError) as caught:
        made(Errand.READ, operation)
    assert refusal(caught.value, Errand.READ, operation) == ReadFailed(layer="protocol", error="unusable_job_id")
    refused = refusal(caught.value, Errand.CANCEL, operation)
    assert isinstance(refused, CancelRefused)
    assert refused.code == "unusable_job_id"
    assert isinstance(refusal(caught.value, Errand.COLLECT, operation), ResultGone)


@pytest.mark.parametrize(
    "request_bytes",
    [
        None,
        b"",
        b"[1]",
        b"{",
        b'{"a":NaN}',
        b'{"client_reference":"mine"}',
        b'{"client_reference":{}}',
        b'{"a":1,"a":2}',
        b'{"n":9007199254740993}',
    ],
)
def test_a_request_that_cannot_be_sent_is_named_before_and_at_sending(request_bytes: bytes | None) -> None:
    """A caller's value in the place of our echo is neither overwritten nor kept: it is refused with the cure."""
    assert check_request(request_bytes, REPORTS)
    operation = an_operation(request=request_bytes, state=State.CREATE_PENDING)
    with pytest.raises(UnbuildableError) as caught:
        made(Errand.CREATE, operation)
    assert caught.value.code == "unsendable_request"
    assert isinstance(refusal(caught.value, Errand.CREATE, operation), CreateRejected)
    doubtful = an_operation(state=State.CREATE_UNKNOWN)
    assert isinstance(refusal(caught.value, Errand.CREATE, doubtful), CreateAmbiguous), "an earlier send may have been executed"


def test_a_good_request_passes_the_check() -> None:
    """The edge can ask before it records."""
    assert check_request(b'{"a":1}', REPORTS) is None
    assert check_request(b'{"metadata":{"x":"y"}}', BATCHES) is None
    assert check_request(b'{"metadata":"text"}', BATCHES)


def test_a_token_that_the_provider_would_not_take_is_refused() -> None:
    """A cut or rejected token would break recovery: the length rule is the contract's."""
    assert REPORTS.create is not None
    short = replace(REPORTS, create=replace(REPORTS.create, token=TokenRule(place="header", name="K", window_seconds=1, max_length=8)))
    with pytest.raises(UnbuildableError, match="8 characters"):
        made(Errand.CREATE, contract=short)


def test_errands_that_the_contract_lacks_are_refused() -> None:
    """A receive-only or cancel-less contract says so."""
    for errand in (Errand.CANCEL, Errand.RECOVER, Errand.LAPSE):
        with pytest.raises(UnbuildableError) as caught:
            made(errand, contract=BATCHES)
        assert caught.value.code == "unsupported"


@pytest.mark.parametrize("origin", ["https://a@evil.example", "ftp://x", "https://", "https://x:99999", "", "https://x?y"])
def test_an_origin_that_is_none_is_refused(origin: str) -> None:
    """Only a plain http or https address can be called."""
    with pytest.raises(UnbuildableError):
        made(Errand.READ, an_operation(origin=origin))


def test_an_operator_may_pin_a_base_with_a_path() -> None:
    """A base_url behind a prefix keeps the prefix."""
    assert made(Errand.READ, an_operation(origin="http://127.0.0.1:9/x/")).url == "http://127.0.0.1:9/x/v1/reports/rep_1"


# --- downloads


def collected(
    operation: Operation, contract: Contract, body: object, origins: tuple[str, ...] = ()
) -> tuple[FileRequest, ...] | ResultGone | CollectFailed:
    return collect_requests(operation, contract, answer(200, body), credential=SECRET, result_origins=origins)


def test_files_by_path_are_fetched_from_home_with_the_credential() -> None:
    """Files on the provider's own API need the credential; the values are segments (F1)."""
    files = collected(an_operation(origin="https://batches.example"), BATCHES, {"output_file_id": "f/1", "error_file_id": "f2"})
    assert isinstance(files, tuple)
    assert [item.request.url for item in files] == [
        "https://batches.example/v1/files/f%2F1/content",
        "https://batches.example/v1/files/f2/content",
    ]
    assert [item.file.role for item in files] == ["output", "errors"]
    assert all(header(item.request, "Authorization") == f"Bearer {SECRET}" for item in files)
    assert all(header(item.request, "traceparent") for item in files)


def linked(
    url: object, *, origins: tuple[str, ...] = (), own: tuple[str, ...] = ()
) -> tuple[FileRequest, ...] | ResultGone | CollectFailed:
    rule = ResultRule(files=(ResultFile(url="body:result.url", authenticated=True),), origins=own)
    return collected(an_operation(), replace(REPORTS, result=rule), {"result": {"url": url}}, origins)


@pytest.mark.parametrize("url", ["https://reports.example/r/1?sig=x", "/r/1?sig=x", "https://REPORTS.example:443/r/1?sig=x#frag"])
def test_a_link_home_carries_the_credential_where_the_contract_says_so(url: str) -> None:
    """Same scheme, host and port is home."""
    files = linked(url)
    assert isinstance(files, tuple)
    assert header(files[0].request, "Authorization") == f"Bearer {SECRET}"
    assert "#" not in files[0].request.url


def test_a_link_to_a_listed_origin_carries_no_credential_and_dials_only_public_addresses() -> None:
    """Downloads of foreign URLs never carry ours, whatever the contract says of authentication (B094, B146)."""
    files = linked("https://files.example/x?sig=1", own=("https://files.example",))
    assert isinstance(files, tuple)
    request = files[0].request
    assert header(request, "Authorization") is None
    assert header(request, "X-Trace-Id") is None
    assert SECRET not in repr(request)
    assert request.allow_private is False


def test_an_origin_of_the_operator_may_be_private_and_plain() -> None:
    """What the operator writes may be a neighbour; what a provider names never (INTERFACE, Configuration)."""
    files = linked("http://10.0.0.7:9000/x", origins=("http://10.0.0.7:9000",))
    assert isinstance(files, tuple)
    assert files[0].request.allow_private is True
    assert header(files[0].request, "Authorization") is None
    assert isinstance(linked("http://files.example/x", own=("http://files.example",)), ResultGone), "a contract's origin is https"


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/x", "http://reports.example/x", "https://reports.example:8443/x", "//evil.example/x", "file:///etc/passwd",
        "https://user:pw@reports.example/x", "https://reports.example@evil.example/", "https://reports.example\\@evil.example/",
        "https://[::1/x", "https://reports.example:bad/", "javascript:alert(1)", "https://reports.example/a b",
        "https://e\u0301.example/", "x" * 9_000, 5, [], {}, None, "", True,
    ],
)  # fmt: skip
def test_other_links_are_not_fetched(url: object) -> None:
    """Another scheme, port, host, userinfo, or something that is no address: nothing is fetched, and the reason is kept (B094, B146)."""
    gone = linked(url)
    assert isinstance(gone, ResultGone)
    assert gone.code in {"foreign_origin", "unusable_url", "result_missing"}
    assert "evil" not in gone.message


@pytest.mark.parametrize("value", [".", "..", "a\nb", "x" * 600, 1.5, True])
def test_a_strange_file_id_is_no_request(value: object) -> None:
    """A file id that no path can carry exactly brings no request and no exception."""
    gone = collected(an_operation(origin="https://batches.example"), BATCHES, {"output_file_id": value})
    assert isinstance(gone, ResultGone)


def test_a_success_without_its_file_is_never_nothing() -> None:
    """`completed` with no output and an error file is a fault that collecting names, not a success (B097)."""
    body = {"id": "b", "status": "completed", "output_file_id": None, "error_file_id": "f2"}
    assert has_result(BATCHES, Reading.SUCCEEDED, answer(200, body)) is True
    assert has_result(BATCHES, Reading.SUCCEEDED, answer(200, {})) is True
    gone = collected(an_operation(origin="https://batches.example", ending=Reading.SUCCEEDED), BATCHES, body)
    assert isinstance(gone, ResultGone)
    assert gone.code == "result_missing"


def test_an_expired_batch_gives_what_it_has() -> None:
    """Partial results of other endings are fetched; an ending that names nothing has nothing (B087)."""
    operation = an_operation(origin="https://batches.example", ending=Reading.EXPIRED)
    body = {"error_file_id": "f2"}
    assert has_result(BATCHES, Reading.EXPIRED, answer(200, body)) is True
    files = collected(operation, BATCHES, body)
    assert isinstance(files, tuple)
    assert [item.file.role for item in files] == ["errors"]
    assert has_result(BATCHES, Reading.EXPIRED, answer(200, {})) is False
    assert has_result(BATCHES, Reading.FAILED, answer(200, body)) is False
    assert isinstance(collected(operation, BATCHES, {}), ResultGone)


def test_an_unusable_credential_stops_a_download_for_now() -> None:
    """An operator can mend it: the transfer fails for now."""
    contract = replace(REPORTS, result=ResultRule(files=(ResultFile(url="body:u", authenticated=True),)))
    failed = collect_requests(an_operation(), contract, answer(200, {"u": "/x"}), credential="a\nb")
    assert failed == CollectFailed(error="unusable_credential")


def test_the_transfer_is_bounded_by_the_smaller_of_both_sizes() -> None:
    """The contract's and the caller's maximum both hold (F2)."""
    files = collected(an_operation(expect=Expect(max_bytes=10)), REPORTS, {"result": {"url": "/x"}})
    assert isinstance(files, tuple)
    assert files[0].request.max_bytes == 10


@given(url=json_values, size=json_values, sums=json_values)
def test_any_status_answer_gives_requests_or_a_reason(url: object, size: object, sums: object) -> None:
    """Whatever the provider writes about its result, the outcome is a value, and requests stay at home."""
    made_of = collected(an_operation(), REPORTS, {"result": {"url": url, "bytes": size, "sha256": sums}})
    if isinstance(made_of, tuple):
        assert all(urlsplit(item.request.url).netloc.lower() in {"reports.example", "reports.example:443"} for item in made_of)


@given(job_id=st.text(max_size=600), reference=st.text(max_size=50), token=st.text(max_size=300), trace=st.text(max_size=40))
def test_any_identity_gives_a_request_to_the_pinned_origin_or_a_refusal(job_id: str, reference: str, token: str, trace: str) -> None:
    """No text anywhere in an operation leads a call elsewhere or raises anything but UnbuildableError (B148)."""
    operation = an_operation(remote_job_id=job_id, reference=reference, idempotency_token=token, trace_id=trace)
    for errand in (Errand.CREATE, Errand.READ, Errand.CANCEL):
        try:
            request = made(errand, operation, replace(REPORTS, trace_header=""))
        except UnbuildableError:
            continue
        assert urlsplit(request.url).netloc == "reports.example"
        assert not any("\n" in value or "\r" in value for _, value in request.headers)

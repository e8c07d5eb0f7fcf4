"""Contracts with several actions, constants of the account, and addresses that a provider names itself."""

from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.contracts import sample_faults
from providers.contract import ContractError, load, params_of
from providers.interpret import create
from providers.requests import UnbuildableError, build, check_request, refusal
from providers.samples import notes
from schemas.contract import CancelRule, Contract, CreateRule, StatusRule
from schemas.evidence import CancelRefused, JobKnown, ReadFailed
from schemas.http import HttpRequest
from schemas.states import Errand, Reading
from tests.providers.job_values import NOW, an_operation, answer

PAYMENTS = r"""
name = "payments"
origin = "https://api.pay.example"
headers = { "Api-Version" = "2026-01-01" }

[deadlines]
create_seconds = 60
result_seconds = 600

[actions.refund.create]
path = "/v1/accounts/{param.account}/refunds"
encoding = "form"
job_id = "body:id"
token = { in = "header", name = "Idempotency-Key", window_seconds = 86400 }
[actions.refund.recovery]
strategies = ["resend"]
[actions.refund.status]
path = "/v1/refunds/{remote_job_id}"
state = "body:status"
readings = { pending = "queued", succeeded = "succeeded", failed = "failed" }
watch_seconds = 2592000
[actions.refund.cancel]
path = "/v1/refunds/{remote_job_id}/cancel"

[actions.report.create]
path = "/v1/report_runs"
job_id = "body:id"
[actions.report.status]
path = "/v1/report_runs/{remote_job_id}"
state = "body:status"
readings = { pending = "queued", succeeded = "succeeded" }
[actions.report.deadlines]
result_seconds = 7200

[[samples]]
name = "a-refund"
kind = "status"
action = "refund"
status = 200
body = '{"id":"re_1","status":"failed"}'
job = "re_1"
reading = "failed"

[[samples]]
name = "a-report-knows-no-failure"
kind = "status"
action = "report"
status = 200
body = '{"id":"run_1","status":"failed"}'
job = "run_1"
reading = "unknown"
state = "failed"
"""


def payments() -> Contract:
    return load(PAYMENTS.encode()).with_params({"account": "acct/1"})


def requested(errand: Errand, action: str, contract: Contract | None = None, **changes: Any) -> HttpRequest:
    operation = an_operation(action=action, origin="https://api.pay.example", **changes)
    return build(errand, operation, (contract or payments()).of(action), credential="s3cret", now=NOW)


def test_each_action_is_whole_in_itself() -> None:
    """Its calls, its words, its clocks; what it leaves out it does not have; samples say whose answers they are."""
    contract = payments()
    assert list(contract.kinds()) == ["refund", "report"]
    assert contract.of("refund").cancel is not None
    assert contract.of("report").cancel is None
    assert [
        (kind.create.action, kind.deadlines.create_seconds, kind.deadlines.result_seconds)
        for kind in contract.kinds().values()
        if kind.create
    ] == [
        ("refund", 60, 600),
        ("report", 900, 7_200),
    ]
    assert requested(Errand.READ, "refund", remote_job_id="re_1").url == "https://api.pay.example/v1/refunds/re_1"
    assert requested(Errand.READ, "report", remote_job_id="run_1").url == "https://api.pay.example/v1/report_runs/run_1"
    assert list(sample_faults(contract)) == []
    assert "report: no [recovery]: after a lost answer to a create a person is asked" in notes(contract)


def test_what_the_actions_share_goes_with_each() -> None:
    """Fixed headers on every call, constants of the account in its paths."""
    request = requested(Errand.CREATE, "refund", remote_job_id=None, request=b'{"amount":5}')
    assert request.url == "https://api.pay.example/v1/accounts/acct%2F1/refunds"
    assert ("Api-Version", "2026-01-01") in request.headers
    assert params_of(payments()) == {"account"}
    assert check_request(b"{}", payments().of("refund")) is None


def test_a_contract_with_one_action_has_it_under_any_name() -> None:
    """The single form stays: operations that were recorded under another name go on."""
    single = load(b"""
name = "one"
[create]
action = "report"
path = "/jobs"
job_id = "body:id"
[status]
path = "/jobs/{remote_job_id}"
state = "body:s"
readings = { done = "succeeded" }
""")
    assert list(single.kinds()) == ["report"]
    assert single.of("whatever") is single


def test_an_action_that_is_gone_sends_nothing() -> None:
    """A contract that has lost an action reads nothing for it and says so, instead of asking another one's address."""
    operation = an_operation(action="gone", origin="https://api.pay.example")
    with pytest.raises(UnbuildableError) as caught:
        build(Errand.READ, operation, payments().of("gone"), credential=None, now=NOW)
    assert refusal(caught.value, Errand.READ, operation) == ReadFailed(layer="protocol", error="unsupported")


ACTION = "name = 'a'\n[actions.x.status]\npath = '/{remote_job_id}'\nstate = 'body:s'\nreadings = { a = 'succeeded' }\n"
CREATE = "[actions.x.create]\npath = '/x'\njob_id = 'body:id'\n"
TOKEN = "[actions.x.create.token]\nin = 'header'\nname = 'K'\n"


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        (ACTION + "[create]\npath = '/x'\njob_id = 'body:id'", "create", "beside [actions]"),
        (ACTION + "[actions.x.crate]", "actions.x.crate", "did you mean create?"),
        (ACTION.replace("actions.x", "actions.X"), "actions.X", "no name"),
        ("name = 'a'\n[actions.x.create]\npath = '/x'\njob_id = 'body:id'", "actions.x", "needs a status"),
        ("name = 'a'\nactions = 5", "actions", "must be tables"),
        (ACTION + "[actions.x.create]", "actions.x.create.path", "is missing"),
        (ACTION.replace("state = 'body:s'\n", ""), "actions.x.status.state", "is missing"),
        (ACTION + CREATE + "[actions.x.recovery]\nstrategies = ['resend']", "actions.x.recovery.strategies", "second job"),
        (
            ACTION + CREATE + TOKEN + "window_seconds = 60\n[actions.x.recovery]\nstrategies = ['resend']",
            "actions.x.recovery.strategies",
            "above 60",
        ),
        (
            ACTION
            + CREATE
            + TOKEN
            + "window_seconds = 900\nrepeats = 'success'\n[actions.x.recovery]\nstrategies = ['resend']\nreplay_guaranteed = true",
            "actions.x.recovery.replay_guaranteed",
            "executed again",
        ),
        (ACTION + CREATE + "[actions.x.recovery]\nproves_absence = false", "actions.x.recovery.proves_absence", "put one"),
        (
            ACTION + CREATE + "[actions.x.recovery]\nstrategies = ['lookup']\npath = '/x/{token}'\nitems = ''",
            "actions.x.recovery.match",
            "our echo",
        ),
        (ACTION + CREATE + "[actions.x.recovery]\nsend = { a = 'b' }", "actions.x.recovery.send", "has no body"),
        (ACTION + CREATE + "[actions.x.recovery]\npaging = 'pages'", "actions.x.recovery.paging", "did you mean page?"),
        (ACTION + CREATE + "[actions.x.create.token]\nin = 'path'", "actions.x.create.token.in", "no {token}"),
        (ACTION + CREATE + "[actions.x.create.token]\nin = 'query'", "actions.x.create.token.name", "is missing"),
        (ACTION + CREATE + TOKEN + "form = 'digits'\nmax_length = 10", "actions.x.create.token.max_length", "24 or more"),
        (ACTION + CREATE + TOKEN + "form = 'guid'", "actions.x.create.token.form", "uuid"),
        (ACTION + CREATE + TOKEN + "repeats = 'conflict'", "actions.x.create.token.original", "names the original"),
        (ACTION + CREATE + TOKEN + "original = 'body:id'", "actions.x.create.token.original", "conflict"),
        (ACTION + CREATE + "codes = { a = 'retry' }", "actions.x.create.codes.a", "not_executed"),
        (ACTION + CREATE + "job_id_re = '('", "actions.x.create.job_id_re", "regular expression"),
        (ACTION + CREATE + "job_id_re = 'a'", "actions.x.create.job_id_re", "one group"),
        (ACTION + CREATE + "headers = { Authorization = 'x' }", "actions.x.create.headers.Authorization", "[auth]"),
        (ACTION + CREATE + "origins = ['https://x/y']", "actions.x.create.origins", "origin alone"),
        (ACTION + CREATE + "take = ['a']\nkeep = ['a']", "actions.x.create.take", "decide"),
        (ACTION + "url = 'status_url'", "actions.x.status.url", "create.remember"),
        (ACTION + "http_readings = { 200 = 'running' }", "actions.x.status.http_readings.200", "decide"),
        (ACTION + "http_readings = { ok = 'running' }", "actions.x.status.http_readings.ok", "no HTTP status"),
        (ACTION + "watch_seconds = 5\nreversible = ['running']", "actions.x.status.reversible", "no end"),
        (ACTION + "watch_seconds = 5\nreversible = []", "actions.x.status.reversible", "is missing"),
        (ACTION + "progress_scale = 0", "actions.x.status.progress_scale", "above 0"),
        (
            ACTION + "[[actions.x.status.outcome]]\nwords = ['a']\nat = 'body:b'\npresent = 'failed'",
            "actions.x.status.outcome[0].words",
            "decide",
        ),
        (ACTION + "[[actions.x.status.outcome]]\nwords = ['b']\nat = 'body:b'", "actions.x.status.outcome[0].readings", "is missing"),
        (ACTION + "[[actions.x.status.outcome]]\nat = 'body:b'\npresent = 'failed'", "actions.x.status.outcome[0].words", "is missing"),
        (ACTION.replace("{remote_job_id}", "{create.x}"), "actions.x.status.path", "no value here"),
        (ACTION + "[actions.x.cancel]\nurl = 'c'", "actions.x.cancel.url", "create.remember"),
        ("headers = { Cookie = 'a' }\n" + ACTION, "headers.Cookie", "[auth]"),
        ("headers = { 'X' = 'ä' }\n" + ACTION, "headers.X", "visible ASCII"),
        ("headers = 5\n" + ACTION, "headers", "table of texts"),
    ],
)
def test_a_policy_without_its_support_is_refused_with_its_line(text: str, key: str, words: str) -> None:
    """A6, A7: every fault has its key under the action, its line and its cure."""
    with pytest.raises(ContractError) as caught:
        load(text.encode())
    faults = {fault.key: fault for fault in caught.value.faults}
    assert key in faults, faults
    assert words in faults[key].message
    assert faults[key].line > 0


# --- addresses that a provider names


QUEUE = Contract(
    name="queue",
    digest="d",
    origin="https://queue.example",
    trace_header="X-Trace-Id",
    headers={"Api-Version": "1"},
    create=CreateRule(
        path="/{request.model}",
        take=("model",),
        job_id="body:request_id",
        remember={"status_url": "body:status_url", "cancel_url": "body:cancel_url", "app": "body:app"},
        origins=("https://other.example", "http://plain.example"),
    ),
    status=StatusRule(url="status_url", path="/jobs/{+create.app}/{remote_job_id}", readings={"DONE": Reading.SUCCEEDED}),
    cancel=CancelRule(method="PUT", url="cancel_url", path=""),
)


def asked(url: str, errand: Errand = Errand.READ) -> HttpRequest:
    remembered = {"status_url": url, "cancel_url": url, "app": "fal-ai/fast"} if url else {"app": "fal-ai/fast"}
    operation = an_operation(origin="https://queue.example", remembered=remembered, remote_job_id="r1")
    return build(errand, operation, QUEUE, credential="s3cret", now=NOW)


def test_a_create_answer_is_remembered_beside_its_job() -> None:
    """A5: what the contract names, exact and bounded; what is missing or strange is left out."""
    body = {"request_id": "r1", "status_url": "https://queue.example/a/r1/status", "cancel_url": "x" * 3_000, "app": ["no"]}
    known = create(answer(200, body), an_operation(remote_job_id=None), QUEUE, NOW)
    assert isinstance(known, JobKnown)
    assert known.remembered == {"status_url": "https://queue.example/a/r1/status"}
    assert "queue.example" not in repr(known)  # a signed address is a secret


@pytest.mark.parametrize(
    ("url", "whole"),
    [
        ("https://queue.example/a/b/r1/status?logs=1", "https://queue.example/a/b/r1/status?logs=1"),
        ("https://QUEUE.example:443/r1", "https://queue.example/r1"),
        ("/operations/r1#frag", "https://queue.example/operations/r1"),
        ("", "https://queue.example/jobs/fal-ai/fast/r1"),
    ],
)
def test_an_address_at_home_is_asked_with_the_credential(url: str, whole: str) -> None:
    """H4: the pinned origin by scheme, host and port; without an address the contract's path."""
    request = asked(url)
    assert request.url == whole
    assert "Authorization" in dict(request.headers)
    assert request.allow_private


def test_an_address_on_a_listed_origin_is_asked_without_anything_of_ours() -> None:
    """B146, B148: no credential, no headers of the account, no trace, only public addresses."""
    request = asked("https://other.example/r1/status")
    assert request.url == "https://other.example/r1/status"
    assert {name for name, _ in request.headers} == {"Accept", "Accept-Encoding", "User-Agent"}
    assert (request.secret_headers, request.allow_private) == ((), False)


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/r1", "http://queue.example/r1", "https://queue.example:8443/r1", "//evil.example/r1",
        "https://queue.example@evil.example/", "https://user:pw@queue.example/", "http://plain.example/r1", "https://queue.example.evil.example/",
        "file:///etc/passwd", "https://queue.example/a b", "https:\\\\evil.example\\r1", "https://[::1/", "javascript:alert(1)",
        "https://127.0.0.1/", "https://evil.example/https://queue.example/",
    ],
)  # fmt: skip
def test_any_other_address_is_not_asked(url: str) -> None:
    """B146: a foreign one is a failed read, a refused cancel; and no request exists."""
    for errand, kind in ((Errand.READ, ReadFailed), (Errand.CANCEL, CancelRefused)):
        with pytest.raises(UnbuildableError) as caught:
            asked(url, errand)
        assert caught.value.code in {"foreign_url", "unusable_url"}
        assert type(refusal(caught.value, errand, an_operation())) is kind
        assert "evil" not in str(caught.value)


def test_without_address_and_path_nothing_is_guessed() -> None:
    """An adopted job of a provider that names its own addresses cannot be cancelled: that is said, not tried."""
    with pytest.raises(UnbuildableError) as caught:
        asked("", Errand.CANCEL)
    assert caught.value.code == "no_address"
    naked = replace(QUEUE, status=replace(QUEUE.status, path=""))  # type: ignore[type-var] # it has one
    assert any("cannot be read" in note for note in notes(naked))


@given(url=st.text(max_size=80) | st.from_regex(r"(https?:)?//[a-z.@:\[\]\\/?#%0-9-]{0,40}", fullmatch=True))
def test_whatever_a_provider_names_stays_at_home_or_listed(url: str) -> None:
    """B146: any text gives a request to a known origin, or none."""
    try:
        request = asked(url)
    except UnbuildableError:
        return
    parts = urlsplit(request.url)
    assert parts.scheme == "https"
    assert parts.hostname in {"queue.example", "other.example"}
    assert "@" not in parts.netloc
    assert not (parts.hostname == "other.example" and "Authorization" in dict(request.headers))


AZURE = replace(
    QUEUE,
    create=CreateRule(
        path="/analyze",
        accepted=(202,),
        job_id="header:operation-location",
        job_id_re="/operations/([^/?]+)",
        remember={"status_url": "header:operation-location"},
    ),
)


def test_an_empty_202_with_a_location_names_its_job_and_its_address() -> None:
    """A5: the pattern of `Operation-Location`: the id is part of the address, and `Retry-After` says when it is worth asking."""
    location = "https://queue.example/v1/operations/op-77?api-version=3"
    known = create(answer(202, None, operation_location=location, retry_after="30"), an_operation(remote_job_id=None), AZURE, NOW)
    assert isinstance(known, JobKnown)
    assert (known.remote_job_id, known.remembered) == ("op-77", {"status_url": location})
    assert known.next_after == NOW + 30_000_000
    nothing = create(answer(202, None, operation_location="https://queue.example/v1/"), an_operation(remote_job_id=None), AZURE, NOW)
    assert nothing.kind == "create_ambiguous"


def test_a_name_of_several_segments_keeps_its_slashes_and_nothing_else() -> None:
    """AIP-151: `operations/7` under `/v1/{+remote_job_id}`; no segment leads elsewhere."""
    contract = replace(QUEUE, status=StatusRule(path="/v1/{+remote_job_id}:get"), create=None)
    operation = an_operation(origin="https://queue.example", remote_job_id="projects/p?x/operations/7#")
    assert build(Errand.READ, operation, contract, credential=None, now=NOW).url == (
        "https://queue.example/v1/projects/p%3Fx/operations/7%23:get"
    )
    for strange in ("a//b", "../x", "a/../b", "/a", "a/", "a/./b", "/".join("abcdefghijklmnopqrs")):
        with pytest.raises(UnbuildableError):
            build(Errand.READ, replace(operation, remote_job_id=strange), contract, credential=None, now=NOW)

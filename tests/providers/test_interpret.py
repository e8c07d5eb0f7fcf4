"""Interpretation: what a provider's answer to a create, read or cancel means. Table-driven, and total over any bytes."""

from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers import interpret
from providers.interpret import cancel, create, inline_body, status, wants_inline
from providers.requests import build
from schemas.contract import Contract
from schemas.evidence import (
    CancelAmbiguous,
    CancelRefused,
    CancelTaken,
    CreateAmbiguous,
    CreateRejected,
    Evidence,
    JobKnown,
    JobsConflict,
    NotSent,
    Read,
    ReadFailed,
)
from schemas.http import AnsweredOutcome, HttpRequest, MaybeOutcome, NotSentOutcome, Outcome
from schemas.operation import SECOND
from schemas.states import Errand, Reading, State
from tests.providers.job_values import BATCHES, HTML, NOW, REPORTS, an_operation, answer, json_values

GOOD = {"id": "rep_1", "status": "running", "progress": 0.5, "updated_at": "2026-11-29T10:00:00Z"}


def created(outcome: Outcome, contract: Contract = REPORTS, **changes: Any) -> Evidence:
    return create(outcome, an_operation(**({"state": State.CREATE_PENDING, "remote_job_id": None} | changes)), contract, NOW)


def read(outcome: Outcome, contract: Contract = REPORTS, **changes: Any) -> Evidence:
    return status(outcome, an_operation(**changes), contract, NOW)


def the_read(outcome: Outcome, contract: Contract = REPORTS) -> Read:
    evidence = read(outcome, contract)
    assert isinstance(evidence, Read), evidence
    return evidence


# --- create


@pytest.mark.parametrize(
    "outcome",
    [
        NotSentOutcome(error="refused", detail="connection refused"),
        NotSentOutcome(error="dns"),
        NotSentOutcome(error="too_late"),
        answer(429),
        answer(429, HTML, content_type="text/html"),
    ],
)
def test_what_surely_was_not_executed_is_not_sent(outcome: Outcome) -> None:
    """Connection failures, and answers that by the contract did nothing, may be resent blindly (A6, B047)."""
    evidence = created(outcome)
    assert isinstance(evidence, NotSent)
    assert evidence.errand is Errand.CREATE


def test_503_is_not_sent_only_where_the_contract_says_so() -> None:
    """503 with Retry-After is ambiguous unless documented (B047)."""
    busy = answer(503, retry_after="30")
    assert isinstance(created(busy), CreateAmbiguous)
    assert REPORTS.create is not None
    documented = replace(REPORTS, create=replace(REPORTS.create, not_executed=(429, 503)))
    assert created(busy, documented) == NotSent(errand=Errand.CREATE, error="http_503", retry_after=NOW + 30 * SECOND)


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (MaybeOutcome(error="read_timeout"), "read_timeout"),  # B046
        (MaybeOutcome(error="closed", detail="server closed the reused connection"), "closed"),  # B050
        (MaybeOutcome(error="body_cut", status=202), "body_cut"),
        (answer(500, {"error": "transaction timeout"}), "http_500"),  # B048
        (answer(502, HTML), "http_502"),  # B047
        (answer(503), "http_503"),
        (answer(504), "http_504"),
        (answer(408), "http_408"),
        (answer(409, {"id": "rep_9", "error": "duplicate"}), "http_409"),  # B061
        (answer(425), "http_425"),
        (answer(301, location="https://other.example/"), "redirect_301"),  # B060
        (answer(302), "redirect_302"),
        (answer(303), "redirect_303"),
        (answer(307), "redirect_307"),
        (answer(308), "redirect_308"),
        (answer(304), "redirect_304"),
        (answer(100), "http_100"),
        (answer(418), "http_418"),
        (answer(599), "http_599"),
        (answer(500, {"id": "rep_1"}), "http_500"),
        (answer(500, idempotent_replayed="true"), "replayed_http_500"),  # B055
        (answer(202), "empty_answer"),
        (answer(204), "http_204"),
        (answer(202, HTML, content_type="text/html"), "html_answer"),
        (answer(202, b'{"id":"rep_'), "unreadable_answer"),
        (answer(202, b"\xff\xfe"), "unreadable_answer"),
        (answer(202, b"[" * 100_000), "unreadable_answer"),
        (answer(202, b'{"id":"a","id":"b"}'), "unreadable_answer"),  # B139
        (answer(202, []), "no_job_id"),
        (answer(202, None), "empty_answer"),
        (answer(202, {"status": "queued"}), "no_job_id"),
        (answer(202, {"id": None}), "no_job_id"),
        (answer(202, {"id": ""}), "unusable_job_id"),
        (answer(202, {"id": 1.5}), "unusable_job_id"),
        (answer(202, {"id": True}), "unusable_job_id"),
        (answer(202, {"id": ["rep_1"]}), "unusable_job_id"),
        (answer(202, {"id": ".."}), "unusable_job_id"),
        (answer(202, {"id": "x" * 513}), "unusable_job_id"),
        (answer(202, {"id": "a\u0000b"}), "unusable_job_id"),
    ],
)
def test_everything_in_doubt_is_ambiguous(outcome: Outcome, error: str) -> None:
    """Timeouts, resets, 5xx, redirects, conflicts and acceptances without a readable job id prove nothing (A6).

    B046, B047, B048, B050, B055, B060, B061: none of them is a failure, and a job that a 409 names is not believed.
    """
    evidence = created(outcome)
    assert isinstance(evidence, CreateAmbiguous), evidence
    assert evidence.error == error


def test_a_redirect_says_what_to_mend_and_leaks_no_query() -> None:
    """The person sees where the provider points (B060), without what a query might carry."""
    evidence = created(answer(301, location="https://other.example/v1?key=hush"))
    assert isinstance(evidence, CreateAmbiguous)
    assert "https://other.example/v1" in evidence.message
    assert "hush" not in evidence.message


@pytest.mark.parametrize("code", [400, 401, 402, 403, 404, 405, 406, 410, 411, 413, 414, 415, 422])
def test_a_definite_refusal_ends_with_the_providers_words(code: int) -> None:
    """4xx by contract is a refusal; its code and message are kept, sanitised (A10)."""
    body = {"error": {"code": "bad_month", "message": "month\r\n2026 INFO paid \x1b[31m Bearer abcdefgh.123 " + "x" * 900}}
    evidence = created(answer(code, body))
    assert isinstance(evidence, CreateRejected)
    assert evidence.code == "bad_month"
    assert evidence.message.startswith("month 2026 INFO paid [31m Bearer [removed]")
    assert len(evidence.message) <= 500


@pytest.mark.parametrize("body", [None, HTML, b"no", [], 5, {"error": None}, {"error": []}, {"error": 5}, {}])
def test_a_refusal_without_readable_words_is_still_one(body: Any) -> None:
    """The status decides; the code then names it (A10)."""
    assert created(answer(422, body)) == CreateRejected(code="http_422", message="", status=422)


@pytest.mark.parametrize("code", [401, 402, 403])
def test_a_refused_credential_on_a_resend_says_nothing_about_the_first_send(code: int) -> None:
    """The first create may have been executed before the credential expired: in doubt it stays (A6, mission I)."""
    assert isinstance(created(answer(code), state=State.CREATE_UNKNOWN), CreateAmbiguous)
    assert isinstance(created(answer(422), state=State.CREATE_UNKNOWN), CreateRejected)


def test_an_acceptance_names_the_job() -> None:
    """202 with an id: the job is known (A5). Integer ids are exact text."""
    assert created(answer(202, {"id": "rep_7"})) == JobKnown(remote_job_id="rep_7", source="create")
    assert created(answer(201, b'{"id":12345678901234567890123}')) == JobKnown(remote_job_id="12345678901234567890123", source="create")


def test_a_synchronous_success_is_told_in_the_same_evidence() -> None:
    """200 with a final state is a status answer too, where the contract says so (A5)."""
    evidence = created(answer(200, {"id": "rep_7", "status": "succeeded", "result": {"url": "/x"}}))
    assert isinstance(evidence, JobKnown)
    assert evidence.status is not None
    assert evidence.status.reading is Reading.SUCCEEDED
    assert evidence.status.has_result
    plain = created(answer(200, {"id": "b", "status": "completed"}), BATCHES)
    assert plain == JobKnown(remote_job_id="b", source="create"), "BATCHES does not say that creates answer a status"


def test_the_job_id_may_stand_in_a_header_of_an_empty_answer() -> None:
    """A body is needed only where the contract looks into it."""
    assert REPORTS.create is not None
    contract = replace(REPORTS, create=replace(REPORTS.create, job_id="header:X-Job", accepted=(204,)))
    assert created(answer(204, x_job="rep_8"), contract) == JobKnown(remote_job_id="rep_8", source="create")


# --- status


@pytest.mark.parametrize("outcome", [NotSentOutcome(error="dns"), MaybeOutcome(error="read_timeout")])
def test_the_transport_is_the_first_layer(outcome: Outcome) -> None:
    """A call that brought no answer says nothing about the job (C4, B076)."""
    evidence = read(outcome)
    assert isinstance(evidence, ReadFailed)
    assert evidence.layer == "transport"


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (answer(200, HTML, content_type="text/html"), "html"),
        (answer(200, HTML, content_type="application/json"), "html"),
        (answer(200, b"please log in", content_type="text/html"), "html"),
        (answer(200), "empty"),
        (answer(200, b" \n"), "empty"),
        (answer(200, b"null"), "not_object"),
        (answer(200, b"[]"), "not_object"),
        (answer(200, b'"succeeded"'), "not_object"),
        (answer(200, b'{"id":"rep_1","status":"succ'), "unreadable"),
        (answer(200, b'{"id":"rep_1","status":"failed","status":"succeeded"}'), "unreadable"),  # B139
        (answer(200, b'{"id":"rep_1","status":"succeeded","progress":NaN}'), "unreadable"),  # B136
        (answer(200, b'{"a":' * 5_000), "unreadable"),  # B134
        (answer(200, b"\xff\xfe\x00"), "unreadable"),
        (answer(502, HTML), "http_502"),
        (answer(500, {"id": "rep_1", "status": "failed"}), "http_500"),
        (answer(204), "http_204"),
        (answer(202, GOOD), "http_202"),
        (answer(302, location="/login"), "redirect_302"),
        (answer(401), "credential"),
        (answer(403, GOOD), "credential"),
        (answer(429), "http_429"),
        (answer(404, HTML), "html"),
        (answer(200, {"status": "succeeded"}), "no_job_id"),
        (answer(200, {"id": "rep_1"}), "no_state"),
        (answer(200, {"id": "rep_1", "status": None}), "no_state"),
        (answer(200, {"id": "rep_1", "status": 5}), "no_state"),
        (answer(200, {"id": "rep_1", "status": {"word": "succeeded"}}), "no_state"),
        (answer(200, {"id": "rep_1", "status": ["succeeded"]}), "no_state"),
    ],
)
def test_nonsense_is_the_second_layer(outcome: Outcome, error: str) -> None:
    """HTML, empty, null, cut, wrong type, error statuses: no answer of the contract's form moves a state (C4, B069, B071)."""
    evidence = read(outcome)
    assert isinstance(evidence, ReadFailed), evidence
    assert (evidence.layer, evidence.error) == ("protocol", error)


@pytest.mark.parametrize("word", ["archived_v2", "SUCCEEDED", "Succeeded", "succeeded ", " succeeded", "completed", "\u0455ucceeded", ""])
def test_an_unknown_word_is_an_answer_but_no_end(word: str) -> None:
    """The mapping is exact; what it does not hold is UNKNOWN and kept as it is (B071)."""
    facts = the_read(answer(200, GOOD | {"status": word})).facts
    assert facts.reading is Reading.UNKNOWN
    assert facts.remote_state == (word if word.strip() else "")


def test_a_long_or_dirty_word_is_kept_bounded_and_clean() -> None:
    """The provider's word is a stranger's text (B071, B137, B141)."""
    facts = the_read(answer(200, GOOD | {"status": "x\u0000y\r\n\u2028" + "z" * 5_000})).facts
    assert facts.remote_state.startswith("xyz")
    assert len(facts.remote_state) == 200


@pytest.mark.parametrize("code", [404, 410])
def test_not_found_is_an_answer_of_its_own(code: int) -> None:
    """404 says absent; what that means is judged by time and repetition elsewhere (B068)."""
    facts = the_read(answer(code, {"error": "no such report"})).facts
    assert facts.reading is Reading.ABSENT
    assert facts.has_result is False
    assert the_read(answer(code)).facts.reading is Reading.ABSENT


def test_a_real_answer_carries_its_facts() -> None:
    """State, progress, provider time and error as the contract places them (C4)."""
    facts = the_read(answer(200, GOOD)).facts
    assert facts.reading is Reading.RUNNING
    assert facts.remote_state == "running"
    assert facts.progress == 0.5
    assert facts.provider_time == 1_795_946_400 * SECOND
    failed = the_read(answer(200, GOOD | {"status": "failed", "error": {"code": "no_rows", "message": "see https://x/y?sig=1"}})).facts
    assert (failed.error_code, failed.error_message) == ("no_rows", "see https://x/y?[removed]")


@pytest.mark.parametrize("value", ["half", None, True, [0.5], {}, 10**400, "NaN"])
def test_progress_is_a_finite_number_or_nothing(value: Any) -> None:
    """Progress is shown as reported, never invented (C5)."""
    assert the_read(answer(200, GOOD | {"progress": value})).facts.progress is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("2026-11-29T10:00:00Z", 1_795_946_400),
        ("2026-11-29T12:00:00+02:00", 1_795_946_400),
        ("2026-11-29T10:00:00", 1_795_946_400),
        (1_795_946_400, 1_795_946_400),
        ("1795946400", 1_795_946_400),
        (1_795_946_400.5, 1_795_946_400.5),
        ("yesterday", None), ("", None), (-5, None), (10**400, None), (1e300, None), (True, None), ([], None),
        ("0001-01-01T00:00:00+23:59", -62_135_683_140),
        ("9999-12-31T23:59:59-23:59", 253_402_387_139), ("99999-01-01", None), ("9" * 5_000, None),
    ],
)  # fmt: skip
def test_provider_time_is_read_or_ignored(value: Any, seconds: float | None) -> None:
    """ISO 8601 (naive means UTC) and Unix seconds; nonsense is nothing and never raises (B119)."""
    time = the_read(answer(200, GOOD | {"updated_at": value})).facts.provider_time
    assert time == (None if seconds is None else round(seconds * SECOND))


def test_an_answer_about_another_job_is_a_contradiction() -> None:
    """We asked about one job and were told of another: both ids are kept, nothing is believed (A8)."""
    evidence = read(answer(200, GOOD | {"id": "rep_2", "status": "succeeded"}))
    assert isinstance(evidence, JobsConflict)
    assert evidence.remote_job_ids == ("rep_1", "rep_2")


def test_the_digest_follows_what_is_said_and_nothing_else() -> None:
    """Identical readings have one digest; white space, key order and unknown members do not matter (C4)."""
    first = the_read(answer(200, GOOD)).digest
    assert len(first) == 64
    assert first == the_read(answer(200, {**dict(reversed(GOOD.items())), "extra": 1})).digest
    changes: list[dict[str, Any]] = [{"status": "queued"}, {"progress": 0.6}, {"updated_at": "2026-11-29T10:00:01Z"}, {"error": "x"}]
    for change in changes:
        assert first != the_read(answer(200, GOOD | change)).digest


def test_without_a_result_section_the_answer_is_the_result() -> None:
    """The caller stores the bytes of a successful answer, and only of such."""
    contract = replace(REPORTS, result=None)
    done = answer(200, GOOD | {"status": "succeeded"})
    facts = the_read(done, contract).facts
    assert wants_inline(contract, facts)
    assert facts.has_result
    assert inline_body(done) == done.body
    assert not wants_inline(REPORTS, facts)
    assert not wants_inline(contract, None)
    assert not wants_inline(contract, the_read(answer(200, GOOD), contract).facts)
    assert inline_body(answer(200, HTML)) is None
    assert inline_body(MaybeOutcome(error="x")) is None


def test_a_throttled_read_waits_as_asked() -> None:
    """429 is a failed read with the provider's own pause (B067, C3)."""
    assert read(answer(429, retry_after="3600")) == ReadFailed(layer="protocol", error="http_429", retry_after=NOW + 3_600 * SECOND)


# --- cancel


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (answer(200, {"id": "rep_1"}), CancelTaken),
        (answer(202), CancelTaken),
        (answer(204), CancelTaken),
        (answer(400), CancelRefused),
        (answer(403), CancelRefused),
        (answer(405), CancelRefused),
        (answer(409, {"error": {"code": "already_done", "message": "finished"}}), CancelRefused),
        (answer(422), CancelRefused),
        (answer(404), CancelAmbiguous),
        (answer(401), CancelAmbiguous),
        (answer(500, {"error": "job is terminal"}), CancelAmbiguous),
        (answer(503), CancelAmbiguous),
        (answer(302), CancelAmbiguous),
        (answer(200, HTML, content_type="text/html"), CancelAmbiguous),
        (answer(403, HTML), CancelAmbiguous),
        (MaybeOutcome(error="read_timeout"), CancelAmbiguous),
        (NotSentOutcome(error="refused"), NotSent),
        (answer(429, retry_after="5"), NotSent),
    ],
)
def test_a_cancel_answer_never_says_how_the_job_ended(outcome: Outcome, kind: type) -> None:
    """409, 500 with a terminal text, 405, 400, 404: taken, refused or unclear, and a read must tell (B080, E4)."""
    evidence = cancel(outcome, an_operation(), REPORTS, NOW)
    assert type(evidence) is kind
    if isinstance(evidence, CancelRefused) and isinstance(outcome, AnsweredOutcome) and outcome.body:
        assert (evidence.code, evidence.message) == ("already_done", "finished")
    if isinstance(evidence, NotSent):
        assert evidence.errand is Errand.CANCEL


def test_a_contract_without_cancel_refuses() -> None:
    """Nothing can have been sent."""
    assert isinstance(cancel(answer(200), an_operation(), BATCHES, NOW), CancelRefused)


# --- total


headers = st.lists(
    st.tuples(
        st.sampled_from(["content-type", "retry-after", "location", "idempotent-replayed", "digest", "x-request-id", "content-length"]),
        st.text(max_size=40)
        | st.sampled_from(["text/html", "application/json", "true", "9999999999", "-1", "Wed, 21 Oct 2099 07:28:00 GMT"]),
    ),
    max_size=4,
).map(tuple)
bodies = (
    st.binary(max_size=200)
    | st.just(HTML)
    | json_values.map(lambda value: answer(200, value if value is not None else b"null").body)
    | st.fixed_dictionaries(
        {}, optional=dict.fromkeys(("id", "status", "progress", "updated_at", "error", "errors", "result"), json_values)
    ).map(lambda value: answer(200, value).body)
)
answers = st.builds(
    AnsweredOutcome, status=st.integers(0, 999) | st.sampled_from([200, 202, 404, 409, 429, 500]), headers=headers, body=bodies
)
outcomes = (
    answers
    | st.builds(MaybeOutcome, error=st.text(), detail=st.text(), status=st.none() | st.integers())
    | st.builds(NotSentOutcome, error=st.text(), detail=st.text())
)


@given(outcome=outcomes, contract=st.sampled_from([REPORTS, BATCHES, replace(REPORTS, result=None), Contract(name="bare", digest="")]))
def test_any_outcome_gives_evidence(outcome: Outcome, contract: Contract) -> None:
    """Any status, headers and bytes: evidence, never an exception, bounded texts, and no end without a known word."""
    operation = an_operation()
    for judge in (create, status, cancel):
        evidence: Evidence = judge(outcome, operation, contract, NOW)
        assert isinstance(evidence, get_args(Evidence))
        for name in ("error", "message", "code"):
            text = getattr(evidence, name, "")
            assert len(text) <= 500
            assert text.isprintable()
        wait = getattr(evidence, "retry_after", None)
        assert wait is None or NOW <= wait <= NOW + 86_400 * SECOND
        if isinstance(evidence, Read) and evidence.facts.reading not in {Reading.ABSENT, Reading.UNKNOWN}:
            assert contract.status is not None
            assert evidence.facts.remote_state in contract.status.readings
    exchange = interpret.record(a_request(), outcome, id="exc_1", errand="read", started_at=NOW, finished_at=NOW)
    assert len(exchange.response_body) <= 16_384


def a_request() -> HttpRequest:
    return build(Errand.READ, an_operation(), REPORTS, credential="s3cret-credential", now=NOW)

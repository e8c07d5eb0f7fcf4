"""Idempotency as real APIs have it: where the token goes, how it looks, and what a repeated one brings (A4, A6)."""

import re
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.interpret import create
from providers.recovery import first_page, interpret_lookup
from providers.requests import UnbuildableError, build
from providers.tokens import LEAST, shaped
from schemas.contract import Contract, CreateRule, RecoveryRule, TokenRule
from schemas.evidence import CreateAmbiguous, CreateRejected, JobKnown, JobNotFound, JobsConflict, NotSent
from schemas.http import HttpRequest
from schemas.states import Errand, State
from tests.providers.job_values import NOW, REPORTS, an_operation, answer

assert REPORTS.create is not None
CREATE = REPORTS.create
TOKEN = an_operation().idempotency_token


def with_create(contract: Contract = REPORTS, **changes: Any) -> Contract:
    assert contract.create is not None
    return replace(contract, create=replace(contract.create, **changes))


def with_token(**changes: Any) -> Contract:
    return with_create(token=TokenRule(**{"place": "header", "name": "Idempotency-Key", "window_seconds": 86_400, **changes}))


def sent(contract: Contract, **changes: Any) -> HttpRequest:
    operation = an_operation(state=State.CREATE_PENDING, remote_job_id=None, **changes)
    return build(Errand.CREATE, operation, contract, credential=None, now=NOW, callback_url="https://hooks.example/webhooks/reports")


# --- where and how


def test_the_token_stands_where_the_contract_says() -> None:
    """A4: in a header, in the body, in the query, or as the name in the path; the same on every send."""
    assert ("Idempotency-Key", TOKEN) in sent(with_token()).headers
    assert f'"request_id":"{TOKEN}"'.encode() in sent(with_token(place="body", name="request_id")).body
    query = sent(with_create(path="/v1/reports?dry=0", token=TokenRule(place="query", name="requestId")))
    assert parse_qs(urlsplit(query.url).query) == {"dry": ["0"], "requestId": [TOKEN]}
    named = sent(with_create(method="PUT", path="/v1/jobs/{token}", token=TokenRule(place="path")))
    assert (named.method, named.url) == ("PUT", f"https://reports.example/v1/jobs/{TOKEN}")
    assert TOKEN not in str(sent(with_create(token=TokenRule())))


FORMS = {
    "text": r"[A-Za-z0-9_-]+",
    "uuid": r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}",
    "alphanumeric": r"[a-z0-9]+",
    "hex": r"[0-9a-f]+",
    "digits": r"[0-9]+",
}


@pytest.mark.parametrize("form", FORMS)
@given(token=st.text(min_size=1, max_size=60), room=st.integers(0, 300))
def test_a_token_is_made_in_the_form_that_the_provider_takes(form: Any, token: str, room: int) -> None:
    """A4: within its length and alphabet, always the same for the same token, and another for another one."""
    length = LEAST[form] + room
    contract = with_token(form=form, max_length=length)
    made = shaped(token, contract)
    assert re.fullmatch(FORMS[form], made)
    assert LEAST[form] <= len(made) <= length or (form == "text" and made == token)
    assert shaped(token, contract) == made
    assert shaped(token + "x", contract) != made


def test_a_token_that_fits_is_left_as_it_is() -> None:
    """192 random bits are not made fewer without need; a contract without create has no wishes."""
    assert shaped(TOKEN, with_token()) == TOKEN
    assert shaped(TOKEN, replace(REPORTS, create=None)) == TOKEN
    assert shaped(TOKEN, with_token(max_length=20)) != TOKEN


def test_a_reference_can_stand_in_the_jobs_own_callback_address() -> None:
    """A7: the echo of a provider without any idempotency; without a public address nothing half is sent."""
    contract = with_create(add=(("webhook", "{callback_url}?reference={token}"), ("metadata.operation", "{operation}")))
    assert f'"webhook":"https://hooks.example/webhooks/reports?reference={TOKEN}"'.encode() in sent(contract).body
    operation = an_operation(state=State.CREATE_PENDING, remote_job_id=None)
    hidden = build(Errand.CREATE, operation, contract, credential=None, now=NOW)
    assert b"webhook" not in hidden.body
    assert b'"operation":"op_0198"' in hidden.body


# --- what a repeated token brings


def created(outcome: Any, contract: Contract, state: State = State.CREATE_UNKNOWN) -> Any:
    return create(outcome, an_operation(state=state, remote_job_id=None), contract, NOW)


@pytest.mark.parametrize(
    ("contract", "outcome", "error", "spent"),
    [
        (with_token(), answer(500, None, idempotent_replayed="true"), "replayed_http_500", True),
        (with_token(), answer(500, None, idempotency_replayed="TRUE "), "replayed_http_500", True),
        (with_token(), answer(500, None, idempotent_replayed="false"), "http_500", False),
        (with_token(), answer(500), "http_500", False),
        (with_token(replayed="body:replayed"), answer(503, {"replayed": True}), "replayed_http_503", True),
        (with_token(replayed="body:replayed"), answer(503, None, idempotent_replayed="true"), "http_503", False),
        (with_token(), answer(409, None, idempotent_replayed="true"), "http_409", False),
        (with_token(repeats="success"), answer(502), "http_502", True),
        (with_token(repeats="success"), answer(409), "http_409", False),
        (with_token(repeats="resume"), answer(502), "http_502", False),
    ],
)
def test_an_answer_says_whether_the_token_still_protects(contract: Contract, outcome: Any, error: str, *, spent: bool) -> None:
    """B055: a stored error comes for ever; where successes alone are stored, a failure may have had an effect."""
    found = created(outcome, contract)
    assert isinstance(found, CreateAmbiguous)
    assert (found.error, found.spent) == (error, spent)


CONFLICT = with_token(repeats="conflict", original="body:error.links.conflicting_resource_id")


def test_a_conflict_that_points_at_the_original_names_the_job() -> None:
    """A6: the first job of our token; a 409 without it, or of a provider that promises nothing, stays in doubt (B061)."""
    pointing = answer(409, {"error": {"links": {"conflicting_resource_id": "PM123"}}})
    assert created(pointing, CONFLICT) == JobKnown(remote_job_id="PM123", source="create")
    assert isinstance(created(answer(409, {"error": {"links": {}}}), CONFLICT), CreateAmbiguous)
    assert isinstance(created(answer(409, {"error": {"links": {"conflicting_resource_id": "../x\u0000"}}}), CONFLICT), CreateAmbiguous)
    assert isinstance(created(pointing, with_token()), CreateAmbiguous)
    assert isinstance(created(answer(500, {"error": {"links": {"conflicting_resource_id": "PM123"}}}), CONFLICT), CreateAmbiguous)


@pytest.mark.parametrize(
    ("code", "meaning", "kind"),
    [
        ("ConflictException", "ambiguous", CreateAmbiguous),
        ("ThrottlingException", "not_executed", NotSent),
        ("BadRequestException", "rejected", CreateRejected),
        ("Other", "", CreateRejected),
    ],
)
def test_an_error_code_goes_before_its_status(code: str, meaning: str, kind: type) -> None:
    """A6: where everything is a 400, only the word says whether the name is taken or nothing was done."""
    contract = with_create(codes={code: meaning} if meaning else {}, error="body:@")
    assert type(created(answer(400, {"code": code, "message": "m"}), contract, State.CREATE_PENDING)) is kind


def test_a_code_does_not_make_a_refused_credential_definite_for_a_create_in_doubt() -> None:
    """A6: 401 to 403 say nothing about the earlier send, whatever their code."""
    contract = with_create(codes={"denied": "rejected"})
    assert isinstance(created(answer(403, {"error": {"code": "denied"}}), contract), CreateAmbiguous)
    assert isinstance(created(answer(403, {"error": {"code": "denied"}}), contract, State.CREATE_PENDING), CreateRejected)


# --- the name that we choose


BY_NAME = Contract(
    name="names",
    digest="d",
    origin="https://reports.example",
    create=CreateRule(
        method="PUT",
        path="/jobs/{token}",
        token=TokenRule(place="path", form="alphanumeric"),
        job_id="{token}",
        add=(("tag", "{operation}"),),
    ),
    recovery=RecoveryRule(strategies=("lookup",), path="/jobs/{token}", items="", match="tag", job_id="name"),
    status=REPORTS.status,
)


def test_the_name_that_we_gave_is_the_job() -> None:
    """A4: an empty 201 is enough; the name is known before the first byte."""
    assert created(answer(201), BY_NAME) == JobKnown(remote_job_id=TOKEN, source="create")


def test_a_name_that_is_taken_is_looked_up_and_adopted_only_with_our_mark() -> None:
    """A6, B061: "already exists" leads to the lookup; a stranger under our name is a contradiction and never an absence."""
    assert isinstance(created(answer(409, {"error": "already exists"}), BY_NAME), CreateAmbiguous)
    operation = an_operation(state=State.CREATE_UNKNOWN, remote_job_id=None)

    def found(body: Any, contract: Contract = BY_NAME) -> Any:
        return interpret_lookup(answer(200, body), operation, contract, NOW)

    assert found({"name": TOKEN, "tag": "op_0198"}) == JobKnown(remote_job_id=TOKEN, source="recovery")
    assert interpret_lookup(answer(404), operation, BY_NAME, NOW) == JobNotFound()
    for tag in ("op_0199", None, ""):
        taken = found({"name": TOKEN, "tag": tag})
        assert isinstance(taken, JobsConflict)
        assert (taken.code, taken.remote_job_ids) == ("name_taken", (TOKEN,))
    unmarked = replace(BY_NAME, recovery=replace(BY_NAME.recovery, match=""))
    assert found({"name": TOKEN}, unmarked) == JobKnown(remote_job_id=TOKEN, source="recovery")


def test_a_token_that_only_looks_up_stands_in_the_lookup() -> None:
    """A6: a body field that guards nothing, and a query by it."""
    contract = replace(
        with_token(place="body", name="transactionId", window_seconds=0),
        recovery=RecoveryRule(strategies=("lookup",), path="/envelopes?transaction_ids={token}", match="transactionId", equals="{token}"),
    )
    operation = an_operation(state=State.CREATE_UNKNOWN, remote_job_id=None)
    assert first_page(operation, contract, credential=None, now=NOW).url.endswith(f"/envelopes?transaction_ids={TOKEN}")
    assert interpret_lookup(answer(200, {"data": [{"id": "e1", "transactionId": TOKEN}]}), operation, contract, NOW) == JobKnown(
        remote_job_id="e1", source="recovery"
    )


def test_a_single_flight_lock_is_compared_by_something_of_ours() -> None:
    """A6: the current operation may be somebody's; a JMESPath makes the one object a list, and no answer is no absence."""
    contract = replace(
        with_create(keep=("query",)),
        recovery=RecoveryRule(
            strategies=("lookup",), method="POST", path="/graphql", send=(("query", "{{ current {{ id query }} }}"),),
            items="body:data && [data.current][?@]", match="query", equals="{request.query}", proves_absence=False,
        ),
    )  # fmt: skip
    operation = an_operation(state=State.CREATE_UNKNOWN, remote_job_id=None, request=b'{"query":"{ products { id } }"}')
    request = first_page(operation, contract, credential="s", now=NOW)
    assert (request.method, request.body) == ("POST", b'{"query":"{ current { id query } }"}')

    def found(body: Any) -> Any:
        return interpret_lookup(answer(200, body), operation, contract, NOW)

    assert found({"data": {"current": {"id": "b1", "query": "{ products { id } }"}}}) == JobKnown(remote_job_id="b1", source="recovery")
    assert found({"data": {"current": {"id": "b1", "query": "{ orders { id } }"}}}) == JobNotFound()
    assert found({"data": {"current": None}}) == JobNotFound()
    assert not isinstance(found({"errors": ["throttled"]}), JobNotFound)


def test_members_of_the_request_that_a_path_needs_are_taken_out_of_the_body() -> None:
    """A4: the same request gives the same call; a missing member is named before anything is recorded."""
    contract = with_create(path="/repos/{request.owner}/{request.repo}/runs", take=("owner", "repo"), keep=("ref",))
    request = sent(contract, request=b'{"owner":"ac me","repo":"x/y","ref":"main"}')
    assert request.url == "https://reports.example/repos/ac%20me/x%2Fy/runs"
    assert b"owner" not in request.body
    assert b'"ref":"main"' in request.body
    with pytest.raises(UnbuildableError, match="needs repo"):
        sent(contract, request=b'{"owner":"a","repo":["x"],"ref":"main"}')

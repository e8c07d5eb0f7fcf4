"""The simulator's two contracts against the answers that lie beside them, and against the official signing package."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from lifecycle.recovery import plan
from providers.contract import load
from providers.interpret import cancel, create, has_result, status
from providers.mapping import describe, events
from providers.recovery import ListWalk, interpret_lookup
from providers.requests import build
from providers.results import collect_requests
from providers.vectors import request_of, secrets_of
from providers.verification import prepare
from schemas.contract import Contract
from schemas.delivery import InboundRequest, Refused, Secret, Verified
from schemas.evidence import Evidence, JobKnown, Read
from schemas.operation import SECOND, Operation
from schemas.states import Errand, Reading, State
from tests.providers.job_values import NOW, an_operation, answer

FOLDER = Path(__file__).parents[2] / "providers" / "contracts"
REPORTS, BATCHES = (load((FOLDER / f"{name}.toml").read_bytes()) for name in ("reports", "batches"))


def samples(*kinds: str) -> list[Any]:
    return [
        pytest.param(contract, sample, id=f"{contract.name}-{sample['name']}")
        for contract in (REPORTS, BATCHES)
        for sample in contract.samples
        if sample.get("kind", "delivery") in kinds
    ]


def asked(contract: Contract, sample: Any) -> Operation:
    return an_operation(
        id=sample.get("operation", "op_1"),
        origin=contract.origin,
        remote_job_id=sample.get("job"),
        state=State.OBSERVING,
        ending=Reading(sample["reading"]) if "reading" in sample else None,
    )


def judged(contract: Contract, sample: Any) -> Evidence:
    outcome, operation = answer(sample["status"], sample["body"].encode()), asked(contract, sample)
    match sample["kind"]:
        case "create":
            return create(outcome, operation, contract, NOW)
        case "status":
            return status(outcome, operation, contract, NOW)
        case "cancel":
            return cancel(outcome, operation, contract, NOW)
        case "lookup":
            return interpret_lookup(outcome, operation, contract, NOW)
        case _:
            end = ListWalk.start(operation, contract, credential=None, now=NOW).step(outcome, NOW)
            assert not isinstance(end, ListWalk)
            return end


@pytest.mark.parametrize(("contract", "sample"), samples("create", "status", "cancel", "lookup", "list"))
def test_an_answer_means_what_its_sample_says(contract: Contract, sample: Any) -> None:
    """Evidence, reading, job, code and progress of every sample answer (A5, A10, B071, C4)."""
    evidence = judged(contract, sample)
    assert evidence.kind == sample.get("evidence", "read")
    facts = evidence.facts if isinstance(evidence, Read) else evidence.status if isinstance(evidence, JobKnown) else None
    if "reading" in sample:
        assert facts is not None
        assert facts.reading == sample["reading"]
        assert facts.progress == sample.get("progress", facts.progress)
        assert facts.error_code == sample.get("code", facts.error_code)
        assert facts.has_result == bool(sample.get("files", facts.has_result))
    elif "code" in sample:
        assert getattr(evidence, "code", None) == sample["code"]
    if isinstance(evidence, JobKnown):
        assert evidence.remote_job_id == sample["job"]


@pytest.mark.parametrize(("contract", "sample"), [item for item in samples("status") if "files" in item.values[1]])
def test_a_finished_job_has_the_files_that_its_sample_names(contract: Contract, sample: Any) -> None:
    """Whole and partial results are asked for at home, with the credential (F1, B087)."""
    operation = asked(contract, sample)
    found = answer(sample["status"], sample["body"].encode())
    assert has_result(contract, Reading(sample["reading"]), found) == bool(sample["files"])
    files = collect_requests(operation, contract, found, credential="s3cret")
    if not sample["files"]:
        assert not isinstance(files, tuple)
        return
    assert isinstance(files, tuple)
    assert [file.request.url for file in files] == sample["files"]
    assert all(file.request.secret_headers == ("Authorization",) for file in files)


def test_every_state_word_has_a_sample() -> None:
    """A word without a sample would be a guess (B071)."""
    for contract in (REPORTS, BATCHES):
        assert contract.status is not None
        shown = [sample["body"] for sample in contract.samples if sample.get("kind") == "status"]
        for word in contract.status.readings:
            assert any(f'"status":"{word}"' in body for body in shown), word


@pytest.mark.parametrize(("contract", "sample"), samples("delivery"))
def test_a_delivery_is_judged_and_mapped_as_its_sample_says(contract: Contract, sample: Any) -> None:
    """Genuine, rotated, tampered, stale and future deliveries (B1, B2)."""
    request = request_of(sample)
    verdict = prepare(contract.signatures, secrets_of(sample)).verify(request, sample["now"] * SECOND)
    assert isinstance(verdict, Verified if sample["expect"] == "valid" else Refused)
    if isinstance(verdict, Verified):
        (event,) = events(contract, request, verdict.signed)
        assert event.dedup_key.startswith(sample["dedup"])
        assert describe(event) == sample["event"]
    elif isinstance(verdict, Refused):
        assert verdict.genuine == (sample["name"] in {"stale", "future"})


def test_what_the_official_package_signs_is_genuine() -> None:
    """The reports contract and the standardwebhooks package agree (B1)."""
    secret = "whsec_c2ltdWxhdG9yLXJlcG9ydHMtc2VjcmV0LTAwMDA="
    body = '{"type":"report.failed","timestamp":"2026-09-21T14:13:20Z","data":{"id":"rep_1","status":"failed","client_reference":"op_1"}}'
    signature = Webhook(secret).sign("evt_9", datetime.fromtimestamp(NOW // SECOND, tz=UTC), body)
    headers = {"webhook-id": "evt_9", "webhook-timestamp": str(NOW // SECOND), "webhook-signature": signature}
    request = InboundRequest(
        method="POST",
        path=b"/webhooks/reports",
        query=b"",
        headers=tuple((name.encode(), value.encode()) for name, value in headers.items()),
        body=body.encode(),
    )
    verdict = prepare(REPORTS.signatures, (Secret(id="s1", value=secret.encode()),)).verify(request, NOW)
    assert isinstance(verdict, Verified)


def test_the_requests_are_those_of_the_simulator() -> None:
    """Create, read, cancel and recovery of both APIs, as docs/simulator.md tables them."""
    calls = {}
    for contract in (REPORTS, BATCHES):
        operation = an_operation(origin=contract.origin, remote_job_id="j1")
        for errand in (Errand.CREATE, Errand.READ, Errand.CANCEL):
            request = build(errand, operation, contract, credential=None, now=NOW)
            calls[contract.name, errand] = (request.method, request.url.removeprefix(contract.origin), request.body)
    assert calls == {
        ("reports", Errand.CREATE): ("POST", "/v1/reports", b'{"client_reference":"op_0198","month":"2026-01","rows":3}'),
        ("reports", Errand.READ): ("GET", "/v1/reports/j1", b""),
        ("reports", Errand.CANCEL): ("POST", "/v1/reports/j1/cancel", b""),
        ("batches", Errand.CREATE): ("POST", "/v1/batches", b'{"metadata":{"gateway_operation":"op_0198"},"month":"2026-01","rows":3}'),
        ("batches", Errand.READ): ("GET", "/v1/batches/j1", b""),
        ("batches", Errand.CANCEL): ("POST", "/v1/batches/j1/cancel", b""),
    }


def test_an_unknown_create_is_recovered_as_each_api_allows() -> None:
    """Reports resend the token and then look up; batches are only listed, never resent (A6)."""
    operation = an_operation(state=State.CREATE_UNKNOWN, sends=1, first_sent_at=NOW)
    assert plan(operation, REPORTS, NOW) == "resend"
    assert plan(operation, REPORTS, NOW + 86_400 * SECOND) == "lookup"
    assert plan(operation, BATCHES, NOW) == "list"

"""Providers with several actions at the edge, and what a caller sees of a provider that is silent."""

import asyncio
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway import view
from ledger import queries
from schemas.operation import Operation
from schemas.settings import RetentionSettings
from schemas.states import State
from tests.gateway.asking import create
from tests.gateway.house import house
from tests.lifecycle.cases import operation

REFUND: dict[str, Any] = {"provider": "payments", "action": "refund", "request": {"charge": "ch_1", "amount": 5}}


def recorded(folder: Path, body: dict[str, Any]) -> Operation:
    async def scenario() -> Operation:
        async with house(folder) as home:
            answer = await create(await home.client(), body)
            assert answer.status_code == 202, answer.text
            kept = await home.ledger.read(queries.operation, answer.json()["id"], "acme")
            assert answer.json()["action"] == body["action"]
            assert isinstance(kept, Operation)
            return kept

    return asyncio.run(scenario())


def test_the_action_is_recorded_with_its_clocks_and_its_form_of_the_token(tmp_path: Path) -> None:
    """A3, A4, A9: what the action says, and a token that its provider takes, made once."""
    kept = recorded(tmp_path, REFUND)
    assert (kept.action, kept.create_seconds, kept.result_seconds) == ("refund", 77, 86_400)
    assert uuid.UUID(kept.idempotency_token).version == 4
    assert kept.request == b'{"amount":5,"charge":"ch_1"}'


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ({**REFUND, "action": None}, "invalid_field", "action: is needed: this provider has refund, report"),
        ({**REFUND, "action": "create"}, "invalid_field", "action: this provider has refund, report"),
        ({**REFUND, "action": "report"}, "receive_only", "register the job"),
        ({**REFUND, "request": {"amount": 5}}, "invalid_field", "request: the request needs charge"),
        ({"provider": "custom", "request": {}}, "receive_only", "its contract has no status request"),
        ({"provider": "custom", "remote_job_id": "job-1"}, "receive_only", "its contract has no status request"),
        ({"provider": "custom", "request": {}, "create": "external"}, "receive_only", "its contract has no status request"),
    ],
)
def test_what_the_contract_cannot_do_is_refused_before_it_is_recorded(tmp_path: Path, body: dict[str, Any], code: str, words: str) -> None:
    """A1, D2: an action that is missing or unknown, a request that could never be sent, and every operation of a receive-only contract."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            answer = await create(await home.client(), {name: value for name, value in body.items() if value is not None})
            assert answer.status_code in {409, 422}, answer.text
            assert answer.json()["code"] == code
            assert words in answer.json()["detail"]

    asyncio.run(scenario())


def test_a_silent_provider_is_seen_in_the_operation() -> None:
    """B070: the state stays, and the run of failed reads, the last error and the age of the last answer are shown; not after an answer."""
    op = operation(State.OBSERVING, read_failures=20, last_read_error="transport: read_timeout", verified_at=1_800_000_000_000_000)
    remote = view.operation(op, RetentionSettings())["remote"]
    assert (remote["failed_reads"], remote["read_error"]) == (20, "transport: read_timeout")
    assert remote["observed_at"] == "2027-01-15T08:00:00.000000Z"
    assert view.operation(replace(op, read_failures=0), RetentionSettings())["remote"]["read_error"] is None

"""Queries see only what they are asked for, page without gaps, and open what was sealed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from ledger import queries, tables
from ledger.engine import Engines
from ledger.queries import OperationFilter
from ledger.rows import history_text_row, to_row
from ledger.transaction import View
from ledger.vault import Vault
from schemas.operation import Operation
from schemas.states import Cause, Question, State


def _insert(engines: Engines, table: sa.Table, rows: Sequence[Any]) -> None:
    with engines.begin() as connection:
        connection.execute(table.insert(), rows)


def _store(engines: Engines, vault: Vault, *stored: Operation) -> None:
    _insert(engines, tables.operations, [to_row(operation, vault) for operation in stored])


def _ask(engines: Engines, vault: Vault, query: Any, *arguments: Any, **named: Any) -> Any:
    with engines.look() as connection:
        return query(View(connection=connection, vault=vault), *arguments, **named)


def _many(operation: Operation, count: int) -> list[Operation]:
    """Make operations of which three at a time have one time of creation (B130)."""
    return [
        replace(operation, id=f"op_{number:02d}", idempotency_token=f"t{number}", created_at=number // 3, remote_job_id=f"job-{number}")
        for number in range(count)
    ]


def _parked(operation: Operation, **changes: Any) -> Operation:
    question: dict[str, Any] = {"question_id": f"q_{operation.id}", "question_kind": Question.QUARANTINED}
    return replace(operation, state=State.QUARANTINED, due_at=None, **question, **changes)


def test_an_operation_is_seen_by_its_owner(engines: Engines, vault: Vault, operation: Operation) -> None:
    """Another owner's operation is not there; None, for duties of the house, sees any (G5)."""
    _store(engines, vault, operation)
    assert _ask(engines, vault, queries.operation, "op_01", "acme") == operation
    assert _ask(engines, vault, queries.operation, "op_01", None) == operation
    assert _ask(engines, vault, queries.operation, "op_01", "other") is None
    assert _ask(engines, vault, queries.operation, "op_02", None) is None


def test_an_operation_is_found_by_its_key(engines: Engines, vault: Vault, operation: Operation) -> None:
    """Owner, route and key together find it; each alone does not (A3)."""
    _store(engines, vault, operation)
    row = {"owner": "acme", "route": "r", "key": "k", "fingerprint": "f", "operation": "op_01", "created_at": 1}
    _insert(engines, tables.idempotency_keys, [row])
    assert _ask(engines, vault, queries.operation_by_key, "acme", "r", "k") == operation
    for other in (("x", "r", "k"), ("acme", "x", "k"), ("acme", "r", "x")):
        assert _ask(engines, vault, queries.operation_by_key, *other) is None


@pytest.mark.parametrize("limit", [1, 4, 25])
def test_pages_have_every_operation_once(engines: Engines, vault: Vault, operation: Operation, limit: int) -> None:
    """Page by page, the newest first, equal times included, all come once and in order (B130)."""
    _store(engines, vault, *_many(operation, 25))
    wanted, seen, after = OperationFilter(owner="acme"), [], None
    while page := _ask(engines, vault, queries.operations, wanted, limit, after):
        seen += [found.id for found in page]
        after = page[-1].created_at, page[-1].id
    assert seen == [f"op_{number:02d}" for number in reversed(range(25))]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, "0123"),
        ({"owner": "acme"}, "012"),
        ({"owner": "nobody"}, ""),
        ({"provider": "other"}, "1"),
        ({"reference": "r2"}, "2"),
        ({"idempotency_key": "k0"}, "0"),
        ({"remote_job_id": "job-3"}, "3"),
        ({"states": frozenset({State.QUARANTINED, State.ACCEPTED})}, "2"),
        ({"states": frozenset()}, ""),
        ({"created_after": 1}, "123"),
        ({"created_before": 2}, "01"),
        ({"created_after": 1, "created_before": 2, "provider": "other"}, "1"),
    ],
)
def test_filters_hold_together(engines: Engines, vault: Vault, operation: Operation, wanted: dict[str, Any], found: str) -> None:
    """Each filter narrows the list, and several narrow it together (G6)."""
    made = [replace(item, created_at=number) for number, item in enumerate(_many(operation, 4))]
    made[0] = replace(made[0], idempotency_key="k0")
    made[1] = replace(made[1], provider="other")
    made[2] = _parked(made[2], reference="r2")
    made[3] = replace(made[3], owner="beta")
    _store(engines, vault, *made)
    key = {"owner": "acme", "route": queries.ROUTE, "key": "k0", "fingerprint": "f", "operation": made[0].id, "created_at": 0}
    with engines.begin() as connection:
        connection.execute(tables.idempotency_keys.insert(), key)
    page = _ask(engines, vault, queries.operations, OperationFilter(**{"owner": None, **wanted}), 10)
    assert "".join(sorted(item.id[-1] for item in page)) == found


def test_limits_are_bounded(engines: Engines, vault: Vault, operation: Operation) -> None:
    """No page is longer than asked for, and nonsense is not a way around the bound."""
    _store(engines, vault, *_many(operation, 5))
    for limit, length in ((3, 3), (0, 0), (-1, 0), (10**9, 5)):
        assert len(_ask(engines, vault, queries.operations, OperationFilter(owner="acme"), limit)) == length


def test_open_questions_are_listed(engines: Engines, vault: Vault, operation: Operation) -> None:
    """The owner's operations that wait for a person, the oldest first, page by page."""
    made = _many(operation, 6)
    made = [_parked(item) if number % 2 else item for number, item in enumerate(made)]
    made[3] = replace(made[3], owner="beta")
    _store(engines, vault, *made)
    assert [item.id for item in _ask(engines, vault, queries.questions, "acme", 10)] == ["op_01", "op_05"]
    assert [item.id for item in _ask(engines, vault, queries.questions, None, 10)] == ["op_01", "op_03", "op_05"]
    assert [item.id for item in _ask(engines, vault, queries.questions, None, 10, (made[1].created_at, "op_01"))] == ["op_03", "op_05"]


def test_operations_are_counted(engines: Engines, vault: Vault, operation: Operation) -> None:
    """By state and owner; providers with unfinished operations are named, those with only final ones are not."""
    made = _many(operation, 4)
    made[1] = _parked(made[1], provider="parked-only")
    final = replace(made[2], state=State.FAILED, due_at=None, provider="finished", verdict_seq=1, verdict_cause=Cause.READING)
    made[3] = replace(made[3], owner="beta")
    with engines.begin() as connection:
        row = {
            "operation": final.id, "seq": 1, "at": 1, "actor": "a", "from_state": "observing", "to_state": "failed", "cause": "reading",
            "cause_id": "", "code": "", "changes": b"{}", "text_hash": b"", "prev_hash": b"", "hash": b"",
        }  # fmt: skip
        connection.execute(tables.history.insert(), [row])
        connection.execute(tables.operations.insert(), [to_row(item, vault) for item in (made[0], made[1], final, made[3])])
    assert _ask(engines, vault, queries.counts_by_state) == {State.OBSERVING: 2, State.QUARANTINED: 1, State.FAILED: 1}
    assert _ask(engines, vault, queries.counts_by_state, "beta") == {State.OBSERVING: 1}
    assert _ask(engines, vault, queries.live_providers) == ["parked-only", "reports"]


def test_history_is_paged_with_its_words(engines: Engines, vault: Vault) -> None:
    """25 rows of one moment come in their order, each once; words are opened, and erased ones are said to be (B130)."""
    rows = [
        {
            "operation": "op_1", "seq": seq, "at": 7, "actor": "a", "from_state": "", "to_state": "observing", "cause": "request",
            "cause_id": "", "code": "c", "changes": b'{"reading":"running"}', "text_hash": b"h" if seq < 3 else b"", "prev_hash": b"",
            "hash": b"",
        }
        for seq in range(1, 26)
    ]  # fmt: skip
    _insert(engines, tables.history, [*rows, rows[0] | {"operation": "op_2"}])
    sealed = vault.seal("history_texts", "text", history_text_row("op_1", 1), "Grüße".encode())
    _insert(engines, tables.history_texts, [{"operation": "op_1", "seq": 1, "salt": b"s", "text": sealed}])
    seen: list[Any] = []
    while page := _ask(engines, vault, queries.history, "op_1", seen[-1]["seq"] if seen else 0, 10):
        seen += page
    assert [row["seq"] for row in seen] == list(range(1, 26))
    assert [(row["text"], row["erased"]) for row in seen[:3]] == [("Grüße", False), (None, True), (None, False)]
    assert seen[0]["changes"] == {"reading": "running"}


def _delivery(vault: Vault, number: int, **changes: Any) -> dict[str, Any]:
    identity = f"dlv_{number}"
    return {
        "id": identity, "provider": "reports", "dedup_key": f"id:{number}", "content_sha256": "0", "received_at": number // 2,
        "status": "applied", "standing": "fresh", "operation": "op_1", "event_id": "", "event_type": "", "remote_job_id": "",
        "client_reference": "", "claimed_state": "", "provider_time": None, "element": 0, "parent": "", "secret_id": "s", "scheme_id": "x",
        "problem": "", "duplicates": 0, "headers": vault.seal("deliveries", "headers", identity, b"a: b"),
        "body": vault.seal("deliveries", "body", identity, b"\x00body"),
    } | changes  # fmt: skip


def test_deliveries_are_listed_and_opened(engines: Engines, vault: Vault) -> None:
    """Lists carry no bodies; one delivery comes with its exact bytes; an element of an array has none of its own."""
    rows = [_delivery(vault, number) for number in range(6)]
    rows[4] |= {"status": "orphan", "operation": None, "body": None}
    _insert(engines, tables.deliveries, rows)
    page = _ask(engines, vault, queries.deliveries, None, 4)
    assert [row["id"] for row in page] == ["dlv_5", "dlv_4", "dlv_3", "dlv_2"]
    assert "body" not in page[0]
    rest = _ask(engines, vault, queries.deliveries, None, 4, (page[-1]["received_at"], page[-1]["id"]))
    assert [row["id"] for row in rest] == ["dlv_1", "dlv_0"]
    assert [row["id"] for row in _ask(engines, vault, queries.deliveries, "orphan", 4)] == ["dlv_4"]
    assert len(_ask(engines, vault, queries.deliveries_of, "op_1")) == 5
    opened = _ask(engines, vault, queries.delivery, "dlv_0")
    assert (opened["headers"], opened["body"]) == (b"a: b", b"\x00body")
    assert _ask(engines, vault, queries.delivery, "dlv_4")["body"] is None
    assert _ask(engines, vault, queries.delivery, "dlv_9") is None


def test_artifacts_exchanges_and_observations(engines: Engines, vault: Vault) -> None:
    """The newest artifact of a role is the one; exchanges come with their opened answers, the newest first."""
    files = [
        {
            "id": f"art_{number}",
            "operation": "op_1",
            "role": role,
            "media_type": "text/csv",
            "bytes": 1,
            "sha256": "0",
            "created_at": number,
        }
        for number, role in enumerate(("output", "output", "errors"))
    ]
    _insert(engines, tables.artifacts, files)
    calls = [
        {
            "id": f"exc_{number}", "operation": "op_1", "attempt": None, "errand": "read", "method": "GET", "url": "u",
            "started_at": number, "finished_at": number, "outcome": "answered", "status": 200,
            "error": "", "provider_request_id": "", "response_digest": "",
            "response_body": vault.seal("exchanges", "response_body", f"exc_{number}", b"{}") if number else None,
        }
        for number in range(2)
    ]  # fmt: skip
    _insert(engines, tables.exchanges, calls)
    seen = [
        {
            "id": f"obs_{number}", "operation": "op_1", "number": number, "digest": "d", "reading": "running", "remote_state": "r",
            "progress": 0.5, "provider_time": None, "first_at": 1, "last_at": 2, "count": 3, "exchange": None,
        }
        for number in range(2)
    ]  # fmt: skip
    _insert(engines, tables.observations, seen)
    assert _ask(engines, vault, queries.artifact, "op_1")["id"] == "art_1"
    assert _ask(engines, vault, queries.artifact, "op_1", "errors")["id"] == "art_2"
    assert _ask(engines, vault, queries.artifact, "op_2") is None
    assert [row["id"] for row in _ask(engines, vault, queries.artifacts, "op_1")] == ["art_0", "art_1", "art_2"]
    assert [row["response_body"] for row in _ask(engines, vault, queries.exchanges, "op_1")] == [b"{}", None]
    assert [row["number"] for row in _ask(engines, vault, queries.observations, "op_1")] == [1, 0]

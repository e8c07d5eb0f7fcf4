"""Replay in the record, on both databases: what it matches, what it leaves, and that the history tells of it."""

from typing import Any

from ledger import inbox
from ledger.engine import Engines
from ledger.replay import replay
from ledger.transaction import View
from ledger.vault import Vault
from schemas.commands import Replay, Replayed
from schemas.delivery import Event
from tests.conformance.house import Record, delivery


def again(record: Record, *numbers: int, job: str = "", owner: str | None = None, **changes: Any) -> list[Replayed]:
    event = Event(dedup_key="id:other", content_sha256="", remote_job_id=job, event_id="evt", **changes)
    return record.tx(
        replay,
        *(
            Replay(
                delivery_id=delivery(number).id, owner=owner, actor="operator:ada", event=event, verified=True, now=record.now, chance=0.5
            )
            for number in numbers
        ),
    )


def row(record: Record, number: int) -> dict[str, Any]:
    with record.engines.look() as connection:
        found = inbox.stored(View(connection, record.vault), delivery(number).id, None)
    assert found is not None
    return dict(found)


def test_orphans_and_dead_letters_attach_and_are_told(engines: Engines, vault: Vault) -> None:
    """B6, C7: mapped anew they find their operation; the chain holds, the dedup key stays, the bytes stay."""
    record = Record(engines=engines, vault=vault)
    record.accept(1, "job-1")
    record.ingest(delivery(1, "job-elsewhere"), delivery(2, readable=False, problem="not JSON"))
    assert (row(record, 1)["status"], row(record, 2)["status"]) == ("orphan", "dead")
    answers = again(record, 1, 2, 7, job="job-1")
    assert [answer.outcome for answer in answers] == ["accepted", "accepted", "not_found"]
    for number in (1, 2):
        found = row(record, number)
        assert (found["status"], found["remote_job_id"], found["problem"], found["body"]) == ("applied", "job-1", "", b"{}")
        assert found["dedup_key"] == f"id:{number}"
    assert record.faults() == []
    assert set(record.audit().values()) == {0}


def test_what_still_cannot_be_read_or_matched_stays(engines: Engines, vault: Vault) -> None:
    """B6: an unreadable one stays a dead letter with today's problem; one about an unknown job waits; one about nothing is ignored."""
    record = Record(engines=engines, vault=vault)
    record.ingest(delivery(1, readable=False), delivery(2, readable=False), delivery(3, readable=False))
    assert again(record, 1, readable=False, problem="no events at x")[0].outcome == "unreadable"
    assert (row(record, 1)["status"], row(record, 1)["problem"]) == ("dead", "no events at x")
    assert again(record, 2, job="job-9")[0].outcome == "unmatched"
    assert again(record, 3)[0].outcome == "ignored"
    assert (row(record, 2)["status"], row(record, 3)["status"]) == ("orphan", "ignored")
    record.accept(1, "job-9")
    assert row(record, 2)["status"] == "applied"


def test_an_owner_reaches_only_what_is_theirs(engines: Engines, vault: Vault) -> None:
    """G4: an orphan and another owner's delivery answer as an unknown one does."""
    record = Record(engines=engines, vault=vault)
    record.accept(1, "job-1")
    record.ingest(delivery(1, "job-1"), delivery(2, "job-9"))
    assert [again(record, number, job="job-1", owner="globex")[0].outcome for number in (1, 2, 3)] == ["not_found"] * 3
    assert [again(record, number, job="job-1", owner="acme")[0].outcome for number in (1, 2)] == ["accepted", "not_found"]


def test_conflicts_are_counted_by_provider_from_then_on(engines: Engines, vault: Vault) -> None:
    """B3: each content once, however often it came; repeats of the first are none."""
    record = Record(engines=engines, vault=vault)
    record.ingest(delivery(1), delivery(2, provider="other"))
    record.ingest(*(delivery(number, key="id:1", content=content) for number, content in ((3, "a"), (4, "b"), (5, "b"))))
    record.ingest(delivery(6, key="id:1", content=f"{1:064d}"), delivery(7, key="id:2", content="a", provider="other"))
    with record.engines.look() as connection:
        view = View(connection, record.vault)
        assert inbox.conflicts_since(view, record.now) == {"other": 1, "reports": 2}
        assert inbox.conflicts_since(view, record.now + 1) == {}

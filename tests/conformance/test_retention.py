"""Retention: what expires, what stays, batch by batch, on both databases (MISSION F6, H5)."""

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from artifacts.store import Store
from ledger import queries
from ledger.engine import Engines
from ledger.ledger import Ledger
from ledger.retention import expire
from ledger.tables import artifacts, deliveries, exchanges, history, idempotency_keys, operations, remote_jobs
from ledger.tables_upkeep import tombstones, upkeep
from ledger.transaction import View
from ledger.vault import Vault
from reconciler.retention import Retention, memory
from schemas.commands import Ingest
from schemas.contract import RetryRules
from schemas.evidence import Collected, StoredFile
from schemas.operation import SECOND, Micros
from schemas.settings import RetentionSettings
from schemas.states import Reading
from schemas.upkeep import Expire, Expired, Stage
from tests.conformance.conftest import Database
from tests.conformance.house import NOW, REPORTS, Record, delivery, intent, reading

DAY: Micros = 86_400 * SECOND


def ended(record: Record, number: int, job: str, *, word: Reading = Reading.FAILED) -> str:
    """Bring one operation to its end, with a delivery on the way. Returns its id."""
    record.accept(number, job)
    record.ingest(delivery(number, job))
    mine = next(item for item in record.claim(after=60 * SECOND) if item.operation.id == intent(number).id)
    settled = record.settle(mine, reading(word, has_result=False), after=61 * SECOND)
    assert settled.operation.state == "failed"
    return intent(number).id


def drop(record: Record, stage: Stage, *, age: Micros = DAY, limit: int = 100, memory_: Micros = DAY) -> list[Expired]:
    """Run a stage to its end and return its batches."""
    now = record.now
    batches = []
    while True:
        batch = record.tx(expire, Expire(stage=stage, before=now - age, memory=now - memory_, now=now, limit=limit))[0]
        batches.append(batch)
        if not batch.more:
            return batches


def rows(engines: Engines, table: sa.Table) -> list[Any]:
    with engines.look() as connection:
        return list(connection.execute(sa.select(table)).all())


@pytest.fixture
def record(engines: Engines, vault: Vault) -> Record:
    return Record(engines, vault, {"reports": replace(REPORTS, result=None)})


def test_nothing_young_goes(record: Record, engines: Engines) -> None:
    """What is younger than its age stays whole in every stage."""
    ended(record, 1, "job-1")
    for stage in Stage:
        assert [sum(batch.counts.values()) for batch in drop(record, stage)] == [0]
    assert len(rows(engines, operations)) == len(rows(engines, deliveries)) == 1


def test_payloads_go_and_the_memory_of_duplicates_stays(record: Record, engines: Engines) -> None:
    """Headers and bodies are emptied; the same event is still a duplicate, and other bytes under its id still a conflict (B3, F6)."""
    ended(record, 1, "job-1")
    record.now = NOW + 2 * DAY
    assert drop(record, Stage.PAYLOADS)[0].counts["deliveries_emptied"] == 1
    (kept,) = rows(engines, deliveries)
    assert kept.body is None
    assert kept.headers is None
    assert kept.dedup_key == "id:1"
    assert [answer.status for answer in record.ingest(delivery(2, "job-1", key="id:1", content=f"{1:064d}"))] == ["duplicate"]
    assert [answer.status for answer in record.ingest(delivery(3, "job-1", key="id:1", content="f" * 64))] == ["conflict"]
    assert record.faults() == []


def test_requests_of_ended_operations_go(record: Record, engines: Engines) -> None:
    """The request's bytes go, its fingerprint stays; an operation that is not over keeps them, for it may have to send again (A4)."""
    ended(record, 1, "job-1")
    record.accept(2, "job-2")
    record.now = NOW + 2 * DAY
    drop(record, Stage.REQUESTS)
    kept = {row.id: row for row in rows(engines, operations)}
    assert kept[intent(1).id].request is None
    assert kept[intent(1).id].request_fingerprint == intent(1).request_fingerprint
    assert kept[intent(2).id].request is not None
    assert record.faults() == []


def test_a_record_goes_and_what_explains_the_past_stays(record: Record, engines: Engines) -> None:
    """A tombstone with the head stays beside the history, which still verifies; the key answers that it has expired (D5, F6)."""
    ended(record, 1, "job-1")
    before = rows(engines, history)
    record.now = NOW + 400 * DAY
    batch = drop(record, Stage.RECORDS, age=365 * DAY)[0]
    assert batch.counts["operations"] == 1
    assert rows(engines, operations) == []
    assert rows(engines, exchanges) == []
    assert rows(engines, history) == before
    (stone,) = rows(engines, tombstones)
    assert (stone.operation, stone.state, stone.history_seq) == (intent(1).id, "failed", len(before))
    assert record.faults() == []
    again = record.register(intent(9, idempotency_key="key-1", request_fingerprint=intent(1).request_fingerprint))
    assert [answer.outcome for answer in again] == ["key_expired"]
    assert len(rows(engines, idempotency_keys)) == 1
    other = record.register(intent(8, remote_job_id="job-1", idempotency_key=None, owner="eve"))
    assert [answer.outcome for answer in other] == ["job_taken"]


def test_a_history_that_loses_a_row_after_its_record_is_told(record: Record, engines: Engines) -> None:
    """Cutting the history of a record that has expired is found like any other (D5)."""
    ended(record, 1, "job-1")
    record.now = NOW + 400 * DAY
    drop(record, Stage.RECORDS)
    with engines.begin() as connection:
        if engines.postgres:
            connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
        else:
            connection.exec_driver_sql("DROP TRIGGER history_keeps_delete")
        connection.execute(history.delete().where(history.c.seq == len(rows(engines, history)) if engines.postgres else history.c.seq == 2))
    assert [fault.operation for fault in record.faults()] == [intent(1).id]


def test_who_waits_for_a_person_stays(record: Record, engines: Engines) -> None:
    """Neither an active operation nor a parked one expires, however old."""
    record.accept(1, "job-1")
    record.now = NOW + 4_000 * DAY
    for stage in (Stage.RESULTS, Stage.RECORDS, Stage.RECEIPTS):
        drop(record, stage)
    assert [row.id for row in rows(engines, operations)] == [intent(1).id]


def test_receipts_of_nobody_go_after_the_memory(record: Record, engines: Engines) -> None:
    """An unclaimed delivery and the mention of its job go together; one whose operation lives stays, and so does a younger one (B3)."""
    record.accept(1, "job-1")
    record.ingest(delivery(1, "job-1"), delivery(2, "job-unknown"))
    record.now = NOW + 10 * DAY
    record.tx(ingest_now, Ingest(delivery=replace(delivery(3, "job-later"), received_at=record.now), now=record.now))
    drop(record, Stage.RECEIPTS, memory_=20 * DAY)
    assert len(rows(engines, deliveries)) == 3
    record.tx(reset, Stage.RECEIPTS)
    drop(record, Stage.RECEIPTS)
    assert sorted(row.dedup_key for row in rows(engines, deliveries)) == ["id:1", "id:3"]
    assert sorted(row.remote_job_id for row in rows(engines, remote_jobs)) == ["job-1", "job-later"]


def ingest_now(tx: Any, commands: list[Ingest]) -> list[Any]:
    from ledger.ingest import ingest

    return list(ingest(tx, commands))


def reset(tx: Any, commands: list[Stage]) -> list[None]:
    tx.connection.execute(upkeep.delete().where(upkeep.c.name.in_([f"retention.{stage}" for stage in commands])))
    return [None] * len(commands)


def test_batches_go_on_where_the_last_commit_was(record: Record, engines: Engines) -> None:
    """Each batch is a commit that moves the cursor: one that is cut leaves the former ones done, and a new run ends the work (H5)."""
    for number in range(1, 6):
        ended(record, number, f"job-{number}")
    record.now = NOW + 400 * DAY
    command = Expire(stage=Stage.RECORDS, before=record.now - DAY, memory=record.now - DAY, now=record.now, limit=2)
    assert record.tx(expire, command)[0].more

    def cut(tx: Any, commands: list[Expire]) -> list[Expired]:
        expire(tx, commands)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record.tx(cut, command)
    assert len(rows(engines, operations)) == 3
    assert len(drop(record, Stage.RECORDS, limit=2)) == 3
    assert rows(engines, operations) == []
    (progress,) = rows(engines, upkeep)
    assert progress.cursor_id == intent(5).id


def test_a_cursor_of_a_clock_that_was_wrong_is_not_trusted(record: Record, engines: Engines) -> None:
    """A cursor ahead of everything that may expire begins anew, so that nothing is kept for ever."""
    ended(record, 1, "job-1")
    record.now = NOW + 2 * DAY
    drop(record, Stage.RECORDS)
    with engines.begin() as connection:
        connection.execute(upkeep.update().values(cursor_at=NOW + 9_000 * DAY))
    ended(record, 2, "job-2")
    record.now = NOW + 5 * DAY
    drop(record, Stage.RECORDS)
    assert rows(engines, operations) == []


class Clock:
    """A world whose clocks are set by hand."""

    def __init__(self, now: Micros) -> None:
        self.wall, self.steady = now, 0.0

    def now(self) -> Micros:
        return self.wall

    def monotonic(self) -> float:
        return self.steady

    def chance(self) -> float:
        return 0.5

    def new_id(self, prefix: str) -> str:
        return prefix

    def new_token(self) -> str:
        return "token"

    def passes(self, micros: Micros) -> None:
        self.wall += micros
        self.steady += micros / SECOND


def test_the_duty_removes_files_and_keeps_the_fact(database: Database, engines: Engines, vault: Vault, tmp_path: Path) -> None:
    """Files of a succeeded operation go, size and digest stay; a wall clock that jumps a year ahead removes nothing (F6)."""
    store = Store(tmp_path / "artifacts")
    record = Record(engines, vault)
    with engines.look() as connection:  # on PostgreSQL the database's own clock must agree
        record.now = int(connection.execute(sa.text(_CLOCK)).scalar_one()) if engines.postgres else NOW
    record.accept(1, "job-1")
    mine = record.claim(after=60 * SECOND)[0]
    record.settle(mine, reading(Reading.SUCCEEDED), after=60 * SECOND)
    mine = record.claim(after=61 * SECOND)[0]
    file = StoredFile(key="art_00000001", role="output", media_type="text/csv", bytes=3, sha256="a" * 64)
    record.settle(mine, Collected(files=(file,)), after=61 * SECOND)
    clock = Clock(record.now)

    async def scenario() -> None:
        writer = await store.create(file.key)
        await writer.write(b"a,b")
        await writer.commit()
        ledger = Ledger.open(database.url, vault=vault, contracts={"reports": REPORTS}, migrate=False)
        ledger.start(several_processes=False)
        duty = Retention(record=ledger, world=clock, store=store, settings=RetentionSettings(result_days=30, record_days=60))
        clock.wall += 400 * DAY
        assert await duty.run_once() == {"held_back": 1}
        assert store.stored(clock.now() * 2) == [file.key]
        clock.wall -= 400 * DAY
        clock.steady += 90_000
        if not engines.postgres:
            clock.passes(31 * DAY)
            told: Counter[str] = Counter()
            counts = await duty.run_once(None, lambda stage, count: told.update({stage: count}))
            assert counts["files"] == 1
            assert told["results"]
            assert store.stored(clock.now() * 2) == []
            op = ledger.read_now(queries.operation, intent(1).id, None)
            assert op is not None
            assert (op.state, op.result_sha256, op.result_bytes) == ("succeeded", "a" * 64, 3)
            assert ledger.read_now(queries.known_artifacts, [file.key]) == set()
            clock.passes(31 * DAY)
            await duty.run_once(0.0)
            assert ledger.read_now(queries.operation, intent(1).id, None) is not None  # no time was left
            await duty.run_once()
            assert ledger.read_now(queries.operation, intent(1).id, None) is None
        ledger.close()

    asyncio.run(scenario())
    with engines.look() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(artifacts)).scalar_one() == (1 if engines.postgres else 0)
        View(connection, vault)


_CLOCK = "SELECT (extract(epoch from clock_timestamp()) * 1000000)::bigint"


def test_the_memory_covers_every_provider() -> None:
    """Dedup keys live at least as long as any provider repeats, and twice its replay window (B3)."""
    patient = replace(REPORTS, retry=RetryRules(horizon_seconds=900_000))
    assert memory([REPORTS, patient]) == 900_000 * SECOND
    assert memory([]) == 86_400 * SECOND

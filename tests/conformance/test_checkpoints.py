"""Signed heads: a history that is cut off, or removed with its record, shows; and so does a checkpoint that was touched (D5)."""

import io
from typing import Any

import pytest
import sqlalchemy as sa

from ledger import checkpoints as signing
from ledger.audit import Fault
from ledger.checkpoints import checkpoint, rows_of, verify_checkpoint
from ledger.engine import Engines, open_engines
from ledger.export import verify_lines, write
from ledger.migrate import migrate
from ledger.tables import history, history_texts, operations
from ledger.tables_upkeep import checkpoint_heads, checkpoints
from ledger.transaction import View
from ledger.vault import Vault
from schemas.operation import SECOND
from schemas.states import Reading
from schemas.upkeep import Checkpoint, Checkpointed
from tests.conformance.conftest import Database
from tests.conformance.house import Record, intent, reading


@pytest.fixture
def record(empty_database: Database, vault: Vault) -> Any:
    """Give a record in a database of its own, for these tests take its guards away."""
    engines = open_engines(empty_database.url)
    migrate(engines)
    made = Record(engines, vault)
    made.accept(1, "job-1")
    made.accept(2, "job-2")
    yield made
    engines.close()


def sign(record: Record) -> Checkpointed:
    return record.tx(checkpoint, Checkpoint(now=record.now))[0]


def faults(record: Record, public: bytes | None = None) -> list[str]:
    with record.engines.look() as connection:
        view = View(connection, record.vault)
        rows = rows_of(view)
        found = [fault for row, before in zip(rows, [None, *rows], strict=False) for fault in verify_checkpoint(view, row, before, public)]
    return [f"{fault.operation}: {fault.fault}" for fault in found]


def unguarded(engines: Engines, *statements: sa.Executable) -> None:
    with engines.begin() as connection:
        if engines.postgres:
            connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
        else:
            for name in ("history_keeps_delete", "history_keeps_update"):
                connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS {name}")
        for statement in statements:
            connection.execute(statement)


def exported(record: Record) -> list[str]:
    def read(query: Any, *given: Any) -> Any:
        with record.engines.look() as connection:
            return query(View(connection, record.vault), *given)

    file = io.StringIO()
    write(file, read, lambda _count: None)
    return file.getvalue().splitlines(keepends=True)


def offline(lines: list[str], public: bytes | None = None) -> list[str]:
    return [f"{item.operation}: {item.fault}" for item in verify_lines(iter(lines), public) if isinstance(item, Fault)]


def test_only_what_has_changed_is_signed(record: Record) -> None:
    """The second checkpoint holds the one operation that moved; a third has nothing to sign and is none."""
    first = sign(record)
    assert (first.number, first.operations, first.more) == (1, 2, False)
    mine = next(item for item in record.claim(after=60 * SECOND) if item.operation.id == intent(1).id)
    record.settle(mine, reading(Reading.FAILED, has_result=False), after=60 * SECOND)
    second = sign(record)
    assert (second.number, second.operations) == (2, 1)
    assert sign(record).number == 2
    assert second.public == first.public
    assert faults(record, first.public) == []
    assert faults(record, bytes(32)) == [f": checkpoint {number} is signed with another key" for number in (1, 2)]


def test_a_history_that_was_cut_off_shows(record: Record) -> None:
    """The last row is taken away and the record set back to the one before: the chain holds, the checkpoint does not."""
    sign(record)
    seq = 2
    with record.engines.look() as connection:
        before = connection.execute(sa.select(history).where(history.c.operation == intent(1).id, history.c.seq == seq - 1)).one()
    mine = history.c.operation == intent(1).id
    back = {"history_seq": seq - 1, "history_hash": before.hash}
    unguarded(
        record.engines,
        sa.delete(history).where(mine, history.c.seq >= seq),
        sa.update(operations).where(operations.c.id == intent(1).id).values(back),
    )
    assert faults(record) == [f"{intent(1).id}: the row that checkpoint 1 signed is gone or changed"]


def test_an_operation_that_was_removed_whole_shows(record: Record) -> None:
    """Record and history gone together leave nothing to compare but the checkpoint; in an export too."""
    public = sign(record).public
    unguarded(
        record.engines,
        sa.delete(operations).where(operations.c.id == intent(1).id),
        sa.delete(history).where(history.c.operation == intent(1).id),
        sa.delete(history_texts).where(history_texts.c.operation == intent(1).id),
    )
    assert record.faults() == []
    assert len(faults(record)) == 1
    assert offline(exported(record), public) == [f"{intent(1).id}: a checkpoint signed this history, and it is gone"]


@pytest.mark.parametrize("touch", ["head", "signature", "count", "first"])
def test_a_checkpoint_that_was_touched_shows(record: Record, touch: str) -> None:
    """Heads, signature, numbers and the chain of the checkpoints are covered."""
    sign(record)
    record.accept(3, "job-3")
    sign(record)
    statements: dict[str, sa.Executable] = {
        "head": sa.delete(checkpoint_heads).where(checkpoint_heads.c.operation == intent(2).id),
        "signature": sa.update(checkpoints).where(checkpoints.c.number == 2).values(signature=bytes(64)),
        "count": sa.update(checkpoints).where(checkpoints.c.number == 2).values(operations=7),
        "first": sa.delete(checkpoints).where(checkpoints.c.number == 1),
    }
    unguarded(record.engines, statements[touch])
    assert len(faults(record)) == 1


def test_many_are_signed_in_parts(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is over is signed so many at a time, going on where the last checkpoint ended."""
    monkeypatch.setattr(signing, "MOST", 1)
    for number in (1, 2):
        mine = next(item for item in record.claim(after=60 * SECOND, limit=1))
        record.settle(mine, reading(Reading.FAILED, has_result=False), after=60 * SECOND + number)
    made = [sign(record), sign(record), sign(record)]
    assert [(item.operations, item.more) for item in made] == [(1, True), (1, True), (0, False)]
    assert faults(record) == []


def test_an_export_verifies_offline(record: Record) -> None:
    """It needs no database; an edited, missing or reordered row, a torn or foreign file are told, and nothing of it raises."""
    public = sign(record).public
    lines = exported(record)
    assert offline(lines, public) == []
    assert "is signed with another key" in offline(lines, bytes(32))[0]
    at = next(number for number, line in enumerate(lines) if line.startswith('{"operation"'))
    changed = [*lines[:at], lines[at].replace('"actor":"', '"actor":"x', 1), *lines[at + 1 :]]
    assert offline(changed, public) == [f"{intent(1).id}: changed row"]
    assert offline(lines[:-1], public) == [": the export ends before its end line"]
    assert offline([*lines[:1], *lines[2:]], public)[0].startswith(": no checkpoint signs")
    for torn in ([lines[0], lines[1][: len(lines[1]) // 2]], ["[]"], ["x"], [lines[0], "[]"], [lines[0], '{"checkpoint":{},"heads":1}']):
        assert offline(torn, public)

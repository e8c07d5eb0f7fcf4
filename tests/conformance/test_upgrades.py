"""A database of the released version, with rows in every table, is brought to this one, by whoever starts first (MISSION H5)."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from ledger.audit import self_audit
from ledger.engine import Engines, open_engines
from ledger.ledger import Ledger
from ledger.migrate import migrate, migrate_to
from ledger.soundness import checks
from ledger.tables import operations
from ledger.transaction import View
from ledger.vault import Vault
from schemas.states import Reading
from tests.conformance.conftest import Database
from tests.conformance.filled import fill
from tests.conformance.house import NOW, REPORTS, Record, intent, reading

RELEASED = "0002"


@pytest.fixture
def old(empty_database: Database, vault: Vault, tmp_path: Path) -> Iterator[Engines]:
    """Give a database of the released version with rows in every table: made now, stored with the columns of then."""
    now = open_engines(f"sqlite:///{tmp_path}/now.db")
    migrate(now)
    fill(Record(now, vault))
    then = open_engines(empty_database.url)
    migrate_to(then, RELEASED)
    shape = sa.MetaData()
    with then.begin() as target, now.look() as source:
        shape.reflect(target)
        for name, table in shape.tables.items():
            if name == "alembic_version":
                continue
            columns: list[sa.ColumnClause[Any]] = [sa.column(column.name) for column in table.columns]
            rows = [dict(row) for row in source.execute(sa.select(*columns).select_from(sa.table(name))).mappings()]
            assert rows, name
            flags = [column.name for column in table.columns if isinstance(column.type, sa.Boolean)]
            for row in rows:
                row.update({flag: None if row[flag] is None else bool(row[flag]) for flag in flags})
            target.execute(table.insert(), rows)
    now.close()
    yield then
    then.close()


def contents(engines: Engines) -> dict[str, list[Any]]:
    """Return every row of every table that the released version has."""
    shape = sa.MetaData()
    with engines.look() as connection:
        shape.reflect(connection)
        return {
            name: sorted(map(str, connection.execute(sa.select(table)).all())) for name, table in shape.tables.items()
        }  # fmt: skip


def test_an_old_database_is_brought_up_and_works(old: Engines, vault: Vault) -> None:
    """Constraints, chain, fold and self-audit hold after the upgrade, sealed values open, and the work goes on (D4, H5)."""
    assert migrate(old)
    with old.look() as connection:
        view = View(connection, vault)
        assert [fault for look in checks() for fault in look(view)] == []
        assert self_audit(view, NOW) == dict.fromkeys(self_audit(view, NOW), 0)
    record = Record(old, vault)
    assert record.faults() == []
    mine = next(item for item in record.claim(after=100_000_000) if item.operation.id == intent(2).id)
    assert record.settle(mine, reading(Reading.RUNNING), after=100_000_000).operation.state == "observing"
    assert record.faults() == []


def test_a_migration_that_fails_leaves_the_old_version(old: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the migration had done is undone: every row and the version are as before, and the next try succeeds (B161)."""
    before = contents(old)

    def fails(_: sa.Connection) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("ledger.migrate._finished", fails)
        with pytest.raises(KeyboardInterrupt):
            migrate(old)
    assert contents(old) == before
    assert before["alembic_version"] == [f"('{RELEASED}',)"]
    assert migrate(old)


def test_four_start_at_once_on_an_old_database(old: Engines, empty_database: Database, vault: Vault) -> None:
    """One of four migrates, the others wait for it, and all of them open the record (B160)."""
    gate = threading.Barrier(4)
    answers: list[Any] = []

    def start() -> None:
        gate.wait(30)
        engines = open_engines(empty_database.url)
        try:
            answers.append(migrate(engines))
            Ledger.open(empty_database.url, vault=vault, contracts={"reports": REPORTS}, migrate=True).close()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test tells it
            answers.append(error)
        finally:
            engines.close()

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(map(str, answers)) == ["False", "False", "False", "True"]
    with old.look() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(operations)).scalar_one() == 3

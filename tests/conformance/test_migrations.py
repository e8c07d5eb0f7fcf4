"""The schema comes to be by migrations alone, once, and equals the tables of the code."""

import multiprocessing
import re
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from ledger.engine import Engines, open_engines
from ledger.errors import LedgerError, SchemaTooNewError, SchemaTooOldError
from ledger.migrate import check, migrate
from ledger.schema import metadata
from ledger.tables import history
from tests.conformance.conftest import Database

HISTORY_ROW = {
    "operation": "op_1", "seq": 1, "at": 1, "actor": "a", "from_state": "", "to_state": "create_pending", "cause": "request",
    "cause_id": "", "code": "", "changes": b"{}", "text_hash": b"", "prev_hash": b"", "hash": b"h",
}  # fmt: skip


def _condition(index: Any) -> list[str]:
    return [str(value) for name, value in index.get("dialect_options", {}).items() if name.endswith("_where")]


def _shape(connection: sa.Connection) -> dict[str, Any]:
    """Return everything that the database says about its tables, in words that do not depend on how they were made."""
    look = sa.inspect(connection)
    shape: dict[str, Any] = {}
    for table in sorted(set(look.get_table_names()) - {"alembic_version"}):
        shape[table] = {
            "columns": [(c["name"], str(c["type"]), c["nullable"]) for c in look.get_columns(table)],
            "checks": sorted((c["name"], c["sqltext"]) for c in look.get_check_constraints(table)),
            "keys": look.get_pk_constraint(table)["constrained_columns"],
            "unique": sorted((u["name"], tuple(u["column_names"])) for u in look.get_unique_constraints(table)),
            "foreign": [(f["name"], tuple(f["referred_columns"]), f["options"]) for f in look.get_foreign_keys(table)],
            "indexes": sorted((i["name"], tuple(i["column_names"]), _condition(i)) for i in look.get_indexes(table)),
        }
    if connection.dialect.name == "sqlite":  # deferrability and partial indexes are only in the text
        texts = connection.exec_driver_sql("SELECT name, sql FROM sqlite_master WHERE type IN ('table', 'index') AND sql IS NOT NULL")
        shape["texts"] = {row[0]: sorted(re.findall(r"[^\s,()]+", row[1])) for row in texts if row[0] != "alembic_version"}
    return shape


def test_the_migrated_schema_equals_the_tables(database: Database, empty_database: Database) -> None:
    """Columns, CHECKs, partial indexes and the deferrable foreign key are those of tables.metadata."""
    migrated, made = open_engines(database.url), open_engines(empty_database.url)
    with made.write.begin() as connection:
        metadata.create_all(connection)
    with migrated.read.connect() as one, made.read.connect() as other:
        assert _shape(one) == _shape(other)
        assert compare_metadata(MigrationContext.configure(one, opts={"compare_type": True}), metadata) == []
    migrated.close()
    made.close()


def test_history_is_append_only(engines: Engines) -> None:
    """UPDATE, DELETE and (SQLite) REPLACE of a history row are refused by the database itself (D4)."""
    with engines.begin() as connection:
        connection.execute(history.insert(), [HISTORY_ROW])
    attacks: list[sa.Executable] = [history.update().values(actor="b"), history.delete()]
    attacks.append(
        sa.text("TRUNCATE history") if engines.postgres else history.insert().prefix_with("OR REPLACE").values(HISTORY_ROW | {"actor": "b"})
    )
    for attack in attacks:
        with pytest.raises(LedgerError), engines.begin() as connection:
            connection.execute(attack)
    with engines.look() as connection:
        assert connection.execute(sa.select(history.c.actor)).scalars().all() == ["a"]


def test_migrating_twice_does_nothing(empty_database: Database) -> None:
    """The second run finds nothing to do; before the first the check says which command to run."""
    engines = open_engines(empty_database.url)
    with pytest.raises(SchemaTooOldError, match="gateway database migrate"):
        check(engines)
    assert migrate(engines)
    assert not migrate(engines)
    check(engines)
    engines.close()


def test_a_newer_schema_is_refused(engines: Engines) -> None:
    """An older program on a newer database says so and touches nothing (B160)."""
    with engines.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    for start in (migrate, check):
        with pytest.raises(SchemaTooNewError, match=r"9999.*install that version"):
            start(engines)


def _start(url: str, gate: Any, answers: Any) -> None:
    gate.wait(30)
    engines = open_engines(url)
    try:
        answers.put(migrate(engines))
        check(engines)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the parent reports it
        answers.put(repr(error))
    finally:
        engines.close()


def test_four_processes_start_at_once(empty_database: Database) -> None:
    """On an empty database exactly one of four processes migrates and all of them are ready (B160)."""
    context = multiprocessing.get_context("spawn")
    gate, answers = context.Barrier(4), context.Queue()
    processes = [context.Process(target=_start, args=(empty_database.url, gate, answers)) for _ in range(4)]
    for process in processes:
        process.start()
    found = [answers.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(30)
        assert process.exitcode == 0
    assert sorted(map(str, found)) == ["False", "False", "False", "True"]


def test_a_migration_killed_in_the_middle_leaves_nothing(empty_database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a migration is one transaction: after a failure the old schema stands and a second run succeeds (B161)."""
    engines = open_engines(empty_database.url)
    with monkeypatch.context() as patch:
        patch.setattr("ledger.migrate._finished", _power_cut)
        with pytest.raises(KeyboardInterrupt):
            migrate(engines)
    with engines.look() as connection:
        assert sa.inspect(connection).get_table_names() == []
    assert migrate(engines)
    engines.close()


def _power_cut(_: sa.Connection) -> None:
    raise KeyboardInterrupt

"""`database check` evaluates every constraint again and names the row, on both databases (MISSION H5)."""

from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from ledger.engine import Engines, open_engines
from ledger.migrate import migrate
from ledger.schema import metadata
from ledger.soundness import checks
from ledger.tables import operations
from ledger.transaction import View
from ledger.vault import Vault
from tests.conformance.conftest import Database
from tests.conformance.filled import fill
from tests.conformance.house import Record, intent


def found(engines: Engines, vault: Vault) -> list[str]:
    faults: list[str] = []
    for look in checks():
        with engines.look() as connection:
            faults += look(View(connection, vault))
    return faults


@pytest.fixture
def record(empty_database: Database, vault: Vault) -> Iterator[Record]:
    """Give a filled record in a database of its own: these tests change the schema."""
    engines = open_engines(empty_database.url)
    migrate(engines)
    made = Record(engines, vault)
    fill(made)
    with engines.begin() as connection:
        connection.execute(metadata.tables["row_faults"].delete())
    yield made
    engines.close()


def unguarded(engines: Engines, *statements: str) -> None:
    """Change rows with the database's own checks off, as another program or a partial restore does."""
    with engines.write.connect() as connection:
        if engines.postgres:
            connection.exec_driver_sql("SET session_replication_role = replica")
            connection.exec_driver_sql("ALTER TABLE operations DROP CONSTRAINT ck_operations_due")
            for statement in statements:
                connection.exec_driver_sql(statement)
            connection.exec_driver_sql(f"ALTER TABLE operations ADD CONSTRAINT ck_operations_due CHECK ({_due()}) NOT VALID")
            connection.exec_driver_sql("SET session_replication_role = DEFAULT")
            connection.commit()
            return
        driver: Any = connection.connection.driver_connection
        for pragma in ("ignore_check_constraints = 1", "foreign_keys = 0"):
            driver.execute(f"PRAGMA {pragma}")
        for statement in statements:
            driver.execute(statement)
        for pragma in ("ignore_check_constraints = 0", "foreign_keys = 1"):
            driver.execute(f"PRAGMA {pragma}")


def _due() -> str:
    (text,) = (str(item.sqltext) for item in operations.constraints if isinstance(item, sa.CheckConstraint) and "due" in str(item.name))
    return text


def test_a_full_record_is_sound(record: Record) -> None:
    """With rows in every table nothing is found: the checks are those of the schema as it is."""
    assert found(record.engines, record.vault) == []


def test_a_row_that_breaks_a_constraint_is_named(record: Record) -> None:
    """A CHECK, a verdict without its history and a row of an operation that is gone: each by its key."""
    active, ended = intent(2).id, intent(1).id
    unguarded(
        record.engines,
        f"UPDATE operations SET due_at = NULL WHERE id = '{active}'",  # noqa: S608 - an id of ours
        f"UPDATE operations SET verdict_seq = 99 WHERE id = '{ended}'",  # noqa: S608 - the same
        "UPDATE attempts SET operation = 'op_gone' WHERE id = (SELECT min(id) FROM attempts)",
    )
    faults = "\n".join(found(record.engines, record.vault))
    assert f"operations row {active} breaks ck_operations_due" in faults
    assert f"operations row {ended} has a verdict that its history does not have" in faults
    assert "attempts row att_" in faults
    assert "belongs to an operation that is not there" in faults


@pytest.mark.parametrize(
    "change", ["DELETE FROM artifacts", "UPDATE artifacts SET sha256 = 'forged'", "UPDATE artifacts SET operation = 'op_gone'"]
)
def test_a_result_that_is_not_as_it_was_stored_is_named(record: Record, change: str) -> None:
    """F1, D5: the history has a result's digest; a row of artifacts that is gone, altered or somebody else's is found by it."""
    unguarded(record.engines, change)
    assert f"operations row {intent(1).id} has a result that artifacts does not have so" in found(record.engines, record.vault)


def test_a_missing_index_or_constraint_is_told(record: Record) -> None:
    """What a hand or a partial restore took away is told by its name."""
    with record.engines.begin() as connection:
        connection.exec_driver_sql("DROP INDEX ix_operations_due")
        if record.engines.postgres:
            connection.exec_driver_sql("ALTER TABLE deliveries DROP CONSTRAINT uq_deliveries_provider_dedup_key")
    faults = "\n".join(found(record.engines, record.vault))
    assert "the index ix_operations_due is missing" in faults
    assert ("the constraint uq_deliveries_provider_dedup_key is missing" in faults) == record.engines.postgres

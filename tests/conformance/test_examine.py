"""What an operator asks of the database itself, on both kinds."""

from dataclasses import replace

from ledger import examine
from ledger.engine import Engines
from ledger.ledger import Ledger
from schemas.commands import Ingest
from schemas.operation import SECOND
from tests.conformance.house import NOW, delivery


def test_a_fresh_database_is_named_and_sound(ledger: Ledger, kind: str) -> None:
    """Name and version, no faults; only PostgreSQL has a clock of its own."""
    assert ledger.read_now(examine.version).startswith("SQLite 3." if kind == "sqlite" else "PostgreSQL ")
    assert ledger.read_now(examine.faults) == []
    assert (ledger.read_now(examine.clock) is None) == (kind == "sqlite")


def test_a_missing_guard_of_the_history_is_a_fault(ledger: Ledger, engines: Engines, kind: str) -> None:
    """Without its triggers the history could be edited unseen until the next audit (D5)."""
    with engines.begin() as connection:
        connection.exec_driver_sql(
            "DROP TRIGGER history_keeps_delete" if kind == "sqlite" else "DROP TRIGGER history_keeps_rows ON history"
        )
    assert len(ledger.read_now(examine.faults)) == 1


def test_deliveries_are_counted_for_their_provider(ledger: Ledger) -> None:
    """The newest time, the secret that matched, and counts by status; of another provider nothing."""
    assert ledger.read_now(examine.last_deliveries, "reports") == {"last_at": None, "last_secret": None, "by_status": {}}
    for number in (1, 2):
        made = replace(delivery(number, job=f"job-{number}"), received_at=NOW + number * SECOND)
        ledger.write_now(Ingest(delivery=made, now=made.received_at))
    found = ledger.read_now(examine.last_deliveries, made.provider)
    assert found["last_at"] == NOW + 2 * SECOND
    assert found["last_secret"] == made.secret_id
    assert sum(found["by_status"].values()) == 2
    assert ledger.read_now(examine.last_deliveries, "other")["by_status"] == {}

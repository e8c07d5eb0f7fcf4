"""Claims, dedup, sweeps, listings, audits and retention stay on their indexes, on both databases.

`python bench/growth.py --rows 5000000` does the same with more.
"""

import pytest
import sqlalchemy as sa

from bench import growth
from ledger import sweep as sweeping
from ledger.engine import Engines, open_engines
from ledger.migrate import migrate
from ledger.tables import deliveries
from ledger.vault import Vault
from schemas.commands import Sweep
from schemas.operation import SECOND
from tests.conformance.conftest import Database
from tests.conformance.house import NOW, Record, delivery

ROWS = 200_000


def test_nothing_walks_a_whole_table(empty_database: Database, vault: Vault) -> None:
    """Every statement that is sent by the daily work is explained: none scans a big table. Without an index one does (C7, F6)."""
    engines = open_engines(empty_database.url)
    migrate(engines)
    growth.fill(engines, ROWS)
    found = growth.run(engines, vault)
    assert {sent.what for sent in found.sent} == {*growth.work(), *growth.looks()}
    assert growth.walks(engines, found) == []
    with engines.begin() as connection:
        connection.exec_driver_sql("DROP INDEX ix_operations_created")
        connection.exec_driver_sql("DROP INDEX ix_exchanges_finished")
    walked = {fault.partition(":")[0] for fault in growth.walks(engines, found)}
    assert {"list of everybody", "expire 200 exchanges"} <= walked
    engines.close()


def test_a_sweep_looks_at_some_orphans_and_goes_round(engines: Engines, vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many orphans stand before it, one whose job is known is attached within a round; then the round begins anew (B115)."""
    monkeypatch.setattr(sweeping, "ORPHANS", 3)
    record = Record(engines, vault)
    record.ingest(*(delivery(number, f"nobodys-{number}") for number in range(8)))
    record.accept(1, "job-1")
    record.ingest(delivery(9, "job-1"))
    mine = deliveries.c.id == delivery(9).id
    for _ in range(2):
        with engines.begin() as connection:  # as a crash of another version may have left it
            connection.execute(sa.update(deliveries).where(mine).values(status="orphan", operation=None))
        applied = []
        for _ in range(4):
            record.tx(sweeping.sweep, Sweep(now=NOW + 120 * SECOND, limit=10, chance=0.5, part="receipts"))
            with engines.look() as connection:
                applied.append(connection.execute(sa.select(deliveries.c.status).where(mine)).scalar_one() == "applied")
        assert applied[-1]
    assert not applied[0]

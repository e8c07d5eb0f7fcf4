"""Claims, dedup, sweeps, listings, audits and retention stay on their indexes, on both databases.

Ten thousand rows are enough for either planner to choose an index; `python bench/growth.py --rows 5000000` does the same with more.
"""

from bench import growth
from ledger.engine import open_engines
from ledger.migrate import migrate
from ledger.vault import Vault
from tests.conformance.conftest import Database

ROWS = 10_000


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

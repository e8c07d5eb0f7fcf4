"""An old reader is told, and what it kept is cleaned away once it has gone (B117, B122)."""

import sqlalchemy as sa

from ledger import backlog
from ledger.engine import Engines
from ledger.ledger import Ledger
from schemas.commands import Ingest
from tests.conformance.house import NOW, delivery


def test_the_wal_is_emptied_once_nobody_reads(ledger: Ledger, engines: Engines) -> None:
    """Behind an idle reader the WAL grows and is told, and no write waits for it; after the reader it is empty (B117)."""
    if engines.postgres:
        assert backlog.tend(engines) == {}
        return
    with engines.read.connect() as idle:
        idle.execute(sa.text("SELECT count(*) FROM operations")).scalar_one()
        for number in range(60):
            made = delivery(number, f"job-{number}")
            ledger.write_now(Ingest(delivery=made, now=NOW))
        grown = backlog.wal_bytes(engines)
        assert grown > 100_000
        assert backlog.tend(engines, most=100_000) == {"pinned": 1}
        ledger.write_now(Ingest(delivery=delivery(100, "job-100"), now=NOW))
    assert backlog.tend(engines, most=grown * 2) == {}
    assert backlog.tend(engines, most=100_000) == {"truncated": 1}
    assert backlog.wal_bytes(engines) == 0
    with engines.write.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar_one() > 0


def test_an_old_transaction_is_told(ledger: Ledger, engines: Engines) -> None:
    """PostgreSQL: anybody's open transaction counts; our own idle ones are ended by the server (B122)."""
    if not engines.postgres:
        assert ledger.read_now(backlog.oldest_transaction) == 0
        return
    for engine in (engines.read, engines.write):
        with engine.connect() as connection:
            assert connection.exec_driver_sql("SHOW idle_in_transaction_session_timeout").scalar_one() == "30s"
    with engines.read.connect() as idle:
        idle.execute(sa.text("SELECT 1")).scalar_one()
        assert 0 <= ledger.read_now(backlog.oldest_transaction) < backlog.OLD_SECONDS

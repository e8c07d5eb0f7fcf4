"""A database file that is deleted, replaced or full while it is open: noticed, told, and never written on as if it were there."""

import multiprocessing
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from ledger.beats import PROBE
from ledger.engine import open_engines
from ledger.errors import ConfigurationError, LedgerUnavailableError
from ledger.ledger import Ledger
from ledger.queries import heartbeats
from ledger.vault import Vault
from schemas.commands import Beat
from tests.conformance.conftest import Database


def _beat(duty: str) -> Beat:
    return Beat(duty=duty, process="p", now=1, ok=True)


@pytest.fixture
def live(tmp_path: Path, vault: Vault) -> Iterator[Ledger]:
    ledger = Ledger.open(f"sqlite:///{tmp_path}/gateway.db", vault=vault, contracts={})
    ledger.start()
    yield ledger
    ledger.close()


@pytest.mark.parametrize("name", ["gateway.db", "gateway.db-wal"])
@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_a_file_that_is_gone_takes_no_more_writes(live: Ledger, tmp_path: Path, name: str, how: str) -> None:
    """Deleted or replaced while it is open: every write is refused from then on, the log says so once, nothing heals it (B165)."""
    live.write_now(_beat("a"))
    place = tmp_path / name
    place.rename(tmp_path / "away")
    if how == "replaced":
        shutil.copy(tmp_path / "away", place)
    with capture_logs() as logs:
        for _ in range(2):
            with pytest.raises(LedgerUnavailableError, match=rf"{place} is gone .* restart"):
                live.write_now(_beat("b"))
    assert [entry["event"] for entry in logs].count("ledger.database_gone") == 1
    shutil.move(tmp_path / "away", place)
    with pytest.raises(LedgerUnavailableError):
        live.write_now(_beat("b"))
    assert str(place) in live.trouble()


def test_a_file_lost_between_begin_and_commit_is_not_acknowledged(tmp_path: Path, vault: Vault) -> None:
    """The commit itself succeeds, into a file without a name: the caller is not told that it is stored (B165)."""
    place = tmp_path / "gateway.db"
    steps = []

    def crash_point(step: str) -> None:
        steps.append(step)
        if step == "Beat.before_commit":
            place.unlink()

    ledger = Ledger.open(f"sqlite:///{place}", vault=vault, contracts={}, crash_point=crash_point)
    ledger.start()
    with pytest.raises(LedgerUnavailableError, match="gone"):
        ledger.write_now(_beat("a"))
    assert steps == ["Beat.begun", "Beat.before_commit"]
    ledger.close()


def test_a_wal_that_sqlite_itself_renews_is_no_loss(live: Ledger, tmp_path: Path) -> None:
    """Connections come and go, the WAL is checkpointed: the watch stays quiet."""
    for number in range(3):
        live.write_now(_beat(str(number)))
        live._writer.commits.close()
        live.engines.read.dispose()
        other = open_engines(f"sqlite:///{tmp_path}/gateway.db")
        with other.begin():
            pass
        other.close()
    assert live.trouble() == ""


def _hold(url: str, held: Any, done: Any) -> None:
    engines = open_engines(url)
    held.set()
    done.wait(60)
    engines.close()


def test_no_second_database_beside_a_live_process(tmp_path: Path) -> None:
    """The file is gone and a process still has it open: nobody makes a new one there until that process has ended."""
    url, place = f"sqlite:///{tmp_path}/gateway.db", tmp_path / "gateway.db"
    context = multiprocessing.get_context("spawn")
    held, done = context.Event(), context.Event()
    process = context.Process(target=_hold, args=(url, held, done))
    process.start()
    try:
        assert held.wait(60)
        place.unlink()
        with pytest.raises(ConfigurationError, match=r"is gone while another process still has it open; stop that process"):
            open_engines(url)
        assert not place.exists()
    finally:
        done.set()
        process.join(60)
    open_engines(url).close()
    assert place.exists()


def test_a_probe_leaves_no_row(database: Database, vault: Vault) -> None:
    """It is committed, on both databases, and nothing is left of it."""
    ledger = Ledger.open(database.url, vault=vault, contracts={})
    ledger.write_now(_beat("kept"))
    ledger.write_now(_beat(PROBE))
    assert [row["duty"] for row in ledger.read_now(heartbeats)] == ["kept"]
    ledger.close()


def test_refused_writes_are_told_once_a_minute_and_their_end_too(tmp_path: Path, vault: Vault) -> None:
    """A full disk (here: no page more) is trouble until a write succeeds again; the log has one line of each (B165)."""
    ledger = Ledger.open(f"sqlite:///{tmp_path}/gateway.db", vault=vault, contracts={})
    ledger.start()
    ledger.write_now(_beat("a"))
    with capture_logs() as logs:
        for step in range(2):
            connection = ledger._writer.commits.connection
            assert connection is not None
            driver: Any = connection.connection.driver_connection
            driver.execute(f"PRAGMA max_page_count={driver.execute('PRAGMA page_count').fetchone()[0]}")
            tickets = [ledger._writer.submit(_beat(f"{step} {number:0400d}")) for number in range(200)]
            assert any(isinstance(ticket.exception(30), LedgerUnavailableError) for ticket in tickets)
            assert "full" in ledger.trouble()
            if step == 0:
                ledger._writer.commits.connection = ledger.engines.write.connect()  # the refused one was hung up
    refused = [entry for entry in logs if entry["event"] == "ledger.writes_refused"]
    assert len(refused) == 1
    assert str(tmp_path) in refused[0]["fault"]
    with capture_logs() as logs:
        ledger.write_now(_beat(PROBE))
    assert [entry["event"] for entry in logs] == ["ledger.writes_taken_again"]
    assert ledger.trouble() == ""
    ledger.close()

"""A backup is of one moment while others write, and comes back whole, on both databases (MISSION H5)."""

import hashlib
import resource
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa

from cli.backup import bring_back, make
from cli.failure import CommandError
from ledger import queries
from ledger.engine import open_engines
from ledger.errors import ConfigurationError, LedgerError
from ledger.ledger import Ledger
from ledger.migrate import migrate
from ledger.vault import Vault
from schemas.commands import Register
from tests.conformance.conftest import Database
from tests.conformance.filled import FILE, fill
from tests.conformance.house import NOW, REPORTS, Record, intent


def home(ledger: Ledger, folder: Path) -> Any:
    """Return what the backup asks of a house."""
    (folder / "artifacts").mkdir(exist_ok=True)
    return SimpleNamespace(
        ledger=ledger, settings=SimpleNamespace(artifact_dir=str(folder / "artifacts")), world=SimpleNamespace(now=lambda: NOW)
    )


def opened(database: Database, vault: Vault) -> Ledger:
    return Ledger.open(database.url, vault=vault, contracts={"reports": REPORTS}, migrate=False)


def test_a_backup_without_room_says_so_and_leaves_nothing(database: Database, vault: Vault, tmp_path: Path) -> None:
    """B165: a disk that fills up under the copy is named with the cure, and what was written of it is given back."""
    ledger = opened(database, vault)
    fill(Record(ledger.engines, vault))
    house = home(ledger, tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, hard))  # no file may grow beyond: as full as a disk gets in a test
    try:
        with pytest.raises((CommandError, LedgerError), match=r"copy.* cannot be (made|written): .*"):
            make(house, tmp_path / "copy", lambda _count: None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.glob("copy*"))
    ledger.close()


def test_a_restore_that_is_cut_may_be_run_again(database: Database, empty_database: Database, vault: Vault, tmp_path: Path) -> None:
    """H5: the results come before the record, so that what failed between them left an empty database, which the next run takes."""
    ledger = opened(database, vault)
    fill(Record(ledger.engines, vault))
    house = home(ledger, tmp_path)
    (tmp_path / "artifacts" / FILE.key).write_bytes(b"a,b")
    ledger.write_now(Register(intent=intent(100), now=NOW))
    with ledger.engines.begin() as connection:
        connection.execute(sa.text("UPDATE artifacts SET sha256 = :digest"), {"digest": hashlib.sha256(b"a,b").hexdigest()})
    make(house, tmp_path / "copy", lambda _count: None)
    ledger.close()
    blocked = tmp_path / "back" / FILE.key
    blocked.mkdir(parents=True)  # no file can be written there
    with pytest.raises(OSError, match=r"directory"):
        bring_back(empty_database.url, str(tmp_path / "back"), tmp_path / "copy", lambda _count: None)
    blocked.rmdir()
    empty = open_engines(empty_database.url)
    migrate(empty)  # as one that was killed between tables and rows leaves it
    empty.close()
    bring_back(empty_database.url, str(tmp_path / "back"), tmp_path / "copy", lambda _count: None)
    assert blocked.read_bytes() == b"a,b"


def test_a_backup_comes_back(database: Database, empty_database: Database, vault: Vault, tmp_path: Path) -> None:
    """Taken while somebody writes, restored into an empty database: chain, fold and constraints hold, results are there, work goes on."""
    ledger = opened(database, vault)
    fill(Record(ledger.engines, vault))
    house = home(ledger, tmp_path)
    (tmp_path / "artifacts" / FILE.key).write_bytes(b"a,b")
    writing, stop = threading.Event(), threading.Event()

    def write() -> None:
        for number in range(100, 100_000):
            ledger.write_now(Register(intent=intent(number), now=NOW))
            writing.set()
            if stop.is_set():
                return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert writing.wait(30)
        manifest = make(house, tmp_path / "copy", lambda _count: None)
    finally:
        stop.set()
        writer.join(30)
    ledger.close()
    assert manifest["missing"] == [FILE.key]  # its digest on record is not that of these bytes
    bring_back(empty_database.url, str(tmp_path / "back"), tmp_path / "copy", lambda _count: None)
    again = Ledger.open(empty_database.url, vault=vault, contracts={"reports": REPORTS}, migrate=True)
    record = Record(again.engines, vault)
    assert record.faults() == []
    op = again.read_now(queries.operation, intent(1).id, None)
    assert op is not None
    assert (op.state, op.request) == ("succeeded", b'{"kind":"sales"}')
    record.register(intent(7))
    again.close()
    with pytest.raises(ConfigurationError, match="not empty"):
        bring_back(empty_database.url, str(tmp_path / "back"), tmp_path / "copy", lambda _count: None)


def test_a_cut_or_damaged_backup_is_none(database: Database, vault: Vault, tmp_path: Path) -> None:
    """A run that was cut leaves no folder of that name; a flipped byte, a missing manifest, another kind of database are refused."""
    ledger = opened(database, vault)
    fill(Record(ledger.engines, vault))
    house = home(ledger, tmp_path)

    def cut(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(house, tmp_path / "copy", cut)
    assert not (tmp_path / "copy").exists()
    make(house, tmp_path / "copy", lambda _count: None)
    with pytest.raises(CommandError, match="exists"):
        make(house, tmp_path / "copy", lambda _count: None)
    ledger.close()
    other = "postgresql://h/d" if database.kind == "sqlite" else f"sqlite:///{tmp_path}/x.db"
    with pytest.raises(CommandError, match="cannot be brought"):
        bring_back(other, str(tmp_path), tmp_path / "copy", lambda _count: None)
    data = tmp_path / "copy" / ("gateway.db" if database.kind == "sqlite" else "tables/operations")
    whole = data.read_bytes()
    data.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(CommandError, match="damaged"):
        bring_back(database.url, str(tmp_path), tmp_path / "copy", lambda _count: None)
    (tmp_path / "copy" / "manifest.json").unlink()
    with pytest.raises(CommandError, match="not a whole backup"):
        bring_back(database.url, str(tmp_path), tmp_path / "copy", lambda _count: None)

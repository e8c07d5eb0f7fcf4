"""The master key is changed while the record is used: everything is sealed anew, nothing is lost, on both databases (MISSION H4, H5)."""

from pathlib import Path

import pytest
import sqlalchemy as sa

from cli.rotation import forget, rotate, sweep
from ledger import queries
from ledger.engine import Engines
from ledger.errors import LedgerUnavailableError, VaultError, WrongKeyError
from ledger.keyfile import add_key, load_keys, load_or_create_keys
from ledger.ledger import Ledger
from ledger.rewrap import SEALED
from ledger.schema import metadata
from ledger.tables import canaries, deliveries, operations
from ledger.vault import Vault
from schemas.commands import Ingest, Register
from schemas.upkeep import Rewrap, Switch
from tests.conformance.conftest import Database
from tests.conformance.house import NOW, REPORTS, delivery, intent

PLAIN = {  # bytes that are not sealed
    "operations": {"approval_by", "expect", "history_hash", "result_facts"},
    "history": {"changes", "text_hash", "prev_hash", "hash"},
    "history_texts": {"salt"},
    "api_keys": {"key_sha256"},
    "canaries": {"sealed"},  # sealed anew by the switch itself
    "tombstones": {"history_hash"},
    "signing_keys": {"public"},
    "checkpoints": {"heads", "previous", "digest", "public", "signature"},
    "checkpoint_heads": {"hash"},
}


def test_every_sealed_column_is_sealed_anew() -> None:
    """Every column of bytes is either known to be plain or goes through a rotation."""
    for name, table in metadata.tables.items():
        binary = {column.name for column in table.columns if isinstance(column.type, sa.LargeBinary)}
        assert binary == PLAIN.get(name, set()) | set(SEALED.get(name, ())), name


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    load_or_create_keys(tmp_path / "master.key")
    return tmp_path / "master.key"


def opened(database: Database, key_file: Path) -> Ledger:
    """Open the record as a process does that has this key file."""
    vault = Vault(*load_keys(key_file), reload=lambda: load_keys(key_file))
    return Ledger.open(database.url, vault=vault, contracts={"reports": REPORTS}, migrate=False)


def filled(ledger: Ledger, *numbers: int) -> None:
    for number in numbers:
        ledger.write_now(Register(intent=intent(number), now=NOW))
        ledger.write_now(Ingest(delivery=delivery(number, f"job-{number}"), now=NOW))


def request_of(ledger: Ledger, number: int) -> bytes | None:
    found = ledger.read_now(queries.operation, intent(number).id, None)
    assert found is not None
    return found.request


def test_the_key_is_changed_while_others_serve(database: Database, key_file: Path) -> None:
    """A process that began with the old key follows, reads what the new one sealed, and the old key can go (H4)."""
    serving = opened(database, key_file)
    old = serving.vault.key_id
    filled(serving, 1, 2)
    add_key(key_file)
    rotating = opened(database, key_file)
    done = rotate(rotating, lambda _count: None, settled=0.0)
    assert done.key_id != old
    assert done.unopened == ()
    assert done.sealed >= 6  # request and metadata of two operations, body of two deliveries
    assert request_of(serving, 1) == b'{"kind":"sales"}'  # its key file is read anew
    serving._writer.commits.followed_at = float("-inf")
    filled(serving, 3)
    assert serving.vault.key_id == done.key_id
    assert sweep(rotating, lambda _count: None).sealed == 0

    class Home:
        ledger = rotating

        class settings:  # noqa: N801 - stands where a house has its settings
            pass

    Home.settings.key_file = str(key_file)  # type: ignore[attr-defined] # the one setting that is asked for
    forget(Home, lambda _count: None)  # type: ignore[arg-type] # only these two are used
    assert len(load_keys(key_file)) == 1
    serving.close()
    rotating.close()
    again = opened(database, key_file)
    assert [request_of(again, number) for number in (1, 2, 3)] == [b'{"kind":"sales"}'] * 3
    again.close()


def test_a_killed_rotation_goes_on(database: Database, key_file: Path, engines: Engines) -> None:
    """After any committed window both keys serve; the next run seals only what is left (H5)."""
    ledger = opened(database, key_file)
    filled(ledger, *range(1, 6))
    add_key(key_file)
    ledger.close()
    rotating = opened(database, key_file)
    rotating.write_now(Switch())
    assert rotating.write_now(Rewrap(place="operations", limit=2)).sealed == 4
    rotating.close()
    again = opened(database, key_file)
    filled(again, 6)
    assert request_of(again, 5) == b'{"kind":"sales"}'
    assert sweep(again, lambda _count: None).sealed == 6 + 5
    with engines.look() as connection:
        values = [
            *connection.execute(sa.select(operations.c.request)).scalars(),
            *connection.execute(sa.select(deliveries.c.body)).scalars(),
        ]
    assert {value[:5] for value in values} == {again.vault.head}
    again.close()


def test_a_host_without_the_new_key_is_told(database: Database, key_file: Path, tmp_path: Path) -> None:
    """A host whose key file was not copied refuses to write, and to start, naming the key that it lacks; with the key it goes on (H4)."""
    other_file = tmp_path / "other.key"
    other_file.write_bytes(key_file.read_bytes())
    other_file.chmod(0o600)
    other = opened(database, other_file)
    filled(other, 1)
    add_key(key_file)
    rotating = opened(database, key_file)
    rotating.write_now(Switch())
    sweep(rotating, lambda _count: None)
    other._writer.commits.followed_at = float("-inf")
    with pytest.raises(LedgerUnavailableError, match=rotating.vault.key_id):
        filled(other, 2)
    with pytest.raises(VaultError, match=f"{rotating.vault.key_id}, which key_file does not hold"):
        request_of(other, 1)
    with pytest.raises(WrongKeyError, match=rotating.vault.key_id):
        opened(database, other_file)
    other_file.write_bytes(key_file.read_bytes())
    other.vault._reloaded_at = float("-inf")
    filled(other, 2)
    assert request_of(other, 1) == b'{"kind":"sales"}'
    other.close()
    rotating.close()


def test_what_was_sealed_before_key_ids_opens(database: Database, key_file: Path, engines: Engines) -> None:
    """Values and canary of the first form, which name no key, open with whichever key fits, and are sealed anew like the others."""
    ledger = opened(database, key_file)
    filled(ledger, 1)
    vault = ledger.vault
    with engines.begin() as connection:
        for table, column in ((operations, "request"), (canaries, "sealed")):
            value = connection.execute(sa.select(table.c[column])).scalar_one()
            connection.execute(sa.update(table).values({column: b"\x01" + value[5:]}))
    ledger.close()
    add_key(key_file)
    again = opened(database, key_file)
    assert again.vault.key_id == vault.key_id  # the canary says which key seals, not the order of the file
    assert request_of(again, 1) == b'{"kind":"sales"}'
    rotate(again, lambda _count: None, settled=0.0)
    assert again.vault.key_id != vault.key_id
    with engines.look() as connection:
        assert connection.execute(sa.select(operations.c.request)).scalar_one().startswith(again.vault.head)
    again.close()


def test_what_does_not_open_is_named_and_keeps_the_keys(database: Database, key_file: Path, engines: Engines) -> None:
    """A value that was moved to another row is named, left as it is, and stands in the way of forgetting the old key."""
    ledger = opened(database, key_file)
    filled(ledger, 1, 2)
    with engines.begin() as connection:
        moved = connection.execute(sa.select(operations.c.request).where(operations.c.id == intent(1).id)).scalar_one()
        connection.execute(sa.update(operations).where(operations.c.id == intent(2).id).values(request=moved))
    add_key(key_file)
    ledger.close()
    again = opened(database, key_file)
    done = rotate(again, lambda _count: None, settled=0.0)
    assert done.unopened == (f"operations.request of {intent(2).id}",)
    with pytest.raises(VaultError, match="moved"):
        request_of(again, 2)
    again.close()

"""What is sealed opens only in its place and with its key, and nothing ever shows a secret."""

import contextlib
import os
import stat
import threading
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from cli.configuration import load
from cli.diagnosis import diagnose
from cli.world import RealWorld
from ledger.engine import Engines, open_engines
from ledger.errors import ConfigurationError, SecretMissingError, VaultError, WrongKeyError
from ledger.keyfile import load_or_create_keys
from ledger.ledger import Ledger
from ledger.tables import canaries
from ledger.vault import Vault, is_sealed, resolve
from schemas.commands import Register
from tests.conformance.conftest import Database
from tests.conformance.house import NOW, REPORTS, intent

KEY = bytes(range(32))
PLAIN = b"the secret content"


@given(plain=st.binary(max_size=5000), row=st.text(max_size=50))
def test_what_is_sealed_opens_in_its_place(plain: bytes, row: str) -> None:
    """Sealing is undone by unsealing, for any content and any row."""
    row = row.encode("utf-8", "ignore").decode()
    vault = Vault(KEY)
    sealed = vault.seal("operations", "request", row, plain)
    assert vault.unseal("operations", "request", row, sealed) == plain
    assert Vault(KEY).unseal("operations", "request", row, sealed) == plain
    assert len(sealed) == 1 + 4 + 12 + len(plain) + 16


@pytest.mark.parametrize(
    "place",
    [
        ("deliveries", "request", "op_1"),  # another table
        ("operations", "metadata", "op_1"),  # another column
        ("operations", "request", "op_2"),  # another row
        ("operations", "requestop_", "1"),  # the same letters, cut elsewhere
    ],
)
def test_a_moved_value_does_not_open(place: tuple[str, str, str]) -> None:
    """A value copied to another table, column or row is refused, by an error that names only the place."""
    sealed = Vault(KEY).seal("operations", "request", "op_1", PLAIN)
    with pytest.raises(VaultError) as refused:
        Vault(KEY).unseal(*place, sealed)
    assert place[2] in str(refused.value)
    assert "secret" not in str(refused.value)
    assert refused.value.__cause__ is None


@given(position=st.integers(min_value=0, max_value=50), bit=st.integers(min_value=0, max_value=7))
def test_an_altered_value_does_not_open(position: int, bit: int) -> None:
    """Whichever bit of version, nonce, content or tag is turned, the value is refused."""
    sealed = bytearray(Vault(KEY).seal("operations", "request", "op_1", PLAIN))
    sealed[position] ^= 1 << bit
    with pytest.raises(VaultError):
        Vault(KEY).unseal("operations", "request", "op_1", bytes(sealed))


@given(st.binary(max_size=60))
def test_garbage_does_not_open(garbage: bytes) -> None:
    """Any bytes are refused by the same kind of error."""
    with pytest.raises(VaultError):
        Vault(KEY).unseal("operations", "request", "op_1", garbage)


def test_two_seals_of_one_value_differ() -> None:
    """Every seal has its own nonce."""
    assert Vault(KEY).seal("t", "c", "r", PLAIN) != Vault(KEY).seal("t", "c", "r", PLAIN)


def test_the_vault_does_not_show_its_key() -> None:
    """Neither repr nor the error of a wrong length has the key."""
    assert KEY.hex() not in repr(Vault(KEY))
    with pytest.raises(ConfigurationError, match="32 bytes"):
        Vault(b"short")


def test_another_key_is_refused_at_start(engines: Engines) -> None:
    """The canary row proves the master key on both databases, again and again, and refuses another one."""
    for _ in range(2):
        with engines.begin() as connection:
            Vault(KEY).prove(connection)
    with pytest.raises(WrongKeyError, match="key_file"), engines.begin() as connection:
        Vault(bytes(32)).prove(connection)


# --- the key file


def test_the_key_file_is_made_once(tmp_path: Path) -> None:
    """A missing file is made with mode 0600, and read back ever after."""
    place = tmp_path / "var" / "master.key"
    (key,) = load_or_create_keys(place)
    assert len(key) == 32
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert load_or_create_keys(str(place)) == (key,)
    assert [file.name for file in place.parent.iterdir()] == ["master.key"]


def test_processes_that_start_at_once_get_one_key(tmp_path: Path) -> None:
    """Whoever loses the race reads the winner's key, never half of one."""
    gate, keys = threading.Barrier(8), set()

    def start() -> None:
        gate.wait(10)
        keys.add(load_or_create_keys(tmp_path / "master.key"))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(keys) == 1


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o660])
def test_a_key_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    """The refusal says which command mends it."""
    place = tmp_path / "master.key"
    load_or_create_keys(place)
    place.chmod(mode)
    with pytest.raises(ConfigurationError, match=f"chmod 600 {place}"):
        load_or_create_keys(place)


@pytest.mark.parametrize("content", [b"", b"00" * 31, b"00" * 33, b"zz" * 32, b"\xff" * 64])
def test_a_file_that_is_no_key_is_refused(tmp_path: Path, content: bytes) -> None:
    """A cut or foreign file is neither used nor replaced."""
    place = tmp_path / "master.key"
    place.write_bytes(content)
    place.chmod(0o600)
    with pytest.raises(ConfigurationError, match="restore it from your backup"):
        load_or_create_keys(place)
    assert place.read_bytes() == content


def test_an_impossible_place_is_a_configuration_error(tmp_path: Path) -> None:
    """A key file below a file, or a folder in its place, names the place."""
    (tmp_path / "file").write_text("x")
    for place in (tmp_path / "file" / "master.key", tmp_path):
        with pytest.raises(ConfigurationError, match=str(place)):
            load_or_create_keys(place)


# --- references


def test_secrets_come_from_environment_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Surrounding white space (the newline of an editor) is not part of a secret."""
    monkeypatch.setenv("GATEWAY_TEST_SECRET", " whsec_abc \n")
    (tmp_path / "secret").write_bytes(b"\n sk_\xff1 \r\n")
    assert resolve("env:GATEWAY_TEST_SECRET") == b"whsec_abc"
    assert resolve(f"file:{tmp_path}/secret") == b"sk_\xff1"


@pytest.mark.parametrize(
    ("reference", "cure"),
    [
        ("env:GATEWAY_TEST_ABSENT", "export GATEWAY_TEST_ABSENT"),
        ("env:GATEWAY_TEST_BLANK", "put the secret there"),
        ("file:/nonexistent/secret", "create it"),
        ("file:/", "Is a directory"),
        ("file:/dev/zero", "larger than"),
        ("file:/dev/null", "put the secret there"),
        ("file:a\x00b", "NUL"),
        ("vault:stripe", "encrypted store"),
        ("env:", "env:NAME or file:PATH"),
        ("", "env:NAME or file:PATH"),
    ],
)
def test_a_missing_secret_names_its_cure(reference: str, cure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every reference that leads nowhere is a SecretMissingError that says what to do."""
    monkeypatch.setenv("GATEWAY_TEST_BLANK", " \n")
    with pytest.raises(SecretMissingError, match=cure):
        resolve(reference)


@pytest.mark.parametrize("pasted", ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "sk:live_123", "https://user:pw@host"])
def test_a_secret_pasted_as_its_reference_is_not_repeated(pasted: str) -> None:
    """The error does not carry on what may be the secret itself (D6)."""
    with pytest.raises(SecretMissingError) as refused:
        resolve(pasted)
    assert pasted not in str(refused.value)
    assert os.linesep not in str(refused.value)


def test_a_removed_canary_does_not_let_another_key_in(database: Database, vault: Vault) -> None:
    """H4: without its canary a database in use is proven by what is sealed in it: another key is refused, the right one mends it."""
    contracts = {"reports": REPORTS}
    with contextlib.closing(Ledger.open(database.url, vault=vault, contracts=contracts, migrate=False)) as ledger:
        ledger.write_now(Register(intent=intent(1), now=NOW))
        with ledger.engines.begin() as connection:
            connection.execute(sa.delete(canaries))
    with pytest.raises(WrongKeyError, match="lost its canary row"):
        Ledger.open(database.url, vault=Vault(bytes(32)), contracts=contracts, migrate=False)
    with (
        contextlib.closing(Ledger.open(database.url, vault=vault, contracts=contracts, migrate=False)) as ledger,
        ledger.engines.look() as view,
    ):
        assert is_sealed(view)


def test_a_sealed_database_is_known_without_its_key(database: Database, empty_database: Database, vault: Vault) -> None:
    """No tables, no canary, canary: only the last was sealed; on both databases."""

    def sealed(url: str) -> bool:
        engines = open_engines(url)
        with engines.look() as connection:
            found = is_sealed(connection)
        engines.close()
        return found

    assert not sealed(empty_database.url)
    assert not sealed(database.url)
    Ledger.open(database.url, vault=vault, contracts={}).close()
    assert sealed(database.url)


def test_a_lost_key_file_is_a_fault_on_both_databases(database: Database, empty_database: Database, vault: Vault, tmp_path: Path) -> None:
    """What a start would refuse `doctor` names before it, and a first start is none (H4)."""
    Ledger.open(database.url, vault=vault, contracts={}, migrate=False).close()
    for url, level in ((database.url, "fault"), (empty_database.url, "note")):
        found = load(file=None, environment={}, folder=tmp_path, options={"database_url": url})
        assert [finding.level for finding in diagnose(found, RealWorld()) if finding.about == "key file"] == [level]
    assert not (tmp_path / "var" / "master.key").exists()

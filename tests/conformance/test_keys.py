"""API keys and heartbeats."""

from dataclasses import replace

import pytest

from ledger.errors import LedgerError
from ledger.ledger import Ledger
from ledger.queries import api_key, api_keys, heartbeats
from schemas.commands import AddKey, ApiKey, Beat, RevokeKey

KEY = AddKey(id="key_1", key_sha256=b"\x00" * 32, owner="acme", subject="agent-7", scopes=("b", "a", "b"), now=5)


def test_a_key_is_found_by_its_hash_alone(ledger: Ledger) -> None:
    """What was stored comes back by the hash, scopes sorted and once; another hash finds nothing (G5)."""
    stored = ledger.write_now(KEY)
    assert stored == ApiKey(id="key_1", owner="acme", subject="agent-7", scopes=("a", "b"), created_at=5, revoked_at=None)
    assert ledger.read_now(api_key, b"\x00" * 32) == stored
    assert ledger.read_now(api_key, b"\x01" * 32) is None
    assert ledger.read_now(api_key, b"") is None


def test_a_revoked_key_fails_on_the_next_request(ledger: Ledger) -> None:
    """After the commit of the revocation the hash finds nothing; the list still shows the key and its first revocation."""
    ledger.write_now(KEY)
    assert ledger.write_now(RevokeKey(id="key_1", now=7))
    assert ledger.read_now(api_key, b"\x00" * 32) is None
    assert ledger.write_now(RevokeKey(id="key_1", now=9))
    assert [key.revoked_at for key in ledger.read_now(api_keys)] == [7]


def test_an_unknown_key_is_not_revoked(ledger: Ledger) -> None:
    """The answer says that there was nothing to revoke."""
    assert not ledger.write_now(RevokeKey(id="key_2", now=7))


@pytest.mark.parametrize("other", [replace(KEY, id="key_2"), replace(KEY, key_sha256=b"\x01" * 32)])
def test_ids_and_hashes_are_unique(ledger: Ledger, other: AddKey) -> None:
    """A second key with the same id or the same hash is refused and the first stays."""
    first = ledger.write_now(KEY)
    with pytest.raises(LedgerError):
        ledger.write_now(other)
    assert ledger.read_now(api_keys) == [first]


def test_a_hash_is_not_shown() -> None:
    """The repr of the command, which a log might have, is without the hash (D6)."""
    assert "key_sha256" not in repr(KEY)


def test_beats_are_counted(ledger: Ledger) -> None:
    """Runs and failures add up, the last good run stays known after a bad one, one row for a duty and process."""
    for now, ok in ((1, True), (2, False), (3, False)):
        ledger.write_now(Beat(duty="sweep", process="p1", now=now, ok=ok, counts={"orphans": now}, error="" if ok else "x\x00" * 1000))
    ledger.write_now(Beat(duty="sweep", process="p2", now=4, ok=True))
    first, second = ledger.read_now(heartbeats)
    assert (first["runs"], first["failures"], first["last_at"], first["last_ok_at"], first["counts"]) == (3, 2, 3, 1, {"orphans": 3})
    assert len(first["error"]) == 500
    assert (second["process"], second["runs"], second["failures"], second["error"]) == ("p2", 1, 0, "")


def test_beats_of_one_batch_are_folded(ledger: Ledger) -> None:
    """Several beats of one duty in one transaction count each, on PostgreSQL too, where a statement may not meet a row twice."""
    beats = [Beat(duty="d", process="p", now=now, ok=now != 2) for now in (1, 2, 3)]
    outcomes, _ = ledger._writer.perform([*beats])
    assert outcomes == [(None, None)] * 3
    (row,) = ledger.read_now(heartbeats)
    assert (row["runs"], row["failures"], row["last_at"], row["last_ok_at"]) == (3, 1, 3, 3)

"""`gateway keys`: shown once, stored as a hash, revoked at once."""

import hashlib
import re
from pathlib import Path

import pytest

from ledger import queries
from tests.cli.conftest import Command
from tests.cli.records import opened, register

CREATE = ("keys", "create", "--owner", "acme", "--subject", "agent-7")


def test_create_prints_the_key_alone_and_makes_what_is_missing(command: Command, tmp_path: Path) -> None:
    """On a fresh folder database and key file are made; stdout has the key and nothing else."""
    done = command(*CREATE, "--scope", "operations:create", "--scope", "operations:read")
    assert done.code == 0
    assert re.fullmatch(r"rgk_[0-9a-f]{32}_[A-Za-z0-9_-]{32}\n", done.out)
    assert done.err == ""
    with opened(tmp_path) as house:
        stored = house.ledger.read_now(queries.api_key, hashlib.sha256(done.out.strip().encode()).digest())
    assert stored is not None
    assert (stored.owner, stored.subject, stored.scopes) == ("acme", "agent-7", ("operations:create", "operations:read"))
    assert done.out.strip().encode() not in (tmp_path / "var" / "gateway.db").read_bytes()


def test_json_shows_what_was_made(command: Command) -> None:
    """`--json` gives id, key and scopes; `all` stands for every scope, commas separate."""
    made = command(*CREATE, "--scope", "all", "--json").json()
    assert made["id"].startswith("key_")
    assert made["key"].startswith("rgk_")
    assert "operations:decide" in made["scopes"]
    assert command(*CREATE, "--scope", "operations:read, operations:cancel", "--json").json()["scopes"] == [
        "operations:cancel",
        "operations:read",
    ]


def test_list_shows_no_key_and_revoke_ends_one(command: Command) -> None:
    """The list has ids, owners, scopes and times; a revoked key says when."""
    made = command(*CREATE, "--scope", "operations:read", "--json").json()
    done = command("keys", "list")
    assert made["id"] in done.out
    assert made["key"] not in done.out
    assert command("keys", "revoke", made["id"]).out == f"revoked {made['id']}\n"
    (row,) = command("keys", "list", "--json").json()
    assert row["revoked_at"] is not None
    assert row["owner"] == "acme"


def test_mistakes_name_the_cure(command: Command) -> None:
    """Unknown scopes name the nearest, missing options and ids say where to look."""
    done = command(*CREATE, "--scope", "operations:reed")
    assert done.code == 2
    assert "the nearest is operations:read" in done.err
    assert command("keys", "create", "--owner", "acme").code == 2
    assert command("keys", "create", "--owner", "a\nb", "--subject", "x", "--scope", "all").code == 2
    command(*CREATE, "--scope", "all")
    done = command("keys", "revoke", "key_0")
    assert (done.code, done.err) == (1, "gateway: there is no key key_0; see gateway keys list\n")


def test_a_pasted_key_is_not_repeated(command: Command) -> None:
    """Somebody who gives the key instead of its id does not find it in the error."""
    key = command(*CREATE, "--scope", "all").out.strip()
    done = command("keys", "revoke", key)
    assert done.code == 1
    assert key not in done.err


def test_the_master_key_is_rotated(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H4: prepare adds a key once, rotate seals anew, forget leaves only the new key; nobody sees a key."""
    monkeypatch.setattr("cli.rotation.SETTLED_SECONDS", 0.0)
    made = register(tmp_path)
    place = tmp_path / "var" / "master.key"
    old = place.read_text().strip()
    assert command("keys", "rotate-master", "--prepare", "--json").json()["added"] is True
    assert command("keys", "rotate-master", "--prepare", "--json").json()["added"] is False
    done = command("keys", "rotate-master")
    assert done.code == 0
    assert "forget-master" in done.out
    keys = place.read_text().split()
    assert keys[0] == old
    assert command("keys", "forget-master").code == 0
    assert place.read_text().split() == keys[1:]
    assert place.stat().st_mode & 0o077 == 0
    assert command("operations", "show", made).code == 0
    assert not any(key in done.out + done.err for key in keys)
    place.write_text(old)
    refused = command("operations", "show", made)
    assert refused.code == 2
    assert "key_file" in refused.err

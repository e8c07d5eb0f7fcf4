"""`gateway audit`, `database` and `doctor`: tampering, schema and misconfigurations are named with the row or the cure."""

import json
import sqlite3
from pathlib import Path

import pytest

from schemas.commands import Beat
from schemas.operation import SECOND
from tests.cli.conftest import Command
from tests.cli.records import WORLD, opened, register
from tests.cli.stage import CANARY, ROOT, SECRET, Stage

SECRETS = {"REPORTS_SECRET": SECRET, "REPORTS_TOKEN": CANARY}


def change(folder: Path, statement: str, *values: object) -> None:
    """Edit the database behind the house's back: whoever owns the file can take the triggers away first."""
    with sqlite3.connect(folder / "var" / "gateway.db") as connection:
        for (trigger,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {trigger}")
        assert connection.execute(statement, values).rowcount == 1
    connection.close()


# --- audit


def test_a_clean_record_verifies(command: Command, tmp_path: Path) -> None:
    """Every operation's chain and fold hold: exit 0 and the count."""
    register(tmp_path)
    register(tmp_path)
    assert command("audit", "verify").out == "2 operations verified, 0 faults, self-audit 0\n"
    assert command("audit", "verify", "--json").json() == {"operations": 2, "faults": [], "self_audit": {}}


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        ("UPDATE history SET code = 'forged' WHERE operation = ? AND seq = 2", "changed row"),
        ("DELETE FROM history WHERE operation = ? AND seq = 1", "missing row"),
        ("UPDATE operations SET cancel_by = 'nobody' WHERE id = ?", "the record's cancel_by is not what its history says"),
    ],
)
def test_tampering_is_found_with_its_row(command: Command, tmp_path: Path, statement: str, fault: str) -> None:
    """D5: an edited or removed row, or a record that differs from its history, is exit 1 and the exact place."""
    register(tmp_path)
    made = register(tmp_path)
    command("operations", "cancel", made, "--as", "ann")
    change(tmp_path, statement, made)
    done = command("audit", "verify")
    assert done.code == 1
    assert any(line.startswith(f"{made} row ") and fault in line for line in done.out.splitlines())
    found = command("audit", "verify", "--json", "--limit", "1")
    assert found.code == 1
    assert json.loads(found.out)["faults"][0]["operation"] == made


def test_the_self_audit_counts_too(command: Command, tmp_path: Path) -> None:
    """C2: an operation that has been due for long and nobody works on is a fault."""
    made = register(tmp_path)
    change(tmp_path, "UPDATE operations SET due_at = 1 WHERE id = ?", made)
    done = command("audit", "verify")
    assert done.code == 1
    assert "self-audit: active_overdue 1" in done.out


def test_an_export_is_signed_and_verifies(command: Command, tmp_path: Path) -> None:
    """D5: checkpoint and export print the key by which the file verifies without the database; a change in either is exit 1."""
    made = register(tmp_path)
    key = command("audit", "checkpoint", "--json").json()["public_key"]
    assert command("audit", "export", "history.jsonl").out.endswith(f"--public-key {key}\n")
    place = tmp_path / "history.jsonl"
    assert place.stat().st_mode & 0o077 == 0
    assert command("audit", "verify", "--file", str(place), "--public-key", key).out == "1 operations verified, 0 faults\n"
    assert command("audit", "verify", "--file", str(place), "--public-key", "00").code == 2
    place.write_text(place.read_text().replace('"cause":"request"', '"cause":"reading"'))
    found = command("audit", "verify", "--file", str(place), "--public-key", key, "--json")
    assert found.code == 1
    assert found.json()["faults"] == [{"operation": made, "seq": 1, "fault": "changed row"}]
    assert command("audit", "verify", "--public-key", key).code == 0


# --- backup


def test_a_backup_is_made_and_brought_back(command: Command, tmp_path: Path) -> None:
    """H5: the copy has the operation; it goes only into an empty database, and a damaged one goes nowhere."""
    made = register(tmp_path)
    assert command("database", "backup", "copy", "--json").json()["missing"] == []
    assert command("database", "backup", "copy").code == 1
    fresh = f"sqlite:///{tmp_path}/fresh.db"
    assert command("database", "restore", "copy", "--database-url", fresh).out.startswith("restored schema ")
    assert [row["id"] for row in command("operations", "list", "--json", "--database-url", fresh).json()] == [made]
    assert command("database", "check", "--database-url", fresh).out.endswith(": sound\n")
    assert command("database", "restore", "copy", "--database-url", fresh).code == 2
    change(tmp_path, "UPDATE operations SET due_at = 1, history_seq = 7 WHERE id = ?", made)
    found = command("database", "check", "--json")
    assert found.code == 1
    assert f"{made} row 1: history ends before the record's head" in found.json()["faults"]


# --- retention


def test_retention_removes_what_has_expired(command: Command, tmp_path: Path) -> None:
    """F6: what has expired goes at once, what has not stays, and a second run has nothing to do."""
    ended, young = register(tmp_path), register(tmp_path, idempotency_key="key-1")
    command("operations", "cancel", ended, "--as", "ann")
    (tmp_path / "gateway.toml").open("a").write("\n[retention]\nrecord_days = 0.0000001\n")
    done = command("retention", "run", "--json")
    assert done.err == ""
    found = done.json()
    assert found["operations"] == 1
    assert command("retention", "run").out == "nothing has expired\n"
    assert [row["id"] for row in command("operations", "list", "--json").json()] == [young]
    assert command("audit", "verify").out == "1 operations verified, 0 faults, self-audit 0\n"


# --- database


def test_migrate_makes_the_schema_once(command: Command, tmp_path: Path) -> None:
    """The first run migrates, the second has nothing to do; check finds it sound."""
    assert command("database", "migrate").out == "migrated\n"
    assert command("database", "migrate").out == "up to date\n"
    done = command("database", "check")
    assert done.code == 0
    assert done.out.startswith("SQLite 3.")
    assert done.out.endswith(": sound\n")
    assert (tmp_path / "var" / "gateway.db").stat().st_mode & 0o077 == 0


def test_a_schema_of_another_version_is_refused_with_the_cure(command: Command, tmp_path: Path) -> None:
    """A newer schema and an older one are usage errors that say what to do."""
    register(tmp_path)
    change(tmp_path, "UPDATE alembic_version SET version_num = 'ffff'")
    done = command("operations", "list")
    assert done.code == 2
    assert "newer version" in done.err
    change(tmp_path, "DELETE FROM alembic_version")
    done = command("operations", "list")
    assert done.code == 2
    assert "gateway database migrate" in done.err


def test_broken_references_and_missing_guards_are_faults(command: Command, tmp_path: Path) -> None:
    """Rows that point at nothing, and triggers that are gone, are listed: exit 1."""
    made = register(tmp_path)
    command("operations", "cancel", made)
    change(tmp_path, "DELETE FROM history WHERE operation = ? AND seq = 2", made)
    faults = command("database", "check", "--json").json()["faults"]
    assert sum("the guard history_keeps_" in fault for fault in faults) == 2
    assert any(fault.startswith("operations row ") and "missing row of history" in fault for fault in faults)
    assert command("database", "check").code == 1


# --- doctor


def findings(command: Command) -> dict[str, list[tuple[str, str, str]]]:
    found: dict[str, list[tuple[str, str, str]]] = {}
    for row in command("doctor", "--json").json():
        found.setdefault(row["about"], []).append((row["level"], row["found"], row["cure"]))
    return found


def test_a_fresh_folder_has_notes_and_no_faults(command: Command, tmp_path: Path) -> None:
    """Before the first start nothing is wrong, and nothing is made by looking."""
    done = command("doctor")
    assert done.code == 0
    assert "does not exist" in done.out
    assert not (tmp_path / "var").exists()
    assert all(level != "fault" for rows in findings(command).values() for level, _, _ in rows)


def test_the_scheduler_is_read_back(command: Command) -> None:
    """B102: what the scheduler honours is read back from it, not from the settings."""
    ((level, found, _),) = findings(command)["scheduler"]
    assert level == "ok"
    assert found.startswith("late ticks are made up for, once, and no duty runs twice at a time")
    assert "coalesce True, max_instances 1, misfire_grace_seconds None" in found


def test_missing_and_malformed_secrets_name_the_cure(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret that is not set, one of the wrong form, and a missing credential are faults; no value is shown."""
    monkeypatch.delenv("REPORTS_TOKEN")
    monkeypatch.setenv("REPORTS_SECRET", "whsec_short")
    done = command("doctor")
    assert done.code == 1
    rows = findings(command)["provider reports"]
    assert any("env:REPORTS_SECRET" in found for _, found, _ in rows)
    assert any("export REPORTS_TOKEN" in found for _, found, _ in rows)
    assert "whsec_short" not in done.out
    monkeypatch.delenv("REPORTS_SECRET")
    assert any("export REPORTS_SECRET" in found for _, found, _ in findings(command)["provider reports"])


def test_live_operations_of_a_removed_provider_are_a_fault(command: Command, tmp_path: Path) -> None:
    """Nobody reads them any more: the provider must come back, or they must end."""
    register(tmp_path)
    (tmp_path / "gateway.toml").write_text("")
    rows = findings(command)["provider reports"]
    assert rows[0][0] == "fault"
    assert "[providers.reports]" in rows[0][2]


def test_a_key_file_that_others_may_read_is_a_fault(command: Command, tmp_path: Path) -> None:
    """The master key opens everything that was sealed: 0600 or nothing."""
    register(tmp_path)
    (tmp_path / "var" / "master.key").chmod(0o644)
    level, found, cure = findings(command)["key file"][0]
    assert level == "fault"
    assert "0644" in found
    assert cure.startswith("chmod 600 ")


def test_a_lost_key_file_is_named_and_none_is_made(command: Command, tmp_path: Path) -> None:
    """Whatever opens a sealed database without its key refuses, and leaves the place as it is: a new key would open nothing."""
    register(tmp_path)
    key = tmp_path / "var" / "master.key"
    held = key.read_bytes()
    key.unlink()
    for words in (["keys", "create", "--owner", "a", "--subject", "b", "--scope", "all"], ["operations", "list"], ["serve", "--port", "0"]):
        done = command(*words) if words[0] != "serve" else Stage(folder=tmp_path, environment=SECRETS).run(*words)
        assert done.code == 2
        assert f"the key file {key} " in done.err
        assert "restore it from your backup" in done.err
        assert not key.exists()
    assert findings(command)["key file"][0][0] == "fault"
    assert not key.exists()
    key.write_bytes(b"garbage\n")
    key.chmod(0o600)
    assert "does not hold a key" in findings(command)["key file"][0][1]
    key.write_bytes(held)
    assert findings(command)["key file"][0][0] == "ok"


def test_an_unreachable_database_names_the_setting_and_no_password(command: Command) -> None:
    """Where the address came from stands in the error: an option, a variable, or the file."""
    url = "postgresql://user:PASSWORD@127.0.0.1:1/db"
    done = command("operations", "list", "--database-url", url)
    assert done.code == 1
    assert "127.0.0.1:1/db is not available: nobody listens there" in done.err
    assert "(the address comes from --database-url)" in done.err
    assert "PASSWORD" not in done.err


def test_another_key_is_a_fault(command: Command, tmp_path: Path) -> None:
    """A database is proven against its key before anything else is done with it."""
    register(tmp_path)
    (tmp_path / "var" / "master.key").write_text("00" * 32 + "\n")
    rows = findings(command)["database"]
    assert any(level == "fault" and "not the one" in found for level, found, _ in rows)


def test_the_reconciler_is_known_by_its_heartbeats(command: Command, tmp_path: Path) -> None:
    """Never, lately, failing, long ago, and from a clock that is ahead: five different findings."""

    def beat(at: int, error: str = "") -> None:
        with opened(tmp_path) as house:
            house.ledger.write_now(Beat(duty="sweep", process="p", now=at, ok=not error, error=error))

    register(tmp_path)
    assert findings(command)["reconciler"][0][1] == "has never run"
    beat(WORLD.now() - 600 * SECOND)
    assert "ran last 60" in findings(command)["reconciler"][0][1]
    beat(WORLD.now())
    assert findings(command)["reconciler"][0][0] == "ok"
    beat(WORLD.now(), "TimeoutError")
    assert findings(command)["duty sweep"][0][0] == "fault"
    beat(WORLD.now() + 60 * SECOND)
    assert findings(command)["clock"][0][0] == "fault"


def test_several_owners_without_owners_of_a_provider_are_warned_of(command: Command) -> None:
    """With a second owner every account should say whose it is."""
    for owner in ("acme", "other"):
        command("keys", "create", "--owner", owner, "--subject", "x", "--scope", "all")
    assert any(level == "warning" and "owners may use it" in found for level, found, _ in findings(command)["provider reports"])


def test_an_address_that_providers_cannot_reach_is_warned_of(command: Command, tmp_path: Path) -> None:
    """A provider elsewhere cannot call 127.0.0.1, and plain http is not private."""
    text = (tmp_path / "gateway.toml").read_text().replace("http://127.0.0.1:9", "https://api.example.com")
    (tmp_path / "gateway.toml").write_text(text)
    assert findings(command)["public_url"][0][0] == "warning"
    (tmp_path / "gateway.toml").write_text('public_url = "http://hooks.example.com"\n' + text)
    assert findings(command)["public_url"][0][0] == "warning"
    (tmp_path / "gateway.toml").write_text('public_url = "https://hooks.example.com"\n' + text)
    assert findings(command)["public_url"][0][0] == "ok"


def test_doctor_warns_of_secrets_that_others_can_read(command: Command, tmp_path: Path) -> None:
    """A `file:` secret or credential with any bit for others is told with its cure; one that is its owner's alone is not."""
    register(tmp_path)
    config = tmp_path / "gateway.toml"
    config.write_text(config.read_text().replace('secrets = ["env:REPORTS_SECRET"]', 'secrets = ["file:reports.secret"]'))
    secret = tmp_path / "reports.secret"
    secret.write_text(SECRET)
    for mode, wrong in ((0o640, True), (0o604, True), (0o600, False)):
        secret.chmod(mode)
        told = [row for row in command("doctor", "--json").json() if "may be used by others" in row["found"]]
        assert [(row["level"], row["about"], row["cure"]) for row in told] == [
            ("warning", "provider reports", f"chmod 600 {secret}")
        ] * wrong


# --- providers and contracts


def test_providers_are_listed_shown_and_checked(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accounts with contract, origin and endpoint; the secrets' state, never the secrets."""
    (row,) = command("providers", "list", "--json").json()
    assert (row["name"], row["origin"], row["endpoint"]) == ("reports", "http://127.0.0.1:9", "http://127.0.0.1:8080/webhooks/reports")
    assert "reports" in command("providers", "list").out
    register(tmp_path)
    shown = command("providers", "show", "reports", "--json").json()
    (secret,) = shown["secrets"]
    assert (secret["id"], secret["state"], secret["last_used_at"]) == ("env:REPORTS_SECRET", "usable", None)
    assert shown["last_delivery"] is None
    assert "env:REPORTS_SECRET (usable, never used)" in command("providers", "show", "reports").out
    assert command("providers", "show", "nope").code == 2
    assert command("providers", "check").out == "reports: ok\n"
    monkeypatch.delenv("REPORTS_SECRET")
    done = command("providers", "check", "reports")
    assert done.code == 1
    assert "env:REPORTS_SECRET is not set" in done.out
    assert command("providers", "check", "nope").code == 2


def test_a_circuit_that_is_open_is_shown(command: Command, tmp_path: Path) -> None:
    """C3: what a running reconciler tells of an account stands in `providers show` and `doctor`; a silent one is not believed."""
    register(tmp_path)
    counts = {"reports.open": 40, "reports.failures": 12, "runs": 3}
    for process, age in (("host:1", 0), ("host:2", 3_600)):
        with opened(tmp_path) as house:
            now = house.world.now() - age * SECOND
            house.ledger.write_now(Beat(duty="pace", process=process, now=now, ok=True, counts=counts))
    (pause,) = command("providers", "show", "reports", "--json").json()["pauses"]
    assert (pause["process"], pause["state"], pause["failures"]) == ("host:1", "open", 12)
    assert 0 <= pause["paused_seconds"] <= 40
    assert "host:1: open, called again in" in command("providers", "show", "reports").out
    warned = [row for row in command("doctor", "--json").json() if row["level"] == "warning" and row["about"] == "provider reports"]
    assert len([row for row in warned if "12 calls in a row failed" in row["found"] and row["cure"]]) == 1


def test_contracts_are_listed_and_shown(command: Command) -> None:
    """The shipped ones by name, with their file; a wrong name says which is near."""
    names = [row["name"] for row in command("contracts", "list", "--json").json()]
    assert {"stripe", "github", "standard-webhooks"} <= set(names)
    assert "stripe" in command("contracts", "list").out
    assert command("contracts", "show", "stripe").out == (ROOT / "providers" / "contracts" / "stripe.toml").read_text()
    assert command("contracts", "show", "stripe", "--json").json()["name"] == "stripe"
    done = command("contracts", "show", "strip")
    assert done.code == 2
    assert "the nearest shipped one is stripe" in done.err
    assert "no shipped contract has this name; see gateway contracts list" in command("contracts", "show", "qqqqqqqq").err


def test_every_shipped_contract_passes_its_check(command: Command) -> None:
    """`contracts check` runs the file's own samples."""
    names = [row["name"] for row in command("contracts", "list", "--json").json()]
    assert command("contracts", "check", *names).code == 0


def test_faults_of_a_contract_come_with_their_lines(command: Command, tmp_path: Path) -> None:
    """All faults of all files at once; a sample that is judged otherwise is one too."""
    good = (tmp_path / "reports.toml").read_text()
    (tmp_path / "bad.toml").write_text(good.replace("[status]", "[staus]").replace('primitive = "hmac"', 'primitive = "hmack"'))
    (tmp_path / "wrong.toml").write_text(good.replace('expect = "invalid"', 'expect = "valid"'))
    done = command("contracts", "check", "./bad.toml", "./reports.toml", "./wrong.toml", "./none.toml")
    assert done.code == 1
    lines = done.out.splitlines()
    assert "./reports.toml: ok (reports, 1 sample)" in lines
    assert sum(line.startswith("./bad.toml:") for line in lines) >= 2
    line = (tmp_path / "wrong.toml").read_text().partition('name = "tampered"')[0].count("\n")  # of its [[samples]], just above
    assert any(text.startswith(f"./wrong.toml:{line}: sample tampered: expected valid") for text in lines)
    assert "./none.toml: No such file or directory" in lines
    assert len(command("contracts", "check", "./bad.toml", "--json").json()[0]["faults"]) >= 2


def test_what_is_no_toml_is_told_with_file_and_line(command: Command, tmp_path: Path) -> None:
    """A syntax fault and a wrong encoding begin with FILE:LINE, as every other fault of a contract does."""
    (tmp_path / "broken.toml").write_text('name = "broken"\n[signature]\n= 3\n')
    (tmp_path / "latin.toml").write_bytes(b'name = "latin"\ntitle = "\xff"\n')
    done = command("contracts", "check", "./broken.toml", "./latin.toml")
    assert done.code == 1
    syntax, encoding = done.out.splitlines()
    assert syntax.startswith("./broken.toml:3: is not TOML: ")
    assert encoding.startswith("./latin.toml:2: is not UTF-8")


def test_what_a_contract_leaves_out_is_noted(command: Command, tmp_path: Path) -> None:
    """An empty file is no contract; one that is only polled is one, with notes about what it cannot do and how much was proven."""
    (tmp_path / "empty.toml").write_text("")
    assert command("contracts", "check", "./empty.toml").code == 1
    polled = '[status]\npath = "/jobs/{remote_job_id}"\nstate = "body:state"\nreadings = { done = "succeeded" }\n'
    (tmp_path / "polled.toml").write_text(polled)
    done = command("contracts", "check", "./polled.toml")
    assert done.code == 0
    told = done.out.splitlines()
    assert told[0] == "./polled.toml: ok (polled, 0 samples)"
    assert [line.split(": ")[2][:10] for line in told[1:]] == ["no [signat", "no [create", "no [[sampl"]
    assert "receive-only" in command("contracts", "check", "shopify").out


def test_sample_answers_are_judged_too(command: Command, tmp_path: Path) -> None:
    """An answer that means something else than its sample says is a fault, and so is a sample that is neither answer nor delivery."""
    sample = '\n[[samples]]\nname = "ended"\nkind = "status"\nstatus = 200\nbody = \'{"id":"rep_1","status":"succeeded"}\'\njob = "rep_1"\n'
    good = (tmp_path / "reports.toml").read_text()
    for more, fault in (
        ('reading = "succeeded"', ""),
        ('reading = "failed"', "expected reading 'failed', but found 'succeeded'"),
        ('evidence = "read_failed"', "expected the evidence read_failed, but it is read"),
        ('readng = "failed"', "did you mean reading?"),
        ('reading = "ended"', "use one of queued"),
        ('expect = "valid"', "no key of a sample answer"),
    ):
        (tmp_path / "mine.toml").write_text(good + sample + more)
        done = command("contracts", "check", "./mine.toml")
        assert done.code == (1 if fault else 0), done.out
        assert fault in done.out
    (tmp_path / "mine.toml").write_text(good + '\n[[samples]]\nname = "neither"\nurl = "http://localhost/"\n')
    assert "needs expect" in command("contracts", "check", "./mine.toml").out


def test_a_contract_with_faults_stops_the_configuration(command: Command, tmp_path: Path) -> None:
    """A configured contract that does not load is a usage error naming provider, file and line."""
    (tmp_path / "reports.toml").write_text("name = 3\nx = 1\n")
    done = command("providers", "check")
    assert done.code == 2
    assert "providers.reports: contract ./reports.toml: line 2: x: " in done.err


def test_doctor_names_what_an_account_that_only_receives_lacks(command: Command, tmp_path: Path) -> None:
    """Receiving alone is no fault; the note says what would make calls possible."""
    (tmp_path / "gateway.toml").write_text('[providers.github]\ncontract = "github"\nsecrets = ["env:REPORTS_SECRET"]\n', encoding="utf-8")
    (note,) = [row for row in command("doctor", "--json").json() if row["level"] == "note" and row["about"] == "provider github"]
    assert note["found"] == "deliveries are received, operations refused"
    assert "owner, repo in [providers.github.params]" in note["cure"]

"""`gateway secrets`: values come in by stdin or a file and never go out; picked up and revoked while processes run (B11)."""

import base64
import hashlib
import hmac
import json
from pathlib import Path

import httpx
import pytest

from cli.material import Material, Stored, credential
from ledger.errors import SecretMissingError
from ledger.secrets import stored_secrets
from schemas.commands import Ingest
from schemas.delivery import Delivery, Event
from schemas.operation import SECOND
from tests.cli.callers import until
from tests.cli.conftest import Command
from tests.cli.records import WORLD, opened
from tests.cli.stage import CANARY, reports

NEW = "whsec_" + base64.b64encode(b"another-secret-of-24-bytes-x").decode()


@pytest.fixture
def value(tmp_path: Path) -> str:
    """Give the path of a file with a secret."""
    place = tmp_path / "new.secret"
    place.write_text(NEW + "\n")
    return str(place)


def test_a_secret_goes_in_and_never_out(command: Command, tmp_path: Path, value: str) -> None:
    """Sealed in the record, without its white space; neither list, show nor any message has it (B142)."""
    done = command("secrets", "add", "reports-2", "--provider", "reports", "--file", value, "--as", "ada")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("stored reports-2 (sec_")
    with opened(tmp_path) as house:
        (stored,) = house.ledger.read_now(stored_secrets)
    assert (stored.value, stored.created_by, stored.purpose) == (NEW.encode(), "operator:ada", "webhook")
    listed = command("secrets", "list")
    shown = command("providers", "show", "reports")
    for text in (listed.out, shown.out, command("secrets", "list", "--json").out, command("providers", "check").out):
        assert NEW not in text
    assert "reports-2" in listed.out
    assert "reports-2 (usable, never used)" in shown.out
    assert NEW.encode() not in (tmp_path / "var" / "gateway.db").read_bytes()


def test_mistakes_name_the_cure(command: Command, tmp_path: Path, value: str) -> None:
    """Unknown providers, purposes, names, times, malformed and empty values: exit 2; a taken or unknown name: exit 1."""
    add = ("secrets", "add")
    empty = tmp_path / "empty"
    empty.write_text(" \n")
    short = tmp_path / "short"
    short.write_text("whsec_" + base64.b64encode(b"short").decode())
    wrong = [
        (*add, "a", "--provider", "nope", "--file", value),
        (*add, "a", "--provider", "reports", "--purpose", "other", "--file", value),
        (*add, "a b", "--provider", "reports", "--file", value),
        (*add, "a", "--provider", "reports", "--file", str(empty)),
        (*add, "a", "--provider", "reports", "--file", str(short)),
        (*add, "a", "--provider", "reports", "--file", value, "--not-before", "tomorrow"),
        (*add, "a", "--provider", "reports", "--file", value, "--not-before", "2027-01-01T00:00:00"),
        (
            *add,
            "a",
            "--provider",
            "reports",
            "--file",
            value,
            "--not-before",
            "2027-01-02T00:00:00Z",
            "--not-after",
            "2027-01-01T00:00:00Z",
        ),
        ("secrets", "retire", "a", "--after", "soon"),
    ]
    assert [command(*arguments).code for arguments in wrong] == [2] * len(wrong)
    assert command(*add, "a", "--provider", "reports", "--file", value).code == 0
    again = command(*add, "a", "--provider", "reports", "--file", value)
    assert (again.code, "already" in again.err) == (1, True)
    assert command("secrets", "revoke", "b").err == "gateway: there is no secret b; see gateway secrets list\n"


def test_states_and_safe_to_retire(command: Command, tmp_path: Path, value: str) -> None:
    """B11: safe only where another one is usable and this one has not matched for longer than the provider repeats."""
    for name, more in (("old", ()), ("later", ("--not-before", "2999-01-01T00:00:00Z")), ("past", ("--not-after", "2020-01-01T00:00:00Z"))):
        assert command("secrets", "add", name, "--provider", "reports", "--file", value, *more).code == 0

    def rows() -> dict[str, dict[str, object]]:
        return {row["name"]: row for row in command("secrets", "list", "--json").json()}

    assert {name: row["state"] for name, row in rows().items()} == {
        "env:REPORTS_SECRET": "usable",
        "old": "usable",
        "later": "waiting",
        "past": "retired",
    }
    with opened(tmp_path) as house:
        (old,) = [secret for secret in house.ledger.read_now(stored_secrets) if secret.name == "old"]
        horizon = house.contracts["reports"].retry.horizon_seconds
        for number, age in enumerate((horizon + 60, 60)):
            _use(house.ledger, old.id, number, WORLD.now() - age * SECOND)
            safe = rows()["old"]["safe_to_retire"]
            assert safe == (age > horizon)
    assert rows()["old"]["uses"] == 2
    assert command("secrets", "retire", "old", "--after", "7d").out == "old ends in 7d\n"
    assert rows()["old"]["state"] == "ending"
    command("secrets", "revoke", "old")
    assert (rows()["old"]["state"], rows()["old"]["safe_to_retire"]) == ("revoked", False)


def _use(ledger: object, secret: str, number: int, at: int) -> None:
    event = Event(dedup_key=f"id:{number}", content_sha256="0" * 64)
    made = Delivery(id=f"dlv_{number:032d}", provider="reports", received_at=at, event=event, secret_id=secret, scheme_id="v1", body=b"{}")
    ledger.write_now(Ingest(delivery=made, now=at))  # type: ignore[attr-defined] # a ledger


def test_references_to_the_store(command: Command, tmp_path: Path, value: str) -> None:
    """vault:NAME is of its provider and purpose only; what is missing names the command that adds it (H4, B010)."""
    text = (tmp_path / "gateway.toml").read_text()
    (tmp_path / "gateway.toml").write_text(text.replace("env:REPORTS_TOKEN", "vault:token").replace("env:REPORTS_SECRET", "vault:hook"))
    done = command("providers", "check")
    assert done.code == 1
    assert "gateway secrets add token --provider reports --purpose credential" in done.out
    assert "gateway secrets add hook --provider reports" in done.out
    (tmp_path / "token").write_text(CANARY)
    assert (
        command("secrets", "add", "token", "--provider", "reports", "--purpose", "credential", "--file", str(tmp_path / "token")).code == 0
    )
    assert command("secrets", "add", "hook", "--provider", "reports", "--file", value).code == 0
    assert command("providers", "check").out == "reports: ok\n"
    with opened(tmp_path) as house:
        material = Material(house.ledger, WORLD)
        material.load()
        assert credential("vault:token", "reports", material.stored, WORLD.now()) == CANARY.encode()
        for name, provider in (("token", "other"), ("hook", "reports"), ("none", "reports")):
            with pytest.raises(SecretMissingError):
                credential(f"vault:{name}", provider, material.stored, WORLD.now())
    with pytest.raises(SecretMissingError):
        credential("vault:token", "reports", Stored(), 0)


@pytest.mark.timeout(180)
def test_added_and_revoked_while_it_runs(tmp_path: Path) -> None:
    """B11: a stored secret counts within a second without a restart, and a revoked one fails on the very next request."""
    stage = reports(tmp_path, origin="http://127.0.0.1:9")
    with stage.running("serve", "--port", "0") as serving, httpx.Client(base_url=serving.address, timeout=30) as http:

        def deliver(number: int) -> int:
            body, at = (
                json.dumps({"type": "report.succeeded", "data": {"id": "rep_1", "status": "succeeded"}}).encode(),
                str(WORLD.now() // SECOND),
            )
            key = base64.b64decode(NEW.removeprefix("whsec_"))
            mac = base64.b64encode(hmac.new(key, f"evt_{number}.{at}.".encode() + body, hashlib.sha256).digest()).decode()
            headers = {"webhook-id": f"evt_{number}", "webhook-timestamp": at, "webhook-signature": f"v1,{mac}"}
            return http.post("/webhooks/reports", content=body, headers=headers).status_code

        assert deliver(1) == 401
        added = stage.run("secrets", "add", "reports-2", "--provider", "reports", stdin=NEW)
        assert added.code == 0, added.err
        until(lambda: deliver(2) == 200)
        assert deliver(3) == 200
        assert stage.run("secrets", "revoke", "reports-2").code == 0
        assert deliver(4) == 401
        assert serving.stop() == 0
        assert NEW not in "".join(serving.text)

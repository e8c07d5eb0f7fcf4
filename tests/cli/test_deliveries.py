"""`gateway deliveries`: listed, shown, verified again, explained and applied again; clocks and refusals are told."""

import base64
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest

from cli.inbox import clock_warning
from ledger import queries
from providers.mapping import events
from schemas.commands import Ingest, Quarantine
from schemas.delivery import Delivery, InboundRequest, Refusal
from schemas.operation import SECOND
from tests.cli.conftest import Command
from tests.cli.records import WORLD, opened, operation, register
from tests.cli.stage import SECRET

KEY = base64.b64decode(SECRET.removeprefix("whsec_"))
Headers = tuple[tuple[bytes, bytes], ...]


def signed(body: bytes, at: int, *, key: bytes = KEY, event: str = "evt_1") -> Headers:
    made = base64.b64encode(hmac.new(key, f"{event}.{at}.".encode() + body, hashlib.sha256).digest())
    stamp = b"%d" % at
    return ((b"webhook-id", event.encode()), (b"webhook-timestamp", stamp), (b"webhook-signature", b"v1," + made))


def about(operation_id: str) -> bytes:
    return json.dumps({"type": "report.done", "data": {"status": "done", "client_reference": operation_id}}).encode()


def deliver(folder: Path, body: bytes, *, late: int = 0, event: str = "evt_1", **changes: Any) -> str:
    """Store a delivery as the receiver does and return its id."""
    with opened(folder) as house:
        now = WORLD.now()
        request = InboundRequest(
            method="POST",
            path=b"/webhooks/reports",
            query=b"",
            headers=signed(body, now // SECOND - late, event=event),
            body=body,
            public_url="http://localhost:8080/webhooks/reports",
        )
        (found,) = events(house.contracts["reports"], request, b"")
        values = {
            "id": WORLD.new_id("dlv_"), "provider": "reports", "received_at": now, "event": found, "secret_id": "env:REPORTS_SECRET",
            "scheme_id": "standard", "body": body, "headers": request.headers, **changes,
        }  # fmt: skip
        return house.ledger.write_now(Ingest(delivery=Delivery(**values), now=now)).delivery_id


def refuse(folder: Path, body: bytes | None, headers: Headers, **changes: Any) -> str:
    """Keep a refusal as the receiver does and return its id."""
    values = {
        "id": WORLD.new_id("rfs_"), "provider": "reports", "at": WORLD.now(), "reason": "wrong_signature", "detail": "",
        "scheme_id": "standard",
        "method": "POST", "target": b"/webhooks/reports?x=1", "headers": headers, "body": body, "bytes": len(body or b""), **changes,
    }  # fmt: skip
    with opened(folder) as house:
        house.ledger.write_now(Quarantine(refusals=(Refusal(**values),)))
    return str(values["id"])


def test_deliveries_and_refusals_are_listed_newest_first(command: Command, tmp_path: Path) -> None:
    """Inbox, dead letters and refusals by status and provider."""
    made = register(tmp_path)
    attached = deliver(tmp_path, about(made))
    dead = deliver(tmp_path, b"{", event="evt_2")
    refused = refuse(tmp_path, b"{}", signed(b"{}", 1))
    rows = command("deliveries", "list", "--json").json()
    assert [row["id"] for row in rows] == [refused, dead, attached]
    assert [row["status"] for row in rows] == ["refused", "dead", "applied"]
    assert rows[2]["operation"] == made
    assert [row["id"] for row in command("deliveries", "list", "--status", "dead", "--json").json()] == [dead]
    assert [row["id"] for row in command("deliveries", "list", "--status", "refused", "--json").json()] == [refused]
    assert command("deliveries", "list", "--provider", "other", "--json").json() == []
    assert "wrong_signature" in command("deliveries", "list").out
    assert command("deliveries", "list", "--status", "odd").code == 2


def test_one_is_shown_without_its_bytes_and_verified_again(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B1: the stored bytes are right at the time of their receipt with the recorded secret; exit 1 once it is another one."""
    kept = deliver(tmp_path, about(register(tmp_path)))
    shown = command("deliveries", "show", kept, "--verify", "--json").json()
    assert (shown["verified_again"], shown["verified_by"]) == ("genuine", "env:REPORTS_SECRET")
    assert "webhook-signature" in shown["header_names"]
    assert "report.done" in command("deliveries", "show", kept).out
    assert 'client_reference":' not in command("deliveries", "show", kept).out
    monkeypatch.setenv("REPORTS_SECRET", "whsec_" + base64.b64encode(b"another-secret-of-32-bytes-length").decode())
    assert command("deliveries", "show", kept, "--verify").code == 1
    assert command("deliveries", "show", "dlv_0").code == 1
    refused = refuse(tmp_path, b"{}", signed(b"{}", 1))
    assert command("deliveries", "show", refused, "--json").json()["status"] == "refused"


@pytest.mark.parametrize(
    ("body", "words"), [(b'{"a": 1}\n', "got a line break"), (b'{"a":1}', "parsed and written again"), (b"{}", "perhaps: another secret")]
)
def test_a_refusal_is_explained(command: Command, tmp_path: Path, body: bytes, words: str) -> None:
    """B12: by the kept bytes, today's secrets and the time of receipt."""
    refused = refuse(tmp_path, body, signed(b'{"a": 1}', WORLD.now() // SECOND))
    done = command("deliveries", "diagnose", refused)
    assert done.code == 0
    assert words in done.out
    assert command("deliveries", "diagnose", refused, "--json").json()["causes"][0]["certain"] is (b"a" in body)


def test_the_secret_of_another_provider_is_recognised(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B12: secrets in the wrong slots are told by provider and reference."""
    other = "whsec_" + base64.b64encode(b"the-secret-of-the-other-endpoint").decode()
    monkeypatch.setenv("OTHER", other)
    with (tmp_path / "gateway.toml").open("a") as configured:
        configured.write('\n[providers.invoices]\ncontract = "./reports.toml"\nbase_url = "http://127.0.0.1:9"\nsecrets = ["env:OTHER"]\n')
    body = b"{}"
    refused = refuse(tmp_path, body, signed(body, WORLD.now() // SECOND, key=b"the-secret-of-the-other-endpoint"))
    done = command("deliveries", "diagnose", refused)
    assert "surely: another secret made it: invoices env:OTHER" in done.out
    assert other not in done.out


def test_a_refusal_is_taken_in_once_it_is_genuine_and_never_before(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B8: judged with today's secrets at its time of receipt; then a hint with a name in the history; again it is a duplicate."""
    made = register(tmp_path)
    late = b"a-secret-that-was-configured-late"
    body = about(made)
    refused = refuse(tmp_path, body, signed(body, WORLD.now() // SECOND, key=late))
    done = command("deliveries", "replay", refused, "--as", "ada")
    assert done.code == 1
    assert "still not genuine (wrong_signature)" in done.err
    with opened(tmp_path) as house:
        assert house.ledger.read_now(queries.deliveries, None, 10) == []
    monkeypatch.setenv("REPORTS_SECRET", "whsec_" + base64.b64encode(late).decode())
    assert "replay" in command("deliveries", "diagnose", refused).out
    (told,) = command("deliveries", "replay", refused, "--as", "ada", "--json").json()
    assert (told["status"], told["operation"]) == ("accepted", made)
    (again,) = command("deliveries", "replay", refused, "--as", "ada", "--json").json()
    assert (again["status"], again["delivery"]) == ("duplicate", told["delivery"])
    rows = command("operations", "history", made, "--json").json()
    assert [(row["actor"], row["text"]) for row in rows if row["cause_id"] == told["delivery"]] == [
        ("operator:ada", "report.done done stale but genuine")
    ]
    assert operation(tmp_path, made).state == "create_pending"  # a delivery ends nothing
    assert command("deliveries", "show", told["delivery"], "--verify").code == 0  # its target with the query came along


def test_a_delivery_is_applied_again(command: Command, tmp_path: Path) -> None:
    """B5: an operator's replay of any delivery; a dead letter that still cannot be read is exit 1."""
    made = register(tmp_path)
    kept = deliver(tmp_path, about(made))
    assert command("deliveries", "replay", kept, "--as", "ada").out == f"{kept} accepted, {made}\n"
    rows = command("operations", "history", made, "--json").json()
    assert rows[-1]["actor"] == "operator:ada"
    assert rows[-1]["text"].endswith("replayed")
    dead = deliver(tmp_path, b"{", event="evt_2")
    done = command("deliveries", "replay", dead)
    assert (done.code, done.out) == (1, f"{dead} unreadable\n")


def test_what_was_too_large_to_keep_says_so(command: Command, tmp_path: Path) -> None:
    """B10: there is nothing to judge."""
    refused = refuse(tmp_path, None, (), bytes=99_999)
    for verb in ("diagnose", "replay"):
        done = command("deliveries", verb, refused)
        assert done.code == 1
        assert "too large to be kept (99999 bytes)" in done.err


def test_conflicts_are_told(command: Command, tmp_path: Path) -> None:
    """B3: known event ids with other bytes in the last hour, distinct contents once; a few are a note, more a warning."""

    def told() -> list[tuple[str, str]]:
        rows = command("doctor", "--json").json()
        return [(row["level"], row["found"]) for row in rows if row["about"] == "provider reports" and "other bytes" in row["found"]]

    deliver(tmp_path, b"{}")
    assert told() == []
    old = WORLD.now() - 3_700 * SECOND
    deliver(tmp_path, b'{"old":1}', received_at=old)
    for number in (0, 1, 1):
        deliver(tmp_path, b'{"n":%d}' % number)
    assert command("providers", "show", "reports", "--json").json()["conflicts_last_hour"] == 2
    assert told() == [("note", "in the last hour 2 known event ids came with other bytes")]
    for number in range(2, 6):
        deliver(tmp_path, b'{"n":%d}' % number)
    assert told() == [("warning", "in the last hour 6 known event ids came with other bytes")]


def test_clock_and_refusals_are_told(command: Command, tmp_path: Path) -> None:
    """B12: the offset is measured from genuine deliveries; half the tolerance is a warning; refusals of the last hour count."""
    for number, late in enumerate((10, 200, 210)):
        deliver(tmp_path, b"{}", late=late, event=f"evt_{number}")
    refuse(tmp_path, b"{}", ())
    shown = command("providers", "show", "reports", "--json").json()
    assert 200 <= shown["clock_offset_seconds"] <= 260
    assert "300 s are allowed" in shown["clock_warning"]
    assert shown["refused_last_hour"] == {"wrong_signature": 1}
    found = [row["found"] for row in command("doctor", "--json").json() if row["about"] == "provider reports"]
    assert "refused in the last hour: wrong_signature 1" in found
    assert any("300 s are allowed" in text for text in found)
    for number in range(4):  # a clock that is so wrong that everything is refused is measured by what was refused
        deliver(tmp_path, b"{}", late=-4_000, event=f"ahead_{number}", standing="stale")
    shown = command("providers", "show", "reports", "--json").json()
    assert -4_060 <= shown["clock_offset_seconds"] <= -3_940
    assert shown["refused_last_hour"] == {"wrong_signature": 1, "stale": 4}
    with opened(tmp_path) as house:
        contract = house.contracts["reports"]
    assert [bool(clock_warning(contract, offset)) for offset in (None, 149.0, 151.0, -149.0, -151.0)] == [False, False, True, False, True]

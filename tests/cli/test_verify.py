"""`gateway verify`: verdict, fields and the likely cause; vector files with one line a failure."""

import base64
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cli.commands.verify import parse
from cli.failure import CommandError
from tests.cli.conftest import Command
from tests.cli.stage import ROOT, SECRET

BODY = (
    b'{"id":"evt_1","object":"event","type":"payment_intent.succeeded","created":1767225600,'
    b'"data":{"object":{"id":"job_42","status":"succeeded"}}}'
)
NOW = 1_767_225_600
STRIPE = "whsec_stripe_test_secret"
VECTORS = ROOT.parent / "shared" / "evidence" / "vectors"


def signed(body: bytes = BODY, *, secret: str = STRIPE, at: int = NOW) -> str:
    digest = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


def http(body: bytes, signature: str, end: str = "\r\n") -> bytes:
    lines = [
        "POST /webhooks/stripe?x=1 HTTP/1.1",
        "Host: hooks.example.com",
        f"Stripe-Signature: {signature}",
        "Content-Type: application/json",
    ]
    return (end.join(lines) + end + end).encode() + body


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRIPE_SECRET", STRIPE)
    monkeypatch.setenv("OTHER_SECRET", "whsec_other_secret_0")


def verify(command: Command, tmp_path: Path, request: bytes, *more: str) -> dict[str, Any]:
    (tmp_path / "request").write_bytes(request)
    options = more or ("--secret", "env:STRIPE_SECRET", "--now", str(NOW))
    done = command("verify", "stripe", "--request", "request", *options, "--json")
    assert STRIPE not in done.out + done.err
    found: dict[str, Any] = {**done.json(), "code": done.code}
    return found


@pytest.mark.parametrize("end", ["\r\n", "\n"])
def test_a_genuine_delivery_shows_what_it_is_about(command: Command, tmp_path: Path, end: str) -> None:
    """Verdict, matched secret, dedup key and fields, from HTTP text with either line end."""
    found = verify(
        command, tmp_path, http(BODY, signed(), end), "--secret", "env:OTHER_SECRET", "--secret", "env:STRIPE_SECRET", "--now", str(NOW)
    )
    assert (found["code"], found["verdict"], found["secret"]) == (0, "genuine", "env:STRIPE_SECRET")
    (event,) = found["events"]
    assert event["dedup_key"].startswith("id:")
    assert event["remote_job_id"] == "job_42"
    text = command("verify", "stripe", "--request", "request", "--secret", "env:STRIPE_SECRET", "--now", str(NOW)).out
    assert "genuine" in text
    assert "job_42" in text


def test_a_case_of_a_vector_file_is_a_request_too(command: Command, tmp_path: Path) -> None:
    """A JSON object with url, headers and body_base64."""
    case = {
        "url": "https://x.example/webhooks/stripe",
        "headers": {"Stripe-Signature": signed()},
        "body_base64": base64.b64encode(BODY).decode(),
    }
    assert verify(command, tmp_path, json.dumps(case).encode())["verdict"] == "genuine"


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (http(BODY + b"\n", signed()), "got a line break at its end"),
        (http(BODY, signed(BODY + b"\n")), "lost the line break"),
        (http(json.dumps(json.loads(BODY)).encode(), signed()), "parsed and written again"),
        (http(BODY, signed(secret="whsec_nobodys")), "another secret"),
        (http(BODY, signed(at=NOW - 4_000)), "only the time is not"),
        (http(BODY, signed(at=NOW * 1_000)), "it is milliseconds, and the contract says seconds"),
        (http(BODY, signed().replace("v1=", "V1=").upper().replace("T=", "t=").replace("V1=", "v1=")), "is in upper case"),
        (http(BODY.replace(b",", b",\n"), signed(BODY.replace(b",", b",\r\n"))), "line ends were changed"),
    ],
)
def test_a_refusal_names_the_likely_cause_and_is_exit_1(command: Command, tmp_path: Path, request_: bytes, words: str) -> None:
    """B12: an offline diagnosis names the cause, and never accepts."""
    found = verify(command, tmp_path, request_)
    assert (found["code"], found["verdict"]) == (1, "refused")
    assert words in str(found["likely_cause"])


def test_upper_case_hex_is_told_to_be_lower_case(command: Command, tmp_path: Path) -> None:
    """Hex in upper case is hex: the detail says which case is wanted."""
    digest = signed().rpartition("=")[2]
    found = verify(command, tmp_path, http(BODY, f"t={NOW},v1={digest.upper()}"))
    assert found["detail"] == "the signature is not hex in lower case"


def test_a_configured_provider_s_name_brings_what_is_its_own(command: Command, tmp_path: Path) -> None:
    """`verify NAME` takes the contract, the secrets and the address of the configured provider; given secrets stand instead."""
    body = b'{"type":"report.succeeded","data":{"id":"rep_1","status":"succeeded"}}'
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    signature = base64.b64encode(hmac.digest(key, b"evt_1.%d." % NOW + body, "sha256")).decode()
    head = f"POST /webhooks/reports HTTP/1.1\r\nwebhook-id: evt_1\r\nwebhook-timestamp: {NOW}\r\nwebhook-signature: v1,{signature}\r\n\r\n"
    (tmp_path / "request").write_bytes(head.encode() + body)
    done = command("verify", "reports", "--request", "request", "--now", str(NOW), "--json")
    assert (done.code, done.json()["secret"]) == (0, "env:REPORTS_SECRET")
    assert command("verify", "reports", "--request", "request", "--now", str(NOW), "--secret", "env:OTHER_SECRET").code == 1
    (tmp_path / "gateway.toml").write_text("x = 1")
    broken = command("verify", "reports", "--request", "request", "--now", str(NOW), "--json").json()
    assert broken["verdict"] == "refused"  # the shipped contract of that name, without a secret
    assert command("verify", "reports", "--request", "request", "--config", "gateway.toml").code == 2


def test_a_stored_secret_is_named_by_its_place(command: Command, tmp_path: Path) -> None:
    """`--secret vault:NAME` opens the record: the value of a stored webhook secret, whatever its provider; else exit 2 (B11, B142)."""
    value = "whsec_" + base64.b64encode(b"stored-secret-of-24-bytes").decode()
    (tmp_path / "value").write_text(value)
    (tmp_path / "request").write_bytes(http(BODY, signed(secret=value)))
    asked = ("verify", "stripe", "--request", "request", "--now", str(NOW), "--json")
    assert command("secrets", "add", "hook", "--provider", "reports", "--file", "value").code == 0
    done = command(*asked, "--secret", "vault:hook")
    assert (done.code, done.json()["secret"]) == (0, "vault:hook")
    assert value not in done.out + done.err
    assert command(*asked, "--secret", "vault:other").code == 2
    assert command(*asked, "--secret", "env:OTHER_SECRET", "--secret", "vault:hook").json()["secret"] == "vault:hook"


def test_no_secret_and_missing_secret(command: Command, tmp_path: Path) -> None:
    """Without a secret nothing is genuine; a reference that leads nowhere is a usage error."""
    assert "no secret was given" in str(verify(command, tmp_path, http(BODY, signed()), "--now", str(NOW))["likely_cause"])
    done = command("verify", "stripe", "--request", "request", "--secret", "env:NOT_SET")
    assert done.code == 2
    assert "export NOT_SET" in done.err


def test_published_keys_come_with_the_request(command: Command, tmp_path: Path) -> None:
    """A scheme with a key set needs no secret: the case brings the fetched key along, else the answer says where it is."""
    key = Ed25519PrivateKey.generate()
    contract = (
        'name = "acme"\n[signature]\nprimitive = "asym"\nalg = "ed25519"\nmessage = "{param:account}.{body}"\n'
        'sig = { in = "header", name = "X-S" }\nkeysource = { kind = "jwks", url = "https://acme.example/keys" }\n[event]\n'
    )
    (tmp_path / "acme.toml").write_text(contract)
    point = base64.urlsafe_b64encode(key.public_key().public_bytes_raw()).rstrip(b"=").decode()
    case: dict[str, Any] = {
        "url": "https://hooks.example.com/webhooks/acme",
        "headers": {"X-S": key.sign(b"me." + BODY).hex()},
        "body_base64": base64.b64encode(BODY).decode(),
        "params": {"account": "me"},
        "jwks": {"keys": [{"kty": "OKP", "crv": "Ed25519", "x": point, "kid": "k1"}]},
    }
    for left_out, verdict, words in ((None, "genuine", ""), ("jwks", "refused", "https://acme.example/keys"), ("params", "refused", "")):
        (tmp_path / "case.json").write_text(json.dumps({name: value for name, value in case.items() if name != left_out}))
        found = command("verify", "acme.toml", "--request", "case.json", "--now", str(NOW), "--json").json()
        assert found["verdict"] == verdict
        assert words in str(found.get("likely_cause"))
    (tmp_path / "case.json").write_text(json.dumps(case | {"keys": {"k": 5}}))
    assert command("verify", "acme.toml", "--request", "case.json").code == 2


def test_a_pasted_secret_is_not_repeated(command: Command, tmp_path: Path) -> None:
    """Who gives the secret instead of its reference does not find it in the error."""
    (tmp_path / "request").write_bytes(http(BODY, signed()))
    done = command("verify", "stripe", "--request", "request", "--secret", SECRET)
    assert done.code == 2
    assert "env:NAME or file:PATH" in done.err


def test_wrong_usage(command: Command, tmp_path: Path) -> None:
    """Missing parts, unreadable requests and missing files say what is wanted."""
    assert command("verify").code == 2
    assert command("verify", "stripe").code == 2
    (tmp_path / "request").write_bytes(b"\x00\xff nonsense")
    assert command("verify", "stripe", "--request", "request").code == 2
    assert command("verify", "stripe", "--request", "absent").code == 1


@pytest.mark.parametrize(
    "data", [b"", b"{", b"{}", b"[]", b'{"url": 3, "headers": 3}', b"POST", b"POST / HTTP/1.1\n\n", b"POST / HTTP/1.1\nx\n\n", b"\xff\xfe"]
)
def test_any_file_is_read_or_refused(data: bytes) -> None:
    """Whatever the bytes, the outcome is a request or a one-line error."""
    try:
        parse(data)
    except CommandError as error:
        assert error.code == 2  # noqa: PT017 - either outcome is right


# --- vector files


def vector(**changes: object) -> dict[str, object]:
    case = {
        "name": "one",
        "method": "POST",
        "url": "https://x.example/stripe",
        "headers": {"Stripe-Signature": signed()},
        "body_base64": base64.b64encode(BODY).decode(),
        "now": NOW,
        "expect": "valid",
        "secret": STRIPE,
        **changes,
    }
    return {"provider": "stripe", "schemes": [], "cases": [case]}


def test_vectors_pass_and_fail(command: Command, tmp_path: Path) -> None:
    """One line a failure, the counts at the end, exit 1 on any failure; several files behind one option."""
    (tmp_path / "good.json").write_text(json.dumps(vector()))
    (tmp_path / "bad.json").write_text(json.dumps(vector(expect="invalid")))
    assert command("verify", "--vectors", "good.json").out == "1 passed, 0 failed\n"
    done = command("verify", "--vectors", "good.json", "bad.json", "good.json")
    assert done.code == 1
    first, last = done.out.splitlines()
    assert first.startswith("bad.json: one: accepted by ")
    assert last == "2 passed, 1 failed"
    assert command("verify", "--vectors", "bad.json", "--json").json()["failed"] == 1


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"cases": []}', '{"provider": "nobody", "schemes": [{"primitive": "x"}], "cases": [{}]}']
)
def test_a_file_that_is_no_vector_file_fails(command: Command, tmp_path: Path, text: str) -> None:
    """Nothing run is nothing passed: exit 1, one line."""
    (tmp_path / "v.json").write_text(text)
    done = command("verify", "--vectors", "v.json", "absent.json")
    assert done.code == 1
    assert done.out.splitlines()[-1] == "0 passed, 2 failed"


@pytest.mark.skipif(not VECTORS.is_dir(), reason="the published vectors are not beside this repository")
def test_the_published_vectors_of_the_shipped_contracts_pass(command: Command) -> None:
    """Every shipped contract judges the vectors of its provider as they say."""
    names = [row["name"] for row in command("contracts", "list", "--json").json()]
    files = [str(VECTORS / f"{name}.json") for name in names if (VECTORS / f"{name}.json").exists()]
    assert len(files) >= 6
    done = command("verify", "--vectors", *files)
    assert done.code == 0, done.out
    assert done.out.endswith(" passed, 0 failed\n")

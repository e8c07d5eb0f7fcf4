"""Callbacks through the whole application: what is stored, what is refused, and with which words."""

import asyncio
import dataclasses
import gzip
import hashlib
import hmac
import json
from pathlib import Path

import httpx
import pytest

from ledger import queries
from ledger.ledger import Ledger
from providers.verification import prepare
from schemas.delivery import Secret
from schemas.operation import SECOND
from tests.gateway.house import SECRET, event, house, signature


async def stored(ledger: Ledger) -> list[dict[str, object]]:
    return [dict(row) for row in await ledger.read(queries.deliveries, None, 100)]


def code(response: httpx.Response) -> str:
    assert response.headers["content-type"] == "application/problem+json", response.text
    return str(response.json()["code"])


def test_a_signed_delivery_is_stored_and_a_repeat_is_a_duplicate(tmp_path: Path) -> None:
    """B4: the first copy is stored and answered; the second is answered 2xx and changes nothing (B3)."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            first = await home.deliver("reports", event(1))
            second = await home.deliver("reports", event(1))
            assert (first.status_code, second.status_code) == (200, 200)
            assert first.json() == {"status": "unmatched", "delivery": first.json()["delivery"]}
            assert second.json() == {"status": "duplicate", "delivery": first.json()["delivery"]}
            rows = await stored(home.ledger)
            assert [row["id"] for row in rows] == [first.json()["delivery"]]
            kept = await home.ledger.read(queries.delivery, first.json()["delivery"])
            assert kept is not None
            assert kept["body"] == event(1)
            assert kept["secret_id"] == "sec_1"
            assert home.counted["receiver.stored", "unmatched"] == 1

    asyncio.run(scenario())


def test_the_same_id_with_other_bytes_is_a_conflict(tmp_path: Path) -> None:
    """B027: answered 2xx so that the provider stops, recorded as a conflict, the first payload kept."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            first = await home.deliver("reports", event(1, state="running"))
            second = await home.deliver("reports", event(1, state="done"))
            assert (second.status_code, second.json()["status"]) == (200, "conflict")
            kept = await home.ledger.read(queries.delivery, first.json()["delivery"])
            assert kept is not None
            assert kept["claimed_state"] == "running"

    asyncio.run(scenario())


def test_providers_do_not_share_event_ids(tmp_path: Path) -> None:
    """B032: the same event id at two endpoints is two events."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            answers = [await home.deliver(name, event(1)) for name in ("reports", "private")]
            assert [answer.json()["status"] for answer in answers] == ["unmatched", "unmatched"]
            assert len(await stored(home.ledger)) == 2

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("provider", "headers", "reason"),
    [
        ("reports", {}, "missing_signature"),
        ("reports", {"X-Sig": ""}, "missing_signature"),
        ("reports", {"X-Sig": "   "}, "missing_signature"),
        ("reports", {"X-Sig": "t=1800000000,v1=" + "0" * 64}, "wrong_signature"),
        ("github", {}, "missing_signature"),
        ("github", {"X-Hub-Signature-256": "sha256=" + "0" * 64}, "wrong_signature"),
        ("token", {}, "missing_signature"),
        ("token", {"X-Token": "guess"}, "wrong_signature"),
    ],
)
def test_what_is_not_genuine_is_refused_and_leaves_nothing(
    tmp_path: Path, provider: str, headers: dict[str, str], reason: str
) -> None:
    """B010: fails closed at the HTTP level, with a stable reason; no row is written."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            answer = await home.bare().post(f"/webhooks/{provider}", content=event(1), headers=headers)
            assert (answer.status_code, code(answer)) == (401, "delivery_refused")
            assert answer.json()["reason"] == reason
            assert await stored(home.ledger) == []
            assert home.counted["receiver.refused", reason] == 1

    asyncio.run(scenario())


def test_an_endpoint_without_a_usable_secret_accepts_nothing(tmp_path: Path) -> None:
    """B010: no secret is `503`, never an acceptance; so is a secret that is no key (spaces)."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            absent = await home.deliver("secretless", event(1))
            blank = home.gate.endpoints.get("reports")
            assert blank is not None
            useless = prepare(blank.contract.signatures, (Secret(id="sec_2", value=b"   "),))
            replaced = dataclasses.replace(blank, verifier=useless)
            home.gate.endpoints.replace({"reports": replaced})
            spaces = await home.deliver("reports", event(1))
            for answer in (absent, spaces):
                assert (answer.status_code, code(answer)) == (503, "no_usable_secret")
                assert answer.headers["retry-after"]
            assert await stored(home.ledger) == []

    asyncio.run(scenario())


def test_a_reload_replaces_endpoints_at_once(tmp_path: Path) -> None:
    """B11: after a reload the old secret is refused and the new one accepted, on the next request."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            known = home.gate.endpoints.get("reports")
            assert known is not None
            verifier = prepare(known.contract.signatures, (Secret(id="sec_2", value=b"another-secret"),))
            home.gate.endpoints.replace({"reports": dataclasses.replace(known, verifier=verifier)})
            assert (await home.deliver("reports", event(1))).status_code == 401
            signed = {"X-Sig": signature(event(1), home.world.now() // SECOND, b"another-secret")}
            assert (await home.bare().post("/webhooks/reports", content=event(1), headers=signed)).status_code == 200

    asyncio.run(scenario())


def test_stale_but_genuine_is_refused_and_remembered_as_a_hint(tmp_path: Path) -> None:
    """B020: `401` with the direction, stored as stale, and one read is due for the operation that it names."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            adopted = (await client.post("/v1/operations", json={"provider": "reports", "remote_job_id": "job-1"})).json()
            answer = await home.deliver("reports", event(1, state="done"), offset=-3600)
            assert (answer.status_code, answer.json()["reason"]) == (401, "too_old")
            ahead = await home.deliver("reports", event(2), offset=3600)
            assert (ahead.status_code, ahead.json()["reason"]) == (401, "in_future")
            rows = await stored(home.ledger)
            assert [row["standing"] for row in rows] == ["stale", "stale"]
            after = (await client.get(f"/v1/operations/{adopted['id']}")).json()
            assert after["state"] == "accepted"
            history = (await client.get(f"/v1/operations/{adopted['id']}/history")).json()["history"]
            assert "delivery" in [row["cause"] for row in history]

    asyncio.run(scenario())


def test_a_wrong_signature_is_never_kept_as_stale(tmp_path: Path) -> None:
    """B020: staleness is only spoken of behind a right signature."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            forged = {"X-Sig": signature(event(1), home.world.now() // SECOND - 3600, b"guess")}
            answer = await home.bare().post("/webhooks/reports", content=event(1), headers=forged)
            assert (answer.status_code, answer.json()["reason"]) == (401, "wrong_signature")
            assert await stored(home.ledger) == []

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "body",
    [b"[" * 100_000, b'{"a":' * 5_000, b'{"id":NaN}', b'{"id":"a","id":"b"}', b"\xff\xfe", b'{"id":"\\ud800"}', b"", b"not json"],
    ids=["deep-list", "deep-object", "nan", "duplicate-key", "not-utf8", "surrogate", "empty", "text"],
)
def test_genuine_nonsense_is_a_dead_letter_and_400(tmp_path: Path, body: bytes) -> None:
    """B134, B136, B139: explicit rules, never a 500; the bytes are kept, and nothing follows from them."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            answer = await home.deliver("reports", body)
            assert (answer.status_code, code(answer)) == (400, "unreadable_delivery")
            rows = await stored(home.ledger)
            assert [row["status"] for row in rows] == ["dead"]
            assert answer.json()["delivery"] == rows[0]["id"]
            again = await home.deliver("reports", body)
            assert again.status_code == 400
            assert len(await stored(home.ledger)) == 1

    asyncio.run(scenario())


def test_a_nul_in_a_delivery_is_survived(tmp_path: Path) -> None:
    """B137: a NUL in values, keys and ids is stored with the original bytes."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            body = b'{"id":"e\\u0000vt","type":"t\\u0000","job":"j\\u0000","k\\u0000":1}'
            answer = await home.deliver("reports", body)
            assert answer.status_code == 200
            kept = await home.ledger.read(queries.delivery, answer.json()["delivery"])
            assert kept is not None
            assert kept["body"] == body

    asyncio.run(scenario())


def test_array_bodies_are_split(tmp_path: Path) -> None:
    """Every element is its own event; the answer lists them, and the body is kept once."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            await client.post("/v1/operations", json={"provider": "batch", "remote_job_id": "b"})
            body = json.dumps({"events": [{"id": "1", "job": "a"}, {"id": "2", "job": "b"}, {"id": "1", "job": "a"}]}).encode()
            answer = (await home.deliver("batch", body)).json()
            assert answer["status"] == "accepted"
            assert [item["status"] for item in answer["deliveries"]] == ["unmatched", "accepted", "duplicate"]
            first, second = answer["deliveries"][0]["delivery"], answer["deliveries"][1]["delivery"]
            kept = [await home.ledger.read(queries.delivery, item) for item in (first, second)]
            assert kept[0] is not None
            assert kept[1] is not None
            assert (kept[0]["body"], kept[1]["body"], kept[1]["parent"]) == (body, None, first)
            assert (await home.deliver("batch", b'{"events": []}')).status_code == 400

    asyncio.run(scenario())


def test_a_contract_may_prescribe_the_answer(tmp_path: Path) -> None:
    """INTERFACE: some providers repeat until they get their own success status and body."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            answer = await home.deliver("custom", event(1))
            assert (answer.status_code, answer.text) == (202, "[accepted]")

    asyncio.run(scenario())


@pytest.mark.parametrize("encoding", ["gzip", "br", "gzip, gzip", "unknown"])
def test_compressed_bodies_are_refused(tmp_path: Path, encoding: str) -> None:
    """B155: a small body that would become a large one is not inflated at all."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            body = gzip.compress(b"0" * 1_000_000)
            answer = await home.deliver("reports", body, headers={"Content-Encoding": encoding})
            assert (answer.status_code, code(answer)) == (415, "unsupported_encoding")
            assert await stored(home.ledger) == []

    asyncio.run(scenario())


def test_the_contract_bounds_the_body(tmp_path: Path) -> None:
    """B10: the limit is the endpoint's; another endpoint takes the same body."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            body = event(1, note="x" * 3_000)
            assert (await home.deliver("small", body)).status_code == 413
            assert (await home.deliver("reports", body)).status_code == 200

    asyncio.run(scenario())


def test_unknown_addresses_and_methods(tmp_path: Path) -> None:
    """An unknown provider is 404; without a handshake only POST is taken."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = home.bare()
            for path in ("/webhooks/nobody", "/webhooks/", "/webhooks/reports/x", "/webhooks/../v1/operations"):
                answer = await client.post(path, content=b"{}")
                assert answer.status_code in {401, 404}, path
            assert code(await client.post("/webhooks/nobody", content=b"{}")) == "unknown_endpoint"
            for method in ("GET", "OPTIONS", "PUT", "DELETE"):
                answer = await client.request(method, "/webhooks/reports")
                assert (answer.status_code, answer.headers["allow"]) == (405, "POST")

    asyncio.run(scenario())


def test_without_a_ledger_the_answer_is_503(tmp_path: Path) -> None:
    """B4: what cannot be stored is never acknowledged, and never blamed on the sender."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            home.ledger.close()
            answer = await home.deliver("reports", event(1))
            assert (answer.status_code, code(answer)) == (503, "unavailable")
            assert answer.headers["retry-after"]
            stale = await home.deliver("reports", event(1), offset=-3600)
            assert stale.status_code == 503

    asyncio.run(scenario())


def test_no_signature_or_secret_is_logged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """D6: a refusal is logged with provider and reason, and with nothing that was sent."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            await home.bare().post("/webhooks/token", content=b"body-canary", headers={"X-Token": "token-canary"})
            await home.deliver("reports", b"body-canary")

    asyncio.run(scenario())
    printed = "".join(capsys.readouterr())
    assert "receiver.refused" in printed
    for canary in ("token-canary", "body-canary", SECRET.decode()):
        assert canary not in printed


def test_twenty_copies_at_once_are_one_delivery(tmp_path: Path) -> None:
    """B024: copies that race see one insert; the losers answer 2xx and do nothing."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            answers = await asyncio.gather(*(home.deliver("reports", event(1)) for _ in range(20)))
            statuses = sorted(answer.json()["status"] for answer in answers)
            assert statuses == ["duplicate"] * 19 + ["unmatched"]
            assert len({answer.json()["delivery"] for answer in answers}) == 1

    asyncio.run(scenario())


def test_exact_bytes_are_what_is_verified(tmp_path: Path) -> None:
    """B001: odd spacing, escapes and number forms are signed as sent; one flipped byte is refused."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            bodies = [
                '{"id":"1","b":1.0,"a":"\\u00e9","u":"http:\\/\\/x"}',
                '{ "a":1,\r\n "id":"2" }\n',
                '{"id":"3","x":"😀"}',
                '{"id":"4","x":"\\ud83d\\ude00"}',
            ]
            for text in bodies:
                body = text.encode()
                mac = hmac.new(SECRET, body, hashlib.sha256).hexdigest()
                signed = {"X-Hub-Signature-256": "sha256=" + mac}
                client = home.bare()
                assert (await client.post("/webhooks/github", content=body, headers=signed)).status_code == 200
                assert (await client.post("/webhooks/github", content=body + b" ", headers=signed)).status_code == 401

    asyncio.run(scenario())


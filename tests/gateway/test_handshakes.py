"""Handshakes and published keys through the whole application: answered as made, noted, never an event (B9, B154)."""

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from gateway.gate import Endpoint
from gateway.lines import A_SECOND
from ledger import inbox, queries
from ledger.fetches import handshakes_of
from ledger.secrets import stored_secrets, uses
from providers.contract import load
from providers.verification import KeyStore, prepare
from schemas.delivery import Secret
from schemas.operation import SECOND
from schemas.receiving import AddSecret, ClaimFetches, EndSecret, SettleFetch
from schemas.settings import ProviderSettings
from tests.gateway.house import EVENT, HEAD, SECRET, SIGNED, House, event, house, signature
from tests.providers.signing import ED, jwk

WORD = "our-own-word"
SHAKES = """
[[handshake]]
kind = "query_echo"
when = "before"
match = { "query:hub.mode" = "subscribe" }
challenge = "query:hub.challenge"
verify = "query:hub.verify_token"

[[handshake]]
kind = "json_echo"
match = { "body:type" = "url_verification" }
challenge = "body:challenge"

[[handshake]]
kind = "fetch_url"
match = { "body:type" = "confirm" }
challenge = "body:url"
host_re = 'sns\\.example'
"""
CAPTURE = """
[[handshake]]
kind = "secret_capture"
when = "before"
challenge = "header:X-Hook-Secret"
header = "X-Hook-Secret"
"""
PUBLISHED = """
[signature]
primitive = "asym"
alg = "ed25519"
message = "{body}"
sig = { in = "header", name = "X-Sig" }
keysource = { kind = "jwks", url = "https://keys.example/set.json", kid_header = "X-Key" }
"""


def endpoint(name: str, text: str, *secrets: Secret, keys: KeyStore | None = None, **params: str) -> Endpoint:
    known = load((HEAD + text).replace("{name}", name).encode())
    verifier = prepare(known.signatures, secrets, params) if secrets or "keysource" in text else None
    return Endpoint(
        name=name,
        contract=known,
        settings=ProviderSettings(name=name, contract=name),
        verifier=verifier,
        secrets=secrets,
        params=params,
        keys=keys or KeyStore(),
    )


@contextlib.asynccontextmanager
async def standing(folder: Path, *endpoints: Endpoint, **changes: Any) -> AsyncIterator[House]:
    async with house(folder, **changes) as home:
        home.gate.endpoints.replace({each.name: each for each in endpoints})
        home.ledger.contracts = {each.name: each.contract for each in endpoints}
        yield home


SHAKY = endpoint("shaky", SIGNED + EVENT + SHAKES, Secret(id="env:S", value=SECRET), verify_token=WORD)


async def signed(home: House, provider: str, document: dict[str, Any], secret: bytes = SECRET) -> httpx.Response:
    body = json.dumps(document).encode()
    headers = {"X-Sig": signature(body, home.world.now() // SECOND, secret)}
    return await home.bare().post(f"/webhooks/{provider}", content=body, headers=headers)


async def noted(home: House, provider: str) -> list[dict[str, Any]]:
    return await home.ledger.read(handshakes_of, provider)


def test_a_challenge_goes_out_exactly_as_made_and_is_no_event(tmp_path: Path) -> None:
    """B9: GET with our word is echoed as text, never sniffed, noted once; no delivery is stored."""

    async def scenario() -> None:
        async with standing(tmp_path, SHAKY) as home:
            query = {"hub.mode": "subscribe", "hub.challenge": "1158201444", "hub.verify_token": WORD}
            answer = await home.bare().get("/webhooks/shaky", params=query)
            assert (answer.status_code, answer.text) == (200, "1158201444")
            assert answer.headers.get_list("content-type") == ["text/plain; charset=utf-8"]
            assert answer.headers.get_list("x-content-type-options") == ["nosniff"]
            assert answer.headers.get_list("cache-control") == ["no-store"]
            (row,) = await noted(home, "shaky")
            assert (row["kind"], row["accepted"], row["due_at"]) == ("query_echo", True, None)
            assert await home.ledger.read(queries.deliveries, None, 10) == []

    asyncio.run(scenario())


def test_a_wrong_word_and_markup_are_refused_and_noted(tmp_path: Path) -> None:
    """B154: no reflected HTML, no answer to a stranger's word; the refusals are in the audit."""

    async def scenario() -> None:
        async with standing(tmp_path, SHAKY) as home:
            query = {"hub.mode": "subscribe", "hub.challenge": "1", "hub.verify_token": "guess"}
            wrong = await home.bare().get("/webhooks/shaky", params=query)
            query = {"hub.mode": "subscribe", "hub.challenge": "<script>", "hub.verify_token": WORD}
            markup = await home.bare().get("/webhooks/shaky", params=query)
            assert (wrong.status_code, markup.status_code) == (403, 400)
            assert b"<" not in wrong.content + markup.content
            assert [row["accepted"] for row in await noted(home, "shaky")] == [False, False]

    asyncio.run(scenario())


def test_a_handshake_after_the_signature_is_never_answered_without_one(tmp_path: Path) -> None:
    """B154: the signed challenge is echoed; the unsigned one is 401 and leaves nothing."""

    async def scenario() -> None:
        async with standing(tmp_path, SHAKY) as home:
            document = {"type": "url_verification", "challenge": "abc"}
            refused = await home.bare().post("/webhooks/shaky", json=document)
            assert refused.status_code == 401
            assert await noted(home, "shaky") == []
            answer = await signed(home, "shaky", document)
            assert (answer.status_code, answer.content) == (200, b"abc")
            assert await home.ledger.read(queries.deliveries, None, 10) == []

    asyncio.run(scenario())


def test_other_methods_are_taken_only_where_the_contract_has_handshakes(tmp_path: Path) -> None:
    """B9: a GET that is no handshake is 405, HEAD and OPTIONS without a rule too, and so is GET elsewhere."""

    async def scenario() -> None:
        async with standing(tmp_path, SHAKY, endpoint("plain", SIGNED + EVENT, Secret(id="env:S", value=SECRET))) as home:
            client = home.bare()
            answers = [await client.get("/webhooks/shaky"), await client.options("/webhooks/shaky"), await client.get("/webhooks/plain")]
            assert [answer.status_code for answer in answers] == [405, 405, 405]
            assert (await client.head("/webhooks/plain")).status_code == 405
            delivered = await signed(home, "shaky", json.loads(event(1)))
            assert delivered.json()["status"] == "unmatched"

    asyncio.run(scenario())


def test_a_confirmation_is_owed_and_never_fetched_here(tmp_path: Path) -> None:
    """B9, B154: only an allowed host's address, only after the signature, for the reconciler to fetch once."""

    async def scenario() -> None:
        async with standing(tmp_path, SHAKY) as home:
            inward = await signed(home, "shaky", {"type": "confirm", "url": "https://169.254.169.254/?t=1"})
            assert inward.status_code == 403
            answer = await signed(home, "shaky", {"type": "confirm", "url": "https://sns.example/?Token=t-1"})
            assert answer.status_code == 200
            claim = ClaimFetches(providers=("shaky",), limit=5, lease=SECOND, now=home.world.now())
            assert [fetch.url for fetch in await home.ledger.write(claim)] == ["https://sns.example/?Token=t-1"]
            assert "t-1" not in json.dumps(await noted(home, "shaky"))

    asyncio.run(scenario())


def test_a_secret_that_is_handed_over_is_sealed_and_never_replaced(tmp_path: Path) -> None:
    """B11, B154: stored and told to whoever verifies before the answer; the next one is refused, also by the record alone."""

    async def scenario() -> None:
        async with standing(tmp_path, endpoint("asks", SIGNED + EVENT + CAPTURE)) as home:
            refreshed: list[int] = []

            async def refresh() -> None:
                refreshed.append(len(await home.ledger.read(stored_secrets, "asks")))

            object.__setattr__(home.gate, "refresh", refresh)
            answer = await home.bare().post("/webhooks/asks", headers={"X-Hook-Secret": "s3cr3t-canary-long-enough"})
            assert (answer.status_code, answer.headers["x-hook-secret"]) == (200, "s3cr3t-canary-long-enough")
            assert refreshed == [1]
            second = await home.bare().post("/webhooks/asks", headers={"X-Hook-Secret": "another-secret-of-a-stranger"})
            assert second.status_code == 403
            assert "x-hook-secret" in answer.headers
            (found,) = await home.ledger.read(stored_secrets, "asks")
            assert (found.value, found.source, found.created_by) == (b"s3cr3t-canary-long-enough", "captured", "provider:asks")
            assert b"canary" not in (tmp_path / "gateway.db").read_bytes()

    asyncio.run(scenario())


def test_a_revoked_secret_is_refused_by_a_process_that_still_trusts_it(tmp_path: Path) -> None:
    """B11: deliveries and handshakes are 401 from the next request on, though this endpoint was made before the revocation."""

    async def scenario() -> None:
        async with standing(tmp_path, endpoint("shaky", SIGNED + EVENT + SHAKES, Secret(id="sec_9", value=SECRET))) as home:
            add = AddSecret(id="sec_9", name="nine", provider="shaky", purpose="webhook", value=SECRET, by="me", now=home.world.now())
            await home.ledger.write(add)
            assert (await signed(home, "shaky", json.loads(event(1)))).status_code == 200
            await home.ledger.write(EndSecret(name="nine", now=home.world.now()))
            for document in (json.loads(event(2)), {"type": "url_verification", "challenge": "abc"}):
                refused = await signed(home, "shaky", document)
                assert (refused.status_code, refused.json()["reason"]) == (401, "wrong_signature")
            assert len(await home.ledger.read(queries.deliveries, None, 10)) == 1
            assert await noted(home, "shaky") == []

    asyncio.run(scenario())


KEYS = json.dumps({"keys": [jwk(ED.public_key(), "k1")]}).encode()
BODY = event(1)
FROM_PROVIDER = {"X-Sig": ED.sign(BODY).hex(), "X-Key": "k1"}


def test_a_missing_key_is_wanted_and_the_delivery_may_come_again(tmp_path: Path) -> None:
    """B2: 503 with Retry-After, never 401; one fetch is owed, however many deliveries ask."""

    async def scenario() -> None:
        async with standing(tmp_path, endpoint("keyed", PUBLISHED + EVENT)) as home:
            for _ in range(5):
                answer = await home.bare().post("/webhooks/keyed", content=BODY, headers=FROM_PROVIDER)
                assert (answer.status_code, answer.json()["code"], answer.headers["retry-after"]) == (503, "key_unavailable", "5")
            claim = ClaimFetches(providers=("keyed",), limit=5, lease=SECOND, now=home.world.now())
            assert [fetch.url for fetch in await home.ledger.write(claim)] == ["https://keys.example/set.json"]

    asyncio.run(scenario())


def test_where_the_reconciler_is_here_the_delivery_waits_for_its_key(tmp_path: Path) -> None:
    """B2: the key that comes within two seconds verifies the delivery that asked for it."""

    async def scenario() -> None:
        async with standing(tmp_path, endpoint("keyed", PUBLISHED + EVENT), expects_reconciler=True) as home:
            waiting = asyncio.create_task(home.bare().post("/webhooks/keyed", content=BODY, headers=FROM_PROVIDER))
            claim = ClaimFetches(providers=("keyed",), limit=5, lease=SECOND, now=home.world.now())
            async with asyncio.timeout(10):
                while not (fetches := await home.ledger.write(claim)):  # noqa: ASYNC110 - the record is asked, nothing is guessed
                    await asyncio.sleep(0)
            await home.ledger.write(SettleFetch(fetch=fetches[0], now=home.world.now(), outcome="", document=KEYS))
            found = home.gate.endpoints.get("keyed")
            assert found is not None
            home.gate.endpoints.replace({"keyed": dataclasses.replace(found, keys=KeyStore({"https://keys.example/set.json": KEYS}))})
            answer = await waiting
            assert (answer.status_code, answer.json()["status"]) == (200, "unmatched")

    asyncio.run(scenario())


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize(("ended", "status"), [((), 200), ((0,), 200), ((1,), 200), ((0, 1), 401)])
def test_rotation_accepts_any_live_secret_in_any_order(tmp_path: Path, order: tuple[int, int], ended: tuple[int, ...], status: int) -> None:
    """B017, B010: each value is tried with each secret that is still there; which one matched is recorded; none left: refused."""

    async def scenario() -> None:
        known = [Secret(id=f"sec_{number}", value=SECRET + b"%d" % number) for number in (0, 1)]
        live = tuple(secret for number, secret in enumerate(known) if number not in ended)
        async with standing(
            tmp_path, endpoint("rotating", SIGNED + EVENT, *(live or (Secret(id="sec_9", value=b"another-one-altogether"),)))
        ) as home:
            now = home.world.now() // SECOND
            macs = [signature(BODY, now, known[number].value).partition(",")[2] for number in order]
            headers = {"X-Sig": ", ".join([f"t={now}", *macs])}
            answer = await home.bare().post("/webhooks/rotating", content=BODY, headers=headers)
            assert answer.status_code == status
            matched = {use.secret_id for use in await home.ledger.read(uses, "rotating")}
            assert matched <= {secret.id for secret in live}
            assert bool(matched) == (status == 200)

    asyncio.run(scenario())


def test_a_signed_challenge_sent_back_as_a_delivery_is_refused(tmp_path: Path) -> None:
    """B9: what a stranger has had signed before any signature stores nothing, though its signature is right."""
    secret = Secret(id="env:B", value=b"private-key")
    known = load((Path(__file__).parents[2] / "providers" / "contracts" / "braintree.toml").read_bytes())
    params = {"public_key": "ours"}
    settings = ProviderSettings(name="braintree", contract="braintree")
    shaky = Endpoint(
        name="braintree",
        contract=known,
        settings=settings,
        verifier=prepare(known.signatures, [secret], params),
        secrets=(secret,),
        params=params,
    )

    async def scenario() -> None:
        async with standing(tmp_path, shaky) as home:
            client, challenge = home.bare(), "0123456789abcdef0123"
            asked = await client.get(f"/webhooks/braintree?bt_challenge={challenge}")
            assert asked.status_code == 200
            form = {"bt_signature": asked.text, "bt_payload": challenge}
            assert (await client.post("/webhooks/braintree", data=form)).status_code == 401
            assert await home.ledger.read(inbox.listed, status=None, provider="braintree", limit=10) == []

    asyncio.run(scenario())


def test_a_flood_of_handshakes_does_not_fill_the_log(tmp_path: Path) -> None:
    """B10: twenty lines a second of one provider; the next one tells how many went without."""

    async def scenario() -> None:
        async with standing(tmp_path, SHAKY) as home:
            client = home.bare()
            for second in range(2):
                home.world.pass_seconds(1)
                for number in range(1 if second else A_SECOND + 3):
                    await client.get(f"/webhooks/shaky?hub.mode=subscribe&hub.verify_token=wrong&hub.challenge={number}")

    with capture_logs() as logs:
        asyncio.run(scenario())
    told = [line.get("left_out", 0) for line in logs if line["event"] == "receiver.handshake"]
    assert told == [*[0] * A_SECOND, 3]

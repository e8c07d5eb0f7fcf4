"""Fetches for verification: strangers name the addresses, so every rule of the transport holds (B9, B146, B154)."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from ledger.fetches import COOL_DOWN_SECONDS, handshakes_of, published_keys
from ledger.ledger import Ledger
from providers.key_requests import key_request
from reconciler.addresses import is_public
from reconciler.fetching import MAX_BYTES, Fetcher
from reconciler.transport import Transport
from schemas.contract import Contract, SignatureScheme
from schemas.delivery import HandshakeAnswer
from schemas.operation import SECOND
from schemas.receiving import NoteHandshake, WantKey
from tests.providers.signing import jwk, scheme
from tests.reconciler.houses import open_ledger
from tests.reconciler.servers import Handler, Server, answering, header, response, serving
from tests.reconciler.worlds import StillWorld

SET = json.dumps({"keys": [jwk(ed25519.Ed25519PrivateKey.generate().public_key(), "k1")]}).encode()
OTHER = json.dumps({"keys": [jwk(ed25519.Ed25519PrivateKey.generate().public_key(), "k2")]}).encode()


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


@dataclass(slots=True)
class Bench:
    """A fetcher over a real record, and the raw server that it finds under every public name."""

    ledger: Ledger
    world: StillWorld
    fetcher: Fetcher
    server: Server

    async def want(self, path: str = "/set.json") -> bool:
        url = f"https://provider.test:{self.server.port}{path}"
        return await self.ledger.write(WantKey(provider="keyed", url=url, now=self.world.now()))

    async def confirm(self, url: str = "") -> None:
        answer = HandshakeAnswer(kind="fetch_url", status=200, fetch_url=url or f"https://provider.test:{self.server.port}/?Token=canary")
        await self.ledger.write(NoteHandshake(id=self.world.new_id("hsk_"), provider="keyed", answer=answer, now=self.world.now()))

    async def documents(self) -> list[bytes]:
        return [found.document for found in await self.ledger.read(published_keys)]

    async def outcomes(self) -> list[str]:
        return [row["outcome"] for row in await self.ledger.read(handshakes_of, "keyed")]

    def pass_seconds(self, seconds: int) -> None:
        self.world.moment += seconds * SECOND


@contextlib.asynccontextmanager
async def bench(
    folder: Path, handler: Handler, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext, asks: Any = None, **more: Any
) -> AsyncIterator[Bench]:
    async def everywhere(_: str, __: int) -> list[str]:
        return ["127.0.0.1"]

    async with serving(handler, tls=server_tls) as server:
        ledger = open_ledger(folder, {"keyed": Contract(name="keyed", digest="d")})
        world = StillWorld()
        rules = {"resolve": everywhere, "permitted": lambda address: address == "127.0.0.1", **more}
        fetcher = Fetcher(record=ledger, world=world, transport=Transport(world, tls=client_tls, **rules), providers=["keyed"], asks=asks)
        try:
            yield Bench(ledger, world, fetcher, server)
        finally:
            await fetcher.aclose()
            ledger.close()


def test_a_wanted_key_set_is_fetched_once_without_a_credential(
    tmp_path: Path, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    """B2: one GET without Authorization or cookies; the document is kept; nothing more is owed within the cool-down."""

    async def scenario() -> None:
        async with bench(tmp_path, answering(response(200, SET)), server_tls, client_tls) as at:
            assert await at.fetcher.run_once() == {}
            await at.want()
            counts = await asyncio.gather(at.fetcher.run_once(), at.fetcher.run_once())
            assert sum(found.get("fetched", 0) for found in counts) == 1
            assert not await at.want()
            assert await at.fetcher.run_once() == {}
            (request,) = at.server.requests
            assert request.startswith(b"GET /set.json HTTP/1.1\r\n")
            assert not header(request, "authorization") + header(request, "cookie")
            assert await at.documents() == [SET]

    run(scenario)


@pytest.mark.parametrize(
    "answer",
    [
        response(200, b'{"keys": []}'),
        response(200, b"<html>maintenance</html>"),
        response(404),
        response(302, b"", "location: https://elsewhere.example/set.json"),
        response(200, b"x" * (MAX_BYTES + 1)),
        response(500),
    ],
    ids=["empty", "page", "missing", "redirect", "large", "broken"],
)
def test_the_old_keys_stay_until_new_ones_can_be_read(
    answer: bytes, tmp_path: Path, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    """Key sets: whatever comes instead of one replaces nothing, redirects are not followed, and the next good one counts."""

    async def scenario() -> None:
        async with bench(tmp_path, answering(response(200, SET), answer, response(200, OTHER)), server_tls, client_tls) as at:
            await at.want()
            await at.fetcher.run_once()
            at.pass_seconds(COOL_DOWN_SECONDS)
            await at.want()
            assert (await at.fetcher.run_once())["failed"] == 1
            assert await at.documents() == [SET]
            at.pass_seconds(COOL_DOWN_SECONDS)
            await at.want()
            assert (await at.fetcher.run_once())["fetched"] == 1
            assert await at.documents() == [OTHER]

    run(scenario)


def test_a_confirmation_is_fetched_once(tmp_path: Path, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> None:
    """B9: after a success nothing is owed; a fault of theirs is tried again later, a refusal is not."""

    async def scenario() -> None:
        answers = answering(response(503), response(200), response(403))
        async with bench(tmp_path, answers, server_tls, client_tls) as at:
            await at.confirm()
            assert await at.fetcher.run_once() == {"fetched": 0, "failed": 1}
            assert await at.fetcher.run_once() == {}
            at.pass_seconds(5)
            assert await at.fetcher.run_once() == {"fetched": 1, "failed": 0}
            at.pass_seconds(100_000)
            assert await at.fetcher.run_once() == {}
            assert await at.outcomes() == ["confirmed"]
            await at.confirm()
            await at.fetcher.run_once()
            at.pass_seconds(100_000)
            assert await at.fetcher.run_once() == {}
            assert await at.outcomes() == ["http_403", "confirmed"]
            assert len(at.server.requests) == 3

    run(scenario)


def test_tries_are_bounded(tmp_path: Path, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> None:
    """B9: an address that never answers well is given up after five tries."""

    async def scenario() -> None:
        async with bench(tmp_path, answering(response(500)), server_tls, client_tls) as at:
            await at.confirm()
            for _ in range(20):
                await at.fetcher.run_once()
                at.pass_seconds(4_000)
            assert len(at.server.requests) == 5

    run(scenario)


@pytest.mark.parametrize("scheme", ["https", "http"])
def test_nothing_inside_is_ever_dialled(scheme: str, tmp_path: Path, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> None:
    """B146, B154: an address that leads inside, or is not https, gets no connection, whoever named it."""

    async def scenario() -> None:
        async with bench(tmp_path, answering(response(200)), server_tls, client_tls, permitted=is_public) as at:
            await at.confirm(f"{scheme}://provider.test:{at.server.port}/?Token=1")
            assert await at.fetcher.run_once() == {"fetched": 0, "failed": 1}
            assert at.server.connections == 0
            assert await at.outcomes() == ["forbidden_address" if scheme == "https" else "forbidden_scheme"]

    run(scenario)


def test_a_key_is_asked_for_by_its_id_as_the_contract_says(
    tmp_path: Path, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    """B2: a POST with the id and the account's constants, at the contract's address alone; the answer is kept for that id."""
    one = json.dumps({"key": json.loads(SET)["keys"][0], "request_id": "r"}).encode()
    schemes: list[SignatureScheme] = []
    params = {"secret": "canary-of-the-account"}

    async def scenario() -> None:
        asks = {"keyed": lambda url: key_request(schemes, params, url)}
        async with bench(tmp_path, answering(response(200, one), response(200, SET)), server_tls, client_tls, asks) as at:
            address = f"https://provider.test:{at.server.port}/key/get"
            post = {"key_id": "{kid}", "secret": "{param:secret}"}
            schemes.append(
                scheme(primitive="jwt", algs=["EdDSA"], token={"in": "bearer"}, keysource={"kind": "jwks", "url": address, "post": post})
            )
            await at.want('/key/get#k1"}#')
            await at.fetcher.run_once()
            await at.want("/other#k1")
            await at.fetcher.run_once()
            asked, other = at.server.requests
            assert asked.startswith(b"POST /key/get HTTP/1.1\r\n")
            assert json.loads(asked.partition(b"\r\n\r\n")[2]) == {"key_id": 'k1"}#', "secret": "canary-of-the-account"}
            assert other.startswith(b"GET /other HTTP/1.1\r\n")
            assert b"canary" not in other
            assert await at.documents() == [one, SET]
            params.clear()
            await at.want("/key/get#k2")
            assert (await at.fetcher.run_once())["failed"] == 1
            assert len(at.server.requests) == 2
            assert "canary" not in caplog.text

    run(scenario)

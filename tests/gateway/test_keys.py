"""API keys: long, hashed, cached for a moment, revoked at once, never logged (MISSION G5)."""

import asyncio
import re
from pathlib import Path

import pytest

from gateway.keys import Keyring, Principal, new_key
from gateway.problems import ProblemError
from schemas.commands import RevokeKey
from tests.gateway.house import StandingWorld, house


def test_a_revoked_key_fails_on_the_next_request(tmp_path: Path) -> None:
    """G5: revoked through this process: at once. Revoked elsewhere: within a second."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            keyring = Keyring(home.ledger, home.world)
            here_id, here = await home.key()
            there_id, there = await home.key()
            headers = {text: [(b"authorization", f"Bearer {text}".encode())] for text in (here, there)}
            for text in (here, there):
                assert (await keyring.principal(headers[text])).owner == "acme"
            assert await keyring.revoke(here_id, home.world.now())
            with pytest.raises(ProblemError):
                await keyring.principal(headers[here])
            await keyring.principal(headers[there])
            await home.ledger.write(RevokeKey(id=there_id, now=home.world.now()))  # as another process does
            home.world.pass_seconds(0.9)
            with pytest.raises(ProblemError):
                await keyring.principal(headers[there])
            assert not await keyring.revoke("key_unknown", home.world.now())

    asyncio.run(scenario())


def test_a_revocation_during_a_look_up_is_not_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """G5: what was read before a revocation committed serves one request and is not kept."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            keyring = Keyring(home.ledger, home.world)
            key_id, text = await home.key()
            headers = [(b"authorization", f"Bearer {text}".encode())]
            look_up, revoked = keyring._look_up, asyncio.Event()

            async def slow(digest: bytes) -> Principal:
                found = await look_up(digest)
                await revoked.wait()
                return found

            monkeypatch.setattr(Keyring, "_look_up", lambda _, digest: slow(digest))
            racing = asyncio.create_task(keyring.principal(headers))
            await asyncio.wait([racing], timeout=0.1)
            await keyring.revoke(key_id, home.world.now())
            revoked.set()
            await racing
            monkeypatch.setattr(Keyring, "_look_up", lambda _, digest: look_up(digest))
            with pytest.raises(ProblemError):
                await keyring.principal(headers)

    asyncio.run(scenario())


def test_the_cache_of_keys_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cache has a bound: more keys than entries are served all the same."""
    monkeypatch.setattr("gateway.keys._ENTRIES", 2)

    async def scenario() -> None:
        async with house(tmp_path) as home:
            keyring = Keyring(home.ledger, home.world)
            for _ in range(5):
                _, text = await home.key()
                await keyring.principal([(b"authorization", f"Bearer {text}".encode())])
                assert len(keyring._cache) <= 2

    asyncio.run(scenario())


def test_new_keys_are_long_and_only_their_hash_is_stored() -> None:
    """A key's text is `rgk_<id>_<secret>`; the record gets its SHA-256."""
    key_id, text, digest = new_key(StandingWorld())
    assert re.fullmatch(r"rgk_[0-9a-f]{32}_\S{20,}", text)
    assert text.split("_")[1] == key_id.removeprefix("key_")
    assert len(digest) == 32


def test_keys_are_never_logged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """D6: neither a good nor a bad key appears in any output."""

    async def scenario() -> str:
        async with house(tmp_path) as home:
            _, text = await home.key()
            client = home.bare({"Authorization": f"Bearer {text}"})
            await client.get("/v1/operations/op_0")
            await home.bare({"Authorization": "Bearer rgk_canary"}).get("/v1/operations")
            home.ledger.close()
            await client.get("/v1/operations/op_0")
            return text

    text = asyncio.run(scenario())
    printed = "".join(capsys.readouterr())
    assert text not in printed
    assert "rgk_" not in printed

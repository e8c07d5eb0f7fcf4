"""Stored secrets and published keys as one process knows them: at most a second old, by time as by commits (B11, B2)."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli.material import AGE_SECONDS, Material, credentials, renewer
from ledger.errors import SecretMissingError
from ledger.ledger import Ledger
from ledger.vault import Vault
from schemas.operation import SECOND
from schemas.receiving import AddSecret, ClaimFetches, EndSecret, SettleFetch, WantKey
from schemas.settings import ProviderSettings
from tests.providers.signing import ED, jwk
from tests.reconciler.worlds import NOW, StillWorld

URL = "https://keys.example/set.json"
SET = json.dumps({"keys": [jwk(ED.public_key(), "k1")]}).encode()
ADD = AddSecret(id="sec_1", name="one", provider="reports", purpose="webhook", value=b"v", by="me", now=NOW, not_before=NOW + SECOND)


def record(folder: Path) -> Ledger:
    ledger = Ledger.open(f"sqlite:///{folder}/gateway.db", vault=Vault(bytes(32)), contracts={})
    ledger.start()
    return ledger


def usable(material: Material, world: StillWorld) -> list[str]:
    return [secret.id for secret in material.stored.usable("reports", "webhook", world.now())]


def test_periods_count_as_time_passes(tmp_path: Path) -> None:
    """B11: what begins or ends by time alone is a change too; nothing else is."""

    async def scenario() -> None:
        ledger, world = record(tmp_path), StillWorld()
        try:
            material = Material(ledger, world)
            await ledger.write(ADD)
            assert await material.refresh()
            assert not await material.refresh()
            assert usable(material, world) == []
            world.moment += SECOND
            assert await material.refresh()
            assert usable(material, world) == ["sec_1"]
            await ledger.write(EndSecret(name="one", now=NOW, not_after=NOW + 5 * SECOND))
            assert not await material.refresh()
            world.moment += 4 * SECOND
            assert await material.refresh()
            assert usable(material, world) == []
        finally:
            ledger.close()

    asyncio.run(scenario())


def test_what_is_committed_is_told_to_whoever_follows(tmp_path: Path) -> None:
    """B2, B11: a fetched document and a revocation reach the endpoints of the process without a restart."""

    async def scenario() -> None:
        ledger, world = record(tmp_path), StillWorld(moment=NOW + SECOND)
        material, changed = Material(ledger, world), asyncio.Event()
        await ledger.write(ADD)
        await material.refresh()
        following = asyncio.create_task(material.follow(changed.set))
        try:
            assert material.keys("reports").key_set(URL, "k1") is None
            await ledger.write(WantKey(provider="reports", url=URL, now=NOW))
            (fetch,) = await ledger.write(ClaimFetches(providers=("reports",), limit=1, lease=SECOND, now=NOW))
            await ledger.write(SettleFetch(fetch=fetch, now=NOW, outcome="", document=SET))
            await asyncio.wait_for(changed.wait(), 20)
            assert material.keys("reports").key_set(URL, "k1")
            changed.clear()
            await ledger.write(EndSecret(name="one", now=NOW))
            await asyncio.wait_for(changed.wait(), 20)
            assert usable(material, world) == []
        finally:
            following.cancel()
            ledger.close()

    asyncio.run(scenario())


def test_a_credential_that_has_ended_is_followed_by_the_newest_usable_one(tmp_path: Path) -> None:
    """H4: `vault:NAME` means NAME while it is usable, then the newest credential of its provider; never another's, nor a webhook secret."""

    async def scenario() -> None:
        ledger, world = record(tmp_path), StillWorld()
        try:
            first = replace(ADD, purpose="credential", not_before=None)
            changes: list[dict[str, Any]] = [
                {},
                {"now": NOW + 1},
                {"now": NOW + 2},
                {"provider": "other", "now": NOW + 3},
                {"purpose": "webhook"},
            ]
            for number, change in enumerate(changes):
                await ledger.write(replace(first, id=f"sec_{number}", name=f"token-{number}", value=b"%d" % number, **change))
            material = Material(ledger, world)
            found = credentials({"reports": ProviderSettings(name="reports", contract="c", credential="vault:token-0")}, material, world)
            await material.reread()
            assert found("reports") == "0"
            await ledger.write(EndSecret(name="token-0", now=NOW))
            await material.reread()
            assert found("reports") == "2"
            for name in ("token-1", "token-2"):
                await ledger.write(EndSecret(name=name, now=NOW))
            await material.reread()
            with pytest.raises(SecretMissingError, match="token-0 is not usable now"):
                found("reports")
        finally:
            ledger.close()

    asyncio.run(scenario())


def test_renewing_a_credential_is_bounded_and_hides_no_change(tmp_path: Path) -> None:
    """H4: however many calls are refused, the store is read once in a second; who follows is told of the change all the same (B11)."""

    async def scenario() -> None:
        ledger, world = record(tmp_path), StillWorld()
        try:
            material = Material(ledger, world)
            await material.refresh()
            renew = renewer(material, world)
            await ledger.write(replace(ADD, not_before=None))
            await renew()
            assert usable(material, world) == ["sec_1"]
            assert await material.refresh()
            await ledger.write(EndSecret(name="one", now=NOW))
            await renew()
            assert usable(material, world) == ["sec_1"]
            world.shift += AGE_SECONDS
            await renew()
            assert usable(material, world) == []
        finally:
            ledger.close()
        world.shift += AGE_SECONDS
        await renew()  # a record that cannot be read leaves what is known

    asyncio.run(scenario())

"""Stored secrets and published keys as one process knows them: at most a second old, by time as by commits (B11, B2)."""

import asyncio
import json
from pathlib import Path

from cli.material import Material
from ledger.ledger import Ledger
from ledger.vault import Vault
from schemas.operation import SECOND
from schemas.receiving import AddSecret, ClaimFetches, EndSecret, SettleFetch, WantKey
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

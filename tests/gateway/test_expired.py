"""What retention has removed answers that it has expired, to its owner alone; what is left says when it goes (F6, G1)."""

import asyncio
from pathlib import Path

from schemas.operation import SECOND
from schemas.upkeep import Expire, Stage
from tests.gateway.asking import OPERATIONS, made
from tests.gateway.house import house

YEAR = 365 * 86_400


def test_an_expired_operation_is_gone_and_not_unknown(tmp_path: Path) -> None:
    """`expires_at` stands from the end on; afterwards 410 with the state, for its key too; 404 for everybody else (B144)."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client, other = await home.client(), await home.client(owner="eve")
            first = await made(client)
            assert first["expires_at"] is None
            ended = (await client.post(first["links"]["cancel"], json={})).json()
            assert ended["expires_at"] == ended["updated_at"].replace("2027", "2028")
            later = home.world.now() + 2 * YEAR * SECOND
            await home.ledger.write(Expire(stage=Stage.RECORDS, before=later, memory=later, now=later, limit=10))
            for name in ("self", "history", "result"):
                gone = await client.get(first["links"][name])
                assert (gone.status_code, gone.json()["code"], gone.json()["state"]) == (410, "operation_expired", "withdrawn")
                assert (await other.get(first["links"][name])).status_code == 404
            again = await client.post(OPERATIONS, json={"provider": "reports", "request": {"n": "k"}}, headers={"Idempotency-Key": "k"})
            assert (again.status_code, again.json()["code"]) == (410, "idempotency_key_expired")
            assert (await client.get(OPERATIONS)).json()["operations"] == []

    asyncio.run(scenario())

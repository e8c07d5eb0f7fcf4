"""A credential that expires while jobs run, rotated without a restart in its file or the encrypted store, in the whole house (H4, I)."""

import asyncio
import io
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from cli import logs
from ledger import tables
from ledger.ledger import Ledger
from schemas.receiving import AddSecret, EndSecret
from schemas.states import State
from tests.conformance.conftest import Database
from tests.faults.providers import Provider
from tests.faults.whole import REPORTS, Whole, changed, eventually, whole
from tests.reconciler.servers import Server, header, read_request, response, serving

OLD, NEW = "CANARY-credential", "CANARY-rotated-credential"
STILL = changed(REPORTS, ("poll_seconds = 1\n", "poll_seconds = 600\n"), ("max_poll_seconds = 2\n", "max_poll_seconds = 600\n"))


class Guarded(Provider):
    """Takes one credential and quotes every other one that it is shown. `rotate` runs when it is shown the old one too late."""

    wanted = OLD
    rotate: Callable[[], Awaitable[None]] | None = None

    async def __call__(self, server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            request = await read_request(server, reader)
            sent = header(request, "authorization").removeprefix("Bearer ")
            if sent != self.wanted:
                self.others.append(request)
                if self.rotate is not None:
                    await self.rotate()
                said = json.dumps({"error": {"code": "invalid_api_key", "message": f"no such key: {sent}"}, "key": sent}).encode()
                writer.write(response(401, said, f"x-request-id: {sent}", f"www-authenticate: Bearer error={sent}"))
            elif request.startswith(b"POST"):
                await self._create(request, writer)
            else:
                path = request.split(b" ")[1].decode()
                self.gets.append(path)
                writer.write(self._read(path))
            await writer.drain()


async def _store(ledger: Ledger, name: str, value: str, now: int) -> None:
    command = AddSecret(
        id=f"sec_{name}", name=name, provider="reports", purpose="credential", value=value.encode(), by="operator:ada", now=now
    )
    assert await ledger.write(command) == f"sec_{name}"


async def _everything(home: Whole) -> str:
    """Return all that the record holds, as it is stored."""
    found: list[bytes] = []
    for table in tables.metadata.sorted_tables:
        for row in await home.rows(table):
            found.extend(bytes(value) if isinstance(value, bytes | memoryview) else str(value).encode() for value in row.values())
    return b"\n".join(found).decode("latin-1")


@pytest.mark.parametrize("reference", [None, "vault:token-1"])
def test_a_credential_that_is_rotated_mid_job(tmp_path: Path, database: Database, reference: str | None) -> None:
    """H4, I: the provider takes the old one no longer, and the new one is there a moment later, in its file or in the encrypted store.

    The create that was refused is sent once more and makes one job; the job under way is read on. Although the provider
    quotes what it refuses, no copy of either credential is left in the record, its files or the log.
    """
    provider, out = Guarded(), io.StringIO()
    logs.configure(level="debug", form="json", stream=out)

    async def scenario() -> None:
        async with (
            serving(provider) as server,
            whole(tmp_path, origin=server.url, database_url=database.url, contract=STILL, credential=reference, before=before) as home,
        ):
            first = await home.made()
            await home.reaches(first, State.ACCEPTED, State.OBSERVING)

            async def rotate() -> None:
                provider.rotate = None
                now = home.house.world.now()
                if reference is None:
                    (tmp_path / "credential").write_text(NEW, encoding="utf-8")
                else:
                    await _store(home.ledger, "token-2", NEW, now)
                    await home.ledger.write(EndSecret(name="token-1", now=now))

            provider.wanted, provider.rotate = NEW, rotate
            second = await home.made()
            await home.reaches(second, State.ACCEPTED, State.OBSERVING)
            assert [request.split(b" ")[0] for request in provider.others] == [b"POST"]
            rows = await home.history(second)
            assert "credential_rotated" in json.dumps([[str(value) for value in row.values()] for row in rows])
            reads = len(provider.gets)
            assert (await home.client().post(f"/v1/operations/{first}/refresh")).status_code == 202
            await eventually(lambda: len(provider.gets) > reads)
            assert len(provider.jobs) == 2
            assert "CANARY" not in await _everything(home)

    async def before(ledger: Ledger, now: int) -> None:
        await _store(ledger, "token-1", OLD, now)

    asyncio.run(scenario())
    assert "reconciler.drained" in out.getvalue()
    assert "CANARY" not in out.getvalue()
    assert all(b"CANARY" not in place.read_bytes() for place in tmp_path.rglob("*.db*"))

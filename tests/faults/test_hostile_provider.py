"""A provider that answers with what no database, path or header takes: evidence or a failed read, never an answer that is lost."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from ledger import tables
from schemas.states import State
from tests.conformance.conftest import Database
from tests.faults.providers import Provider
from tests.faults.whole import REPORTS, Whole, eventually, whole
from tests.reconciler.servers import Server, header, read_request, response, serving

NASTY = {
    "nul": "a\x00b",
    "control": "a\x1b[31m\r\nb",
    "separator": "a\u2028b",
    "surrogate": "\ud800",
    "plane": "\U0001f4a9",
    "long": "x" * 100_000,
    "path": "../../admin?x=1#y",
    "dots": "..",
    "template": "{idempotency_token}",
    "empty": "",
}


class Hostile(Provider):
    """Answers creates and reads with given documents and headers."""

    create: bytes = b""
    read: bytes = b""

    async def __call__(self, server: Server, reader: Any, writer: asyncio.StreamWriter) -> None:
        while True:
            request = await read_request(server, reader)
            self.others.append(request)
            writer.write(self.create if request.startswith(b"POST /v1/reports HTTP") else self.read)
            await writer.drain()


def _json(document: Any, *headers: str) -> bytes:
    return response(200, json.dumps(document).encode(), "content-type: application/json", *headers)


async def _judged(home: Whole) -> None:
    """Nothing that was learned has been lost, and nothing failed by a fault of ours."""
    assert home.clockwork is not None
    shown = home.clockwork.describe()
    assert (shown["failed"], shown["claims"]["failures"]) == (0, 0)
    exchanges = await home.rows(tables.exchanges)
    assert exchanges
    assert not [row for row in exchanges if "internal" in str(row["error"])]
    assert not [row for row in await home.rows(tables.operations) if "internal" in str(row["last_read_error"])]
    await home.audited()


@pytest.mark.parametrize("name", list(NASTY))
def test_any_text_in_an_answer_is_recorded_or_refused(tmp_path: Path, database: Database, name: str) -> None:
    """B137, B141: state word, error, progress, request id of a status answer; the operation stays readable and is read again."""
    provider, text = Hostile(), NASTY[name]
    provider.create = _json({"id": "rep_1", "status": "running"})
    document = {"id": "rep_1", "status": text, "progress": text, "updated_at": text, "error": {"code": text, "message": text}}
    provider.read = _json({**document, "result": {"url": text, "media_type": text}}, "x-request-id: a\x80b")

    async def scenario() -> None:
        async with serving(provider) as server, whole(tmp_path, origin=server.url, database_url=database.url) as home:
            made = await home.made()
            await home.reaches(made, State.ACCEPTED, State.OBSERVING)
            await eventually(lambda: len([sent for sent in provider.others if sent.startswith(b"GET")]) >= 2)
            await home.until(made, lambda op: op.last_read_at is not None)
            for path in ("", "/history"):
                assert (await home.client().get(f"/v1/operations/{made}{path}")).status_code == 200
            await _judged(home)

    asyncio.run(scenario())


@pytest.mark.parametrize("name", list(NASTY))
def test_any_text_as_a_job_id_stays_inside_its_place(tmp_path: Path, database: Database, name: str) -> None:
    """B148: a job id is one segment of the status path, whatever it holds, or the create is ambiguous; no other path is asked."""
    provider, text = Hostile(), NASTY[name]
    provider.create = _json({"id": text})
    provider.read = _json({"id": text, "status": "running"})

    async def scenario() -> None:
        async with serving(provider) as server, whole(tmp_path, origin=server.url, database_url=database.url, contract=ALONE) as home:
            made = await home.made()
            op = await home.reaches(made, State.OBSERVING, State.CREATE_UNRESOLVED, State.CREATE_UNKNOWN, State.QUARANTINED)
            for request in provider.others:
                method, path, _ = request.split(b"\r\n")[0].decode().split(" ")
                if method == "GET":
                    assert path.startswith("/v1/reports/"), path
                    assert path.count("/") == 3, path
                    assert path.rsplit("/", 1)[1] not in {"", ".", ".."}
                    assert header(request, "authorization") in {"", "Bearer CANARY-credential"}
            assert (await home.client().get(f"/v1/operations/{made}")).json()["remote"]["job_id"] == op.remote_job_id
            await _judged(home)

    asyncio.run(scenario())


ALONE = REPORTS.replace('strategies = ["resend"]', "strategies = []").replace("replay_guaranteed = true\n", "")
"""An answer without a usable job id is parked: seen as such."""


@pytest.mark.parametrize("name", list(NASTY))
def test_any_text_in_a_refusal_is_kept_sanitised(tmp_path: Path, database: Database, name: str) -> None:
    """A10, B141: a definite refusal with such an explanation ends in `failed`, shown without control characters."""
    provider, text = Hostile(), NASTY[name]
    body = json.dumps({"error": {"code": text, "message": text}}).encode()
    provider.create = response(422, body, "content-type: application/json")

    async def scenario() -> None:
        async with serving(provider) as server, whole(tmp_path, origin=server.url, database_url=database.url) as home:
            made = await home.made()
            await home.reaches(made, State.FAILED)
            shown = (await home.client().get(f"/v1/operations/{made}")).json()
            said = f"{shown['error']['code']}{shown['error']['message'] or ''}"
            assert not [character for character in said if ord(character) < 32 or character in "\x7f\u2028\ud800"]
            assert len(said) < 2_000
            await _judged(home)

    asyncio.run(scenario())

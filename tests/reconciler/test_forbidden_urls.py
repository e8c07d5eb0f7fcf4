"""No connection is begun for an address that a provider may not name, counted at the socket (F3, B060, B094, B146, B148)."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from providers.recovery import ListWalk
from reconciler.transport import Transport
from schemas.evidence import CancelRefused, CollectFailed, JobKnown, ReadFailed, ResultGone
from schemas.http import AnsweredOutcome, HttpRequest, NotSentOutcome
from schemas.states import Errand, State
from tests.reconciler.accounts import CONTRACT, CREDENTIAL, Bench, collecting, operation
from tests.reconciler.dialling import dialled
from tests.reconciler.servers import Server, answering, header, read_request, response, serving
from tests.reconciler.test_transport_addresses import PRIVATE
from tests.reconciler.worlds import StillWorld

METADATA = ["169.254.169.254", "fd00:ec2::254", "100.100.100.200", "192.0.0.192", "168.63.129.16", "fd20:ce::254"]
TRANSLATED = [
    "::ffff:169.254.169.254",
    "::169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::a9fe:a9fe",
    "2002:a9fe:a9fe::1",
    "2001:0:a9fe:a9fe::1",
]

# `{port}` is a port of this machine where somebody listens who must not be asked.
FOREIGN = [
    "https://127.0.0.1:{port}/f", "http://127.0.0.1:{port}/f", "https://localhost:{port}/f", "https://[::1]:{port}/f",
    "https://127.1:{port}/f", "https://2130706433:{port}/f", "https://0x7f000001:{port}/f", "https://0177.0.0.1:{port}/f",
    "https://[::ffff:127.0.0.1]:{port}/f", "https://0:{port}/f", "//127.0.0.1:{port}/f", "https://u:p@127.0.0.1:{port}/f",
    "https://files.example@127.0.0.1:{port}/f", "https://127.0.0.1:{port}\\@files.example/f", "https://files.example\t@127.0.0.1:{port}/",
    "https://LOCALHOST.:{port}/f", "https://\uff4cocalhost:{port}/f", "https://169.254.169.254/latest/meta-data/", "https://[fd00:ec2::254]/",
    "file:///etc/passwd", "ftp://127.0.0.1:{port}/f", "gopher://127.0.0.1:{port}/_x", "unix:///run/docker.sock", "data:text/plain,x",
]  # fmt: skip


def _answer(value: Any) -> AnsweredOutcome:
    return AnsweredOutcome(status=200, body=json.dumps(value).encode())


def _provider(status: dict[str, Any]) -> Any:
    async def handler(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(server, reader)
            writer.write(response(200, json.dumps(status).encode()))
            await writer.drain()

    return handler


@pytest.mark.parametrize("url", FOREIGN)
def test_a_result_address_that_nobody_listed_is_not_dialled(url: str, tmp_path: Path) -> None:
    """However it is written, an unlisted result address is refused with its reason; the only host dialled is the provider (B146, B148)."""

    async def scenario() -> None:
        async with serving(answering(response(200, b"inside"))) as inside:
            named = url.replace("{port}", str(inside.port))
            async with serving(_provider({"status": "done", "result_url": named})) as home:
                bench = Bench(tmp_path, home.url)
                with dialled() as found:
                    command = await bench.settle(collecting(home.url), Errand.COLLECT)
                await bench.transport.aclose()
                assert isinstance(command.evidence, ResultGone)
                assert command.evidence.code in {"foreign_origin", "unusable_url"}
                assert set(found) == {("127.0.0.1", home.port)}
                assert inside.connections == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("errand", [Errand.READ, Errand.CANCEL])
def test_a_remembered_address_that_nobody_listed_is_not_dialled(errand: Errand, tmp_path: Path) -> None:
    """Where the create answer named the address of the status or of the cancel, an unlisted one reaches no socket (B148)."""
    assert CONTRACT.create is not None
    assert CONTRACT.status is not None
    assert CONTRACT.cancel is not None
    contract = replace(
        CONTRACT,
        create=replace(CONTRACT.create, remember={"there": "body:there"}),
        status=replace(CONTRACT.status, url="there"),
        cancel=replace(CONTRACT.cancel, url="there"),
    )

    async def scenario() -> None:
        async with serving(answering(response(200, b"{}"))) as inside, serving(answering(response(200, b"{}"))) as home:
            bench = Bench(tmp_path, home.url, contract=contract)
            with dialled() as found:
                for url in FOREIGN:
                    op = operation(home.url, remembered={"there": url.replace("{port}", str(inside.port))})
                    command = await bench.settle(op, errand)
                    assert isinstance(command.evidence, ReadFailed if errand is Errand.READ else CancelRefused)
                assert found == []
                await bench.settle(operation(home.url, remembered={"there": "/elsewhere?x=1"}), errand)
                assert set(found) == {("127.0.0.1", home.port)}
            await bench.transport.aclose()
            assert inside.connections == 0
            assert b" /elsewhere?x=1 " in home.requests[0]

    asyncio.run(scenario())


def test_no_special_address_is_dialled_however_it_is_named() -> None:
    """A name whose answer is, or holds, a private, special or translated address is not dialled at all; nor the bare address (B146)."""

    async def scenario() -> None:
        answers: list[str] = []

        async def resolve(_: str, __: int) -> list[str]:
            return answers

        transport = Transport(StillWorld(), resolve=resolve)
        with dialled() as found:
            for text in [*PRIVATE, *METADATA, *TRANSLATED]:
                for case in ([text], ["93.184.216.34", text], [text, "93.184.216.34"]):
                    answers[:] = case
                    request = HttpRequest(method="GET", url="https://files.example/f", allow_private=False, total_seconds=5)
                    outcome = await transport.perform(request)
                    assert isinstance(outcome, NotSentOutcome)
                    assert outcome.error == "forbidden_address", text
                literal = f"https://[{text}]/" if ":" in text else f"https://{text}/"
                outcome = await transport.perform(replace(request, url=literal))
                assert isinstance(outcome, NotSentOutcome)
                assert outcome.error in {"forbidden_address", "invalid_url"}, text
        await transport.aclose()
        assert found == []

    asyncio.run(scenario())


def test_an_operators_wildcard_opens_no_way_inside(tmp_path: Path) -> None:
    """`https://*.files.example` lets the provider choose the host: its address must be public, and no credential goes there (B146)."""

    async def inside(_: str, __: int) -> list[str]:
        return ["127.0.0.1"]

    async def scenario() -> None:
        async with serving(_provider({"status": "done", "result_url": "https://a.files.example/f"})) as home:
            bench = Bench(tmp_path, home.url, result_origins=("https://*.files.example",), resolve=inside)
            with dialled() as found:
                command = await bench.settle(collecting(home.url), Errand.COLLECT)
            await bench.transport.aclose()
            assert command.evidence == CollectFailed(error="forbidden_address")
            assert set(found) == {("127.0.0.1", home.port)}

    asyncio.run(scenario())


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed_by_any_errand(code: int, tmp_path: Path) -> None:
    """Whatever errand is answered by a redirect: nobody asks its target, and no credential goes there (B060, B094)."""

    async def scenario() -> None:
        async with (
            serving(answering(response(200, b'{"id": "job-9", "status": "done"}'))) as other,
            serving(answering(response(code, b"", f"location: {other.url}/"))) as home,
        ):
            bench = Bench(tmp_path, home.url)
            created = await bench.settle(operation(home.url, state=State.CREATE_PENDING, remote_job_id=None), Errand.CREATE)
            for errand, state in ((Errand.READ, State.OBSERVING), (Errand.CANCEL, State.CANCEL_REQUESTED)):
                await bench.settle(operation(home.url, state=state), errand)
            await bench.settle(operation(home.url, state=State.CREATE_UNKNOWN, remote_job_id=None), Errand.RECOVER)
            await bench.settle(collecting(home.url), Errand.COLLECT)
            await bench.transport.aclose()
            assert other.connections == 0
            assert len(home.requests) == 5
            assert getattr(created.evidence, "error", "") == f"redirect_{code}"
            assert "check base_url" in getattr(created.evidence, "message", "")

    asyncio.run(scenario())


def test_a_next_link_to_another_place_is_not_followed() -> None:
    """A list whose next page lies elsewhere ends the walk; a link home in another spelling goes on (B148)."""
    op = operation("https://api.example", remote_job_id=None, state=State.CREATE_UNKNOWN)
    for link, goes_on in (
        ("https://evil.example/jobs?after=2", False),
        ("https://api.example:8443/jobs?after=2", False),
        ("http://api.example/jobs?after=2", False),
        ("https://api.example@evil.example/jobs?after=2", False),
        ("https://API.example.:443/other?after=2", True),
    ):
        walk = ListWalk.start(op, CONTRACT, credential=CREDENTIAL, now=0)
        step = walk.step(_answer({"data": [], "next": link}), 0)
        assert isinstance(step, ListWalk if goes_on else ReadFailed), link
        if isinstance(step, ListWalk):
            assert step.request.url == "https://api.example/jobs?after=2"


def test_a_create_answer_cannot_choose_where_the_job_is_read(tmp_path: Path) -> None:
    """B148: a job id that is an address, and a status address in the answer, are data: every later call goes to the pinned origin."""

    async def scenario() -> None:
        async with serving(answering(response(200, b"{}"))) as other:
            answer = json.dumps({"id": f"{other.url}/jobs/1", "status_url": f"{other.url}/s", "base_url": other.url}).encode()
            async with serving(answering(response(201, answer), response(200, b'{"status": "running"}'))) as home:
                bench = Bench(tmp_path, home.url)
                with dialled() as found:
                    created = await bench.settle(operation(home.url, state=State.CREATE_PENDING, remote_job_id=None), Errand.CREATE)
                    assert isinstance(created.evidence, JobKnown)
                    await bench.settle(operation(home.url, remote_job_id=created.evidence.remote_job_id), Errand.READ)
                await bench.transport.aclose()
                assert set(found) == {("127.0.0.1", home.port)}
                assert header(home.requests[1], "authorization") == f"Bearer {CREDENTIAL}"
                assert other.connections == 0

    asyncio.run(scenario())

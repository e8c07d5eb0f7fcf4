"""A credential that a provider refuses: read anew once, and used again only where nothing can be done twice (H4, I)."""

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ledger.errors import SecretMissingError
from providers.exchanges import without
from schemas.contract import Contract
from schemas.evidence import (
    CancelAmbiguous,
    CancelRefused,
    CreateAmbiguous,
    CreateRejected,
    Evidence,
    JobKnown,
    JobNotFound,
    NotSent,
    Read,
    ReadFailed,
)
from schemas.http import AnsweredOutcome, MaybeOutcome
from schemas.states import Errand, State
from tests.reconciler.accounts import CONTRACT, Bench, collecting, operation
from tests.reconciler.servers import Server, header, read_request, response, serving

OLD, NEW = "CANARY-old-credential", "CANARY-new-credential"
JOB = json.dumps({"id": "job-1", "status": "running", "data": []}).encode()


def _sources(*values: str | None) -> Callable[[str], str | None]:
    """Return a source that gives the values in turn, the last one for ever. None: it is missing."""
    waiting: Iterator[str | None] = iter(values)
    last = values[-1]

    def found(_: str) -> str:
        value = next(waiting, last)
        if value is None:
            raise SecretMissingError("file:x cannot be read")
        return value

    return found


async def _wants_new(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Be a provider that takes the new credential alone, and quotes every other in its refusal."""
    while True:
        sent = header(await read_request(server, reader), "authorization")
        said = json.dumps({"error": {"message": f"Incorrect API key provided: {sent.removeprefix('Bearer ')}"}}).encode()
        writer.write(response(200, JOB) if sent == f"Bearer {NEW}" else response(401, said, f"x-request-id: {sent}"))
        await writer.drain()


async def _evidence(
    folder: Path, errand: Errand, *values: str | None, state: State = State.OBSERVING, contract: Contract = CONTRACT
) -> tuple[Evidence, list[str], str]:
    """Perform one errand; return what it brought, the credentials that were sent, and all that would be stored."""
    async with serving(_wants_new) as server:
        bench = Bench(folder, server.url, credential=_sources(*values), contract=contract)
        op = collecting(server.url) if errand is Errand.COLLECT else operation(server.url, state=state)
        if errand in {Errand.CREATE, Errand.RECOVER}:
            op = replace(op, remote_job_id=None)
        command = await bench.settle(op, errand)
        await bench.transport.aclose()
        sent = [header(request, "authorization").removeprefix("Bearer ") for request in server.requests]
        return command.evidence, sent, repr((command, command.exchange and command.exchange.response_body))


@pytest.mark.parametrize(
    ("errand", "state", "kind"),
    [
        (Errand.READ, State.OBSERVING, Read),
        (Errand.RECOVER, State.CREATE_UNKNOWN, JobNotFound),
        (Errand.COLLECT, State.RESULT_COLLECTING, Read),
    ],
)
def test_a_read_is_made_again_with_the_rotated_credential(errand: Errand, state: State, kind: type, tmp_path: Path) -> None:
    """A status read, a lookup and the read before a collection succeed in the same errand once the source has a new credential (H4)."""
    evidence, sent, stored = asyncio.run(_evidence(tmp_path, errand, OLD, NEW, state=state))
    assert isinstance(evidence, kind)
    assert sent == [OLD, NEW]
    assert "CANARY" not in stored


@pytest.mark.parametrize("values", [(OLD,), (OLD, OLD), (OLD, None)])
def test_a_credential_that_has_not_changed_is_not_tried_again(values: tuple[str | None, ...], tmp_path: Path) -> None:
    """The same credential, or none any more: one call, a failed read that says so, nothing moves (C4)."""
    evidence, sent, stored = asyncio.run(_evidence(tmp_path, Errand.READ, *values))
    assert evidence == ReadFailed(layer="protocol", error="credential")
    assert sent == [OLD]
    assert "CANARY" not in stored


def test_a_credential_is_renewed_once_in_an_errand(tmp_path: Path) -> None:
    """A source that gives another wrong one each time makes two calls and no more."""
    evidence, sent, _ = asyncio.run(_evidence(tmp_path, Errand.READ, OLD, OLD + "2", OLD + "3"))
    assert isinstance(evidence, ReadFailed)
    assert sent == [OLD, OLD + "2"]


def test_a_walk_through_pages_renews_its_credential_once(tmp_path: Path) -> None:
    """Later pages have the renewed one at once; where that is refused in its turn, the walk has failed and reads nothing anew (C4)."""
    sent: list[str] = []

    async def pages(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            sent.append(header(await read_request(server, reader), "authorization").removeprefix("Bearer "))
            writer.write(response(200, b'{"data": [], "next": "2"}') if len(sent) == 2 else response(401, b"{}"))
            await writer.drain()

    async def scenario() -> Evidence:
        async with serving(pages) as server:
            bench = Bench(tmp_path, server.url, credential=_sources(OLD, NEW, NEW + "2", NEW + "3"))
            command = await bench.settle(operation(server.url, state=State.CREATE_UNKNOWN, remote_job_id=None), Errand.RECOVER)
            await bench.transport.aclose()
            return command.evidence

    assert asyncio.run(scenario()) == ReadFailed(layer="protocol", error="credential")
    assert sent == [OLD, NEW, NEW]


def test_a_refused_create_is_never_sent_twice_in_one_attempt(tmp_path: Path) -> None:
    """401 on a create with a credential that has been rotated: refused by contract, so not sent; the next attempt has the new (A6)."""
    evidence, sent, stored = asyncio.run(_evidence(tmp_path, Errand.CREATE, OLD, NEW, state=State.CREATE_PENDING))
    assert evidence == NotSent(errand=Errand.CREATE, error="credential_rotated")
    assert sent == [OLD]
    assert "CANARY" not in stored
    evidence, sent, _ = asyncio.run(_evidence(tmp_path, Errand.CREATE, NEW, state=State.CREATE_PENDING))
    assert isinstance(evidence, JobKnown)


@pytest.mark.parametrize("values", [(OLD,), (OLD, None)])
def test_a_create_refused_with_the_only_credential_is_refused(values: tuple[str | None, ...], tmp_path: Path) -> None:
    """Without another credential the contract's word holds: a definite refusal, its reason kept without the credential (A10, H4)."""
    evidence, sent, stored = asyncio.run(_evidence(tmp_path, Errand.CREATE, *values, state=State.CREATE_PENDING))
    assert isinstance(evidence, CreateRejected)
    assert evidence.message.startswith("Incorrect API key provided:")
    assert sent == [OLD]
    assert "CANARY" not in stored


def test_a_status_that_proves_nothing_stays_ambiguous_after_a_rotation(tmp_path: Path) -> None:
    """Where the contract does not call 401 a refusal, a rotated credential proves nothing about the create (A6)."""
    assert CONTRACT.create is not None
    vague = replace(CONTRACT, create=replace(CONTRACT.create, rejected=(400,)))
    evidence, sent, _ = asyncio.run(_evidence(tmp_path, Errand.CREATE, OLD, NEW, state=State.CREATE_PENDING, contract=vague))
    assert isinstance(evidence, CreateAmbiguous)
    assert sent == [OLD]


def test_a_refused_cancel_waits_for_the_rotated_credential(tmp_path: Path) -> None:
    """401 on a cancel: with a new credential it was not sent; with the old one it is read before anything else (E4)."""
    evidence, _, _ = asyncio.run(_evidence(tmp_path, Errand.CANCEL, OLD, NEW, state=State.CANCEL_REQUESTED))
    assert evidence == NotSent(errand=Errand.CANCEL, error="credential_rotated")
    evidence, _, _ = asyncio.run(_evidence(tmp_path, Errand.CANCEL, OLD, state=State.CANCEL_REQUESTED))
    assert isinstance(evidence, CancelAmbiguous | CancelRefused)


def test_an_answer_that_quotes_the_credential_is_cleared_of_it() -> None:
    """Body and headers lose it, everything else stays; short secrets, which innocent words contain, are left alone (H4, B142)."""
    answer = AnsweredOutcome(status=401, headers=(("x-a", f"k={OLD}"), ("x-b", "b")), body=f'{{"a": "{OLD}", "b": "{OLD}!"}}'.encode())
    cleared = without(answer, [OLD, "b"])
    assert cleared == AnsweredOutcome(
        status=401, headers=(("x-a", "k=[removed]"), ("x-b", "b")), body=b'{"a": "[removed]", "b": "[removed]!"}'
    )
    assert without(MaybeOutcome(error="cut"), [OLD]) == MaybeOutcome(error="cut")

"""A provider that speaks a contract, over HTTP: for its official client, pointed here by base URL, and for a gateway beside it."""

import asyncio
import signal
import socket
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from schemas.contract import Contract
from schemas.http import AnsweredOutcome
from schemas.world import World
from simulator.account import Account, Fate
from simulator.options import MAX_BODY_BYTES
from simulator.server import Guest, config
from simulator.spoken import UnspokenError

_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
_BACKLOG = 64


class Speaker:
    """A running provider on a free port of 127.0.0.1: `async with Speaker(contract, world) as provider: provider.base_url`.

    Each kind of operation has an account of its own in `accounts`, by action. Only for loopback: it asks for no credential.
    """

    def __init__(
        self,
        contract: Contract,
        world: World,
        *,
        fate: Callable[[str], Fate] = lambda _: Fate(),
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self._address = (host, port)
        self._contract = contract
        self._world = world
        self._fate = fate
        self.accounts: Mapping[str, Account] = {}
        self.calls: list[tuple[str, str]] = []  # method and path of each request, oldest first
        self.base_url = ""
        self._server: Guest | None = None
        self._serving: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Listen. Raises OSError when the port is taken."""
        listener = socket.socket()
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(self._address)
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
        self.base_url = f"http://{self._address[0]}:{listener.getsockname()[1]}"
        actions = self._contract.actions or {"": self._contract}
        self.accounts = {
            action: Account(self._contract, now=self._world.now, fate=self._fate, action=action, base=self.base_url) for action in actions
        }
        app = Starlette(routes=[Route("/{path:path}", self._answer, methods=_METHODS)])
        self._server = Guest(config(app, lifespan="off"))
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        """Stop."""
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await self._serving

    async def _answer(self, request: Request) -> Response:
        body = await request.body()
        if len(body) > MAX_BODY_BYTES:
            return Response(status_code=413)
        self.calls.append((request.method, request.url.path))
        target = f"{self.base_url}{request.url.path}" + (f"?{request.url.query}" if request.url.query else "")
        try:
            answer = self._said(request.method, target, tuple(request.headers.items()), body)
        except UnspokenError as error:  # the author of the contract reads which sample is wanted
            return JSONResponse({"error": str(error)}, 501)
        return Response(answer.body, answer.status, dict(answer.headers))

    def _said(self, method: str, url: str, headers: tuple[tuple[str, str], ...], body: bytes) -> AnsweredOutcome:
        """Let the account answer whose address this is; files and strangers are asked of all."""
        accounts = list(self.accounts.values())
        mine = [account for account in accounts if account.reads(method, url) is not None] or accounts
        answers = [account.answer(method, url, headers, body) for account in self._about(mine, url)]
        return next((answer for answer in answers if answer.status != 404), answers[0])  # noqa: PLR2004 - not found here

    def _about(self, accounts: list[Account], url: str) -> list[Account]:
        """Return the accounts that know a job in this address, where there are several with such an address."""
        if len(accounts) == 1:
            return accounts
        knowing = [account for account in accounts if any(job in url for job in account.jobs)]
        return knowing or accounts[:1]


def speak(
    contract: Contract,
    world: World,
    *,
    fate: Fate,
    host: str = "127.0.0.1",
    port: int = 8100,
    announce: Callable[[str], None] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM; every job has this fate. `announce` is told the address once it listens.

    Raises OSError when the port is taken.
    """
    asyncio.run(_serve(Speaker(contract, world, fate=lambda _: fate, host=host, port=port), announce))


async def _serve(speaker: Speaker, announce: Callable[[str], None] | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with speaker:
        if announce is not None:
            announce(speaker.base_url)
        await stop.wait()

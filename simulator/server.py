"""The simulator as a server: inside another program (`Simulator`), or as a process of its own (`run`)."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Literal, Self

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from schemas.world import World
from simulator.admin import force_phase
from simulator.answers import ABORT, CLOSE
from simulator.app import create_app, provider_of
from simulator.faults import merge, parse
from simulator.jobs import Job, Phase
from simulator.journal import Call, Sent
from simulator.options import SimulatorOptions

_BACKLOG = 512
_STOP_SECONDS = 2  # answers under way when the simulator stops get this long


class CuttingProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with the connection's own abort and close in the scope of every request."""

    def on_message_begin(self) -> None:
        """Add both to the scope that uvicorn has just made."""
        super().on_message_begin()
        self.scope["extensions"] = {ABORT: self.transport.abort, CLOSE: self.transport.close}  # type: ignore[dict-item] # ours: callables


class Guest(uvicorn.Server):
    """A server inside another program: signals are that program's business."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield


def config(app: Starlette, *, lifespan: Literal["on", "off"] = "on") -> uvicorn.Config:
    """Return how the simulator serves: quietly, and without a name of its own."""
    return uvicorn.Config(
        app,
        http=CuttingProtocol,
        ws="none",
        lifespan=lifespan,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_STOP_SECONDS,
    )


class Simulator:
    """A running simulator, on a free port of 127.0.0.1 if none is given: `async with Simulator(options, world) as sim: sim.base_url`."""

    def __init__(self, options: SimulatorOptions, world: World, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._app = create_app(options, world)
        self.provider = provider_of(self._app)
        self._host, self._port = host, port
        self._server = Guest(config(self._app))
        self._serving: asyncio.Task[None] | None = None
        self.base_url = ""

    async def __aenter__(self) -> Self:
        """Listen. Raises OSError when the port is taken."""
        listener = socket.socket()
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((self._host, self._port))
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
        self.base_url = f"http://{self._host}:{listener.getsockname()[1]}"
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]))
        ready = asyncio.create_task(self.provider.ready.wait())
        await asyncio.wait({self._serving, ready}, return_when=asyncio.FIRST_COMPLETED)
        if self._serving.done():
            ready.cancel()
            self._serving.result()
            raise RuntimeError("the simulator did not start")
        return self

    async def __aexit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        """Stop; requests that hang are dropped."""
        self.provider.closing.set()
        self._server.should_exit = True
        if self._serving is not None:
            await self._serving

    def calls(self, method: str | None = None, path: str | None = None) -> list[Call]:
        """Return the requests that came in, oldest first, as in `sim.calls("POST", "/v1/reports")`."""
        return self.provider.journal.calls(method, path)

    def deliveries(self, job: str | None = None) -> list[Sent]:
        """Return the tries to deliver callbacks, oldest first."""
        return self.provider.journal.deliveries(job)

    @property
    def jobs(self) -> Mapping[str, Job]:
        """Return every job by id, oldest first."""
        return self.provider.jobs

    def phase(self, job_id: str) -> Phase:
        """Return where a job truly stands. Raises KeyError."""
        return self.provider.jobs[job_id].phase(self.provider.clock.now())

    def advance(self, seconds: float) -> None:
        """Push the simulator's clock forward."""
        self.provider.clock.advance(seconds)

    def force(self, job_id: str, phase: Phase) -> None:
        """Put a job into a phase, now. Raises KeyError."""
        force_phase(self.provider, self.provider.jobs[job_id], phase)

    def configure(self, **changes: Any) -> None:
        """Change options while it runs, e.g. `reports_callback_url=…`; raises TypeError for unknown names."""
        if "simulate" in changes:
            self.provider.stand(merge(parse(changes["simulate"])))
        self.provider.configure(**changes)

    async def deliver(self, job_id: str, phase: Phase | None = None) -> None:
        """Send a callback now, about the job's phase or one that is claimed instead. Raises KeyError."""
        claimed = self.phase(job_id) if phase is None else phase
        await self.provider.callbacks.deliver(self.provider.callbacks.event(self.provider.jobs[job_id], claimed))


def run(
    options: SimulatorOptions,
    world: World,
    *,
    host: str = "127.0.0.1",
    port: int = 8100,
    announce: Callable[[str], None] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM, and return then; `announce` is told the address once it listens.

    Raises FaultError for options that name unknown faults, OSError when the port is taken.
    """
    asyncio.run(_serve(options, world, host, port, announce))


async def _serve(options: SimulatorOptions, world: World, host: str, port: int, announce: Callable[[str], None] | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with Simulator(options, world, host=host, port=port) as simulator:
        if announce is not None:
            announce(simulator.base_url)
        await stop.wait()

"""The simulator as a server: inside another program (`Simulator`), or as a process of its own (`run`)."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

import uvicorn
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


class _Guest(uvicorn.Server):
    """A server inside another program: signals are that program's business."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield


def _config(app: Any, **more: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=CuttingProtocol,
        ws="none",
        lifespan="on",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_STOP_SECONDS,
        **more,
    )


class Simulator:
    """A running simulator on a free port of 127.0.0.1: `async with Simulator(options, world) as sim: sim.base_url`."""

    def __init__(self, options: SimulatorOptions, world: World, *, port: int = 0) -> None:
        self._app = create_app(options, world)
        self.provider = provider_of(self._app)
        self._port = port
        self._server = _Guest(_config(self._app, log_level="critical"))
        self._serving: asyncio.Task[None] | None = None
        self.base_url = ""

    async def __aenter__(self) -> Self:
        """Listen. Raises OSError when the port is taken."""
        listener = socket.socket()
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", self._port))
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
        self.base_url = f"http://127.0.0.1:{listener.getsockname()[1]}"
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


def run(options: SimulatorOptions, world: World, *, host: str = "127.0.0.1", port: int = 8100) -> None:
    """Serve until SIGINT or SIGTERM. Raises FaultError for options that name unknown faults, SystemExit when the port is taken."""
    app = create_app(options, world)
    uvicorn.Server(_config(app, host=host, port=port, log_level="warning")).run()

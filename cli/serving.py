"""A process that serves: web, reconciler, or both. Starts, reloads on SIGHUP, drains on the first signal, ends at once on the second.

Works as process 1 of a container, where a signal without a handler is ignored: handlers stand before the record is opened.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import structlog

from cli import contracts as contract_files
from cli import house as composition
from cli.configuration import Configuration, ConfigurationError
from cli.failure import CommandError
from cli.house import House
from cli.material import Material
from ledger import queries
from ledger.beats import PROBE
from ledger.errors import LedgerError
from ledger.ledger import CLOSE_SECONDS
from schemas.commands import Beat
from schemas.settings import Settings

if TYPE_CHECKING:
    from reconciler.clockwork import Clockwork

ENDED_AT_ONCE: Final = 1
# The loop and the writer share the interpreter; with the default of 5 ms a request waits that long whenever it has let go.
_SWITCH_SECONDS: Final = 0.0005
_STOPPING: Final = (signal.SIGTERM, signal.SIGINT)
_WATCH_SECONDS: Final = 2.0
_LAST_WORDS_SECONDS: Final = 3.0  # beyond its drain: for what interrupted calls have to say
_PROBE_SECONDS: Final = 15.0  # longer than the writer tries
# Settings that a running process cannot change: what they name is open.
_FIXED: Final = ("database_url", "database_pooled", "key_file", "artifact_dir", "public_url", "web")
_log = structlog.get_logger("house")


def stop_while_starting() -> None:
    """Let SIGTERM and SIGINT end the process with 0 until the loop takes them over: nothing has been served yet."""

    def leave(_number: int, _frame: FrameType | None) -> None:
        sys.exit(0)

    for number in _STOPPING:
        signal.signal(number, leave)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # what it would reload is being read


def run(process: "Process") -> None:
    """Run a process to its end on a fast event loop, then close the record."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(process.work())
    finally:
        if not process.house.ledger.close():
            _log.warning("house.unwritten", detail="the writer did not end in time; what was acknowledged is stored")


def last_resort(seconds: float) -> None:
    """End the process after so long, whatever hangs then: a platform would do it with SIGKILL, and nobody would read why."""

    def end() -> None:
        _log.error("house.overdue", detail="something hangs; the record is as of its last commit, as after any crash")
        sys.stderr.flush()
        os._exit(ENDED_AT_ONCE)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return what makes the event loop of a serving process."""
    try:
        import uvloop
    except ImportError:  # no wheel for this platform
        return asyncio.new_event_loop
    return uvloop.new_event_loop


class Process:
    """One serving process. `reread` reads the configuration anew for SIGHUP. `told` gets the address when web listens."""

    def __init__(
        self, house: House, *, web: bool, reconciler: bool, reread: Callable[[], Configuration], told: Callable[[str], None]
    ) -> None:
        self.house = house
        self._web = web
        self._reconciler = reconciler
        self._reread = reread
        self._told = told
        self._closing = asyncio.Event()
        self._endpoints: Any = None
        self._material = Material(house.ledger, house.world)
        self._clockwork: Clockwork | None = None
        self._reloading: asyncio.Task[None] | None = None
        self._retired: set[asyncio.Task[Any]] = set()

    async def work(self) -> None:
        """Serve until a signal; then let what runs come to its end within the settings. Raises OSError for an address that is taken."""
        self._take_signals()
        house = self.house
        # On SQLite a process that does both halves hears of itself; two processes have to look for each other's commits.
        both = self._web and self._reconciler
        house.ledger.start(several_processes=None if both else True)
        await self._warn_of_unconfigured()
        listening = self._listen() if self._web else None  # first: what cannot be reached must not begin to work
        await self._material.refresh()
        following = asyncio.create_task(self._material.follow(self._remake), name="material")
        serving: asyncio.Task[None] | None = None
        if self._reconciler:
            self._clockwork = composition.clockwork(house, self._material)
            await self._clockwork.start()
            await self._beat()
        if listening is not None:
            serving = asyncio.create_task(self._serve_web(listening), name="web")
        else:
            self._told("")
        closing = asyncio.create_task(self._closing.wait(), name="closing")
        watching = asyncio.create_task(self._watch(), name="watch")
        await asyncio.wait([closing, *([serving] if serving else [])], return_when=asyncio.FIRST_COMPLETED)
        self._closing.set()
        web, clockwork = self.house.settings.web, self.house.settings.clockwork
        last_resort(max(web.shutdown_seconds, clockwork.drain_seconds) + _LAST_WORDS_SECONDS + CLOSE_SECONDS)
        _log.info("house.stopping")
        await closing
        watching.cancel()
        drains = [task for task in (self._reloading, *self._retired) if task is not None]
        if self._clockwork is not None:
            drains.append(asyncio.create_task(self._drain(self._clockwork)))
        if serving is not None:
            drains.append(serving)
        outcomes = await asyncio.gather(*drains, return_exceptions=True)
        following.cancel()
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    @property
    def stopping(self) -> bool:
        """Return whether the end has begun, by a signal or by `stop`."""
        return self._closing.is_set()

    def stop(self) -> None:
        """End as after the first signal. From the loop of the process; again: nothing."""
        self._closing.set()

    def _listen(self) -> tuple[socket.socket, str]:
        from gateway.server import listen

        web = self.house.settings.web
        try:
            return listen(web)
        except OSError as error:
            where = web.uds or f"{web.host}:{web.port}"
            raise CommandError(f"cannot listen on {where}: {error.strerror or error}; choose another by --port, --host or --uds") from error

    async def _serve_web(self, listening: tuple[socket.socket, str]) -> None:
        from gateway.app import create_app
        from gateway.gate import Endpoints
        from gateway.server import serve

        house = self.house
        self._endpoints = Endpoints(self._made(house))
        gate = composition.gate(
            house,
            endpoints=self._endpoints,
            closing=self._closing,
            expects_reconciler=self._reconciler,
            refresh=self._refresh,
            late=lambda: () if self._clockwork is None else self._clockwork.late(),  # of the one that a reload has put in place
        )
        await serve(create_app(gate), house.settings.web, on_started=self._told, stop=self._closing, listening=listening)

    def _made(self, house: House) -> dict[str, Any]:
        return composition.endpoints(house.settings, house.contracts, self._material, house.world.now())

    def _remake(self) -> None:
        """Make the endpoints anew: a stored secret or a published key has changed."""
        if self._endpoints is not None:
            self._endpoints.replace(self._made(self.house))

    async def _refresh(self) -> None:
        try:
            if await self._material.refresh():
                self._remake()
        except LedgerError as error:
            _log.warning("house.material_stale", error=type(error).__name__, fault=str(error))

    async def _beat(self) -> None:
        """Say that the reconciler has started: readiness need not wait for the first beats of its duties."""
        try:
            await self._write_beat("start")
        except LedgerError as error:  # the duties beat too
            _log.warning("house.beat_failed", error=type(error).__name__)

    async def _write_beat(self, duty: str) -> None:
        await self.house.ledger.write(Beat(duty=duty, process=composition.worker_name(), now=self.house.world.now(), ok=True))

    async def _watch(self) -> None:
        """Look after the database every few seconds; while it refuses writes, try one: nobody else may write for long."""
        while not self._closing.is_set():
            if self.house.ledger.trouble():  # looks at the file, and tells the log
                with contextlib.suppress(LedgerError, TimeoutError):
                    async with asyncio.timeout(_PROBE_SECONDS):
                        await self._write_beat(PROBE)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), _WATCH_SECONDS)

    async def _drain(self, clockwork: "Clockwork") -> None:
        drained = await clockwork.drain()
        if drained.lost:
            _log.warning("house.interrupted", lost=drained.lost, detail="the next worker finds their open attempts")

    # --- signals

    def _take_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in _STOPPING:
            loop.add_signal_handler(number, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._reload)

    def _stop(self) -> None:
        if self._closing.is_set():
            _log.warning("house.ended_at_once", detail="second signal")
            sys.stderr.flush()
            os._exit(ENDED_AT_ONCE)  # the record is as of its last commit, as after any crash
        self._closing.set()

    def _reload(self) -> None:
        if self._closing.is_set() or (self._reloading is not None and not self._reloading.done()):
            return
        self._reloading = asyncio.create_task(self._reload_once(), name="reload")

    async def _reload_once(self) -> None:
        """Take the configuration over, all of it or nothing. The former reconciler ends its errands beside the new one."""
        try:
            found = await asyncio.to_thread(self._reread)
            _check_unchanged(self.house.settings, found.settings)
            contracts = await asyncio.to_thread(contract_files.of_providers, found.settings.providers, found.folder)
            house = replace(self.house, configuration=found, contracts=contracts)
            await self._material.refresh()
            endpoints = self._made(house)
            clockwork = composition.clockwork(house, self._material) if self._reconciler else None
        except (ConfigurationError, LedgerError, OSError) as error:
            _log.error("house.reload_refused", fault=str(error))
            return
        self.house = house
        house.ledger.contracts = contracts
        if self._endpoints is not None:
            self._endpoints.replace(endpoints)
        if clockwork is not None:
            former, self._clockwork = self._clockwork, clockwork
            await clockwork.start()
            if former is not None:
                task = asyncio.create_task(self._drain(former), name="retired")
                self._retired.add(task)
                task.add_done_callback(self._retired.discard)
        _log.info("house.reloaded", providers=sorted(contracts))
        await self._warn_of_unconfigured()

    async def _warn_of_unconfigured(self) -> None:
        live = await self.house.ledger.read(queries.live_providers)
        for name in sorted(set(live) - set(self.house.contracts)):
            _log.warning(
                "house.provider_missing",
                provider=name,
                detail="it has operations that are not final; nothing reads them until it is configured",
            )


def _check_unchanged(former: Settings, found: Settings) -> None:
    changed = [name for name in _FIXED if getattr(found, name) != getattr(former, name)]
    if changed:
        raise ConfigurationError([f"{', '.join(changed)} cannot change while the process runs; restart it"])

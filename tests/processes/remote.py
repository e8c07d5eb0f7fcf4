"""The simulator on a loop of its own: a test looks at it and turns it from outside while real processes call it."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar

from cli.world import RealWorld
from simulator.jobs import Job, Phase, ReportOrder
from simulator.journal import Call
from simulator.options import SimulatorOptions
from simulator.server import Simulator

T = TypeVar("T")
LIMIT_SECONDS = 60  # far longer than anything here takes on a busy machine


class Remote:
    """A provider: `with Remote(run_seconds=1) as remote`. Options as in `SimulatorOptions`."""

    def __init__(self, **options: Any) -> None:
        usual: dict[str, Any] = {"queue_seconds": 0.0, "run_seconds": 0.3, "cancel_seconds": 0.2}
        self._options = SimulatorOptions(**{**usual, **options})
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="remote", daemon=True)
        self._simulator: Simulator

    def __enter__(self) -> Self:
        """Listen."""
        self._thread.start()
        assert self._ready.wait(LIMIT_SECONDS), "the simulator did not start"
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        """Stop; calls that hang are dropped."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(LIMIT_SECONDS)

    def _run(self) -> None:
        async def serve() -> None:
            async with Simulator(self._options, RealWorld()) as self._simulator:
                self._ready.set()
                await self._stop.wait()

        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(serve())
        self._loop.close()

    def do(self, action: Callable[[Simulator], T]) -> T:
        """Do something in the simulator's own thread and return what it gave."""

        async def act() -> T:
            return action(self._simulator)

        return asyncio.run_coroutine_threadsafe(act(), self._loop).result(LIMIT_SECONDS)

    @property
    def base_url(self) -> str:
        """Return its origin."""
        return self._simulator.base_url

    def calls(self, method: str, path: str | None = None) -> list[Call]:
        """Return the requests that came in."""
        return self.do(lambda simulator: simulator.calls(method, path))

    def creates(self) -> int:
        """Return how many create calls came in."""
        return len(self.calls("POST", "/v1/reports"))

    def reads(self, job: str) -> int:
        """Return how many status reads of a job came in."""
        return len(self.calls("GET", f"/v1/reports/{job}"))

    def jobs(self) -> list[Job]:
        """Return every job, oldest first."""
        return self.do(lambda simulator: list(simulator.jobs.values()))

    def jobs_of_operations(self) -> Counter[str]:
        """Return operation id -> how many remote jobs were made for it: the contract sends the id as the reference."""
        orders = [job.order for job in self.jobs()]
        return Counter(order.client_reference for order in orders if isinstance(order, ReportOrder) and order.client_reference)

    def force(self, job: str, phase: Phase) -> None:
        """Put a job into a phase, now."""
        self.do(lambda simulator: simulator.force(job, phase))

"""The simulator's memory: jobs, tokens, logs, standing faults. One event loop owns it; there are no locks."""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any

from schemas.operation import SECOND, Micros
from schemas.world import World
from simulator.callbacks import Callbacks
from simulator.clock import Clock, Schedule
from simulator.faults import COUNTED, merge, parse
from simulator.jobs import Api, BatchOrder, Job, Order, Phase
from simulator.journal import Journal
from simulator.options import SimulatorOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What an idempotency token stands for."""

    job: str
    body_sha256: str
    first_used: Micros


class Provider:
    """Everything that the routes share."""

    def __init__(self, options: SimulatorOptions, world: World) -> None:
        self.options = options
        self.world = world
        self.clock = Clock(world)
        self.schedule = Schedule(self.clock, max_pending=options.max_pending_callbacks, max_at_once=options.max_sends_at_once)
        self.journal = Journal(options.max_log)
        self.callbacks = Callbacks(self)
        self.jobs: dict[str, Job] = {}
        self.files: dict[str, str] = {}  # file id -> job id
        self.tokens: dict[str, Token] = {}
        self.standing = merge(parse(options.simulate))
        self.closing = asyncio.Event()
        self.ready = asyncio.Event()
        self._seen: OrderedDict[str, int] = OrderedDict()

    def configure(self, **changes: Any) -> None:
        """Change options of a running simulator, e.g. `reports_callback_url`. Standing faults: `stand`."""
        self.options = replace(self.options, **changes)

    def stand(self, faults: dict[str, float]) -> None:
        """Replace the standing faults; jobs that exist keep theirs."""
        self.standing = faults

    def sighted(self, key: str) -> int:
        """Return how often a create with this token or body came before, and count this one."""
        before = self._seen.pop(key, 0)
        self._seen[key] = before + 1
        if len(self._seen) > self.options.max_jobs:
            self._seen.popitem(last=False)
        return before

    def add_job(self, api: Api, order: Order, faults: dict[str, float], callback_url: str | None) -> Job | None:
        """Make a job, see to its callbacks, and return it. None: there are too many."""
        if len(self.jobs) >= self.options.max_jobs:
            return None
        options, now = self.options, self.clock.now()
        finalize = options.finalize_seconds if isinstance(order, BatchOrder) else 0.0
        ending = Phase.FAILED if "fail" in faults else Phase.EXPIRED if "expire" in faults else Phase.SUCCEEDED
        job = Job(
            id=self.world.new_id("rep_" if api == "reports" else "batch_"),
            api=api,
            order=order,
            created=now,
            queue=_micros(faults.get("queue", options.queue_seconds)),
            run=_micros(faults.get("run", options.run_seconds)),
            finalize=_micros(faults.get("finalize", finalize)) if isinstance(order, BatchOrder) else 0,
            ending=ending,
            faults=faults,
            left={name: int(value) for name, value in faults.items() if name in COUNTED},
            hidden_until=now + _micros(faults.get("hide", 0.0)),
            callback_url=callback_url,
            output_file_id=self.world.new_id("file_") if api == "batches" else "",
            error_file_id=self.world.new_id("file_") if api == "batches" else "",
        )
        self.jobs[job.id] = job
        self.files |= {file: job.id for file in (job.output_file_id, job.error_file_id) if file}
        return job

    def visible(self, api: Api) -> list[Job]:
        """Return the jobs of this API that a caller may see now, newest first."""
        now = self.clock.now()
        return [job for job in reversed(self.jobs.values()) if job.api == api and job.hidden_until <= now]

    def find(self, api: Api, job_id: str) -> Job | None:
        """Return the job that a caller may see now, or None."""
        job = self.jobs.get(job_id)
        return job if job is not None and job.api == api and job.hidden_until <= self.clock.now() else None


def _micros(seconds: float) -> Micros:
    return int(seconds * SECOND)

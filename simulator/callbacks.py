"""Callbacks: which are made when, and how the faults bend them. Sending is bounded and quiet: failures go to the journal."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx

from schemas.operation import SECOND
from simulator import signing
from simulator.jobs import ENDED, BatchOrder, Job, Phase, ReportOrder
from simulator.journal import Sent
from simulator.words import BATCH_WORDS, REPORT_WORDS, iso

if TYPE_CHECKING:
    from schemas.operation import Micros
    from simulator.provider import Provider


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event: its id and bytes are the same on every copy and retry; the signature is made anew."""

    id: str
    type: str
    job: Job
    body: bytes = field(repr=False)


class Callbacks:
    """Makes the events of jobs and delivers them."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._client: httpx.AsyncClient | None = None

    async def open(self) -> None:
        """Open the client. Proxies of the environment are not used: callbacks go where they are told."""
        self._client = httpx.AsyncClient(timeout=self._provider.options.callback_timeout_seconds, trust_env=False)

    async def close(self) -> None:
        """Close the client."""
        if self._client is not None:
            await self._client.aclose()

    def follow(self, job: Job) -> None:
        """See to the callbacks of a new job."""
        lies = "lie_then_correct" in job.faults
        tells = self._provider.options.progress_callbacks and "reorder_callbacks" not in job.faults
        if lies or tells:

            async def started() -> None:
                if job.phase(self._provider.clock.now()) not in ENDED:
                    self._emit(self.event(job, Phase.SUCCEEDED if lies else Phase.RUNNING))

            self._at(job.started_at, job, started)
        self.watch_end(job)

    def watch_end(self, job: Job) -> None:
        """Make the callback about the end at the end, whenever that turns out to be; once."""

        async def ended() -> None:
            phase = job.phase(self._provider.clock.now())
            # Not the end any more: whoever moved it (a cancel, a person) watches the new one.
            if phase in ENDED and not job.announced:
                job.announced = True
                # The older event is made first, so that its time is the earlier one, and sent last.
                older = self.event(job, Phase.RUNNING, at=job.started_at) if "reorder_callbacks" in job.faults else None
                self._emit(self.event(job, phase), then=older)

        self._at(job.ended_at, job, ended)

    def event(self, job: Job, phase: Phase, *, at: Micros | None = None) -> Event:
        """Return an event that claims `phase` of the job."""
        provider = self._provider
        now = provider.clock.now() if at is None else at
        event_id = provider.world.new_id("evt_")
        match job.order:
            case ReportOrder():
                word = REPORT_WORDS[phase]
                kind = f"report.{word}"
                data: dict[str, Any] = {"id": job.id, "status": word, "client_reference": job.order.client_reference}
                body: dict[str, Any] = {"type": kind, "timestamp": iso(now), "data": data}
            case BatchOrder():
                word = BATCH_WORDS[phase]
                kind = f"batch.{word}"
                data = {"id": job.id, "status": word, "metadata": dict(job.order.metadata)}
                body = {"id": event_id, "object": "event", "type": kind, "created_at": now // SECOND, "data": data}
        return Event(id=event_id, type=kind, job=job, body=json.dumps(body, separators=(",", ":")).encode())

    def _emit(self, event: Event, *, then: Event | None = None) -> None:
        """Deliver as the job's faults ask; `then` follows when the first has been sent."""
        faults = event.job.faults
        due = self._provider.clock.now() + int(faults.get("delay_callbacks", 0.0) * SECOND)

        async def send() -> None:
            await self.deliver(event)
            if then is not None:
                await self.deliver(then)

        self._at(due, event.job, send)

    async def deliver(self, event: Event) -> None:
        """Deliver now, with the copies that the job's faults ask for. Never raises for what the receiver does."""
        if "lose_callbacks" in event.job.faults:
            self._note(event, "lost")
            return
        copies = int(event.job.faults.get("duplicate_callbacks", 0))
        if copies:
            due = self._provider.clock.now() + int(self._provider.options.late_copy_seconds * SECOND)
            self._at(due, event.job, lambda: self._try(event, "late_copy", None))
        await asyncio.gather(self._try(event, "original", 0), *(self._try(event, "copy", None) for _ in range(copies)))

    async def _try(self, event: Event, note: str, retry: int | None) -> None:
        """Send once; `retry` numbers the pauses of the options, None means that a refusal is final."""
        status, error = await self._post(event)
        self._note(event, note, status=status, error=error)
        taken = status is not None and httpx.codes.is_success(status)
        pauses = self._provider.options.callback_retry_seconds
        if taken or retry is None or retry >= len(pauses) or error == "no address":
            return
        due = self._provider.clock.now() + int(pauses[retry] * SECOND)
        self._at(due, event.job, lambda: self._try(event, "retry", retry + 1))

    async def _post(self, event: Event) -> tuple[int | None, str]:
        options, job = self._provider.options, event.job
        url = job.callback_url or (options.reports_callback_url if job.api == "reports" else options.batches_callback_url)
        if url is None or self._client is None:
            return None, "no address"
        at = self._provider.clock.now() - int(job.faults.get("stale_signature", 0.0) * SECOND)
        forged = "forge_signature" in job.faults
        if job.api == "reports":
            headers = signing.standard_webhook(secret=options.reports_secret, event_id=event.id, at=at, body=event.body, forged=forged)
        else:
            headers = signing.stripe_like(secrets=options.batches_secrets, at=at, body=event.body, forged=forged)
        headers |= {"content-type": "application/json", "user-agent": "simulator-callbacks"}
        try:
            # Only the status counts; the body of whoever answers is never read.
            async with self._client.stream("POST", url, content=event.body, headers=headers) as answer:
                return answer.status_code, ""
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as problem:
            return None, type(problem).__name__

    def _at(self, due: Micros, job: Job, action: Any) -> None:
        if not self._provider.schedule.add(due, action):
            self._provider.journal.sent(
                Sent(at=self._provider.clock.now(), job=job.id, event_id="", type="", note="dropped: too many callbacks wait")
            )

    def _note(self, event: Event, note: str, *, status: int | None = None, error: str = "") -> None:
        now = self._provider.clock.now()
        self._provider.journal.sent(
            Sent(at=now, job=event.job.id, event_id=event.id, type=event.type, note=note, status=status, error=error)
        )

"""What a scraper reads (H3): counts of this process, and what the record says of duties and of what is not over."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from gateway.call import Answer, Call
from gateway.gate import Gate
from ledger import queries, secrets
from ledger.errors import LedgerError
from schemas.operation import SECOND
from schemas.receiving import SecretUse

_KEPT_SECONDS: Final = 5.0  # scrapes within it share one look at the record
_LOOK_SECONDS: Final = 2.0


async def expose(call: Call) -> Answer:
    """GET /metrics in the text format of Prometheus. 200 also while the record does not answer: then `gateway_record_readable` is 0."""
    metrics = call.gate.metrics
    async with metrics.looking:
        if call.gate.world.monotonic() - metrics.looked_at >= _KEPT_SECONDS:
            metrics.seen = await _look(call.gate)
            metrics.looked_at = call.gate.world.monotonic()
    text = generate_latest(metrics.registry) + generate_latest(_Collected((*_process(call.gate), *metrics.seen)))
    return Answer(content=text, media_type=CONTENT_TYPE_LATEST)


def _process(gate: Gate) -> Iterable[Metric]:
    yield GaugeMetricFamily("gateway_writer_waiting", "Commands that wait for the writer.", value=gate.ledger.waiting())
    yield GaugeMetricFamily("gateway_writer_refused", "1 while the database takes no writes.", value=int(bool(gate.ledger.trouble())))
    yield GaugeMetricFamily("gateway_duties_late", "Duties of this process that have not gone well for too long.", value=len(gate.late()))


async def _look(gate: Gate) -> list[Metric]:
    """Return what the record says, or that it does not answer."""
    readable = GaugeMetricFamily("gateway_record_readable", "1 where the record answered the last look.", value=1)
    try:
        async with asyncio.timeout(_LOOK_SECONDS):
            beats = await gate.ledger.read(queries.heartbeats)
            live = await gate.ledger.read(queries.live_counts)
            used = await gate.ledger.read(secrets.uses)
    except (LedgerError, TimeoutError):
        readable.samples.clear()
        readable.add_metric([], 0)
        return [readable]
    operations = GaugeMetricFamily("gateway_operations", "Operations that are not final.", labels=("provider", "state"))
    for (provider, state), count in sorted(live.items()):
        operations.add_metric((provider, str(state)), count)
    # From the record, and so the same whichever process is asked: counts of one process among several jump (B158).
    verified = CounterMetricFamily(
        "gateway_deliveries_verified", "Deliveries that a secret matched, in all processes.", labels=("provider",)
    )
    for provider, count in sorted(_summed(used).items()):
        verified.add_metric((provider,), count)
    return [readable, operations, verified, *_duties(beats)]


def _summed(used: Sequence[SecretUse]) -> dict[str, int]:
    found: dict[str, int] = {}
    for use in used:
        found[use.provider] = found.get(use.provider, 0) + use.uses
    return found


def _duties(beats: Sequence[Mapping[str, Any]]) -> Iterable[Metric]:
    labels = ("duty", "process")
    went = GaugeMetricFamily("gateway_duty_last_success_timestamp_seconds", "When a duty last went well.", labels=labels)
    runs = CounterMetricFamily("gateway_duty_runs", "Runs of a duty.", labels=labels)
    failures = CounterMetricFamily("gateway_duty_failures", "Runs of a duty that failed.", labels=labels)
    found = GaugeMetricFamily("gateway_duty_found", "What the last run of a duty counted.", labels=(*labels, "what"))
    for beat in beats:
        of = (beat["duty"], beat["process"])
        if beat["last_ok_at"] is not None:
            went.add_metric(of, beat["last_ok_at"] / SECOND)
        runs.add_metric(of, beat["runs"])
        failures.add_metric(of, beat["failures"])
        for what, count in sorted(beat["counts"].items()):
            if isinstance(count, int | float):
                found.add_metric((*of, what), count)
    return went, runs, failures, found


class _Collected(CollectorRegistry):
    """Metrics that stand already, as what a registry would collect."""

    def __init__(self, families: Sequence[Metric]) -> None:
        super().__init__()
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families

"""Counts of one process: the table of what is counted, and the counters (H3).

Labels are closed sets: configured names, states, statuses, reasons. Nothing that a stranger or a caller writes becomes one.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter

if TYPE_CHECKING:
    from prometheus_client.core import Metric

COUNTED: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "receiver.stored": ("Deliveries that are stored, or were before.", ("provider", "status")),
    "receiver.refused": ("Deliveries that are refused.", ("provider", "reason")),
    "receiver.gone": ("Senders that hung up before their delivery was complete.", ("provider",)),
    "receiver.handshakes": ("Handshakes of providers.", ("provider", "kind", "accepted")),
    "receiver.quarantine": ("Refused deliveries that were kept, or not.", ("provider", "status")),
    "receiver.refusal_run": ("Alarms about runs of refusals.", ("provider", "reason")),
    "receiver.conflict_run": ("Alarms about known event ids with other bytes.", ("provider",)),
    "deliveries.replayed": ("Stored deliveries that were applied again.", ("provider", "outcome")),
    "operations.registered": ("Operations that callers asked for.", ("provider", "outcome")),
    "operations.petitioned": ("Wishes of callers and people.", ("kind", "outcome")),
    "gateway.failed": ("Faults of ours in a request.", ("error",)),
    "gateway.unavailable": ("Requests that the record could not serve.", ("code",)),
}
"""Event -> what is counted, and by which labels. In the exposition `receiver.stored` is `gateway_receiver_stored_total`."""


class Metrics:
    """The counts of one process. `count` takes only what COUNTED names."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self._counters = {
            name: Counter(f"gateway_{name.replace('.', '_')}", text, labels, registry=self.registry)
            for name, (text, labels) in COUNTED.items()
        }
        self.looked_at = float("-inf")
        self.seen: Sequence[Metric] = ()
        self.looking = asyncio.Lock()

    def count(self, name: str, labels: Mapping[str, str]) -> None:
        """Count one more. Raises KeyError for an event that is not in the table, ValueError for other labels."""
        self._counters[name].labels(**labels).inc()

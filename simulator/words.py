"""Each API's words for the phases, and its way to write times."""

from collections.abc import Mapping
from datetime import UTC, datetime

from schemas.operation import SECOND, Micros
from simulator.jobs import Phase

REPORT_WORDS: Mapping[Phase, str] = {
    Phase.QUEUED: "queued",
    Phase.RUNNING: "running",
    Phase.FINALIZING: "running",
    Phase.CANCELLING: "cancelling",
    Phase.SUCCEEDED: "succeeded",
    Phase.FAILED: "failed",
    Phase.EXPIRED: "expired",
    Phase.CANCELLED: "cancelled",
}

BATCH_WORDS: Mapping[Phase, str] = {
    Phase.QUEUED: "validating",
    Phase.RUNNING: "in_progress",
    Phase.FINALIZING: "finalizing",
    Phase.CANCELLING: "cancelling",
    Phase.SUCCEEDED: "completed",
    Phase.FAILED: "failed",
    Phase.EXPIRED: "expired",
    Phase.CANCELLED: "cancelled",
}


def iso(at: Micros) -> str:
    """Return a time as ISO 8601 in UTC with milliseconds, as in `2026-01-31T12:00:00.000Z`."""
    return datetime.fromtimestamp(at / SECOND, tz=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

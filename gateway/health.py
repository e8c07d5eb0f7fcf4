"""Whether this process lives, and whether it is ready to serve."""

import asyncio
from typing import Final

from gateway.call import Answer, Call
from gateway.gate import Gate
from ledger import examine, queries
from ledger.errors import LedgerError
from schemas.operation import SECOND, Micros

_DATABASE_SECONDS: Final = 2.0
_SKEW: Final[Micros] = 2 * SECOND  # more, and deadlines are not what they say
_FRESH: Final[Micros] = 90 * SECOND  # the slowest duty runs every minute


async def live(call: Call) -> Answer:
    """GET /livez: this process answers. It asks no database: a slow one must not get every process killed (B162)."""
    del call
    return Answer(content={"status": "ok", "checks": {"process": "ok"}})


async def ready(call: Call) -> Answer:
    """GET /readyz: the database answers, takes writes and has our time; where a reconciler is expected, each duty goes well; else 503."""
    gate = call.gate
    checks = {"shutdown": "under way" if gate.closing.is_set() else "ok"}
    try:
        async with asyncio.timeout(_DATABASE_SECONDS):
            beats = await gate.ledger.read(queries.heartbeats)
            checks["clock"] = await _clock(gate)
    except (LedgerError, TimeoutError):
        checks["database"] = "no answer"
    else:
        # A deleted file and a full disk still answer reads: what counts is how writing went.
        checks["database"] = "takes no writes: see the log" if gate.ledger.trouble() else "ok"
        if gate.expects_reconciler:
            newest = max((beat["last_at"] for beat in beats), default=None)
            fresh = newest is not None and gate.world.now() - newest <= _FRESH
            checks["reconciler"] = "ok" if fresh else "no duty has run of late: start gateway reconcile"
    if gate.expects_reconciler and (late := gate.late()):
        checks["reconciler"] = f"not well for too long: {', '.join(late)}; see the log"
    well = all(found == "ok" for found in checks.values())
    headers = () if well else (("Retry-After", "5"),)
    return Answer(status=200 if well else 503, content={"status": "ok" if well else "unready", "checks": checks}, headers=headers)


async def _clock(gate: Gate) -> str:
    """Tell whether this host and the database agree about the time. The wait for the answer is nobody's skew."""
    before = gate.world.now()
    theirs = await gate.ledger.read(examine.clock)
    after = gate.world.now()
    if theirs is None or before - _SKEW <= theirs <= after + _SKEW:
        return "ok"
    return f"{((before + after) // 2 - theirs) / SECOND:+.1f} s off the database's: run NTP on both"

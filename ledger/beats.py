"""Heartbeats: when each duty of each process last ran, and with what counts. Readiness and `doctor` read them."""

import json
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from ledger.tables import heartbeats
from ledger.transaction import Transaction, View
from schemas.commands import Beat
from schemas.jsontext import canonical
from schemas.operation import SECOND, Micros

MAX_ERROR = 500  # characters of an error that are kept
_MAX_PROCESSES = 1_000
PROBE = "probe"  # the duty whose beat leaves no row: it is committed to learn whether the database takes writes


PACE = "pace"
"""The duty whose counts tell of accounts that are not called now: `NAME.open`, `NAME.trying`, `NAME.held`."""
PAUSES = frozenset({"open", "trying", "held"})
PACE_FRESH: Micros = 60 * SECOND
"""How old a process's word about its accounts may be."""


def paused(view: View, now: Micros) -> frozenset[str]:
    """Return the providers that some running reconciler does not call now, or only on trial."""
    query = sa.select(heartbeats.c.counts).where(heartbeats.c.duty == PACE, heartbeats.c.last_at >= now - PACE_FRESH)
    found: set[str] = set()
    for counts in view.connection.execute(query.limit(_MAX_PROCESSES)).scalars():
        found.update(name for name, _, state in (key.partition(".") for key in json.loads(counts)) if state in PAUSES)
    return frozenset(found)


def beat(tx: Transaction, commands: Sequence[Beat]) -> list[None]:
    """Record beats. Several of one duty and process in a batch are folded, so that no statement meets a row twice."""
    rows: dict[tuple[str, str], dict[str, object]] = {}
    for command in commands:
        place = (command.duty, command.process)
        before = rows.get(place, {})
        rows[place] = {
            "duty": command.duty,
            "process": command.process,
            "last_at": command.now,
            "last_ok_at": command.now if command.ok else before.get("last_ok_at"),
            "runs": _count(before, "runs") + 1,
            "failures": _count(before, "failures") + (not command.ok),
            "counts": canonical(dict(command.counts)).decode(),
            "error": command.error.replace("\x00", "")[:MAX_ERROR],
        }
    insert = (postgresql.insert if tx.postgres else sqlite.insert)(heartbeats)
    new, old = insert.excluded, heartbeats.c
    upsert = insert.on_conflict_do_update(
        index_elements=[old.duty, old.process],
        set_={
            "last_at": new.last_at,
            "last_ok_at": sa.func.coalesce(new.last_ok_at, old.last_ok_at),
            "runs": old.runs + new.runs,
            "failures": old.failures + new.failures,
            "counts": new.counts,
            "error": new.error,
        },
    )
    tx.connection.execute(upsert, [rows[place] for place in sorted(rows)])  # sorted: one lock order everywhere
    if any(duty == PROBE for duty, _ in rows):
        tx.connection.execute(sa.delete(heartbeats).where(old.duty == PROBE))
    return [None] * len(commands)


def _count(row: dict[str, object], name: str) -> int:
    value = row.get(name, 0)
    assert isinstance(value, int)
    return value

"""After the wall clock was set back: what was written under the former time is brought back into ours (B106).

Everything that was due then would wait for the old time to come round; on SQLite, whose leases are judged by this clock too, the
leases of workers that died would last for as long as the step was wide. Only rows that bear witness of the step are touched:
a last read, or a registration, that lies in the future, and a lease longer than anybody takes.
"""

import sqlalchemy as sa

from ledger.tables import operations
from ledger.transaction import Transaction
from schemas.commands import Sweep

_c = operations.c
_SINCE = sa.func.coalesce(_c.last_read_at, _c.first_sent_at, _c.created_at)
"""When the row's next errand was decided on, as near as the row tells."""


def set_right(tx: Transaction, command: Sweep) -> int:
    """Bring back at most `limit` leases and as many waits; return how many. Again: nothing, once all are right."""
    clock = tx.lease_clock(command.now)
    stretched = _c.lease_until > clock + command.longest_lease
    waiting = _c.lease_until.is_(None) & (command.now < _SINCE) & (_c.due_at >= _SINCE)
    # The wait itself stays as long as it was meant to be: nothing is flooded, and a provider's own wish is kept.
    return _change(tx, command.limit, stretched, {"lease_until": clock, "due_at": command.now}) + _change(
        tx, command.limit, waiting, {"due_at": command.now + (_c.due_at - _SINCE)}
    )


def _change(tx: Transaction, limit: int, wrong: sa.ColumnElement[bool], values: dict[str, object]) -> int:
    picked = sa.select(_c.id).where(_c.due_at.is_not(None), wrong).order_by(_c.id).limit(limit).with_for_update(skip_locked=True)
    found = tx.connection.execute(picked).scalars().all()
    if found:
        tx.connection.execute(sa.update(operations).where(_c.id.in_(found)).values(**values, revision=_c.revision + 1))
    return len(found)

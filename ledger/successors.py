"""Waking successors: what an operation's end, or its wait for a person, means for those that wait for it (MISSION A3)."""

from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa

from ledger.tables import operations
from ledger.transaction import Transaction
from schemas.operation import Micros
from schemas.states import State

_WAITING: Final = (str(State.CREATE_PENDING), str(State.AWAITING_APPROVAL))


def wake(tx: Transaction, ended: Sequence[str], now: Micros) -> None:
    """Make the successors of these operations due.

    A locked one is passed over, so that nobody waits for a lock here (their ids come in any order): it looks again by
    itself within `lifecycle.rules_links.LOOK_SECONDS`.
    """
    free = (
        sa.select(operations.c.id)
        .where(operations.c.waits_for.in_(ended), operations.c.state.in_(_WAITING), operations.c.lease_until.is_(None))
        .order_by(operations.c.id)
        .with_for_update(skip_locked=True)
    )
    ids = list(tx.connection.execute(free).scalars())
    if ids:
        tx.connection.execute(sa.update(operations).where(operations.c.id.in_(ids)).values(due_at=now, revision=operations.c.revision + 1))
        tx.due.update(ids)

"""Deliveries that nobody signed (`refetch`: no secret made them) are kept in bounded number, whoever sends how many (MISSION B8, B10).

Such a delivery is only a hint to read. The newest are kept: of a provider those that belong to no operation, and of every
operation its own. What goes takes its mention of the job along. Deliveries that a secret has signed are never touched.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa

from ledger.fold import CHUNK
from ledger.tables import deliveries, remote_jobs
from ledger.transaction import Transaction
from schemas.delivery import Delivery

UNMATCHED_KEPT: Final = 2_000
"""Unsigned deliveries of one provider that belong to no operation."""
MATCHED_KEPT: Final = 100
"""Unsigned deliveries of one operation: as many as anybody looks through; its history tells of every read."""
AT_ONCE: Final = 5_000
"""Rows that go in one transaction, above what one can bring; the next one goes on."""


def keep_few(tx: Transaction, fresh: Sequence[Delivery], matches: Mapping[str, str]) -> None:
    """Make room behind unsigned deliveries that have just been stored. `matches`: delivery id -> operation id."""
    c = deliveries.c
    unsigned = [delivery for delivery in fresh if not delivery.secret_id]
    for provider in sorted({delivery.provider for delivery in unsigned if delivery.id not in matches}):
        _trim(tx, (c.provider == provider) & (c.secret_id == "") & c.operation.is_(None), UNMATCHED_KEPT)
    for operation in sorted({matches[delivery.id] for delivery in unsigned if delivery.id in matches}):
        _trim(tx, (c.operation == operation) & (c.secret_id == ""), MATCHED_KEPT)


def _trim(tx: Transaction, mine: sa.ColumnElement[bool], kept: int) -> None:
    c = deliveries.c
    newest = sa.select(c.received_at, c.id).where(mine).order_by(c.received_at.desc(), c.id.desc())
    last = tx.connection.execute(newest.offset(kept).limit(1)).one_or_none()
    if last is None:
        return
    # In pages and from the oldest on. A row that another transaction holds is left to it: nobody waits, so nothing can deadlock.
    older = sa.tuple_(c.received_at, c.id) <= sa.tuple_(*map(sa.literal, last))
    picked = (
        sa.select(c.id, c.provider, c.remote_job_id)
        .where(mine, older)
        .order_by(c.received_at, c.id)
        .limit(AT_ONCE)
        .with_for_update(skip_locked=True)
    )
    gone = tx.connection.execute(picked).all()
    for start in range(0, len(gone), CHUNK):
        chunk = gone[start : start + CHUNK]
        tx.connection.execute(sa.delete(deliveries).where(c.id.in_([row.id for row in chunk])))
        _forget_jobs(tx, sorted({(row.provider, row.remote_job_id) for row in chunk if row.remote_job_id}))


def _forget_jobs(tx: Transaction, keys: Sequence[tuple[str, str]]) -> None:
    """Forget jobs that nobody owns. The row of one is a lock and a name; whoever speaks of it next makes another."""
    if not keys:
        return
    j: Any = remote_jobs.c
    idle = sa.select(j.provider, j.remote_job_id).where(sa.tuple_(j.provider, j.remote_job_id).in_(keys), j.operation.is_(None))
    found = [tuple(row) for row in tx.connection.execute(idle.with_for_update(skip_locked=True))]
    if found:
        tx.connection.execute(sa.delete(remote_jobs).where(sa.tuple_(j.provider, j.remote_job_id).in_(found), j.operation.is_(None)))

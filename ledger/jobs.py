"""Remote jobs: one owner per job id, and the lock by which early deliveries and create answers find each other (B6, A8).

A row of `remote_jobs` is upserted, and so locked, before anything is matched: whichever of ingest and settle commits
second sees what the first one wrote. Keys are locked in sorted order, before any operation.
"""

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from ledger.fold import CHUNK, Fold
from ledger.tables import deliveries, remote_jobs
from ledger.transaction import Transaction
from schemas.evidence import Hinted
from schemas.operation import Micros

JobKey = tuple[str, str]
_ORPHANS_AT_ONCE = 100


def lock_jobs(tx: Transaction, keys: Iterable[JobKey], now: Micros) -> dict[JobKey, str | None]:
    """Upsert and lock the rows of `keys`; return each one's operation, None while nobody owns it."""
    wanted = sorted(set(keys))
    owners: dict[JobKey, str | None] = {}
    if not wanted:
        return owners
    statement = _upsert(postgres=tx.postgres)
    rows = [{"provider": provider, "remote_job_id": job, "seen_at": now} for provider, job in wanted]
    for start in range(0, len(rows), CHUNK):
        for provider, job, operation in tx.connection.execute(statement, rows[start : start + CHUNK]):
            owners[provider, job] = operation
    return owners


def bind_job(tx: Transaction, key: JobKey, operation: str) -> None:
    """Make `operation` the owner of a locked job."""
    provider, job = key
    tx.connection.execute(
        sa.update(remote_jobs).where(remote_jobs.c.provider == provider, remote_jobs.c.remote_job_id == job).values(operation=operation)
    )


def attach_orphans(fold: Fold, key: JobKey, operation: str, *, chance: float) -> int:
    """Attach deliveries that came before the job was known; each is a hint now. Returns how many."""
    tx, (provider, job) = fold.tx, key
    waiting = tx.connection.execute(
        sa.select(deliveries.c.id, deliveries.c.event_type, deliveries.c.claimed_state)
        .where(
            deliveries.c.provider == provider,
            deliveries.c.remote_job_id == job,
            deliveries.c.status.in_(("orphan", "unclaimed")),
        )
        .order_by(deliveries.c.received_at)
        .limit(_ORPHANS_AT_ONCE)
    ).all()
    for delivery, event_type, claimed in waiting:
        fold.judge(
            operation,
            Hinted(delivery_id=delivery, event_type=event_type, claimed_state=claimed, note="came early"),
            actor=f"provider:{provider}",
            chance=chance,
            cause_id=delivery,
        )
    if waiting:
        ids = [row.id for row in waiting]
        tx.connection.execute(sa.update(deliveries).where(deliveries.c.id.in_(ids)).values(status="applied", operation=operation))
    return len(waiting)


def _upsert(*, postgres: bool) -> Any:
    """Return the locking upsert; its no-op update locks a row that is there and returns it too."""
    if postgres:
        from sqlalchemy.dialects.postgresql import insert

        statement: Any = insert(remote_jobs)
    else:
        from sqlalchemy.dialects.sqlite import insert as sqlite_insert

        statement = sqlite_insert(remote_jobs)
    return statement.on_conflict_do_update(
        index_elements=["provider", "remote_job_id"], set_={"seen_at": statement.excluded.seen_at}
    ).returning(remote_jobs.c.provider, remote_jobs.c.remote_job_id, remote_jobs.c.operation)

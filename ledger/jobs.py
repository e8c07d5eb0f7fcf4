"""Remote jobs: one owner per job id, and the lock by which early deliveries and create answers find each other (B6, A8).

A row of `remote_jobs` is upserted, and so locked, before anything is matched: whichever of ingest and settle commits
second sees what the first one wrote. Keys are locked in sorted order, before any operation.
"""

from collections.abc import Iterable, Mapping
from functools import cache
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


def named_job(tx: Transaction, job: JobKey | None, owners: Mapping[JobKey, str | None]) -> str:
    """Return the job that a delivery names, where its own word may make it an operation's: signed, and nobody else's."""
    return job[1] if job is not None and owners.get(job) is None and not tx.unsigned(job[0]) else ""


def note_owner(fold: Fold, job: JobKey | None, operation: str, owners: dict[JobKey, str | None], bound: dict[JobKey, str]) -> None:
    """Make the operation the owner of a locked job that its judgement has just given it; `bind_jobs` writes it."""
    op = fold.get(operation)
    if job is not None and op is not None and op.remote_job_id == job[1] and owners.get(job) is None:
        owners[job] = bound[job] = operation


def bind_jobs(fold: Fold, bound: Mapping[JobKey, str], *, chance: float) -> None:
    """Make operations the owners of locked jobs, and attach the deliveries that came before: each is a hint now."""
    if not bound:
        return
    tx = fold.tx
    rows = [{"b_provider": provider, "b_job": job, "operation": operation} for (provider, job), operation in sorted(bound.items())]
    tx.connection.execute(_BIND, rows)
    attached: list[dict[str, str]] = []
    keys = sorted(bound)
    for start in range(0, len(keys), CHUNK):
        chunk = keys[start : start + CHUNK]
        query = (
            sa.select(deliveries)
            .with_only_columns(*_EARLY)
            .where(
                sa.tuple_(deliveries.c.provider, deliveries.c.remote_job_id).in_(chunk),
                deliveries.c.status.in_(("orphan", "unclaimed")),
            )
            .order_by(deliveries.c.received_at, deliveries.c.id)
            .limit(_ORPHANS_AT_ONCE * len(chunk))
        )
        for row in tx.connection.execute(query):
            operation = bound[row.provider, row.remote_job_id]
            hint = Hinted(
                delivery_id=row.id,
                event_type=row.event_type,
                claimed_state=row.claimed_state,
                note="came early",
                unsigned=tx.unsigned(row.provider),
            )
            fold.judge(operation, hint, actor=f"provider:{row.provider}", chance=chance, cause_id=row.id)
            attached.append({"b_id": row.id, "status": "applied", "operation": operation})
    if attached:
        tx.connection.execute(MARK, attached)


_EARLY = (
    deliveries.c.id,
    deliveries.c.provider,
    deliveries.c.remote_job_id,
    deliveries.c.event_type,
    deliveries.c.claimed_state,
)
_BIND = (
    sa.update(remote_jobs)
    .where(remote_jobs.c.provider == sa.bindparam("b_provider"), remote_jobs.c.remote_job_id == sa.bindparam("b_job"))
    .values(operation=sa.bindparam("operation"))
)
MARK = (
    sa.update(deliveries)
    .where(deliveries.c.id == sa.bindparam("b_id"))
    .values(status=sa.bindparam("status"), operation=sa.bindparam("operation"))
)
"""Say what became of deliveries, one row of `b_id`, `status`, `operation` each."""


@cache  # building a statement costs as much as running it
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

"""Sweeps: what was left behind is found and driven on; bounded, by key, and one bad row blocks nothing (MISSION C7, B6)."""

from collections import Counter
from typing import Any

import sqlalchemy as sa

from ledger.fold import Fold
from ledger.jobs import lock_jobs
from ledger.tables import deliveries, heartbeats, operations, remote_jobs
from ledger.transaction import Transaction
from schemas.commands import Sweep, Swept
from schemas.evidence import Hinted
from schemas.operation import SECOND
from schemas.states import ACTIVE

RECEIPT_SECONDS = 30
"""A receipt that is still unprocessed after this is finished by the sweep (B036)."""
ORPHAN_SECONDS = 60
"""An orphan is looked at again after this; past the provider's retry horizon it is `unclaimed`."""
BEAT_SECONDS = 86_400
"""A heartbeat that stopped longer ago than this is forgotten."""
_DEFAULT_STALE_SECONDS = 3_600


def sweep(tx: Transaction, commands: list[Sweep]) -> list[Swept]:
    """Run one bounded sweep for each command."""
    return [_sweep(tx, command) for command in commands]


def _sweep(tx: Transaction, command: Sweep) -> Swept:
    counts: Counter[str] = Counter()
    _receipts(tx, command, counts)
    _unclaimed(tx, command, counts)
    _silent(tx, command, counts)
    _beats(tx, command, counts)
    return Swept(counts=dict(counts))


def _beats(tx: Transaction, command: Sweep, counts: Counter[str]) -> None:
    """Forget the heartbeats of processes that are long gone: each start has a name of its own."""
    old = command.now - BEAT_SECONDS * SECOND
    counts["beats_forgotten"] += tx.connection.execute(sa.delete(heartbeats).where(heartbeats.c.last_at < old)).rowcount


def _receipts(tx: Transaction, command: Sweep, counts: Counter[str]) -> None:
    """Match what waits: receipts never processed, and orphans whose job is known by now.

    Every row that is picked leaves the set: an orphan that nobody can claim is not picked, or a sweep's worth of them,
    being the oldest, would stand before everything else for ever (B115).
    """
    late = deliveries.c.received_at <= command.now - RECEIPT_SECONDS * SECOND
    later = deliveries.c.received_at <= command.now - ORPHAN_SECONDS * SECOND
    rows: list[sa.Row[Any]] = []
    for condition in ((deliveries.c.status == "received") & late, (deliveries.c.status == "orphan") & later & _claimable()):
        query = (
            sa.select(deliveries)
            .where(condition, deliveries.c.provider.in_(sorted(tx.contracts)))
            .order_by(deliveries.c.received_at)
            .limit(command.limit)
        )
        rows += tx.connection.execute(query).all()
    if not rows:
        return
    owners = lock_jobs(tx, [(row.provider, row.remote_job_id) for row in rows if row.remote_job_id], command.now)
    matches = {row.id: owner for row in rows if (owner := owners.get((row.provider, row.remote_job_id))) is not None}
    _match_references(tx, [row for row in rows if row.id not in matches], matches)
    fold = Fold(tx, command.now)
    fold.lock(matches.values())
    for row in rows:
        operation = matches.get(row.id)
        if operation is None:
            status = "orphan" if row.remote_job_id or row.client_reference else "ignored"
        else:
            fold.judge(
                operation,
                Hinted(
                    delivery_id=row.id,
                    event_type=row.event_type,
                    claimed_state=row.claimed_state,
                    note="swept",
                    unsigned=tx.unsigned(row.provider),
                ),
                actor="sweep",
                chance=command.chance,
                cause_id=row.id,
            )
            status = "applied"
        if status != row.status or operation is not None:
            tx.connection.execute(sa.update(deliveries).where(deliveries.c.id == row.id).values(status=status, operation=operation))
            counts[f"receipts_{status}"] += 1
    fold.flush()


def _claimable() -> sa.ColumnElement[bool]:
    """Return the condition that an operation is known for a delivery's job or reference."""
    job = sa.exists().where(
        remote_jobs.c.provider == deliveries.c.provider,
        remote_jobs.c.remote_job_id == deliveries.c.remote_job_id,
        remote_jobs.c.operation.is_not(None),
    )
    reference = sa.exists().where(
        (operations.c.id == deliveries.c.client_reference) | (operations.c.idempotency_token == deliveries.c.client_reference),
        operations.c.provider == deliveries.c.provider,
    )
    return job | (deliveries.c.client_reference != "") & reference


def _match_references(tx: Transaction, rows: list[sa.Row[tuple[object, ...]]], matches: dict[str, str]) -> None:
    for row in rows:
        if not row.client_reference:
            continue
        found = tx.connection.execute(
            sa.select(operations.c.id).where(
                (operations.c.id == row.client_reference) | (operations.c.idempotency_token == row.client_reference),
                operations.c.provider == row.provider,
            )
        ).one_or_none()
        if found is not None:
            matches[row.id] = found.id


def _unclaimed(tx: Transaction, command: Sweep, counts: Counter[str]) -> None:
    """Set orphans aside that nobody claimed within the provider's retry horizon; they still attach when a job turns up."""
    for provider, contract in sorted(tx.contracts.items()):
        limit = command.now - max(contract.retry.horizon_seconds, 2 * ORPHAN_SECONDS) * SECOND
        picked = (
            sa.select(deliveries.c.id)
            .where(deliveries.c.provider == provider, deliveries.c.status == "orphan", deliveries.c.received_at <= limit)
            .order_by(deliveries.c.received_at)
            .limit(command.limit)
        )
        result = tx.connection.execute(sa.update(deliveries).where(deliveries.c.id.in_(picked)).values(status="unclaimed"))
        counts["unclaimed"] += result.rowcount


def _silent(tx: Transaction, command: Sweep, counts: Counter[str]) -> None:
    """Make operations due whose next check lies past the longest silence that their contract allows (C7)."""
    for provider, contract in sorted(tx.contracts.items()):
        for action, kind in (contract.kinds() or {"": contract}).items():
            stale = kind.status.stale_seconds if kind.status is not None else _DEFAULT_STALE_SECONDS
            picked = (
                sa.select(operations.c.id)
                .where(
                    operations.c.provider == provider,
                    operations.c.due_at > command.now + stale * SECOND,
                    operations.c.state.in_(sorted(str(state) for state in ACTIVE)),
                    operations.c.remote_job_id.is_not(None),
                    operations.c.lease_until.is_(None),
                    *((operations.c.action == action,) if contract.actions else ()),
                )
                .limit(command.limit)
            )
            result = tx.connection.execute(
                sa.update(operations).where(operations.c.id.in_(picked)).values(due_at=command.now, revision=operations.c.revision + 1)
            )
            counts["silent"] += result.rowcount

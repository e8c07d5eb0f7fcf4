"""Apply stored deliveries again, as today's contract reads them: matched anew, hinted again, with who wanted it (MISSION B3-B7)."""

from typing import Any

import sqlalchemy as sa

from ledger.fold import Fold
from ledger.ingest import match
from ledger.jobs import JobKey, bind_jobs, lock_jobs, named_job, note_owner
from ledger.tables import deliveries
from ledger.transaction import Transaction
from schemas.commands import Replay, Replayed
from schemas.delivery import Delivery
from schemas.evidence import Hinted

_Jobs = tuple[dict[JobKey, str | None], dict[JobKey, str]]


def replay(tx: Transaction, commands: list[Replay]) -> list[Replayed]:
    """Apply each delivery. One of no operation of the owner answers `not_found`, as an unknown one does (G4)."""
    now = max(command.now for command in commands)
    ids = sorted({command.delivery_id for command in commands})
    query = sa.select(deliveries).where(deliveries.c.id.in_(ids)).order_by(deliveries.c.id)
    rows = {row.id: row for row in tx.connection.execute(query)}
    named = [_delivery(rows[command.delivery_id], command) for command in commands if command.delivery_id in rows]
    jobs = [(item.provider, item.event.remote_job_id) for item in named if item.event.readable and item.event.remote_job_id]
    owners = lock_jobs(tx, jobs, now)
    matches = match(tx, named, owners)
    fold = Fold(tx, now)
    fold.lock([*matches.values(), *(row.operation for row in rows.values() if row.operation is not None)])
    # Jobs, operations, deliveries: the order of everybody who attaches one. Meanwhile somebody may have attached it.
    rows = {row.id: row for row in tx.connection.execute(query.with_for_update())}
    fold.lock(row.operation for row in rows.values() if row.operation is not None)
    bound: dict[JobKey, str] = {}
    answers = [_replay(fold, command, rows.get(command.delivery_id), matches, (owners, bound)) for command in commands]
    bind_jobs(fold, bound, chance=commands[0].chance)
    fold.flush()
    return answers


def _delivery(row: sa.Row[Any], command: Replay) -> Delivery:
    return Delivery(
        id=row.id,
        provider=row.provider,
        received_at=row.received_at,
        event=command.event,
        secret_id=row.secret_id,
        scheme_id=row.scheme_id,
        body=b"",
    )


def _replay(fold: Fold, command: Replay, row: sa.Row[Any] | None, matches: dict[str, str], jobs: _Jobs) -> Replayed:
    """Apply one delivery. `jobs` are the owners of the locked jobs, and those that become owners here."""
    if row is None or not _owned(fold, row.operation, command.owner):
        return Replayed(outcome="not_found")
    event = command.event
    if not event.readable:
        if row.status == "dead":
            _write(fold.tx, row.id, problem=event.problem)
        return Replayed(outcome="unreadable", operation_id=row.operation)
    # What it was attached to stands unless it matches another one, which must be the same owner's where an owner asks.
    found = matches.get(row.id)
    operation: str | None = found if found is not None and _owned(fold, found, command.owner) else row.operation
    status = "applied"
    if operation is None or fold.get(operation) is None:
        status = "orphan" if event.remote_job_id or event.client_reference else "ignored"
    else:
        job = (row.provider, event.remote_job_id) if event.remote_job_id else None
        fold.judge(
            operation,
            Hinted(
                delivery_id=row.id,
                event_type=event.event_type,
                claimed_state=event.claimed_state,
                note="replayed" if command.verified else "replayed, verified at its receipt only",
                replayed=True,
                names_job=named_job(fold.tx, job, jobs[0]) if operation == found else "",
                unsigned=fold.tx.unsigned(row.provider),
            ),
            actor=command.actor,
            chance=command.chance,
            cause_id=row.id,
        )
        note_owner(fold, job, operation, *jobs)
    _write(
        fold.tx,
        row.id,
        status=status,
        operation=operation,
        event_id=event.event_id,
        event_type=event.event_type,
        remote_job_id=event.remote_job_id,
        client_reference=event.client_reference,
        claimed_state=event.claimed_state,
        provider_time=event.provider_time,
        problem="",
    )
    public = {"applied": "accepted", "orphan": "unmatched", "ignored": "ignored"}[status]
    return Replayed(outcome=public, operation_id=operation)  # type: ignore[arg-type] # one of the outcomes


def _owned(fold: Fold, operation: str | None, owner: str | None) -> bool:
    if owner is None:
        return True
    op = None if operation is None else fold.get(operation)
    return op is not None and op.owner == owner


def _write(tx: Transaction, delivery: str, **values: Any) -> None:
    tx.connection.execute(sa.update(deliveries).where(deliveries.c.id == delivery).values(**values))

"""Commit what errands brought: evidence judged, attempt closed, exchange kept, lease released by fence (C1, C4)."""

from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from ledger.errors import RecordError
from ledger.fold import CHUNK, Fold
from ledger.jobs import JobKey, attach_orphans, bind_job, lock_jobs
from ledger.leases import close_attempt, holds_lease
from ledger.tables import attempts, exchanges, observations, operations
from ledger.transaction import Transaction
from schemas.commands import Settle, Settled
from schemas.evidence import (
    CancelAmbiguous,
    CollectFailed,
    CreateAmbiguous,
    CreateRejected,
    Evidence,
    JobKnown,
    JobsConflict,
    NotSent,
    Read,
)
from schemas.operation import Micros, Operation
from schemas.states import FINAL, PARKED


def settle(tx: Transaction, commands: list[Settle]) -> list[Settled]:
    """Fold each errand's evidence. Order of locks: job keys sorted, then operations by id."""
    now = max(command.now for command in commands)
    fold = Fold(tx, now)
    providers = _providers(tx, commands)
    owners = lock_jobs(tx, [key for command in commands if (key := _job(command, providers)) is not None], now)
    fold.lock(command.operation_id for command in commands)
    answers = []
    kept: list[dict[str, Any]] = []
    for command in commands:
        if fold.get(command.operation_id) is None:
            raise RecordError(f"{command.operation_id} is not on record")
        answers.append(_settle(fold, command, owners, providers))
        if command.exchange is not None:
            kept.append(_exchange_row(tx, command))
    if kept:
        tx.connection.execute(sa.insert(exchanges), kept)
    fold.flush()
    return [replace(answer, operation=fold.get(answer.operation.id) or answer.operation) for answer in answers]


def _providers(tx: Transaction, commands: list[Settle]) -> dict[str, str]:
    """Return each operation's provider: written once, so that it can be read before the locks."""
    ids = sorted({command.operation_id for command in commands if isinstance(command.evidence, JobKnown)})
    found: dict[str, str] = {}
    for start in range(0, len(ids), CHUNK):
        query = sa.select(operations.c.id, operations.c.provider).where(operations.c.id.in_(ids[start : start + CHUNK]))
        found.update({row.id: row.provider for row in tx.connection.execute(query)})
    return found


def _job(command: Settle, providers: dict[str, str]) -> JobKey | None:
    if isinstance(command.evidence, JobKnown) and command.operation_id in providers:
        return providers[command.operation_id], command.evidence.remote_job_id
    return None


def _settle(fold: Fold, command: Settle, owners: dict[JobKey, str | None], providers: dict[str, str]) -> Settled:
    op = fold.get(command.operation_id)
    assert op is not None
    holds = holds_lease(op, command.fence)
    evidence = _close(fold, op, command)
    key = _job(command, providers)
    if key is not None and owners.get(key) not in {None, op.id}:
        evidence = JobsConflict(remote_job_ids=(key[1],), message="the job belongs to another operation")
        key = None
    cause_id = command.attempt_id or (command.exchange.id if command.exchange is not None else "")
    if isinstance(evidence, Read):
        evidence, cause_id = _observe(fold, op, evidence, command)
    decision = fold.judge(
        op.id,
        evidence,
        actor=command.actor,
        chance=command.chance,
        cause_id=cause_id,
        started_at=command.started_at,
        holds_lease=holds,
    )
    if holds:
        _release(fold, command)
    after = fold.get(op.id)
    assert after is not None
    if key is not None and after.remote_job_id == key[1] and owners.get(key) is None:
        bind_job(fold.tx, key, op.id)
        owners[key] = op.id
        attach_orphans(fold, key, op.id, chance=command.chance)
    return Settled(operation=after, stale=not holds, refused=decision.refused)


def _close(fold: Fold, op: Operation, command: Settle) -> Evidence:
    """Close the attempt. One that had been declared lost and surely was not sent takes a doubt away.

    One that is ambiguous may be executed as late as a lost one: absence is judged from the attempt's own limit.
    """
    evidence = command.evidence
    if command.attempt_id is None:
        return evidence
    outcome, error = _fate(evidence)
    query = sa.select(attempts.c.outcome, attempts.c.sent_before, attempts.c.number).where(attempts.c.id == command.attempt_id)
    row = fold.tx.connection.execute(query).one_or_none()
    if row is None:
        raise RecordError(f"{command.attempt_id} is not on record")
    close_attempt(fold.tx, command.attempt_id, outcome, error, fold.now)
    if op.open_attempt == command.attempt_id:
        fold.work(op.id, open_attempt=None, open_errand=None)
    if isinstance(evidence, NotSent | CreateRejected):
        return replace(evidence, was_lost=row.outcome == "lost" and not _tried_since(fold, command, row.number))
    if isinstance(evidence, CreateAmbiguous):
        return replace(evidence, sent_before=int(row.sent_before))
    return evidence


def _tried_since(fold: Fold, command: Settle, number: int) -> bool:
    """Return whether another try was opened after this one.

    The doubt about this one may have been cleared before that (absence proven): what is counted now may be the other's.
    """
    later = sa.select(attempts.c.id).where(
        attempts.c.operation == command.operation_id, attempts.c.errand == str(command.errand), attempts.c.number > number
    )
    return fold.tx.connection.execute(later.limit(1)).one_or_none() is not None


def _fate(evidence: Evidence) -> tuple[str, str]:
    match evidence:
        case NotSent(error=error):
            return "not_sent", error
        case CreateAmbiguous(error=error) | CancelAmbiguous(error=error) | CollectFailed(error=error):
            return "ambiguous", error
        case _:
            return "answered", ""


def _release(fold: Fold, command: Settle) -> None:
    """Give the lease back. A hint that came after the call began wants another look (no lost wake-up)."""
    op = fold.get(command.operation_id)
    assert op is not None
    due = op.due_at
    if (
        due is not None
        and looks_again(op, command.started_at)
        and op.state not in FINAL
        and op.state not in PARKED
        and _may_hasten(command)
    ):
        due = fold.now
    fold.work(op.id, lease_owner=None, lease_until=None, due_at=due)


def looks_again(op: Operation, started_at: Micros) -> bool:
    """Return whether a hint came after the call began, which therefore may not have seen what the hint is about."""
    return op.hinted_at is not None and op.hinted_at >= started_at


def _may_hasten(command: Settle) -> bool:
    """Return whether a hint may hasten the next errand: never past the provider's own wish to wait."""
    return getattr(command.evidence, "retry_after", None) is None


def _observe(fold: Fold, op: Operation, evidence: Read, command: Settle) -> tuple[Read, str]:
    """Keep the observation: an identical reading counts up the latest one, another one is a new row (C4)."""
    facts, connection = evidence.facts, fold.tx.connection
    if evidence.digest and evidence.digest == op.observation_digest and op.observations > 0:
        observation = f"obs_{op.id.removeprefix('op_')}_{op.observations}"
        connection.execute(
            sa.update(observations).where(observations.c.id == observation).values(count=observations.c.count + 1, last_at=fold.now)
        )
        return replace(evidence, observation_id=observation), observation
    number = op.observations + 1
    observation = f"obs_{op.id.removeprefix('op_')}_{number}"
    connection.execute(
        sa.insert(observations),
        {
            "id": observation,
            "operation": op.id,
            "number": number,
            "digest": evidence.digest,
            "reading": str(facts.reading),
            "remote_state": facts.remote_state[:200],
            "progress": facts.progress,
            "provider_time": facts.provider_time,
            "first_at": fold.now,
            "last_at": fold.now,
            "count": 1,
            "exchange": command.exchange.id if command.exchange is not None else None,
        },
    )
    fold.work(op.id, observations=number)
    return replace(evidence, observation_id=observation), observation


def _exchange_row(tx: Transaction, command: Settle) -> dict[str, Any]:
    exchange = command.exchange
    assert exchange is not None
    body = exchange.response_body
    return {
        "id": exchange.id,
        "operation": command.operation_id,
        "attempt": command.attempt_id,
        "errand": exchange.errand,
        "method": exchange.method,
        "url": exchange.url,
        "started_at": exchange.started_at,
        "finished_at": exchange.finished_at,
        "outcome": exchange.outcome,
        "status": exchange.status,
        "error": exchange.error[:500],
        "provider_request_id": exchange.provider_request_id[:200],
        "response_digest": exchange.response_digest,
        "response_body": tx.vault.seal("exchanges", "response_body", exchange.id, body) if body else None,
    }

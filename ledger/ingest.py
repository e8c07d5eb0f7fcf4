"""Store verified deliveries: deduplicated, matched, applied as hints, in one transaction (MISSION B3-B7).

An insert with the dedup key comes first: whoever loses the race writes nothing else. A delivery that matches nothing
stays as an orphan and attaches by itself when its job becomes known.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import sqlalchemy as sa

from ledger.bounds import keep_few
from ledger.fold import CHUNK, Fold
from ledger.jobs import MARK, JobKey, bind_jobs, lock_jobs, named_job, note_owner
from ledger.secrets import note_uses, revoked
from ledger.tables import deliveries, delivery_conflicts, operations
from ledger.transaction import Transaction
from schemas.commands import Ingest, Ingested
from schemas.delivery import Delivery
from schemas.evidence import Hinted

DedupKey = tuple[str, str]


@dataclass(slots=True)
class _First:
    """What is known of the delivery that holds a dedup key."""

    id: str
    content_sha256: str
    operation: str | None
    status: str = ""  # as stored; empty while it is being stored


def ingest(tx: Transaction, commands: list[Ingest]) -> list[Ingested]:
    """Store each delivery once per provider and dedup key; apply it to its operation or keep it as an orphan."""
    now = max(command.now for command in commands)
    ended = revoked(tx, [command.delivery.secret_id for command in commands], now)
    if ended:
        kept = [command for command in commands if command.delivery.secret_id not in ended]
        stored = iter(ingest(tx, kept) if kept else [])
        refused = {id(command) for command in commands} - {id(command) for command in kept}
        return [_refused(command) if id(command) in refused else next(stored) for command in commands]
    fold = Fold(tx, now)
    firsts, fresh = _insert(tx, commands)
    owners = lock_jobs(tx, [key for delivery in fresh if (key := _job(delivery)) is not None], now)
    matches = match(tx, fresh, owners)
    for delivery in fresh:
        firsts[_key(delivery)].operation = matches.get(delivery.id)
    repeated = [first.operation for first in firsts.values() if first.operation is not None]
    fold.lock([*matches.values(), *repeated])
    statuses: dict[str, str] = {}
    bound: dict[JobKey, str] = {}
    for delivery in fresh:
        statuses[delivery.id] = _apply(fold, delivery, matches.get(delivery.id), owners, bound)
    answers = [_answer(tx, fold, command, firsts, statuses) for command in commands]
    _write_statuses(tx, fresh, statuses, matches)
    bind_jobs(fold, bound, chance=0.0)  # after the statuses: it attaches what is still without an operation
    fold.flush()
    keep_few(tx, fresh, matches)
    note_uses(tx, [command.delivery for command in commands])
    return answers


def _refused(command: Ingest) -> Ingested:
    """Return the answer to a delivery whose secret was revoked while this process still trusted it (B11)."""
    return Ingested(delivery_id=command.delivery.id, status="revoked")


def _job(delivery: Delivery) -> tuple[str, str] | None:
    job = delivery.event.remote_job_id
    return (delivery.provider, job) if job and delivery.event.readable else None


def _key(delivery: Delivery) -> DedupKey:
    return delivery.provider, delivery.event.dedup_key


def _insert(tx: Transaction, commands: list[Ingest]) -> tuple[dict[DedupKey, _First], list[Delivery]]:
    """Insert in the order of dedup keys; return who holds each key, and the deliveries that are new."""
    candidates: dict[DedupKey, Delivery] = {}
    for command in commands:
        candidates.setdefault(_key(command.delivery), command.delivery)
    ordered = [candidates[key] for key in sorted(candidates)]
    inserted: set[str] = set()
    for start in range(0, len(ordered), CHUNK):
        chunk = ordered[start : start + CHUNK]
        statement = _insert_statement(postgres=tx.postgres)
        result = tx.connection.execute(statement, [_row(tx, delivery) for delivery in chunk])
        inserted.update(result.scalars())
    fresh = [delivery for delivery in ordered if delivery.id in inserted]
    firsts = {_key(item): _First(id=item.id, content_sha256=item.event.content_sha256, operation=None) for item in fresh}
    known = [delivery for delivery in ordered if delivery.id not in inserted]
    for start in range(0, len(known), CHUNK):
        chunk = known[start : start + CHUNK]
        query = sa.select(
            deliveries.c.provider,
            deliveries.c.dedup_key,
            deliveries.c.id,
            deliveries.c.content_sha256,
            deliveries.c.operation,
            deliveries.c.status,
        ).where(sa.tuple_(deliveries.c.provider, deliveries.c.dedup_key).in_([_key(item) for item in chunk]))
        for provider, dedup_key, identity, digest, operation, status in tx.connection.execute(query):
            firsts[provider, dedup_key] = _First(id=identity, content_sha256=digest, operation=operation, status=status)
    return firsts, fresh


def match(tx: Transaction, fresh: list[Delivery], owners: dict[tuple[str, str], str | None]) -> dict[str, str]:
    """Return delivery id -> operation id: by job id, else by our own id or token echoed back."""
    matches: dict[str, str] = {}
    echoes: dict[str, list[Delivery]] = {}
    for delivery in fresh:
        job = _job(delivery)
        owner = owners.get(job) if job is not None else None
        if owner is not None:
            matches[delivery.id] = owner
        elif delivery.event.client_reference and delivery.event.readable:
            echoes.setdefault(delivery.event.client_reference, []).append(delivery)
    references = sorted(echoes)
    for start in range(0, len(references), CHUNK):
        chunk = references[start : start + CHUNK]
        query = sa.select(operations.c.id, operations.c.idempotency_token, operations.c.provider).where(
            operations.c.id.in_(chunk) | operations.c.idempotency_token.in_(chunk)
        )
        for identity, token, provider in tx.connection.execute(query):
            for delivery in [*echoes.get(identity, ()), *echoes.get(token, ())]:
                if delivery.provider == provider:
                    matches[delivery.id] = identity
    return matches


def _apply(fold: Fold, delivery: Delivery, operation: str | None, owners: dict[JobKey, str | None], bound: dict[JobKey, str]) -> str:
    event = delivery.event
    job = _job(delivery)
    if not event.readable:
        return "dead"
    if operation in fold.unreadable:
        return "received"  # kept with its operation: the sweep applies it once that can be read again
    if operation is None or fold.get(operation) is None:
        return "orphan" if event.remote_job_id or event.client_reference else "ignored"
    fold.judge(
        operation,
        Hinted(
            delivery_id=delivery.id,
            event_type=event.event_type,
            claimed_state=event.claimed_state,
            note="stale but genuine" if delivery.standing == "stale" else "",
            names_job=named_job(fold.tx, job, owners),
            unsigned=fold.tx.unsigned(delivery.provider),
        ),
        actor=delivery.replayed_by or f"provider:{delivery.provider}",
        chance=0.0,
        cause_id=delivery.id,
    )
    note_owner(fold, job, operation, owners, bound)
    return "applied"


def _answer(tx: Transaction, fold: Fold, command: Ingest, firsts: dict[DedupKey, _First], statuses: dict[str, str]) -> Ingested:
    delivery = command.delivery
    first = firsts[_key(delivery)]
    if first.id == delivery.id:
        # Not among those just stored: the same command again, after a commit whose answer was lost. It has been carried out.
        status = statuses.get(delivery.id) or first.status
        public = {"applied": "accepted", "orphan": "unmatched", "unclaimed": "unmatched"}.get(status, "ignored")
        return Ingested(delivery_id=delivery.id, status=public, operation_id=first.operation)  # type: ignore[arg-type] # one of DeliveryStatus
    if first.content_sha256 == delivery.event.content_sha256:
        return Ingested(delivery_id=first.id, status="duplicate", operation_id=first.operation)
    _conflict(tx, fold, delivery, first)
    return Ingested(delivery_id=first.id, status="conflict", operation_id=first.operation)


def _conflict(tx: Transaction, fold: Fold, delivery: Delivery, first: _First) -> None:
    """Keep other bytes under the same event id beside the first payload, and owe one read (B3)."""
    body = tx.vault.seal("delivery_conflicts", "body", first.id, delivery.body) if delivery.body else None
    row = {
        "delivery": first.id,
        "content_sha256": delivery.event.content_sha256,
        "received_at": delivery.received_at,
        "secret_id": delivery.secret_id,
        "body": body,
    }
    inserted = tx.connection.execute(_conflict_statement(postgres=tx.postgres), row).one_or_none()
    if inserted is not None and first.operation is not None and fold.get(first.operation) is not None:
        fold.judge(
            first.operation,
            Hinted(delivery_id=first.id, event_type=delivery.event.event_type, conflict=True, unsigned=fold.tx.unsigned(delivery.provider)),
            actor=f"provider:{delivery.provider}",
            chance=0.0,
            cause_id=first.id,
        )


def _write_statuses(tx: Transaction, fresh: list[Delivery], statuses: dict[str, str], matches: dict[str, str]) -> None:
    rows = [
        {"b_id": delivery.id, "status": statuses[delivery.id], "operation": matches.get(delivery.id)}
        for delivery in fresh
        if statuses[delivery.id] != "orphan"
    ]
    if rows:
        tx.connection.execute(MARK, rows)


def _row(tx: Transaction, delivery: Delivery) -> dict[str, Any]:
    event, vault = delivery.event, tx.vault
    headers = b"\r\n".join(name + b": " + value for name, value in delivery.headers)
    return {
        "id": delivery.id,
        "provider": delivery.provider,
        "dedup_key": event.dedup_key,
        "content_sha256": event.content_sha256,
        "received_at": delivery.received_at,
        "status": "orphan",  # until it is matched in this same transaction
        "standing": delivery.standing,
        "operation": None,
        "event_id": event.event_id,
        "event_type": event.event_type,
        "remote_job_id": event.remote_job_id,
        "client_reference": event.client_reference,
        "claimed_state": event.claimed_state,
        "provider_time": event.provider_time,
        "element": event.element,
        "parent": delivery.parent,
        "secret_id": delivery.secret_id,
        "scheme_id": delivery.scheme_id,
        "problem": event.problem,
        "duplicates": 0,
        "headers": vault.seal("deliveries", "headers", delivery.id, headers) if headers else None,
        "body": vault.seal("deliveries", "body", delivery.id, delivery.body) if delivery.body else None,
    }


@cache  # building a statement costs as much as running it
def _insert_statement(*, postgres: bool) -> Any:
    if postgres:
        from sqlalchemy.dialects.postgresql import insert

        return insert(deliveries).on_conflict_do_nothing().returning(deliveries.c.id)
    from sqlalchemy.dialects.sqlite import insert as sqlite_insert

    return sqlite_insert(deliveries).on_conflict_do_nothing().returning(deliveries.c.id)


@cache
def _conflict_statement(*, postgres: bool) -> Any:
    if postgres:
        from sqlalchemy.dialects.postgresql import insert

        return insert(delivery_conflicts).on_conflict_do_nothing().returning(delivery_conflicts.c.delivery)
    from sqlalchemy.dialects.sqlite import insert as sqlite_insert

    return sqlite_insert(delivery_conflicts).on_conflict_do_nothing().returning(delivery_conflicts.c.delivery)

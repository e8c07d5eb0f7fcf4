"""Record intents: the operation, its first history row and the owed send in one transaction (MISSION A1-A3, A11)."""

from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from ledger.fold import Fold
from ledger.jobs import JobKey, bind_jobs, lock_jobs
from ledger.links import Links, check, link, named
from ledger.queries import ROUTE
from ledger.rows import from_row, to_row
from ledger.tables import idempotency_keys, operations
from ledger.transaction import Transaction
from lifecycle.begin import begin
from schemas.commands import Intent, Register, Registered
from schemas.operation import Operation

Key = tuple[str, str]


def register(tx: Transaction, commands: list[Register]) -> list[Registered]:
    """Record each intent once per owner and key. Keys first, then jobs, then operations: the order of all locks."""
    now = max(command.now for command in commands)
    fold = Fold(tx, now)
    taken = _lock_keys(tx, commands)
    owners = lock_jobs(tx, [job for command in commands if (job := _job(command.intent)) is not None], now)
    known = _known(tx, [command.intent.id for command in commands])
    fold.lock(named([command.intent for command in commands]))
    bound: dict[JobKey, str] = {}
    refused: dict[Key, Registered] = {}
    answers: list[Registered | None] = []
    for command in commands:
        intent = command.intent
        if intent.id in known:
            # The same command again, after a commit whose answer was lost: it has been carried out.
            answers.append(Registered(outcome="created", operation=known[intent.id]))
            continue
        holder = taken.get((intent.owner, intent.idempotency_key or ""), (intent.id, intent.request_fingerprint))
        if holder[0] != intent.id:
            same = holder[1] == intent.request_fingerprint
            answers.append(None if same else Registered(outcome="key_reused"))
            continue
        answer = _record(tx, fold, command, owners, bound)
        answers.append(answer)
        if answer.operation is None:
            refused[intent.owner, intent.idempotency_key or ""] = answer
    bind_jobs(fold, bound, chance=0.5)
    _insert(tx, fold)
    fold.flush()
    return [
        _replay(tx, fold, command, refused) if answer is None else _final(fold, answer)
        for answer, command in zip(answers, commands, strict=True)
    ]


def _job(intent: Intent) -> tuple[str, str] | None:
    return (intent.provider, intent.remote_job_id) if intent.remote_job_id is not None else None


def _final(fold: Fold, answer: Registered) -> Registered:
    if answer.operation is None:
        return answer
    return replace(answer, operation=fold.get(answer.operation.id) or answer.operation)


def _record(tx: Transaction, fold: Fold, command: Register, owners: dict[JobKey, str | None], bound: dict[JobKey, str]) -> Registered:
    intent = command.intent
    job = _job(intent)
    links = Links() if job is not None and owners.get(job) is not None else check(fold, intent)
    if not isinstance(links, Links):
        _forget_key(tx, intent)
        return Registered(outcome=links)
    operation, step = begin(intent, command.now, waits_for=links.waits_for)
    if job is not None:
        owner = owners.get(job)
        if owner is not None:
            return _adopted_before(tx, fold, intent, owner)
        owners[job] = intent.id
    fold.begin(operation, step, intent.subject)
    link(fold, intent, links, chance=0.5)
    if job is not None:
        bound[job] = intent.id
    tx.changed.add(intent.id)
    tx.due.add(intent.id)
    return Registered(outcome="created", operation=operation)


def _adopted_before(tx: Transaction, fold: Fold, intent: Intent, owner_operation: str) -> Registered:
    """Adopting is idempotent on provider account + job id for one owner; for anybody else it is an opaque refusal.

    This request's key was written first. It stands for the operation that is answered, or for nothing: never for an
    operation that was not made, which the next request with this key would be told has expired.
    """
    known = fold.get(owner_operation) or _load(tx, owner_operation)  # the same batch may hold it, not inserted yet
    if known is not None and known.owner == intent.owner:
        tx.connection.execute(sa.update(idempotency_keys).where(*_own_key(intent)).values(operation=known.id))
        return Registered(outcome="replayed", operation=known)
    _forget_key(tx, intent)
    return Registered(outcome="job_taken")


def _forget_key(tx: Transaction, intent: Intent) -> None:
    """Remove the key that was written for an intent which is refused: it stands for nothing."""
    tx.connection.execute(sa.delete(idempotency_keys).where(*_own_key(intent)))


def _own_key(intent: Intent) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        idempotency_keys.c.owner == intent.owner,
        idempotency_keys.c.route == ROUTE,
        idempotency_keys.c.key == (intent.idempotency_key or ""),
        idempotency_keys.c.operation == intent.id,
    )


def _lock_keys(tx: Transaction, commands: list[Register]) -> dict[Key, tuple[str, str]]:
    """Insert the keys in sorted order; return each key's operation id and fingerprint, whoever was first."""
    rows: dict[Key, dict[str, Any]] = {}
    for command in commands:
        intent = command.intent
        if intent.idempotency_key is not None:
            rows.setdefault(
                (intent.owner, intent.idempotency_key),
                {
                    "owner": intent.owner,
                    "route": ROUTE,
                    "key": intent.idempotency_key,
                    "fingerprint": intent.request_fingerprint,
                    "operation": intent.id,
                    "created_at": command.now,
                },
            )
    taken: dict[Key, tuple[str, str]] = {}
    for key in sorted(rows):
        statement = _insert_key(postgres=tx.postgres).values(rows[key])
        # The no-op update locks the row of whoever was first and returns it: two racing requests see one operation.
        statement = statement.on_conflict_do_update(
            index_elements=["owner", "route", "key"], set_={"route": statement.excluded.route}
        ).returning(idempotency_keys.c.operation, idempotency_keys.c.fingerprint)
        operation, fingerprint = tx.connection.execute(statement).one()
        taken[key] = (operation, fingerprint)
    return taken


def _insert(tx: Transaction, fold: Fold) -> None:
    rows = [to_row(operation, tx.vault) for operation in fold.inserted()]
    if rows:
        tx.connection.execute(sa.insert(operations), rows)


def _replay(tx: Transaction, fold: Fold, command: Register, refused: dict[Key, Registered]) -> Registered:
    row = tx.connection.execute(
        sa.select(idempotency_keys.c.operation).where(
            idempotency_keys.c.owner == command.intent.owner,
            idempotency_keys.c.route == ROUTE,
            idempotency_keys.c.key == command.intent.idempotency_key,
        )
    ).one_or_none()
    if row is None:  # whoever brought this key first in this batch was refused: the same request is refused the same way
        return refused[command.intent.owner, command.intent.idempotency_key or ""]
    operation = fold.get(row.operation) or _load(tx, row.operation)
    if operation is None:
        return Registered(outcome="key_expired")
    return Registered(outcome="replayed", operation=operation)


def _known(tx: Transaction, ids: list[str]) -> dict[str, Operation]:
    query = sa.select(operations).where(operations.c.id.in_(sorted(ids)))
    return {row.id: from_row(row, tx.vault) for row in tx.connection.execute(query)}


def _load(tx: Transaction, operation_id: str) -> Operation | None:
    row = tx.connection.execute(sa.select(operations).where(operations.c.id == operation_id)).one_or_none()
    return None if row is None else from_row(row, tx.vault)


def _insert_key(*, postgres: bool) -> Any:
    if postgres:
        from sqlalchemy.dialects.postgresql import insert

        return insert(idempotency_keys)
    from sqlalchemy.dialects.sqlite import insert as sqlite_insert

    return sqlite_insert(idempotency_keys)

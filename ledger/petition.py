"""Evidence of people and callers: cancel, refresh, answers, reports. The same judge, the same fold (E1, G7, G8, A11)."""

from dataclasses import replace

import sqlalchemy as sa

from ledger.fold import Fold
from ledger.jobs import JobKey, bind_jobs, lock_jobs
from ledger.tables import operations
from ledger.transaction import Transaction
from schemas.commands import Petition, Petitioned
from schemas.evidence import Answered, Reported


def petition(tx: Transaction, commands: list[Petition]) -> list[Petitioned]:
    """Judge each petition. A foreign or unknown id answers `not_found`, the same way (G4)."""
    now = max(command.now for command in commands)
    fold = Fold(tx, now)
    keys = _keys(tx, commands)
    owners = lock_jobs(tx, [key for key in keys.values() if key is not None], now)
    fold.lock(command.operation_id for command in commands)
    bound: dict[JobKey, str] = {}
    answers = [_petition(fold, command, keys.get(id(command)), owners, bound) for command in commands]
    bind_jobs(fold, bound, chance=commands[0].chance)
    fold.flush()
    return [
        answer if answer.operation is None else replace(answer, operation=fold.get(answer.operation.id) or answer.operation)
        for answer in answers
    ]


def _keys(tx: Transaction, commands: list[Petition]) -> dict[int, JobKey | None]:
    """Return the job that each command names, with its operation's provider (written once, so read before the locks)."""
    named = {id(command): job for command in commands if (job := _named_job(command)) is not None}
    if not named:
        return {}
    ids = sorted({command.operation_id for command in commands if id(command) in named})
    providers = {
        row.id: row.provider
        for row in tx.connection.execute(sa.select(operations.c.id, operations.c.provider).where(operations.c.id.in_(ids)))
    }
    return {
        id(command): (providers[command.operation_id], named[id(command)])
        for command in commands
        if id(command) in named and command.operation_id in providers
    }


def _named_job(command: Petition) -> str | None:
    match command.evidence:
        case Answered(remote_job_id=job) | Reported(remote_job_id=job):
            return job or None
        case _:
            return None


def _petition(fold: Fold, command: Petition, key: JobKey | None, owners: dict[JobKey, str | None], bound: dict[JobKey, str]) -> Petitioned:
    op = fold.get(command.operation_id)
    if op is None or (command.owner is not None and op.owner != command.owner):
        return Petitioned(outcome="not_found")
    if key is not None and owners.get(key) not in {None, op.id}:
        return Petitioned(outcome="refused", code="job_taken", detail="this job cannot be adopted", operation=op)
    decision = fold.judge(
        op.id,
        command.evidence,
        actor=command.actor,
        chance=command.chance,
        cause_id=getattr(command.evidence, "question_id", ""),
    )
    if decision.refused is not None:
        return Petitioned(outcome="refused", code=decision.refused, detail=decision.detail, operation=op)
    after = fold.get(op.id)
    assert after is not None
    if key is not None and after.remote_job_id == key[1] and owners.get(key) is None:
        owners[key] = bound[key] = op.id
    return Petitioned(outcome="applied", operation=after)

"""Commit what errands brought: evidence judged, attempt closed, exchange kept, lease released by fence (C1, C4)."""

from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from ledger.errors import RecordError
from ledger.fold import CHUNK, Fold
from ledger.jobs import JobKey, bind_jobs, lock_jobs
from ledger.leases import holds_lease
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
    batch = _Batch(fold, owners, providers, _attempts(tx, commands))
    done = _carried_out(tx, commands)
    answers = []
    for command in commands:
        op = fold.get(command.operation_id)
        if op is None:
            raise fold.unreadable.get(command.operation_id) or RecordError(f"{command.operation_id} is not on record")
        if command.exchange is not None and command.exchange.id in done:
            answers.append(Settled(operation=op, stale=not holds_lease(op, command.fence)))
        else:
            answers.append(batch.settle(command))
    batch.write(chance=commands[0].chance)
    fold.flush()
    return [replace(answer, operation=fold.get(answer.operation.id) or answer.operation) for answer in answers]


def _carried_out(tx: Transaction, commands: list[Settle]) -> set[str]:
    """Return the exchanges that are on record: their commands came before, and only the answer to their commit was lost.

    What an errand brought is judged once: a second judgement would close a successor's attempt. (A repeated reading keeps
    no exchange; judged twice, it is counted twice, and nothing else.)
    """
    ids = sorted(command.exchange.id for command in commands if command.exchange is not None)
    found: set[str] = set()
    for start in range(0, len(ids), CHUNK):
        found.update(tx.connection.execute(sa.select(exchanges.c.id).where(exchanges.c.id.in_(ids[start : start + CHUNK]))).scalars())
    return found


def _told_before(op: Operation, evidence: Evidence) -> bool:
    """Return whether a reading says just what the latest observation says: then its count is enough to keep."""
    return isinstance(evidence, Read) and evidence.digest != "" and evidence.digest == op.observation_digest


def _providers(tx: Transaction, commands: list[Settle]) -> dict[str, str]:
    """Return each operation's provider: written once, so that it can be read before the locks."""
    ids = sorted({command.operation_id for command in commands if isinstance(command.evidence, JobKnown)})
    found: dict[str, str] = {}
    for start in range(0, len(ids), CHUNK):
        query = sa.select(operations.c.id, operations.c.provider).where(operations.c.id.in_(ids[start : start + CHUNK]))
        found.update({row.id: row.provider for row in tx.connection.execute(query)})
    return found


def _attempts(tx: Transaction, commands: list[Settle]) -> dict[str, tuple[str, int]]:
    """Return outcome and send limit of the attempts that are settled, read under their operations' locks."""
    ids = sorted({command.attempt_id for command in commands if command.attempt_id is not None})
    found: dict[str, tuple[str, int]] = {}
    for start in range(0, len(ids), CHUNK):
        query = sa.select(attempts.c.id, attempts.c.outcome, attempts.c.sent_before).where(attempts.c.id.in_(ids[start : start + CHUNK]))
        found.update({row.id: (row.outcome, int(row.sent_before)) for row in tx.connection.execute(query)})
    return found


def _job(command: Settle, providers: dict[str, str]) -> JobKey | None:
    if isinstance(command.evidence, JobKnown) and command.operation_id in providers:
        return providers[command.operation_id], command.evidence.remote_job_id
    return None


class _Batch:
    """What a batch of settlements writes besides the fold: gathered here, written in one statement a table."""

    def __init__(
        self, fold: Fold, owners: dict[JobKey, str | None], providers: dict[str, str], attempts_: dict[str, tuple[str, int]]
    ) -> None:
        self.fold = fold
        self._owners = owners
        self._providers = providers
        self._attempts = attempts_
        self._bound: dict[JobKey, str] = {}
        self._closed: list[dict[str, Any]] = []
        self._counted: list[dict[str, Any]] = []
        self._observed: list[dict[str, Any]] = []
        self._exchanges: list[dict[str, Any]] = []

    def settle(self, command: Settle) -> Settled:
        """Judge one settlement."""
        fold = self.fold
        op = fold.get(command.operation_id)
        assert op is not None
        holds = holds_lease(op, command.fence)
        evidence = self._close(op, command)
        key = _job(command, self._providers)
        if key is not None and self._owners.get(key) not in {None, op.id}:
            evidence = JobsConflict(remote_job_ids=(key[1],), message="the job belongs to another operation")
            key = None
        cause_id = command.attempt_id or (command.exchange.id if command.exchange is not None else "")
        if command.exchange is not None and not _told_before(op, evidence):
            self._exchanges.append(_exchange_row(fold.tx, command))
        if isinstance(evidence, Read):
            cause_id = self._observe(op, evidence, command)
            evidence = replace(evidence, observation_id=cause_id)
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
        if key is not None and after.remote_job_id == key[1] and self._owners.get(key) is None:
            self._owners[key] = self._bound[key] = op.id
        return Settled(operation=after, stale=not holds, refused=decision.refused)

    def write(self, *, chance: float) -> None:
        """Write attempts, observations, exchanges and jobs; early deliveries attach now."""
        connection = self.fold.tx.connection
        for statement, rows in (
            (_CLOSE, self._closed),
            (sa.insert(observations), self._observed),
            (_COUNT, self._counted),
            (sa.insert(exchanges), self._exchanges),
        ):
            if rows:
                connection.execute(statement, rows)
        bind_jobs(self.fold, self._bound, chance=chance)

    def _close(self, op: Operation, command: Settle) -> Evidence:
        """Close the attempt. One that had been declared lost and surely was not sent takes a doubt away.

        One that is ambiguous may be executed as late as a lost one: absence is judged from the attempt's own limit.
        """
        evidence = command.evidence
        if command.attempt_id is None:
            return evidence
        if command.attempt_id not in self._attempts:
            raise RecordError(f"{command.attempt_id} is not on record")
        before, sent_before = self._attempts[command.attempt_id]
        outcome, error = _fate(evidence)
        self._closed.append({"b_id": command.attempt_id, "outcome": outcome, "error": error[:200], "closed_at": self.fold.now})
        if op.open_attempt == command.attempt_id:
            self.fold.work(op.id, open_attempt=None, open_errand=None)
        if isinstance(evidence, NotSent | CreateRejected):
            return replace(evidence, was_lost=before == "lost" and not _tried_since(self.fold, command))
        if isinstance(evidence, CreateAmbiguous):
            return replace(evidence, sent_before=sent_before)
        return evidence

    def _observe(self, op: Operation, evidence: Read, command: Settle) -> str:
        """Keep the observation: an identical reading counts up the latest one, another one is a new row (C4)."""
        facts, fold = evidence.facts, self.fold
        tail = op.id.removeprefix("op_")
        if op.observations > 0 and _told_before(op, evidence):
            observation = f"obs_{tail}_{op.observations}"
            self._counted.append({"b_id": observation, "b_at": fold.now})
            return observation
        number = op.observations + 1
        fold.work(op.id, observations=number)
        self._observed.append(
            {
                "id": f"obs_{tail}_{number}",
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
            }
        )
        return f"obs_{tail}_{number}"


_CLOSE = (
    sa.update(attempts)
    .where(attempts.c.id == sa.bindparam("b_id"))
    .values(outcome=sa.bindparam("outcome"), error=sa.bindparam("error"), closed_at=sa.bindparam("closed_at"))
)
_COUNT = (
    sa.update(observations)
    .where(observations.c.id == sa.bindparam("b_id"))
    .values(count=observations.c.count + 1, last_at=sa.bindparam("b_at"))
)


def _tried_since(fold: Fold, command: Settle) -> bool:
    """Return whether another try was opened after this one (an attempt's number is its fence).

    The doubt about this one may have been cleared before that (absence proven): what is counted now may be the other's.
    """
    later = sa.select(attempts.c.id).where(
        attempts.c.operation == command.operation_id, attempts.c.errand == str(command.errand), attempts.c.number > command.fence
    )
    return fold.tx.connection.execute(later.limit(1)).one_or_none() is not None


def _fate(evidence: Evidence) -> tuple[str, str]:
    match evidence:
        case NotSent(error=error):
            return "not_sent", error
        case CreateAmbiguous(error=error) | CancelAmbiguous(error=error) | CollectFailed(error=error):
            return "ambiguous", error
        case JobsConflict(code="origin_changed"):
            return "not_sent", "origin_changed"
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
        and (op.watch_until is not None if op.state in FINAL else op.state not in PARKED)
        and _may_hasten(command)
    ):
        assert op.hinted_at is not None
        due = min(due, max(fold.now, op.hinted_at))  # an unsigned delivery's read waits for its budget
    fold.work(op.id, lease_owner=None, lease_until=None, due_at=due)


def looks_again(op: Operation, started_at: Micros) -> bool:
    """Return whether a hint came after the call began, which therefore may not have seen what the hint is about."""
    return op.hinted_at is not None and op.hinted_at >= started_at


def _may_hasten(command: Settle) -> bool:
    """Return whether a hint may hasten the next errand: never past the provider's own wish to wait."""
    return getattr(command.evidence, "retry_after", None) is None


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

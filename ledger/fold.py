"""The only writer of state: judge evidence against locked operations, then write record, history and schedule together.

Every command function locks first (operations in id order), judges in memory, and flushes once: a batch of any size is
a handful of statements. Every update names the revision that it believes in, and the row count is checked.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import sqlalchemy as sa

from ledger import history
from ledger.errors import LedgerError, RecordError
from ledger.rowfaults import note, writable
from ledger.rows import changed, from_row
from ledger.successors import wake
from ledger.tables import artifacts, operations
from ledger.tables import history as history_table
from ledger.tables import history_texts as texts_table
from ledger.transaction import Transaction
from lifecycle.judge import decide
from lifecycle.public import public_status
from schemas.decision import Decision, DueAt, KeepFiles, Step
from schemas.evidence import Evidence
from schemas.operation import SECOND, Micros, Operation
from schemas.states import ADMISSIBLE, FINAL, PARKED

CHUNK = 500
"""Ids per statement: below SQLite's oldest limit of bound parameters."""


class UnknownProviderError(RecordError):
    """The operation's provider is not configured in this process, so nothing can be judged."""


class Fold:
    """One batch of judgements in one transaction. `now` is the time of every row it writes."""

    def __init__(self, tx: Transaction, now: Micros) -> None:
        self.tx = tx
        self.now = now
        self.unreadable: dict[str, Exception] = {}  # rows that were to be locked and are at fault: set aside
        self._old: dict[str, Operation] = {}
        self._new: dict[str, Operation] = {}
        self._inserted: set[str] = set()
        self._rows: list[dict[str, Any]] = []
        self._texts: list[dict[str, Any]] = []
        self._files: list[dict[str, Any]] = []

    def lock(self, ids: Iterable[str]) -> None:
        """Lock and load operations, in id order. Unknown ids are absent afterwards; so are rows at fault, which are set aside."""
        wanted = sorted(set(ids) - self._new.keys())
        for start in range(0, len(wanted), CHUNK):
            chunk = wanted[start : start + CHUNK]
            query = sa.select(operations).where(operations.c.id.in_(chunk)).order_by(operations.c.id).with_for_update()
            rows = self.tx.connection.execute(query).all()
            sound = set(writable(self.tx, (row.id for row in rows), self.now))
            for row in rows:
                try:
                    if row.id not in sound:
                        raise RecordError(f"{row.id} breaks a constraint of the database: nothing can be written to it")
                    self.take(from_row(row, self.tx.vault))
                except LedgerError as error:
                    note(self.tx, row.id, error, self.now)
                    self.unreadable[row.id] = error

    def take(self, operation: Operation) -> None:
        """Take an operation whose row is locked already."""
        self._old[operation.id] = operation
        self._new[operation.id] = operation

    def drop(self, operation_id: str) -> None:
        """Forget an operation and everything that was judged of it in this batch: nothing of it is written."""
        self._old.pop(operation_id, None)
        self._new.pop(operation_id, None)
        for rows in (self._rows, self._texts, self._files):
            rows[:] = [row for row in rows if row["operation"] != operation_id]

    def begin(self, operation: Operation, step: Step, actor: str) -> None:
        """Take a new operation; its row itself is written by `ledger/register.py`."""
        self._new[operation.id] = operation
        self._inserted.add(operation.id)
        self._write_steps(operation, (step,), actor, first=True)

    def get(self, operation_id: str) -> Operation | None:
        """Return the operation as judged so far, or None."""
        return self._new.get(operation_id)

    def work(self, operation_id: str, **changes: Any) -> None:
        """Change working fields that the ledger itself keeps (leases, attempts)."""
        self._new[operation_id] = replace(self._new[operation_id], **changes)

    def judge(
        self,
        operation_id: str,
        evidence: Evidence,
        *,
        actor: str,
        chance: float,
        cause_id: str = "",
        started_at: Micros | None = None,
        holds_lease: bool = False,
    ) -> Decision:
        """Decide and take the decision over into the batch. `holds_lease`: the evidence's bringer may reschedule."""
        before = self._new[operation_id]
        whole = self.tx.contracts.get(before.provider)
        if whole is None:
            raise UnknownProviderError(f"provider {before.provider} is not configured here")
        contract = whole.of(before.action)
        decision = decide(before, evidence, contract, now=self.now, chance=chance, started_at=started_at, cause_id=cause_id)
        if decision.refused is not None:
            return decision
        self._new[operation_id] = replace(before, **decision.working)
        self._write_steps(self._new[operation_id], decision.steps, actor)
        self._reschedule(operation_id, decision, before, holds_lease=holds_lease)
        for effect in decision.effects:
            if isinstance(effect, KeepFiles):
                self._keep(operation_id, effect)
        return decision

    def flush(self) -> None:
        """Write everything; revisions are compared and set."""
        connection = self.tx.connection
        if self._rows:
            connection.execute(sa.insert(history_table), self._rows)
        if self._texts:
            connection.execute(sa.insert(texts_table), self._texts)
        if self._files:
            connection.execute(_insert_ignoring(artifacts, postgres=self.tx.postgres), self._files)
        groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
        for operation_id, old in sorted(self._old.items()):
            self._group(groups, old, self._new[operation_id])
        for columns, rows in groups.items():
            result = connection.execute(_update(columns), rows)
            if result.rowcount != len(rows):
                raise RecordError(f"{len(rows) - result.rowcount} operations changed under the lock")
        ended = [old.id for old in self._old.values() if self._rests(old)]
        for start in range(0, len(ended), CHUNK):
            wake(self.tx, ended[start : start + CHUNK], self.now)

    def inserted(self) -> list[Operation]:
        """Return the new operations, as judged, for insertion."""
        return [self._new[operation_id] for operation_id in sorted(self._inserted)]

    def _rests(self, old: Operation) -> bool:
        """Return whether an operation that others wait for has ended in this batch, or began to wait for a person."""
        new = self._new[old.id]
        return new.superseded_by is not None and new.state is not old.state and (new.state in FINAL or new.state in PARKED)

    def _group(self, groups: dict[tuple[str, ...], list[dict[str, Any]]], old: Operation, new: Operation) -> None:
        if old == new:
            return
        new = replace(new, revision=old.revision + 1, version=old.version + 1 if _visible(old, new) else old.version)
        self._new[new.id] = new
        row = changed(old, new, self.tx.vault)
        columns = tuple(sorted(row))
        groups.setdefault(columns, []).append({**row, "b_id": old.id, "b_revision": old.revision})
        if new.version != old.version:
            self.tx.changed.add(new.id)
        if new.due_at is not None and new.due_at <= self.now and new.due_at != old.due_at:
            self.tx.due.add(new.id)

    def _write_steps(self, operation: Operation, steps: tuple[Step, ...], actor: str, *, first: bool = False) -> None:
        state = "" if first else str(operation.state)
        fields: dict[str, Any] = {}
        seq, head = operation.history_seq, operation.history_hash
        for step in steps:
            seq += 1
            row, words = history.make_row(
                operation.id,
                seq,
                step,
                from_state=state,
                prev_hash=head,
                at=self.now,
                actor=actor,
                vault=self.tx.vault,
            )
            self._rows.append(row)
            if words is not None:
                self._texts.append(words)
            if step.to in FINAL and step.to != state:
                assert step.cause in ADMISSIBLE[step.to], f"{step.to} caused by {step.cause}"
                fields.update(verdict_seq=seq, verdict_cause=step.cause)
            state, head = str(step.to), row["hash"]
            fields.update(step.changes, state=step.to)
        if steps:
            fields.update(history_seq=seq, history_hash=head, updated_at=self.now)
            self._new[operation.id] = replace(operation, **fields)

    def _reschedule(self, operation_id: str, decision: Decision, before: Operation, *, holds_lease: bool) -> None:
        op = self._new[operation_id]
        wanted = next((effect.at for effect in decision.effects if isinstance(effect, DueAt)), None)
        leased = before.lease_until is not None and not holds_lease
        if op.state in FINAL or op.state in PARKED:
            waits = op.watch_until is not None or (op.state in PARKED and op.granted_reads > 0)
            if leased and waits and op.state is before.state:
                # The lease holder settles; a hint meanwhile makes it look again.
                due = op.due_at
                hinted = self.now if wanted is not None and wanted <= self.now else op.hinted_at
                self._new[operation_id] = replace(op, due_at=due, hinted_at=hinted)
                return
            # A stale worker may have used up the granted read: then nothing is owed, and no lease is kept for it.
            due = (wanted if wanted is not None else op.due_at) if waits else None
            self._new[operation_id] = replace(op, due_at=due, lease_owner=None, lease_until=None)
            return
        if leased and op.due_at is not None:
            # Only the lease holder reschedules; whoever wants a sooner look says so by a hint (no lost wake-up).
            if wanted is not None and wanted < op.due_at:
                self._new[operation_id] = replace(op, hinted_at=max(wanted, self.now))
            return
        due = wanted if wanted is not None else op.due_at
        if wanted is None and holds_lease:
            due = self.now + SECOND  # evidence that schedules nothing: look again soon, not in a hot loop
        self._new[operation_id] = replace(op, due_at=self.now if due is None else due)

    def _keep(self, operation_id: str, effect: KeepFiles) -> None:
        for file in effect.files:
            self._files.append(
                {
                    "id": file.key,
                    "operation": operation_id,
                    "role": file.role,
                    "media_type": file.media_type,
                    "bytes": file.bytes,
                    "sha256": file.sha256,
                    "created_at": self.now,
                }
            )


def _visible(old: Operation, new: Operation) -> bool:
    """Return whether something that callers act on changed: then the version, and so the ETag, grows."""
    return public_status(old) != public_status(new) or _seen(old) != _seen(new)


def _seen(op: Operation) -> tuple[Any, ...]:
    return (
        op.state,
        op.reading,
        op.remote_state,
        op.remote_job_id,
        op.progress,
        op.cancel_outcome,
        op.question_id,
        op.incident_id,
        op.error_code,
        op.result_artifact,
        op.result_deadline,
        op.cancel_deadline,
        op.collect_deadline,
        op.unverified,
        op.superseded_by,
        op.waits_for,
        op.effects,
    )


@lru_cache(maxsize=512)
def _update(columns: tuple[str, ...]) -> sa.Update:
    return (
        sa.update(operations)
        .where(operations.c.id == sa.bindparam("b_id"), operations.c.revision == sa.bindparam("b_revision"))
        .values({name: sa.bindparam(name) for name in columns})
    )


def _insert_ignoring(table: sa.Table, *, postgres: bool) -> Any:
    """Return an insert that leaves a row with the same key as it is."""
    if postgres:
        from sqlalchemy.dialects.postgresql import insert

        return insert(table).on_conflict_do_nothing()
    from sqlalchemy.dialects.sqlite import insert as sqlite_insert

    return sqlite_insert(table).on_conflict_do_nothing()

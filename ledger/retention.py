"""Retention: results, payloads, exchanges and records expire separately, in batches that may end anywhere (MISSION F6, H5).

What explains the past stays: the history and its chain, the key of every request (it answers 410), and a tombstone with the
head of the history. The memory of duplicates lives as long as the operation and never less than `memory`.

Each stage walks its index from a cursor that is kept in the record and moves in the transaction that removes: a killed run
goes on where its last commit was. Two processes take turns at the cursor's row.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from ledger.rowfaults import writable
from ledger.tables import (
    ENDED,
    LIVE,
    artifacts,
    attempts,
    deliveries,
    delivery_conflicts,
    exchanges,
    history_texts,
    observations,
    operations,
    remote_jobs,
)
from ledger.tables_receiving import refusals
from ledger.tables_upkeep import tombstones, upkeep
from ledger.transaction import Transaction
from schemas.operation import Micros
from schemas.upkeep import Expire, Expired, Stage

Place = tuple[Micros, str]
_ROWS: Final = sa.tuple_
_OF_ONE: Final = (attempts, observations, exchanges, history_texts, artifacts)
"""Tables whose rows go with their operation."""


def expire(tx: Transaction, commands: Sequence[Expire]) -> list[Expired]:
    """Remove one batch for each command."""
    return [_expire(tx, command) for command in commands]


def _expire(tx: Transaction, command: Expire) -> Expired:
    after = _cursor(tx, command)
    batch = _Batch(tx, command, after)
    last = _STAGES[command.stage](batch)
    done = sum(batch.counts.values())
    if last is not None:
        tx.connection.execute(
            sa.update(upkeep)
            .where(upkeep.c.name == _name(command.stage))
            .values(cursor_at=last[0], cursor_id=last[1], done=upkeep.c.done + done, updated_at=command.now)
        )
    return Expired(counts=dict(batch.counts), files=tuple(batch.files), more=last is not None)


def _name(stage: Stage) -> str:
    return f"retention.{stage}"


def _cursor(tx: Transaction, command: Expire) -> Place:
    """Lock the stage's cursor and return it. One that lies ahead of what may expire is from a clock that was wrong: begin anew."""
    insert = (postgresql.insert if tx.postgres else sqlite.insert)(upkeep).on_conflict_do_nothing()
    row = {"name": _name(command.stage), "cursor_at": 0, "cursor_id": "", "done": 0, "updated_at": command.now}
    tx.connection.execute(insert, row)
    query = sa.select(upkeep.c.cursor_at, upkeep.c.cursor_id).where(upkeep.c.name == _name(command.stage)).with_for_update()
    at, identity = tx.connection.execute(query).one()
    return (at, identity) if at <= command.before else (0, "")


class _Batch:
    """One batch of one stage."""

    def __init__(self, tx: Transaction, command: Expire, after: Place) -> None:
        self.tx = tx
        self.command = command
        self.after = after
        self.counts: Counter[str] = Counter()
        self.files: list[str] = []

    def run(self, statement: Any) -> int:
        """Execute a statement and return how many rows it changed."""
        return int(self.tx.connection.execute(statement).rowcount)

    def page(self, at: sa.Column[Any], identity: sa.Column[Any], *columns: Any, where: Any = None) -> list[sa.Row[Any]]:
        """Return the next rows in order of (at, identity), behind the cursor and not younger than may expire."""
        query = sa.select(at.label("at_"), identity.label("id_"), *columns).where(
            _ROWS(at, identity) > _ROWS(*map(sa.literal, self.after)), at <= self.command.before
        )
        if where is not None:
            query = query.where(where)
        return list(self.tx.connection.execute(query.order_by(at, identity).limit(self.command.limit)).all())

    def ended(self, *columns: Any) -> list[sa.Row[Any]]:
        """Return the next ended operations."""
        c = operations.c
        return self.page(c.updated_at, c.id, *columns, where=sa.text(ENDED))

    def delete(self, table: sa.Table, condition: Any) -> None:
        """Delete rows of a table and count them."""
        self.counts[table.name] += self.run(sa.delete(table).where(condition))


def _last(rows: Sequence[sa.Row[Any]]) -> Place | None:
    return (rows[-1].at_, rows[-1].id_) if rows else None


def _results(batch: _Batch) -> Place | None:
    """Give the files of ended operations up. Marked first: a crash before the file goes leaves it to the tidying duty."""
    rows = batch.ended()
    _mark_files(batch, [row.id_ for row in rows])
    return _last(rows)


def _mark_files(batch: _Batch, ids: list[str]) -> None:
    c = artifacts.c
    marked = sa.update(artifacts).where(c.operation.in_(ids), c.removed_at.is_(None)).values(removed_at=batch.command.now)
    batch.files += batch.tx.connection.execute(marked.returning(c.id)).scalars()
    batch.counts["files"] += len(batch.files)


def _payloads(batch: _Batch) -> Place | None:
    """Empty deliveries, but for those that nobody has processed yet; their dedup keys and what was mapped stay."""
    c, conflicts, kept = deliveries.c, delivery_conflicts.c, refusals.c
    rows = batch.page(c.received_at, c.id)
    ids = [row.id_ for row in rows]
    full = c.headers.is_not(None) | c.body.is_not(None)
    empty = sa.update(deliveries).where(c.id.in_(ids), c.status != "received", full).values(headers=None, body=None)
    batch.counts["deliveries_emptied"] += batch.run(empty)
    old = (conflicts.received_at <= batch.command.before) & conflicts.body.is_not(None)
    batch.counts["conflicts_emptied"] += batch.run(sa.update(delivery_conflicts).where(old).values(body=None))
    batch.delete(refusals, kept.at <= batch.command.before)
    return _last(rows)


def _requests(batch: _Batch) -> Place | None:
    """Forget the request bodies of ended operations; their fingerprints stay."""
    c = operations.c
    rows = batch.ended()
    ids = writable(batch.tx, sorted(row.id_ for row in rows), batch.command.now)
    old = c.id.in_(ids) & c.request.is_not(None) & sa.text(ENDED)
    batch.counts["requests_emptied"] += batch.run(sa.update(operations).where(old).values(request=None, revision=c.revision + 1))
    return _last(rows)


def _exchanges(batch: _Batch) -> Place | None:
    """Delete recorded calls, but for those of operations that are not over: a person may need them. They go with the record."""
    c = exchanges.c
    rows = batch.page(c.finished_at, c.id)
    live = sa.exists().where(operations.c.id == c.operation, sa.text(f"operations.{LIVE}"))
    batch.delete(exchanges, c.id.in_([row.id_ for row in rows]) & ~live)
    return _last(rows)


def _records(batch: _Batch) -> Place | None:
    """Replace ended operations by tombstones. Who waits for a person, or is watched, stays."""
    c, tx = operations.c, batch.tx
    rows = batch.ended()
    over = sa.text(ENDED), c.updated_at <= batch.command.before, c.question_id.is_(None), c.due_at.is_(None)
    kept = (c.id, c.owner, c.provider, c.state, c.created_at, c.updated_at, c.history_seq, c.history_hash)
    query = sa.select(*kept).where(c.id.in_([row.id_ for row in rows]), *over).order_by(c.id).with_for_update()
    gone = tx.connection.execute(query).all()
    if gone:
        ids = [row.id for row in gone]
        stones = [
            {
                "operation": row.id,
                "owner": row.owner,
                "provider": row.provider,
                "state": row.state,
                "created_at": row.created_at,
                "ended_at": row.updated_at,
                "removed_at": batch.command.now,
                "history_seq": row.history_seq,
                "history_hash": row.history_hash,
            }
            for row in gone
        ]
        tx.connection.execute(sa.insert(tombstones), stones)
        _mark_files(batch, ids)
        for table in _OF_ONE:
            batch.delete(table, table.c.operation.in_(ids))
        _forget_receipts(batch, deliveries.c.operation.in_(ids) & (deliveries.c.received_at <= batch.command.memory))
        batch.delete(operations, c.id.in_(ids))
        tx.changed.update(ids)
    return _last(rows)


def _receipts(batch: _Batch) -> Place | None:
    """Forget deliveries that belong to no operation (any more)."""
    c = deliveries.c
    rows = batch.page(c.received_at, c.id)
    mine = c.id.in_([row.id_ for row in rows])
    owned = sa.exists().where(operations.c.id == c.operation)
    _forget_receipts(batch, mine & (c.status != "received") & (c.received_at <= batch.command.memory) & ~owned)
    return _last(rows)


def _forget_receipts(batch: _Batch, condition: Any) -> None:
    """Delete deliveries with their conflicts, and the mentions of jobs that nobody has owned."""
    c, jobs = deliveries.c, remote_jobs.c
    picked = batch.tx.connection.execute(sa.select(c.id, c.provider, c.remote_job_id).where(condition).order_by(c.id)).all()
    if not picked:
        return
    ids = [row.id for row in picked]
    batch.delete(delivery_conflicts, delivery_conflicts.c.delivery.in_(ids))
    batch.delete(deliveries, c.id.in_(ids))
    mentioned = sorted({(row.provider, row.remote_job_id) for row in picked if row.remote_job_id})
    if mentioned:
        nobody = jobs.operation.is_(None) & (jobs.seen_at <= batch.command.memory)
        batch.delete(remote_jobs, _ROWS(jobs.provider, jobs.remote_job_id).in_(mentioned) & nobody)


_STAGES: Final[dict[Stage, Callable[[_Batch], Place | None]]] = {
    Stage.RESULTS: _results,
    Stage.PAYLOADS: _payloads,
    Stage.REQUESTS: _requests,
    Stage.EXCHANGES: _exchanges,
    Stage.RECORDS: _records,
    Stage.RECEIPTS: _receipts,
}

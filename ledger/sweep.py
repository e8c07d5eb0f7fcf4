"""Sweeps: what was left behind is found and driven on; bounded, by key, and one bad row blocks nothing (MISSION C7, B6)."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from ledger.fold import Fold
from ledger.jobs import JobKey, bind_jobs, lock_jobs, named_job, note_owner
from ledger.leases import NEXT_PAIR
from ledger.rowfaults import aside, look_again, writable
from ledger.stepped import set_right
from ledger.tables import deliveries, heartbeats, operations, remote_jobs
from ledger.tables_upkeep import upkeep
from ledger.transaction import Transaction
from schemas.commands import Sweep, Swept
from schemas.evidence import Hinted
from schemas.operation import SECOND, Micros
from schemas.states import ACTIVE

RECEIPT_SECONDS = 30
"""A receipt that is still unprocessed after this is finished by the sweep (B036)."""
ORPHAN_SECONDS = 60
"""An orphan is looked at again after this; past the provider's retry horizon it is `unclaimed`."""
BEAT_SECONDS = 86_400
"""A heartbeat that stopped longer ago than this is forgotten."""
ORPHANS = 500
"""Orphans that one sweep looks at."""
OWNERS = 256
"""Owners of one provider that one sweep looks at for silence."""
_DEFAULT_STALE_SECONDS = 3_600


def sweep(tx: Transaction, commands: list[Sweep]) -> list[Swept]:
    """Run one bounded sweep for each command."""
    return [_sweep(tx, command) for command in commands]


def _sweep(tx: Transaction, command: Sweep) -> Swept:
    counts: Counter[str] = Counter()
    for part, run in _PARTS.items():
        if command.part in {part, "all"}:
            run(tx, command, counts)
    return Swept(counts=dict(counts))


def _faults(tx: Transaction, command: Sweep, counts: Counter[str]) -> None:
    """Look again at rows that were set aside."""
    counts.update(look_again(tx, command.now))


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
    some = deliveries.c.id.in_(_orphans(tx, later, command.now))
    for condition in ((deliveries.c.status == "received") & late, some & (deliveries.c.status == "orphan") & _claimable()):
        query = (
            sa.select(deliveries)
            .where(condition, deliveries.c.provider.in_(sorted(tx.contracts)), ~aside(deliveries.c.operation, command.now))
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
    bound: dict[JobKey, str] = {}
    for row in rows:
        operation = matches.get(row.id)
        if operation in fold.unreadable:
            continue
        if operation is None:
            status = "orphan" if row.remote_job_id or row.client_reference else "ignored"
        else:
            job = (row.provider, row.remote_job_id) if row.remote_job_id else None
            fold.judge(
                operation,
                Hinted(
                    delivery_id=row.id,
                    event_type=row.event_type,
                    claimed_state=row.claimed_state,
                    note="swept",
                    names_job=named_job(tx, job, owners),
                    unsigned=tx.unsigned(row.provider),
                ),
                actor="sweep",
                chance=command.chance,
                cause_id=row.id,
            )
            note_owner(fold, job, operation, owners, bound)
            status = "applied"
        if status != row.status or operation is not None:
            tx.connection.execute(sa.update(deliveries).where(deliveries.c.id == row.id).values(status=status, operation=operation))
            counts[f"receipts_{status}"] += 1
    bind_jobs(fold, bound, chance=command.chance)
    fold.flush()


def _orphans(tx: Transaction, later: sa.ColumnElement[bool], now: Micros) -> list[str]:
    """Return the next orphans to look at, in the order of their receipt; the round begins anew at its end (C7)."""
    c, name = deliveries.c, "sweep.orphans"
    known = tx.connection.execute(sa.select(upkeep.c.cursor_at, upkeep.c.cursor_id).where(upkeep.c.name == name)).one_or_none()
    place = (0, "") if known is None else tuple(known)
    query = sa.select(c.received_at, c.id).where(
        c.status == "orphan", later, sa.tuple_(c.received_at, c.id) > sa.tuple_(*map(sa.literal, place))
    )
    rows = tx.connection.execute(query.order_by(c.received_at, c.id).limit(ORPHANS)).all()
    if rows or place != (0, ""):
        _remember(tx, name, (rows[-1].received_at, rows[-1].id) if len(rows) == ORPHANS else (0, ""), now)
    return [row.id for row in rows]


def _remember(tx: Transaction, name: str, place: tuple[Micros, str], now: Micros) -> None:
    """Keep where a round goes on."""
    insert: Any = (postgresql.insert if tx.postgres else sqlite.insert)(upkeep)
    values = {"cursor_at": place[0], "cursor_id": place[1], "updated_at": now}
    tx.connection.execute(insert.on_conflict_do_update(index_elements=[upkeep.c.name], set_=values), {"name": name, "done": 0, **values})


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
    """Make operations due whose next check lies past the longest silence that their contract allows (C7).

    Each owner's are a range of the index of due operations; the owners are walked by seeks, so many at a time, from where
    the last sweep ended.
    """
    if command.stepped:  # first: what a step has put off is not silent
        counts["set_right"] += set_right(tx, command)
    for provider, contract in sorted(tx.contracts.items()):
        kinds = contract.kinds() or {"": contract}
        left = command.limit
        for owner in _owners(tx, provider, command.now):
            for action, kind in kinds.items():
                stale = kind.status.stale_seconds if kind.status is not None else _DEFAULT_STALE_SECONDS
                wanted = {"b_provider": provider, "b_owner": owner, "bound": command.now + stale * SECOND, "most": left}
                if contract.actions:
                    found = tx.connection.execute(_SILENT_OF_ACTION, {**wanted, "b_action": action})
                else:
                    found = tx.connection.execute(_SILENT, wanted)
                ids = writable(tx, found.scalars().all(), command.now)
                if ids:
                    due = {"due_at": command.now, "revision": operations.c.revision + 1}
                    left -= tx.connection.execute(sa.update(operations).where(operations.c.id.in_(ids)).values(due)).rowcount
            if left <= 0:
                break
        counts["silent"] += command.limit - left


def _owners(tx: Transaction, provider: str, now: Micros) -> Iterator[str]:
    """Walk a provider's owners that have something due some time, OWNERS of them, and remember where it ended."""
    name = f"sweep.silent.{provider}"
    owner = tx.connection.execute(sa.select(upkeep.c.cursor_id).where(upkeep.c.name == name)).scalar_one_or_none() or ""
    began, seen = owner, 0
    while seen < OWNERS:
        row = tx.connection.execute(NEXT_PAIR, {"p": provider, "o": owner}).one_or_none()
        if row is None and began == "":
            owner = ""
            break
        if row is None:
            began, owner = "", ""  # the end: go round once
            continue
        owner = row.owner
        yield owner
        seen += 1
    _remember(tx, name, (0, owner), now)


_SILENT: Final = (
    sa.select(operations.c.id)
    .where(
        operations.c.provider == sa.bindparam("b_provider"),
        operations.c.owner == sa.bindparam("b_owner"),
        operations.c.due_at > sa.bindparam("bound"),
        operations.c.due_at.is_not(None),
        operations.c.state.in_(sorted(str(state) for state in ACTIVE)),
        operations.c.remote_job_id.is_not(None),
        operations.c.lease_until.is_(None),
    )
    .order_by(operations.c.due_at)
    .limit(sa.bindparam("most"))
)
_SILENT_OF_ACTION: Final = _SILENT.where(operations.c.action == sa.bindparam("b_action"))
_PARTS: Final = {"receipts": _receipts, "unclaimed": _unclaimed, "silent": _silent, "beats": _beats, "faults": _faults}

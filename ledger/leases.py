"""Leases: one worker per operation at a time, with a fence; and the attempts that stand before any byte (MISSION C1, A1).

Claim takes what is due, fairly over providers and owners by a skip-scan on the index (provider, owner, due_at). For an
acting errand it commits an open attempt: nothing is sent before that commit. An open attempt that the claimer finds is
not its own, so its outcome is unknown: it is judged before anything else.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import sqlalchemy as sa

from ledger.errors import LedgerError, RecordError
from ledger.fold import CHUNK, Fold
from ledger.links import look
from ledger.rowfaults import aside, note, writable
from ledger.rows import from_row
from ledger.tables import attempts, operations
from ledger.transaction import Transaction
from lifecycle.errands import Sleep, acts, next_errand
from schemas.commands import Claimed, ClaimedWork, ClaimWork, Defer, Renew
from schemas.evidence import AttemptLost
from schemas.operation import Micros, Operation
from schemas.states import Errand

_PAIRS_AT_ONCE = 64
_SPARE_PAIRS = 8  # whose rows may turn out to be locked or leased by another claim


def claim(tx: Transaction, commands: list[ClaimWork]) -> list[ClaimedWork]:
    """Lease due operations for each command's worker."""
    return [_claim(tx, command) for command in commands]


def renew(tx: Transaction, commands: list[Renew]) -> list[bool]:
    """Extend leases by fence; False: the lease is lost (another fence, expired and taken, or released)."""
    answers = []
    for command in sorted(commands, key=lambda item: item.operation_id):
        clock = tx.lease_clock(command.now)
        result = tx.connection.execute(
            sa.update(operations)
            .where(
                operations.c.id == command.operation_id,
                operations.c.lease_fence == command.fence,
                operations.c.lease_until.is_not(None),
            )
            .values(
                lease_until=clock + command.lease,
                due_at=clock + command.lease,
                revision=operations.c.revision + 1,
            )
        )
        answers.append((command, result.rowcount == 1))
    by_command = {id(command): kept for command, kept in answers}
    return [by_command[id(command)] for command in commands]


def defer(tx: Transaction, commands: list[Defer]) -> list[bool]:
    """Give leases back unused. An open attempt is closed as not sent: no byte of it has left."""
    now = max(command.now for command in commands)
    fold = Fold(tx, now)
    fold.lock(command.operation_id for command in commands)
    answers = []
    for command in commands:
        op = fold.get(command.operation_id)
        if op is None or not holds_lease(op, command.fence):
            answers.append(False)
            continue
        hinted = op.hinted_at is not None and op.last_read_at is not None and op.hinted_at > op.last_read_at
        due = op.hinted_at if hinted and op.hinted_at is not None else command.due_at
        fold.work(op.id, lease_owner=None, lease_until=None, due_at=max(due, now))
        if command.attempt_id is not None and op.open_attempt == command.attempt_id:
            fold.work(op.id, open_attempt=None, open_errand=None)
            close_attempt(tx, command.attempt_id, "not_sent", "deferred", now)
        answers.append(True)
    fold.flush()
    return answers


def holds_lease(op: Operation, fence: int) -> bool:
    """Return whether the lease of this fence still stands: not released, and taken by nobody else since."""
    return op.lease_fence == fence and op.lease_until is not None


def close_attempt(tx: Transaction, attempt_id: str, outcome: str, error: str, now: Micros) -> None:
    """Record the fate of an attempt."""
    tx.connection.execute(sa.update(attempts).where(attempts.c.id == attempt_id).values(outcome=outcome, error=error[:200], closed_at=now))


def _claim(tx: Transaction, command: ClaimWork) -> ClaimedWork:
    fold = Fold(tx, command.now)
    clock = tx.lease_clock(command.now)
    picked, after = _pick(tx, command, clock)
    items: list[Claimed] = []
    opened: list[dict[str, Any]] = []
    for op in picked:
        fold.take(op)
        try:
            claimed = _lease(fold, op, command, clock, opened)
        except sa.exc.SQLAlchemyError:
            raise  # the transaction is in doubt, and no row is to blame for it
        except Exception as error:  # noqa: BLE001 - one row that cannot be judged must not hold back all others (B113)
            fold.drop(op.id)
            _sink(tx, op.id, error, command.now)
            continue
        if claimed is not None:
            items.append(claimed)
    if opened:
        tx.connection.execute(sa.insert(attempts), opened)
    fold.flush()
    fresh = tuple(
        Claimed(operation=operation, errand=item.errand, fence=item.fence, attempt_id=item.attempt_id)
        for item in items
        if (operation := fold.get(item.operation.id)) is not None
    )
    return ClaimedWork(items=fresh, after=after)


def _lease(fold: Fold, op: Operation, command: ClaimWork, clock: Micros, opened: list[dict[str, Any]]) -> Claimed | None:
    contract = fold.tx.contracts[op.provider].of(op.action)
    if op.open_attempt is not None:
        _judge_lost(fold, op, command)
    if op.waits_for is not None:
        look(fold, op.id, actor=command.worker, chance=command.chance)
    op = fold.get(op.id) or op
    errand = next_errand(op, contract, command.now)
    if errand is None:
        fold.work(op.id, due_at=None, lease_owner=None, lease_until=None)
        return None
    if isinstance(errand, Sleep):
        fold.work(op.id, due_at=max(errand.until, command.now + 1), lease_owner=None, lease_until=None)
        return None
    until = clock + command.lease
    fence = op.lease_fence + 1
    fold.work(op.id, lease_owner=command.worker[:200], lease_fence=fence, lease_until=until, due_at=until)
    attempt_id = None
    if acts(errand, contract, op):
        attempt_id = f"att_{op.id.removeprefix('op_')}_{fence}"
        opened.append(_open(fold, op, errand, attempt_id, fence=fence, command=command, until=until))
    return Claimed(operation=op, errand=errand, fence=fence, attempt_id=attempt_id)


def _open(fold: Fold, op: Operation, errand: Errand, attempt_id: str, *, fence: int, command: ClaimWork, until: Micros) -> dict[str, Any]:
    sent_before = until + command.send_budget
    fold.work(op.id, open_attempt=attempt_id, open_errand=errand)
    if errand is Errand.CREATE:
        first = op.first_sent_at if op.first_sent_at is not None else command.now
        fold.work(op.id, sends=op.sends + 1, first_sent_at=first)
    return {
        "id": attempt_id,
        "operation": op.id,
        "errand": str(errand),
        "number": fence,
        "fence": fence,
        "worker": command.worker[:200],
        "opened_at": command.now,
        "sent_before": sent_before,
        "closed_at": None,
        "outcome": "open",
        "error": "",
    }


def _judge_lost(fold: Fold, op: Operation, command: ClaimWork) -> None:
    """Declare the open attempt of a worker that is gone, stalled or paused."""
    attempt_id, errand = op.open_attempt, op.open_errand
    assert attempt_id is not None
    assert errand is not None
    row = fold.tx.connection.execute(sa.select(attempts.c.sent_before).where(attempts.c.id == attempt_id)).one_or_none()
    if row is None:
        raise RecordError(f"{op.id} names an attempt that does not exist")
    fold.work(op.id, open_attempt=None, open_errand=None, lease_owner=None, lease_until=None)
    close_attempt(fold.tx, attempt_id, "lost", "lease expired", command.now)
    fold.judge(
        op.id,
        AttemptLost(attempt_id=attempt_id, errand=errand, sent_before=int(row.sent_before)),
        actor=command.worker,
        chance=command.chance,
        cause_id=attempt_id,
        holds_lease=True,
    )


def _pick(tx: Transaction, command: ClaimWork, clock: Micros) -> tuple[list[Operation], Mapping[str, str]]:
    """Pick due rows: one share per (provider, owner) that has any, then a second round for what is left.

    Also returns whose turn was last: where room is scarcer than owners are many, the next claim goes on behind them (C3).
    """
    room = {provider: count for provider, count in command.room.items() if count > 0 and provider in tx.contracts}
    pairs = list(_due_pairs(tx, room, command))
    owners = Counter(provider for provider, _ in pairs)
    after = dict(command.after)
    picked: list[Operation] = []
    left = command.limit
    seen: set[str] = set()
    for rounds in (1, 2):
        for index, (provider, owner) in enumerate(pairs):
            take = min(room[provider], left)
            if take <= 0:
                continue
            if rounds == 1:
                take = max(1, min(room[provider] // owners[provider], left // (len(pairs) - index)))
                owners[provider] -= 1
                after |= {"": provider, provider: owner}
            for op in _due_rows(tx, provider, owner, take, seen=seen, now=command.now, clock=clock):
                picked.append(op)
                seen.add(op.id)
                room[provider] -= 1
                left -= 1
    return picked, after


def _due_pairs(tx: Transaction, room: dict[str, int], command: ClaimWork) -> Iterator[tuple[str, str]]:
    """Walk (provider, owner) pairs with something due, around from where the last claim ended; few more than there is room for."""
    last, found = command.after.get("", ""), 0
    for provider in sorted(room, key=lambda name: (name <= last, name)):
        for owner in islice(_due_owners(tx, provider, command), min(room[provider] + _SPARE_PAIRS, _PAIRS_AT_ONCE - found)):
            found += 1
            yield provider, owner


def _due_owners(tx: Transaction, provider: str, command: ClaimWork) -> Iterator[str]:
    """Walk the owners with something due at a provider, from behind the last one and around: each step is one seek in the index."""
    last = command.after.get(provider, "")
    for start, end in ((last, None), ("", last)) if last else (("", None),):
        owner = start
        while (row := tx.connection.execute(NEXT_PAIR, {"p": provider, "o": owner}).one_or_none()) is not None:
            owner = row.owner
            if end is not None and owner > end:
                break
            if row.due_at <= command.now:
                yield owner


NEXT_PAIR = (
    sa.select(operations.c.owner, operations.c.due_at)
    .where(
        operations.c.due_at.is_not(None),
        operations.c.provider == sa.bindparam("p"),
        operations.c.owner > sa.bindparam("o"),
    )
    .order_by(operations.c.provider, operations.c.owner, operations.c.due_at)
    .limit(1)
)


_DUE_ROWS = (
    sa.select(operations)
    .where(
        operations.c.provider == sa.bindparam("p"),
        operations.c.owner == sa.bindparam("o"),
        operations.c.due_at <= sa.bindparam("now"),
        operations.c.due_at.is_not(None),
        operations.c.lease_until.is_(None) | (operations.c.lease_until <= sa.bindparam("clock")),
        ~aside(operations.c.id, sa.bindparam("now")),
    )
    .order_by(operations.c.due_at)
    .limit(sa.bindparam("most"))
    .with_for_update(skip_locked=True)
)


def _due_rows(tx: Transaction, provider: str, owner: str, take: int, *, seen: set[str], now: Micros, clock: Micros) -> list[Operation]:
    wanted = {"p": provider, "o": owner, "now": now, "clock": clock, "most": min(take + len(seen), CHUNK)}
    rows: list[Operation] = []
    found = tx.connection.execute(_DUE_ROWS, wanted).all()
    sound = set(writable(tx, (row.id for row in found), now))
    for row in found:
        if row.id in seen or len(rows) == take or row.id not in sound:
            continue
        try:
            rows.append(from_row(row, tx.vault))
        except LedgerError as error:
            _sink(tx, row.id, error, now)
    return rows


def _sink(tx: Transaction, operation_id: str, error: Exception, now: Micros) -> None:
    """Let a row that cannot be read or judged sink behind all others, visibly; it is tried again later (B113, B115)."""
    until = note(tx, operation_id, error, now)
    tx.connection.execute(
        sa.update(operations).where(operations.c.id == operation_id).values(due_at=until, revision=operations.c.revision + 1)
    )

"""Audits: the self-audit that must report 0, and the verification of chain and fold (MISSION C2, D4, D5)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from ledger.beats import paused
from ledger.errors import LedgerError
from ledger.history import MAX_ACTOR, MAX_CAUSE, fold_rows, link, text_hash
from ledger.rows import from_row, history_text_row
from ledger.tables import LIVE, UNPROVEN, deliveries, history, history_texts, operations
from ledger.tables_upkeep import tombstones
from ledger.transaction import View
from schemas.operation import FOLDED, IDENTITY, SECOND, Micros, Operation
from schemas.states import ACTIVE, FINAL, PARKED, State

STUCK_SECONDS = 300
_PAGE = 200
_LOOKS = 10  # at an operation that is being written while it is verified


def self_audit(view: View, now: Micros) -> dict[str, int]:
    """Return counts of what must not be. Every value must be 0 (C2, C8)."""
    late = now - STUCK_SECONDS * SECOND
    active, parked = _words(ACTIVE), _words(PARKED)
    # Said in the words of the partial indexes, so that what is over costs nothing however much there is of it; one walk for all that lives.
    c = operations.c
    living = {
        "active_without_due": c.state.in_(active) & c.due_at.is_(None),
        # What waits for an account that is gone, or that asked to wait, is not forgotten (C3): `providers show` tells of it.
        "active_overdue": c.state.in_(active) & (c.due_at < late) & c.provider.not_in(paused(view, now)),
        "waiting_without_question": (c.state == str(State.AWAITING_APPROVAL)) & c.question_id.is_(None),
        "parked_without_question": c.state.in_(parked) & c.question_id.is_(None),
        "open_attempt_without_lease": c.open_attempt.is_not(None) & c.lease_until.is_(None) & c.due_at.is_(None),
    }
    columns = [sa.func.count().filter(condition).label(name) for name, condition in living.items()]
    walked = view.connection.execute(sa.select(*columns).select_from(operations).where(sa.text(LIVE))).mappings().one()
    counts = {name: int(count) for name, count in walked.items()}
    counts["final_without_verdict"] = _count(view, operations, sa.text(UNPROVEN))
    scheduled = c.due_at.is_not(None) & c.state.in_(_words(FINAL)) & c.watch_until.is_(None)
    counts["final_with_due"] = _count(view, operations, scheduled)
    unprocessed = (deliveries.c.status == "received") & (deliveries.c.received_at < late)
    counts["receipts_unprocessed"] = _count(view, deliveries, unprocessed)
    return counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One row that does not verify."""

    operation: str
    seq: int
    fault: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What a page of the walk found. `after` is where the next one begins; None: the walk is over."""

    faults: tuple[Fault, ...]
    done: int
    after: str | None


def verify(view: View) -> Iterator[Fault | int]:
    """Walk everything in one transaction; yield faults, and after each page the number of operations done so far.

    For small records and tests: `verify_page` needs no transaction that lasts (B117).
    """
    after: str | None = ""
    done = 0
    while after is not None:
        page = verify_page(view, after)
        yield from page.faults
        done, after = done + page.done, page.after
        if page.done:
            yield done


def verify_page(view: View, after: str) -> Page:
    """Verify the next operations, and what retention left of others, in the order of their ids. Begins with an empty `after`."""
    rows = view.connection.execute(sa.select(operations).where(operations.c.id > after).order_by(operations.c.id).limit(_PAGE)).all()
    last = rows[-1].id if len(rows) == _PAGE else None
    faults: list[Fault] = []
    for row in rows:
        try:
            faults += settled_faults(view, from_row(row, view.vault))
        except LedgerError as error:
            faults.append(Fault(operation=row.id, seq=int(row.history_seq), fault=f"the record cannot be read: {error}"))
    faults += _tombs(view, after, last)
    faults += _strangers(view, after, last)
    return Page(faults=tuple(faults), done=len(rows), after=last)


def _between(column: sa.Column[Any], after: str, last: str | None) -> sa.ColumnElement[bool]:
    return column > after if last is None else (column > after) & (column <= last)


def _tombs(view: View, after: str, last: str | None) -> Iterator[Fault]:
    """Verify the histories that have outlived their records."""
    query = sa.select(tombstones).where(_between(tombstones.c.operation, after, last)).order_by(tombstones.c.operation)
    for stone in view.connection.execute(query):
        chain = _Chain(view, stone.operation)
        yield from chain.faults(stone.history_seq, stone.history_hash)


def settled_faults(view: View, operation: Operation) -> Iterator[Fault]:
    """Verify one operation; one that was written meanwhile (PostgreSQL reads each statement's own moment) is looked at again."""
    for _ in range(_LOOKS):
        faults = list(verify_operation(view, operation))
        if not faults:
            return
        row = view.connection.execute(sa.select(operations).where(operations.c.id == operation.id)).one_or_none()
        if row is None or row.revision == operation.revision:
            break
        operation = from_row(row, view.vault)
    yield from faults


def verify_operation(view: View, operation: Operation) -> Iterator[Fault]:
    """Verify one operation: no gap, every link, every text, the head, and the fold against the record."""
    chain = _Chain(view, operation.id)
    broken = list(chain.faults(operation.history_seq, operation.history_hash))
    yield from broken
    if not chain.whole:
        return
    yield from _texts(view, operation, {row["seq"]: row for row in chain.rows})
    folded = fold_rows(chain.rows)
    yield from _identity(operation, chain.rows[0], folded)
    for name in FOLDED:
        value = getattr(operation, name)
        default = False if name == "unverified" else None
        expected_value = folded.get(name, default)
        if expected_value != (str(value) if isinstance(value, str) else value):
            yield Fault(operation=operation.id, seq=operation.history_seq, fault=f"the record's {name} is not what its history says")


def _identity(operation: Operation, first: Mapping[str, Any], folded: Mapping[str, Any]) -> Iterator[Fault]:
    """Compare whose the operation is, and what was asked, with what its first row says."""
    same = {
        "subject": operation.subject[:MAX_ACTOR] == first["actor"],
        "request_fingerprint": operation.request_fingerprint[:MAX_CAUSE] == first["cause_id"],
    }
    if "owner" in folded:  # rows that were written before it stood there say less
        same |= {name: getattr(operation, name) == folded.get(name) for name in IDENTITY}
    for name, kept in same.items():
        if not kept:
            yield Fault(operation=operation.id, seq=1, fault=f"the record's {name} is not what its history says")


class _Chain:
    """The history of one operation."""

    def __init__(self, view: View, operation: str) -> None:
        self._operation = operation
        query = sa.select(history).where(history.c.operation == operation).order_by(history.c.seq)
        self.rows: list[dict[str, Any]] = [row._asdict() for row in view.connection.execute(query)]
        self.whole = False

    def faults(self, seq: int, digest: bytes) -> Iterator[Fault]:
        """Yield what is wrong with the links up to the head (seq, digest)."""
        head, state = b"", ""
        for expected, row in enumerate(self.rows, start=1):
            if row["seq"] != expected:
                yield Fault(operation=self._operation, seq=expected, fault="missing row")
                return
            if row["prev_hash"] != head or link(row, head) != row["hash"]:
                yield Fault(operation=self._operation, seq=expected, fault="changed row")
                return
            if row["from_state"] != state:
                yield Fault(operation=self._operation, seq=expected, fault="does not follow the row before it")
            head, state = row["hash"], row["to_state"]
        if len(self.rows) != seq or head != digest:
            yield Fault(operation=self._operation, seq=len(self.rows), fault="history ends before the record's head")
            return
        self.whole = True


def _texts(view: View, operation: Operation, rows: Mapping[int, Mapping[str, Any]]) -> Iterator[Fault]:
    query = sa.select(history_texts).where(history_texts.c.operation == operation.id)
    for words in view.connection.execute(query).mappings():
        row = rows.get(words["seq"])
        place = history_text_row(operation.id, words["seq"])
        try:
            plain = view.vault.unseal("history_texts", "text", place, words["text"]).decode()
        except (LedgerError, UnicodeDecodeError):
            yield Fault(operation=operation.id, seq=words["seq"], fault="the text does not open")
            continue
        if row is None or row["text_hash"] != text_hash(words["salt"], plain):
            yield Fault(operation=operation.id, seq=words["seq"], fault="changed text")


def _strangers(view: View, after: str, last: str | None) -> Iterator[Fault]:
    """Find history whose operation is gone without a tombstone."""
    query = (
        sa.select(history.c.operation, sa.func.min(history.c.seq))
        .where(
            _between(history.c.operation, after, last),
            ~sa.exists().where(operations.c.id == history.c.operation),
            ~sa.exists().where(tombstones.c.operation == history.c.operation),
        )
        .group_by(history.c.operation)
        .limit(_PAGE)
    )
    for operation, seq in view.connection.execute(query):
        yield Fault(operation=operation, seq=seq, fault="history without its record")


def _count(view: View, table: sa.Table, condition: Any) -> int:
    return int(view.connection.execute(sa.select(sa.func.count()).select_from(table).where(condition)).scalar_one())


def _words(states: frozenset[State]) -> list[str]:
    return sorted(str(state) for state in states)

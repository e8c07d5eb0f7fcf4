"""Linked operations: `supersedes` ends its predecessor and waits for that end (A3), `resumes` follows a final one (D1).

Predecessors are locked with all other operations, in id order, before anything is judged. A successor is never locked by
its predecessor's end: it is made due where nobody else holds it, and looks for itself at the latest a little later.
"""

from dataclasses import dataclass
from typing import Literal

import sqlalchemy as sa

from ledger.fold import Fold
from ledger.tables import operations
from ledger.transaction import Transaction
from schemas.commands import Intent
from schemas.evidence import CancelAsked, PredecessorSeen, SucceededBy
from schemas.operation import Operation
from schemas.states import FINAL, State

Refused = Literal["unknown_link", "already_superseded", "not_final"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """The predecessors of one intent, locked. `waits_for`: whose end the new operation must wait for."""

    superseded: Operation | None = None
    resumed: Operation | None = None
    waits_for: str | None = None


def named(intents: list[Intent]) -> set[str]:
    """Return the ids that these intents link to; they are locked like all operations that a command writes."""
    return {link for intent in intents for link in (intent.supersedes, intent.resumes) if link is not None}


def check(fold: Fold, intent: Intent) -> Links | Refused:
    """Return the predecessors of `intent`, or why they cannot be linked. A foreign one is as unknown as a missing one (G4)."""
    superseded = resumed = None
    if intent.supersedes is not None:
        superseded = fold.get(intent.supersedes)
        if superseded is None or superseded.owner != intent.owner or superseded.provider not in fold.tx.contracts:
            return "unknown_link"
        if superseded.superseded_by is not None:
            return "already_superseded"
    if intent.resumes is not None:
        resumed = fold.get(intent.resumes)
        if resumed is None or resumed.owner != intent.owner or resumed.provider != intent.provider:
            return "unknown_link"
        if resumed.state not in FINAL:
            return "not_final"
    waits_for = None
    if superseded is not None:
        # A predecessor that was itself waiting, unsent, hands on what it waited for: its own end tells nothing.
        waits_for = superseded.waits_for or superseded.id
    return Links(superseded=superseded, resumed=resumed, waits_for=waits_for)


def link(fold: Fold, intent: Intent, links: Links, *, chance: float) -> None:
    """Write both histories, end the superseded operation, and judge the new one by how its predecessor stands now."""
    if links.resumed is not None:
        told = SucceededBy(by=intent.subject, operation=intent.id, how="resumes")
        fold.judge(links.resumed.id, told, actor=intent.subject, chance=chance)
    if links.superseded is None:
        return
    old = links.superseded.id
    fold.judge(old, SucceededBy(by=intent.subject, operation=intent.id, how="supersedes"), actor=intent.subject, chance=chance)
    wish = CancelAsked(by=intent.subject, reason=f"superseded by {intent.id}", expected_effect="ended before its successor is sent")
    fold.judge(old, wish, actor=intent.subject, chance=chance)  # refused where it is final, or a person's question is open
    fold.tx.changed.add(old)
    look(fold, intent.id, actor=intent.subject, chance=chance)


def look(fold: Fold, operation_id: str, *, actor: str, chance: float) -> None:
    """Judge a waiting operation by how its predecessor stands. One that is at rest never starts to move by itself."""
    op = fold.get(operation_id)
    if op is None or op.waits_for is None:
        return
    known = fold.get(op.waits_for)
    state = known.state if known is not None else _state(fold.tx, op.waits_for)
    if state is None:
        return  # its record is gone: nothing may be concluded, and a person's cancel still ends this one
    evidence = PredecessorSeen(operation=op.waits_for, state=state)
    fold.judge(op.id, evidence, actor=actor, chance=chance, cause_id=op.waits_for, holds_lease=True)


def _state(tx: Transaction, operation_id: str) -> State | None:
    row = tx.connection.execute(sa.select(operations.c.state).where(operations.c.id == operation_id)).one_or_none()
    return None if row is None else State(row.state)

"""How an ambiguous create is resolved: which strategy may be used now, and from when absence counts (MISSION A6, A7)."""

from typing import Literal

from schemas.contract import RESEND_MARGIN_SECONDS, Contract
from schemas.operation import SECOND, Micros, Operation
from schemas.states import Mode, State

Plan = Literal["resend", "lookup", "list"]
MAX_RESENDS = 3
"""Sends after which a lookup, where there is one, goes first: a provider may replay a stored server error for ever (B055)."""


def plan(op: Operation, contract: Contract, now: Micros) -> Plan | None:
    """Return the first strategy of the contract that is safe now, or None: a person must decide.

    Resending needs the provider's promise to still hold (its window, with a margin), is not done after the create
    deadline, and with a cancel wanted only where a resend never executes again. An external create is never sent by us.
    """
    lookup = next((strategy for strategy in contract.recovery.strategies if strategy != "resend"), None)
    if not may_resend(op, contract, now):
        return lookup
    first = contract.recovery.strategies[0]
    if first != "resend" or (op.sends > MAX_RESENDS and lookup is not None):
        return lookup
    return "resend"


def may_resend(op: Operation, contract: Contract, now: Micros) -> bool:
    """Return whether the same token may be sent again: the provider answers it instead of executing it."""
    if op.mode is not Mode.SEND or (op.create_deadline is not None and now >= op.create_deadline):
        return False
    if op.cancel_requested_at is not None and not contract.recovery.replay_guaranteed:
        return False
    return window_open(op, contract, now)


def lookup_helps(op: Operation, contract: Contract) -> bool:
    """Return whether a lookup may answer the open question of a parked operation without a job.

    Not where several jobs were found: that they are there is known, and a lookup under way while a person chooses one
    would come after the decision and undo it.
    """
    return op.state is not State.QUARANTINED and any(strategy != "resend" for strategy in contract.recovery.strategies)


def earliest_absence(op: Operation, contract: Contract) -> Micros:
    """Return from when "not found" counts: every byte has left, and the provider had time to show the job."""
    sent_before = op.sent_before if op.sent_before is not None else op.created_at
    return sent_before + contract.recovery.visibility_seconds * SECOND


def window_open(op: Operation, contract: Contract, now: Micros) -> bool:
    """Return whether the provider still answers a resend of the same token; a person's resend extends the deadline.

    It does not where it has shown a stored error, which comes again for ever (B055), nor where it stores successes alone and has
    shown a failure, which may have had an effect.
    """
    create = contract.create
    if create is None or "resend" not in contract.recovery.strategies or op.token_spent is not None:
        return False
    start = op.first_sent_at if op.first_sent_at is not None else now
    return now < start + (create.token.window_seconds - RESEND_MARGIN_SECONDS) * SECOND

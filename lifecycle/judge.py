"""The judge: one pure function for evidence from every source."""

from lifecycle.case import Case
from lifecycle.table import TABLE
from schemas.contract import Contract
from schemas.decision import Decision
from schemas.evidence import Evidence
from schemas.operation import Micros, Operation


def decide(
    operation: Operation,
    evidence: Evidence,
    contract: Contract,
    *,
    now: Micros,
    chance: float,
    started_at: Micros | None = None,
    cause_id: str = "",
) -> Decision:
    """Return what follows from `evidence` for `operation`. Nothing has happened yet.

    `started_at`: when the call that brought the evidence began (default: now). `chance` in [0, 1) spreads the next
    errand. `cause_id` names the attempt, observation, delivery or question that the history rows will cite.
    """
    case = Case(
        operation=operation,
        evidence=evidence,
        contract=contract,
        now=now,
        started_at=now if started_at is None else started_at,
        chance=chance,
        cause_id=cause_id,
    )
    return TABLE[operation.state][evidence.kind](case)

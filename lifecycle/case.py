"""One case before the judge: the record, the evidence, the contract, the time, the chance; and the draft of a decision."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from lifecycle.arrows import ARROWS
from lifecycle.questions import ASKS
from schemas.contract import Contract
from schemas.decision import Decision, DueAt, Effect, Step
from schemas.evidence import Evidence
from schemas.operation import FOLDED, SECOND, Micros, Operation
from schemas.states import FINAL, PARKED, CancelOutcome, Cause, State

WATCHED = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED})
"""Final states that speak of a remote job: what the provider says of it later may contradict them."""


class IllegalArrowError(AssertionError):
    """A rule tried an arrow that the table does not have: a programmer's error, never a provider's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What `decide` looks at. `started_at` is when the call that brought the evidence began."""

    operation: Operation
    evidence: Evidence
    contract: Contract
    now: Micros
    started_at: Micros
    chance: float
    cause_id: str = ""


class Draft:
    """A decision in the making: follows the operation through the steps, so that later ones see earlier ones."""

    __slots__ = ("case", "effects", "op", "steps", "working")

    def __init__(self, case: Case) -> None:
        self.case = case
        self.op = case.operation
        self.steps: list[Step] = []
        self.working: dict[str, Any] = {}
        self.effects: list[Effect] = []

    def go(self, to: State, cause: Cause, code: str, *, text: str = "", cause_id: str | None = None, **changes: Any) -> None:
        """Take one arrow. Questions open and close, and clocks start and stop, with the state."""
        if to not in ARROWS[self.op.state]:
            raise IllegalArrowError(f"{self.op.state} -> {to} ({code})")
        self._step(to, cause, code, text=text, cause_id=cause_id, changes={**self._entering(to), **changes})
        if to in PARKED:
            self.work(granted_reads=0, hinted_at=None, steady_reads=0)
        elif to not in FINAL and self.case.operation.state in PARKED:
            self.work(granted_reads=0, read_failures=0, watch_until=None)
        if to in FINAL:
            self.work(granted_reads=0, watch_until=None)
            self._watch()

    def note(self, cause: Cause, code: str, *, text: str = "", cause_id: str | None = None, **changes: Any) -> None:
        """Record a fact without moving."""
        self._step(self.op.state, cause, code, text=text, cause_id=cause_id, changes=changes)

    def work(self, **changes: Any) -> None:
        """Change working fields."""
        self.working.update(changes)
        self.op = replace(self.op, **changes)

    def due(self, at: Micros) -> None:
        """Say when the next errand is due; the last word counts."""
        self.effects = [effect for effect in self.effects if not isinstance(effect, DueAt)]
        self.effects.append(DueAt(at=at))

    def done(self) -> Decision:
        """Return the decision."""
        return Decision(steps=tuple(self.steps), working=self.working, effects=tuple(self.effects))

    def _watch(self) -> None:
        """Read on after an end that this provider may reverse: until the watch period is over (D1)."""
        status, op, now = self.case.contract.status, self.op, self.case.now
        if status is None or op.state not in WATCHED or (op.ending or op.reading) not in status.reversible or not status.watch_seconds:
            return
        until = now + status.watch_seconds * SECOND
        self.work(watch_until=until)
        self.due(min(until, now + status.max_poll_seconds * SECOND))

    def _step(self, to: State, cause: Cause, code: str, *, text: str, cause_id: str | None, changes: Mapping[str, Any]) -> None:
        real = {name: value for name, value in changes.items() if getattr(self.op, name) != value}
        unknown = real.keys() - _FOLDED
        if unknown:
            raise IllegalArrowError(f"not folded fields: {sorted(unknown)}")
        own = self.case.cause_id if cause_id is None else cause_id
        self.steps.append(Step(to=to, cause=cause, cause_id=own, code=code, text=text, changes=real))
        self.op = replace(self.op, state=to, **real)

    def _entering(self, to: State) -> dict[str, Any]:
        op, now = self.op, self.case.now
        changes: dict[str, Any] = {}
        if to in ASKS:
            seq = op.history_seq + len(self.steps) + 1
            changes.update(question_id=f"q_{op.id.removeprefix('op_')}_{seq}", question_kind=ASKS[to], question_until=None)
        elif op.question_id is not None:
            changes.update(question_id=None, question_kind=None, question_until=None)
        if op.cancel_outcome == CancelOutcome.REQUESTED:  # a wish that nothing will come of any more; rules that know more say so
            if to is State.ABANDONED:
                changes["cancel_outcome"] = CancelOutcome.UNCONFIRMED
            elif to in FINAL and op.remote_job_id is None:
                changes["cancel_outcome"] = CancelOutcome.WITHDRAWN
        match to:
            case State.CANCEL_REQUESTED:
                changes["cancel_deadline"] = now + op.cancel_seconds * SECOND
            case State.OBSERVING | State.ACCEPTED:
                changes.update(cancel_deadline=None, unverified=False)
            case _:
                pass
        return changes


_FOLDED = frozenset(FOLDED) - {"state"}
assert {field.name for field in fields(Operation)} > _FOLDED


def refuse(code: str, detail: str = "") -> Decision:
    """Return a refusal that the asker sees."""
    return Decision(refused=code, detail=detail)

"""A decision: the judgement of one piece of evidence. Nothing has happened yet; `ledger/fold.py` commits it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from schemas.evidence import StoredFile
from schemas.operation import Micros
from schemas.states import Cause, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One history row: an arrow, or (when `to` is the state we are in) a recorded fact."""

    to: State
    cause: Cause
    cause_id: str = ""
    code: str = ""  # stable word for why
    text: str = field(default="", repr=False)  # a person's or provider's words: kept erasable beside the chain
    changes: Mapping[str, Any] = field(default_factory=dict)  # folded fields besides `state`


@dataclass(frozen=True, slots=True, kw_only=True)
class DueAt:
    """Effect: the next errand is due then."""

    at: Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepFiles:
    """Effect: these stored files belong to the operation from now on."""

    files: tuple[StoredFile, ...]


Effect = DueAt | KeepFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What follows from the evidence. Refused: nothing does, and the asker is told why by `refused`."""

    steps: tuple[Step, ...] = ()
    working: Mapping[str, Any] = field(default_factory=dict)
    effects: tuple[Effect, ...] = ()
    refused: str | None = None
    detail: str = ""

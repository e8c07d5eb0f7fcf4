"""The two-way sweep as values: walks through a provider's list of jobs, compared with the record (MISSION C9)."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from schemas.operation import Micros


class Found(StrEnum):
    """What a walk may find."""

    LEAK = "leak"  # a remote job that no record knows
    DUPLICATE = "duplicate"  # a remote job that names an operation which has another job
    MISSING = "missing"  # a record whose remote job the provider does not list


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One job of the provider's list. `made_at` by the provider's clock, None: not said."""

    remote_job_id: str
    reference: str = ""
    made_at: Micros | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """A leased walk. `watermark`: the newest job that a finished walk has seen, by the provider's clock."""

    provider: str
    fence: int
    cursor: str  # empty: the first page
    pages: int
    began_at: Micros
    watermark: Micros | None
    failures: int  # in a row


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimWalks:
    """Lease at most one due walk. `pauses`: provider -> seconds between two walks. Answers a Walk or None."""

    pauses: Mapping[str, int]
    lease: Micros
    now: Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleWalk:
    """Record one page of a walk, or that it failed. Judged by fence: a walk that was taken over writes nothing.

    `outcome`: `more` pages follow; the list's `end` or what is known already was reached; the walk was `cut` (too long, no
    progress): then it says nothing about what was not seen; it `failed` for now; it was `paused` before anything was asked.
    `due_at`: when to go on or try again.
    """

    walk: Walk
    outcome: Literal["more", "end", "cut", "failed", "paused"]
    items: tuple[Listed, ...] = ()
    cursor: str = ""
    error: str = ""
    due_at: Micros
    grace: Micros
    overlap: Micros
    actions: tuple[str, ...] = ()  # the kinds of operations whose jobs are listed; none: all
    now: Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkSettled:
    """`kept` False: the lease was lost. `new`: findings that were not known before, by kind."""

    kept: bool
    new: Mapping[str, int]

"""Upkeep of the record: what retention removes, and what sealing anew goes through. Commands of the ledger's writer."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from schemas.operation import Micros


class Stage(StrEnum):
    """What expires apart from the rest (MISSION F6), in the order in which it is removed."""

    RESULTS = "results"  # files of ended operations
    PAYLOADS = "payloads"  # headers and bodies of deliveries, kept refusals
    REQUESTS = "requests"  # request bodies of ended operations
    EXCHANGES = "exchanges"  # recorded calls of ended operations
    RECORDS = "records"  # ended operations themselves; a tombstone and the history stay
    RECEIPTS = "receipts"  # what is left of deliveries whose operation is gone: the memory of duplicates


@dataclass(frozen=True, slots=True, kw_only=True)
class Expire:
    """Remove the next `limit` rows of a stage that have not changed since `before`. `memory`: a receipt younger than this stays."""

    stage: Stage
    before: Micros
    memory: Micros
    now: Micros
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """What a batch removed. `files` are ids of artifacts whose files may go now. `more`: there may be more to do."""

    counts: Mapping[str, int]
    files: tuple[str, ...] = ()
    more: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """Make the newest master key the one that seals: every process follows within seconds. Answers the key's id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrap:
    """Seal the next `limit` rows of a table anew with the current master key, behind the row `after` (its primary key)."""

    place: str  # a table
    limit: int
    after: tuple[str | int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrapped:
    """How far it came. `sealed`: values; `after` None: the table's end was reached. `unopened`: places that no key at hand opens."""

    looked_at: int
    sealed: int
    after: tuple[str | int, ...] | None
    unopened: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Sign the heads of the histories that have changed since the last checkpoint."""

    now: Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpointed:
    """The newest checkpoint. `operations`: heads that this call signed (0: nothing had changed); `more`: there are more to sign."""

    number: int
    operations: int
    digest: bytes
    public: bytes
    more: bool

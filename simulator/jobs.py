"""One job and its life. Where it stands is computed from the clock when somebody looks: nothing has to tick."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from schemas.operation import Micros
from simulator.faults import Faults


class Phase(StrEnum):
    """Where a job stands, in the simulator's own words; each API has words of its own for them."""

    QUEUED = "queued"
    RUNNING = "running"
    FINALIZING = "finalizing"
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


ENDED = frozenset({Phase.SUCCEEDED, Phase.FAILED, Phase.EXPIRED, Phase.CANCELLED})

Api = Literal["reports", "batches"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOrder:
    """What a report was asked for."""

    kind: str
    rows: int
    client_reference: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOrder:
    """What a batch was asked for. `custom_ids` None: the ids are `item-0` … `item-<count-1>`, and the first `fails` fail."""

    count: int
    fails: int = 0
    custom_ids: tuple[str, ...] | None = field(default=None, repr=False)
    failing: frozenset[int] = field(default=frozenset(), repr=False)
    metadata: Mapping[str, str] = field(default_factory=dict)

    def custom_id(self, index: int) -> str:
        """Return the caller's id of an item."""
        return self.custom_ids[index] if self.custom_ids is not None else f"item-{index}"

    def fails_at(self, index: int) -> bool:
        """Return whether this item fails."""
        return index in self.failing if self.custom_ids is not None else index < self.fails


Order = ReportOrder | BatchOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """A cancel that was taken: when, until when `cancelling` lasts, and how that ends."""

    at: Micros
    until: Micros
    ending: Phase


@dataclass(slots=True, kw_only=True, eq=False)
class Job:
    """One remote job. The only mutable shape here: it is the simulator's record, owned by one event loop."""

    id: str
    api: Api
    order: Order
    created: Micros
    queue: Micros
    run: Micros
    finalize: Micros
    ending: Phase  # how it ends if nobody interferes
    faults: Faults
    left: dict[str, int]  # faults that are used up by the requests they hit
    hidden_until: Micros = 0
    callback_url: str | None = None
    cancel: Cancel | None = None
    forced: tuple[Phase, Micros] | None = None  # by a person or by sync_success
    announced: bool = False  # the callback about the end was made
    sha256: str | None = None  # of a report's result, once computed
    consumed: bool = False  # its result has been read, where that takes it away
    output_file_id: str = ""
    error_file_id: str = ""

    @property
    def started_at(self) -> Micros:
        """Return when it starts to run."""
        return self.created + self.queue

    @property
    def ended_at(self) -> Micros:
        """Return when it ends, as things stand now. A forced phase that is no end never does by itself."""
        if self.forced is not None:
            return self.forced[1]
        if self.cancel is not None:
            return self.cancel.until
        return self.created + self.queue + self.run + self.finalize

    def phase(self, now: Micros) -> Phase:
        """Return where it stands at `now`."""
        if self.forced is not None:
            return self.forced[0]
        if self.cancel is not None:
            return Phase.CANCELLING if now < self.cancel.until else self.cancel.ending
        if now < self.started_at:
            return Phase.QUEUED
        if now < self.started_at + self.run:
            return Phase.RUNNING
        return Phase.FINALIZING if now < self.ended_at else self.ending

    def progress(self, now: Micros) -> float:
        """Return the part of the work done at `now`, 0 to 1. Work stops at a cancel; an expired job is half done."""
        phase = self.phase(now)
        if phase is Phase.SUCCEEDED:
            return 1.0
        if phase is Phase.EXPIRED and self.forced is not None:
            return 0.5
        until = min(now, self.cancel.at) if self.cancel is not None else now
        worked = until - self.started_at
        if worked < 0:
            return 0.0
        done = 1.0 if worked >= self.run else worked / self.run
        return done / 2 if self.ending is Phase.EXPIRED or phase is Phase.EXPIRED else done

    def take(self, names: tuple[str, ...]) -> str | None:
        """Return the first of `names` that has hits left, one hit less, or None."""
        for name in names:
            if self.left.get(name, 0) > 0:
                self.left[name] -= 1
                return name
        return None

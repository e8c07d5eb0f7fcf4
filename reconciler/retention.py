"""The retention duty: what is kept no longer is removed batch by batch, and its files after it (MISSION F6, H5).

A clock that is wrong must not empty the record: where this process's wall clock has jumped ahead of its monotonic one, or
differs from the database's, nothing is removed until the clock has been steady for a day.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

import structlog

from artifacts.store import Store
from ledger import examine
from ledger.ledger import Ledger
from schemas.contract import Contract
from schemas.operation import SECOND, Micros
from schemas.settings import RetentionSettings
from schemas.upkeep import Expire, Stage
from schemas.world import World

_log = structlog.get_logger("reconciler")

BATCH: Final = 200  # rows of one transaction: others write between two of them
DAY_SECONDS: Final = 86_400
JUMP_SECONDS: Final = 86_400  # a wall clock that gains so much on the monotonic one has been set
SKEW_SECONDS: Final = 3_600  # to the database's clock
Tell = Callable[[Stage, int], None]


class Retention:
    """Removes what has expired. `tell` hears of every batch: its stage and how many rows were removed so far in all."""

    def __init__(self, *, record: Ledger, world: World, store: Store, settings: RetentionSettings) -> None:
        self._record = record
        self._world = world
        self._store = store
        self._ages: dict[Stage, Micros] = {
            Stage.RESULTS: _days(settings.result_days),
            Stage.PAYLOADS: _days(settings.payload_days),
            Stage.REQUESTS: _days(settings.payload_days),
            Stage.EXCHANGES: _days(settings.exchange_days),
            Stage.RECORDS: _days(settings.record_days),
            Stage.RECEIPTS: _days(settings.record_days),
        }
        self._anchor = (world.now(), world.monotonic())
        self._wait_until = 0.0  # monotonic

    async def run_once(self, seconds: float | None = None, tell: Tell = lambda _stage, _count: None) -> dict[str, int]:
        """Remove what has expired, for at most about `seconds`; the next run goes on where this one ended. Returns counts."""
        counts: Counter[str] = Counter()
        if not await self._clock_is_steady():
            return {"held_back": 1}
        end = None if seconds is None else self._world.monotonic() + seconds
        for stage in Stage:
            while end is None or self._world.monotonic() < end:
                if not await self._batch(stage, counts):
                    break
                tell(stage, sum(counts.values()))
        return {name: count for name, count in counts.items() if count}

    async def _batch(self, stage: Stage, counts: Counter[str]) -> bool:
        now = self._world.now()
        longest = memory(self._record.contracts.values())
        before = now - self._ages[stage]
        if stage is Stage.RECEIPTS:
            before = min(before, now - longest)
        removed = await self._record.write(Expire(stage=stage, before=before, memory=now - longest, now=now, limit=BATCH))
        counts.update(removed.counts)
        for file in removed.files:  # a file that stays because of a crash here is tidied away as a stray
            await self._store.remove(file)
        return removed.more

    async def _clock_is_steady(self) -> bool:
        now, monotonic = self._world.now(), self._world.monotonic()
        gained = (now - self._anchor[0]) / SECOND - (monotonic - self._anchor[1])
        database = await self._record.read(examine.clock)
        skew = 0.0 if database is None else abs(database - now) / SECOND
        if gained > JUMP_SECONDS:
            self._anchor, self._wait_until = (now, monotonic), monotonic + JUMP_SECONDS
        if monotonic >= self._wait_until and skew <= SKEW_SECONDS:
            return True
        _log.warning("reconciler.retention_held_back", gained_seconds=round(gained), skew_seconds=round(skew))
        return False


def memory(contracts: Iterable[Contract]) -> Micros:
    """Return how long dedup keys are remembered at least: any provider's retry horizon, and twice its replay window (B3)."""
    seconds = [DAY_SECONDS]
    for contract in contracts:
        seconds.append(contract.retry.horizon_seconds)
        rules = [scheme.timestamp for scheme in contract.signatures if scheme.timestamp is not None]
        seconds += [2 * side for rule in rules for side in (rule.past_seconds, rule.future_seconds) if side is not None]
    return max(seconds) * SECOND


def _days(days: float) -> Micros:
    return round(days * DAY_SECONDS * SECOND)

"""The two-way sweep's duty: walks through the providers' lists of jobs, page by page and within the account's pace (C9).

It reads, compares and reports. A walk's place stands in the record, so that it goes on after a restart and one process
walks at a time; what was found is told in the log and listed by `gateway operations sweep`.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Literal

import structlog

from ledger.errors import SecretMissingError
from ledger.ledger import Ledger
from ledger.walks import walk_is_due
from providers.interpret import retry_after
from providers.requests import UnbuildableError
from providers.walking import Page, list_rule, page_request, read_page
from reconciler.desk import Accounts
from reconciler.pace import Pace
from schemas.contract import ListRule
from schemas.evidence import ReadFailed
from schemas.http import AnsweredOutcome
from schemas.operation import SECOND, Micros
from schemas.sweeping import ClaimWalks, SettleWalk, Walk
from schemas.world import World

WALK_SECONDS: Final = 10.0
"""How often it is looked whether a walk is due."""
PAGES_AT_ONCE: Final = 10  # of one run; the walk goes on in the next one
LEASE_SECONDS: Final = 120  # longer than one page with its time limit
WALK_LIMIT_SECONDS: Final = 110.0  # of one run; what it has settled stands, the rest is the next one's
_SOON_SECONDS: Final = 1
_ROOM_SECONDS: Final = 5
_FIRST_PAUSE, _LONGEST_PAUSE = 60, 3_600  # after failures
_SLOW_DOWN: Final = frozenset({429, 503})
_log = structlog.get_logger("reconciler")


class Walker:
    """Walks the lists of the configured accounts that have one. `credential` answers an account's credential, or None."""

    def __init__(self, *, record: Ledger, world: World, accounts: Accounts, pace: Pace, credential: Callable[[str], str | None]) -> None:
        self._record = record
        self._world = world
        self._accounts = accounts
        self._pace = pace
        self._credential = credential
        self._rules = {name: rule for name, account in accounts.items() if (rule := list_rule(account.contract)) is not None}
        self._pauses = {name: seconds for name in self._rules if (seconds := accounts[name].settings.sweep_seconds) > 0}

    async def run_once(self) -> Mapping[str, int]:
        """Walk at most PAGES_AT_ONCE pages of one due walk and return counts. Raises LedgerError."""
        now = self._world.now()
        if not self._pauses or not await self._record.read(walk_is_due, sorted(self._pauses), now):
            return {}
        walk = await self._record.write(ClaimWalks(pauses=self._pauses, lease=LEASE_SECONDS * SECOND, now=now))
        return {} if walk is None else await self._walk(walk)

    async def _walk(self, walk: Walk) -> Mapping[str, int]:
        rule, counts = self._rules[walk.provider], {"pages": 0}
        cursors = {walk.cursor}
        cursor, pages = walk.cursor, walk.pages
        for turn in range(PAGES_AT_ONCE):
            if walk.provider not in self._pace.room(self._world.monotonic()):
                await self._record.write(self._paused(walk, rule))  # errands go first; nothing was asked
                return {**counts, "paused": 1}
            page = await self._page(walk, rule, cursor)
            settled = self._judged(walk, rule, page, cursors, pages, last=turn == PAGES_AT_ONCE - 1)
            answer = await self._record.write(settled)
            if not answer.kept:
                return {**counts, "lost": 1}
            for kind, count in answer.new.items():
                counts[kind] = counts.get(kind, 0) + count
            if answer.new:
                _log.warning("reconciler.sweep_found", provider=walk.provider, **answer.new)
            if settled.outcome != "more":
                _log.info("reconciler.walked", provider=walk.provider, outcome=settled.outcome, error=settled.error, pages=pages + 1)
                return {**counts, settled.outcome: 1}
            counts["pages"] += 1
            cursor, pages = settled.cursor, pages + 1
            cursors.add(cursor)
        return counts

    async def _page(self, walk: Walk, rule: ListRule, cursor: str) -> Page | ReadFailed:
        """Fetch one page; it counts against the account's pace like any call."""
        name, now = walk.provider, self._world.monotonic()
        account = self._accounts[name]
        try:
            request = page_request(rule, account.contract, account.origin, cursor, credential=self._credential(name))
        except (UnbuildableError, SecretMissingError) as error:
            return ReadFailed(layer="transport", error=type(error).__name__)
        self._pace.start(name, now)
        try:
            outcome = await account.transport.perform(request)
        finally:
            self._pace.finish(name)
        if isinstance(outcome, AnsweredOutcome) and outcome.status in _SLOW_DOWN:
            until = retry_after(outcome, self._world.now())
            if until is not None:
                self._pace.hold(name, (until - self._world.now()) / SECOND, self._world.monotonic())
        return read_page(outcome, rule, account.contract, account.origin, self._world.now())

    def _paused(self, walk: Walk, rule: ListRule) -> SettleWalk:
        now = self._world.now()
        grace, overlap = rule.grace_seconds * SECOND, rule.overlap_seconds * SECOND
        return SettleWalk(
            walk=walk, outcome="paused", due_at=now + _ROOM_SECONDS * SECOND, grace=grace, overlap=overlap, actions=rule.actions, now=now
        )

    def _judged(self, walk: Walk, rule: ListRule, page: Page | ReadFailed, cursors: set[str], pages: int, *, last: bool) -> SettleWalk:
        """Return what one page means for its walk."""
        now = self._world.now()
        grace, overlap = rule.grace_seconds * SECOND, rule.overlap_seconds * SECOND
        settle = partial(SettleWalk, walk=walk, grace=grace, overlap=overlap, actions=rule.actions, now=now)
        if isinstance(page, ReadFailed):
            later = max(now + self._pause(walk), page.retry_after or 0)
            return settle(outcome="failed", error=page.error, due_at=later)
        pause = now + self._pauses[walk.provider] * SECOND
        if not page.cursor or _reached(page, rule, walk):
            return settle(outcome="end", items=page.items, due_at=pause)
        if page.cursor in cursors:
            return settle(outcome="cut", items=page.items, error="list makes no progress", due_at=pause)
        if pages + 1 >= rule.max_pages:
            # A newest-first list is whole as far back as it was walked; of any other one nothing is known to be absent.
            outcome: Literal["end", "cut"] = "end" if rule.newest_first else "cut"
            return settle(outcome=outcome, items=page.items, error="list too long", due_at=pause)
        due = now + (_SOON_SECONDS if last else LEASE_SECONDS) * SECOND
        return settle(outcome="more", items=page.items, cursor=page.cursor, due_at=due)

    def _pause(self, walk: Walk) -> Micros:
        ceiling = min(_FIRST_PAUSE * 2**walk.failures, _LONGEST_PAUSE)
        return int(ceiling * (0.5 + self._world.chance() / 2) * SECOND)


def _reached(page: Page, rule: ListRule, walk: Walk) -> bool:
    """Return whether a newest-first list has come to what an earlier walk has seen, with the overlap for jobs that show late."""
    if not rule.newest_first or walk.watermark is None:
        return False
    times = [item.made_at for item in page.items]
    return bool(times) and all(time is not None and time < walk.watermark - rule.overlap_seconds * SECOND for time in times)

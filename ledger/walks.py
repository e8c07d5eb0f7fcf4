"""The two-way sweep's record: leased walks through a provider's list, compared page by page with the operations (C9).

It reports and never acts: nothing here creates, cancels or moves an operation. A walk stands in the record with its
cursor, so that it goes on after a restart; whoever takes a lease over makes its former holder's pages count for nothing.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from ledger.tables import operations, remote_jobs
from ledger.tables_sweeping import remote_findings, remote_seen, remote_walks
from ledger.transaction import Transaction, View
from schemas.operation import SECOND, Micros
from schemas.states import FINAL, Mode
from schemas.sweeping import ClaimWalks, Found, Listed, SettleWalk, Walk, WalkSettled

MAX_OPEN: Final = 1_000
"""Unresolved findings of one provider and kind: an account that others share must not fill the record."""
MAX_FAILURES: Final = 5  # in a row; then the cursor is taken for expired and the walk begins anew
KEPT_SECONDS: Final = 2_592_000
"""How long a finding that is none any more is kept: a month."""
_CHUNK: Final = 500
_w, _f, _o, _j = remote_walks.c, remote_findings.c, operations.c, remote_jobs.c
_ENDED: Final = sorted(str(state) for state in FINAL)


def claim_walks(tx: Transaction, commands: Sequence[ClaimWalks]) -> list[Walk | None]:
    """Lease the longest due walk; a provider that was never walked is due at once."""
    return [_claim(tx, command) for command in commands]


def _claim(tx: Transaction, command: ClaimWalks) -> Walk | None:
    fresh = {"fence": 0, "due_at": command.now, "cursor": "", "pages": 0, "untimed": 0, "walks": 0, "failures": 0, "error": ""}
    for provider in sorted(command.pauses):
        tx.connection.execute(_insert(tx, remote_walks).on_conflict_do_nothing(), {"provider": provider, **fresh})
    due = (
        sa.select(remote_walks)
        .where(_w.provider.in_(sorted(command.pauses)), _w.due_at <= command.now)
        .order_by(_w.due_at, _w.provider)
        .limit(1)
        .with_for_update(skip_locked=True)
    )
    row = tx.connection.execute(due).one_or_none()
    if row is None:
        return None
    anew = row.began_at is None or row.failures >= MAX_FAILURES
    values: dict[str, Any] = {"fence": row.fence + 1, "due_at": command.now + command.lease}
    if anew:
        values.update(began_at=command.now, cursor="", pages=0, newest=None, oldest=None, untimed=0)
        tx.connection.execute(sa.delete(remote_seen).where(remote_seen.c.provider == row.provider))
    tx.connection.execute(sa.update(remote_walks).where(_w.provider == row.provider).values(values))
    return Walk(
        provider=row.provider,
        fence=row.fence + 1,
        cursor="" if anew else row.cursor,
        pages=0 if anew else row.pages,
        began_at=command.now if anew else row.began_at,
        watermark=row.watermark,
        failures=0 if anew else row.failures,
    )


def settle_walks(tx: Transaction, commands: Sequence[SettleWalk]) -> list[WalkSettled]:
    """Record pages by their fences, in the order of providers; answers in the order of the commands."""
    answers = {id(command): _settle(tx, command) for command in sorted(commands, key=lambda item: item.walk.provider)}
    return [answers[id(command)] for command in commands]


def _settle(tx: Transaction, command: SettleWalk) -> WalkSettled:
    provider = command.walk.provider
    mine = (_w.provider == provider) & (_w.fence == command.walk.fence)
    row = tx.connection.execute(sa.select(remote_walks).where(mine).with_for_update()).one_or_none()
    if row is None:
        return WalkSettled(kept=False, new={})
    new: Counter[str] = Counter()
    times = [item.made_at for item in command.items if item.made_at is not None]
    newest = max((time for time in (row.newest, *times) if time is not None), default=None)
    oldest = min((time for time in (row.oldest, *times) if time is not None), default=None)
    untimed = row.untimed + len(command.items) - len(times)
    if command.items:
        _see(tx, command)
        new.update(_compare(tx, command))
    values: dict[str, Any] = {
        "due_at": command.due_at,
        "cursor": command.cursor,
        "error": command.error[:200],
        "newest": newest,
        "oldest": oldest,
        "untimed": untimed,
    }
    match command.outcome:
        case "more":
            values.update(pages=row.pages + 1, failures=0)
        case "paused":
            values.update(cursor=row.cursor, error=row.error)
        case "failed":
            values.update(cursor=row.cursor, failures=row.failures + 1)
        case "end":
            # Only a walk that came to its end says what is not there.
            since = _since(row.watermark, oldest if untimed == 0 else None, command.overlap)
            new.update(_missing(tx, command, row.began_at, since))
            values.update(_over(command.now), watermark=newest if newest is not None else row.watermark, walks=row.walks + 1)
        case "cut":
            values.update(_over(command.now))
    tx.connection.execute(sa.update(remote_walks).where(mine).values(values))
    if command.outcome in {"end", "cut"}:
        _resolve(tx, provider, command.actions, command.now)
        tx.connection.execute(sa.delete(remote_seen).where(remote_seen.c.provider == provider))
    return WalkSettled(kept=True, new=dict(new))


def _over(now: Micros) -> dict[str, Any]:
    return {"began_at": None, "cursor": "", "pages": 0, "newest": None, "oldest": None, "untimed": 0, "failures": 0, "last_at": now}


def _since(watermark: Micros | None, oldest: Micros | None, overlap: Micros) -> Micros:
    """Return from when on the walk has seen everything, by the times of its jobs; 0: since ever."""
    behind = 0 if watermark is None else watermark - overlap
    return max(behind, oldest) if oldest is not None else behind


def _see(tx: Transaction, command: SettleWalk) -> None:
    rows = [{"provider": command.walk.provider, "remote_job_id": job} for job in sorted({item.remote_job_id for item in command.items})]
    tx.connection.execute(_insert(tx, remote_seen).on_conflict_do_nothing(), rows)


def _compare(tx: Transaction, command: SettleWalk) -> Counter[str]:
    """Report what a page shows: jobs without a record, and second jobs of an operation."""
    provider = command.walk.provider
    owned = _owned(tx, provider, [item.remote_job_id for item in command.items])
    named = _named(tx, provider, [item.reference for item in command.items if item.reference])
    new: Counter[str] = Counter()
    for item in command.items:
        if item.remote_job_id in owned:
            continue
        operation = named.get(item.reference)
        if operation is None:
            new.update(_report(tx, command, Found.LEAK, item, ""))
        elif operation.remote_job_id is not None:
            new.update(_report(tx, command, Found.DUPLICATE, item, operation.id))
        elif operation.state in _ENDED:  # it ended without a job, and here is one
            new.update(_report(tx, command, Found.LEAK, item, operation.id))
        # else its recovery is under way, and finds this job by itself
    return new


def _report(tx: Transaction, command: SettleWalk, kind: Found, item: Listed, operation: str, *, old: bool = False) -> Counter[str]:
    """Write one finding down, or that it is still there; count it once, when it is old enough to be true."""
    provider, now = command.walk.provider, command.now
    same = (_f.provider == provider) & (_f.kind == str(kind)) & (_f.remote_job_id == item.remote_job_id)
    row = tx.connection.execute(sa.select(remote_findings).where(same).with_for_update()).one_or_none()
    known = row is not None and row.resolved_at is None
    first = row.first_at if row is not None and known else now
    confirmed = row.confirmed_at if row is not None and known else None
    since = first if item.made_at is None else min(item.made_at, first)
    fresh = confirmed is None and (old or since <= now - command.grace)
    values = {"operation": operation, "made_at": item.made_at, "first_at": first, "last_at": now, "resolved_at": None}
    values["confirmed_at"] = now if fresh else confirmed
    if row is not None:
        tx.connection.execute(sa.update(remote_findings).where(same).values(values))
    elif _open(tx, provider, kind) < MAX_OPEN:
        key = {"provider": provider, "kind": str(kind), "remote_job_id": item.remote_job_id}
        tx.connection.execute(sa.insert(remote_findings), {**key, **values})
    else:
        return Counter({"beyond_bound": 1})
    return Counter({str(kind): 1}) if fresh else Counter()


def _missing(tx: Transaction, command: SettleWalk, began_at: Micros, since: Micros) -> Counter[str]:
    """Report records whose job the list did not show although it reached back far enough, and the walk began late enough.

    A list that was walked from `since` on only shows jobs made after it: an adopted job may be older than its record.
    """
    provider = command.walk.provider
    listed = sa.exists().where(remote_seen.c.provider == provider, remote_seen.c.remote_job_id == _o.remote_job_id)
    reach = (_o.created_at >= since) & (_o.mode != str(Mode.ADOPT)) if since > 0 else sa.true()
    query = (
        sa.select(_o.id, _o.remote_job_id)
        .where(
            _o.provider == provider,
            _o.remote_job_id.is_not(None),
            _o.state.not_in(_ENDED),
            _o.accepted_at <= began_at - command.grace,
            reach,
            _o.action.in_(command.actions) if command.actions else sa.true(),
            ~listed,
        )
        .order_by(_o.id)
        .limit(MAX_OPEN)
    )
    new: Counter[str] = Counter()
    for row in tx.connection.execute(query).all():
        new.update(_report(tx, command, Found.MISSING, Listed(remote_job_id=row.remote_job_id), row.id, old=True))
    return new


def _resolve(tx: Transaction, provider: str, actions: tuple[str, ...], now: Micros) -> None:
    """Close findings that are none any more: the job has an owner, is listed again, or its operation has ended or is of no listed kind."""
    owned = sa.exists().where(_j.provider == provider, _j.remote_job_id == _f.remote_job_id, _j.operation.is_not(None))
    listed = sa.exists().where(remote_seen.c.provider == provider, remote_seen.c.remote_job_id == _f.remote_job_id)
    other = _o.action.not_in(actions) if actions else sa.false()
    ended = sa.exists().where(_o.id == _f.operation, _o.state.in_(_ENDED) | other)
    missing = _f.kind == str(Found.MISSING)
    gone = (~missing & owned) | (missing & (listed | ended))
    here = (_f.provider == provider) & _f.resolved_at.is_(None)
    tx.connection.execute(sa.update(remote_findings).where(here & gone).values(resolved_at=now))
    forgotten = (_f.provider == provider) & (_f.resolved_at < now - KEPT_SECONDS * SECOND)
    tx.connection.execute(sa.delete(remote_findings).where(forgotten))


def _owned(tx: Transaction, provider: str, jobs: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for start in range(0, len(jobs), _CHUNK):
        some = jobs[start : start + _CHUNK]
        query = sa.select(_j.remote_job_id).where(_j.provider == provider, _j.remote_job_id.in_(some), _j.operation.is_not(None))
        found.update(tx.connection.execute(query).scalars())
    return found


def _named(tx: Transaction, provider: str, references: Sequence[str]) -> dict[str, Any]:
    """Return the operations that these echoes name, by id or by token."""
    found: dict[str, Any] = {}
    for start in range(0, len(references), _CHUNK):
        some = references[start : start + _CHUNK]
        query = sa.select(_o.id, _o.idempotency_token, _o.remote_job_id, _o.state)
        for row in tx.connection.execute(query.where(_o.provider == provider, _o.id.in_(some) | _o.idempotency_token.in_(some))):
            found[row.id] = found[row.idempotency_token] = row
    return found


def _open(tx: Transaction, provider: str, kind: Found) -> int:
    query = sa.select(sa.func.count()).where(_f.provider == provider, _f.kind == str(kind), _f.resolved_at.is_(None))
    return int(tx.connection.execute(query).scalar_one())


def _insert(tx: Transaction, table: sa.Table) -> Any:
    return (postgresql.insert if tx.postgres else sqlite.insert)(table)


# --- queries


def walk_is_due(view: View, providers: Sequence[str], now: Micros) -> bool:
    """Return whether a walk may be claimed: looked at often, so that nothing is written where nothing is due."""
    rows = view.connection.execute(sa.select(_w.provider, _w.due_at).where(_w.provider.in_(providers))).all()
    return len(rows) < len(providers) or any(row.due_at <= now for row in rows)


def walks(view: View) -> list[Mapping[str, Any]]:
    """Return where each provider's sweep stands."""
    return [dict(row) for row in view.connection.execute(sa.select(remote_walks).order_by(_w.provider)).mappings()]


def findings(view: View, provider: str | None, limit: int, *, resolved: bool = False) -> list[Mapping[str, Any]]:
    """Return confirmed findings, the newest first; `resolved`: also those that are none any more."""
    query = sa.select(remote_findings).where(_f.confirmed_at.is_not(None))
    if provider is not None:
        query = query.where(_f.provider == provider)
    if not resolved:
        query = query.where(_f.resolved_at.is_(None))
    query = query.order_by(_f.first_at.desc(), _f.provider, _f.kind, _f.remote_job_id).limit(max(0, min(limit, 10_000)))
    return [dict(row) for row in view.connection.execute(query).mappings()]


def open_findings(view: View, provider: str) -> dict[str, int]:
    """Return how many confirmed findings of a provider are unresolved, by kind."""
    query = sa.select(_f.kind, sa.func.count()).where(_f.provider == provider, _f.confirmed_at.is_not(None), _f.resolved_at.is_(None))
    return {str(kind): int(count) for kind, count in view.connection.execute(query.group_by(_f.kind))}

"""Create, find and read operations (MISSION A, G)."""

import asyncio
import re
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

from gateway import cursors, fields, intake, view
from gateway.call import Answer, Call
from gateway.problems import ProblemError
from ledger import queries
from lifecycle.public import public_status, settled
from schemas.api import CreateBody
from schemas.commands import Register
from schemas.operation import Micros, Operation
from schemas.states import FINAL, PARKED, PublicStatus, State

_WAIT: Final = re.compile(r"(?:^|[,;])\s*wait\s*=\s*\"?(\d{1,6})\"?\s*(?=$|[,;])", re.IGNORECASE)
_ID: Final = re.compile(r"[!-~]{1,100}")
W = TypeVar("W", PublicStatus, State)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ROUNDS: Final = 5
_FALLBACK_SECONDS: Final = 5.0  # a change in another process whose wake-up got lost is seen after this

SHOWN_IN: Final[dict[PublicStatus, frozenset[State]]] = {
    PublicStatus.AWAITING_APPROVAL: frozenset({State.AWAITING_APPROVAL}),
    PublicStatus.QUEUED: frozenset({State.CREATE_PENDING, State.ACCEPTED, State.OBSERVING}),
    PublicStatus.UNCONFIRMED: frozenset({State.CREATE_PENDING, State.AWAITING_OUTCOME, State.CREATE_UNKNOWN}),
    PublicStatus.RUNNING: frozenset({State.ACCEPTED, State.OBSERVING, State.RESULT_COLLECTING}),
    PublicStatus.CANCELLING: frozenset(
        {State.CREATE_PENDING, State.AWAITING_OUTCOME, State.CREATE_UNKNOWN, State.CANCEL_REQUESTED, State.CANCELLING}
    ),
    PublicStatus.ATTENTION: PARKED,
    PublicStatus.SUCCEEDED: frozenset({State.SUCCEEDED}),
    PublicStatus.FAILED: frozenset({State.FAILED}),
    PublicStatus.CANCELLED: frozenset({State.CANCELLED, State.WITHDRAWN}),
    PublicStatus.ABANDONED: frozenset({State.ABANDONED}),
}
"""Public status -> the states in which it can be shown: what the listing asks the record for."""


def not_found() -> ProblemError:
    """Return the one answer for an id that does not exist and for somebody else's (B144)."""
    return ProblemError("not_found", "there is no operation with this id for this key")


def identity(call: Call) -> str:
    """Return the id in the path. One that could never be ours is unknown: PostgreSQL would not even look for a NUL."""
    found = call.path["id"]
    if not _ID.fullmatch(found):
        raise not_found()
    return found


async def create(call: Call) -> Answer:
    """POST /v1/operations: record the intent; the same key and request give the same operation."""
    key = intake.idempotency_key(call.headers.get("idempotency-key"))
    body = fields.parse(CreateBody, call.body)
    intent = intake.intent(call.gate, call.principal, intake.Asked(body=body, key=key))
    now = call.gate.world.now()
    registered = await call.gate.ledger.write(Register(intent=intent, now=now))
    op = registered.operation
    match registered.outcome:
        case "key_reused":
            raise ProblemError("idempotency_key_reused", "a new intent needs a new key; a retry must repeat the same request")
        case "key_expired":
            raise ProblemError("idempotency_key_expired", "this key was used; what came of it is no longer kept")
        case "job_taken":
            raise ProblemError("job_taken", "this job id cannot be registered by this owner")
        case "unknown_link":
            name = "supersedes" if intent.supersedes is not None else "resumes"
            raise fields.invalid((name, "there is no such operation for this key and provider"))
        case "already_superseded":
            raise ProblemError("already_superseded", "it has a successor: supersede that one instead", operation=intent.supersedes)
        case "not_final":
            raise ProblemError(
                "not_final", "only an operation that has ended is resumed: cancel or decide it first", operation=intent.resumes
            )
        case "created" | "replayed":
            assert op is not None
    replayed = registered.outcome == "replayed"
    call.gate.count("operations.registered", {"provider": op.provider, "outcome": registered.outcome})
    headers = [("Location", f"/v1/operations/{op.id}"), *view.polling_headers(op, now)]
    if replayed:
        headers.append(("Idempotency-Replayed", "true"))
    return Answer(status=200 if replayed else 202, content=view.operation(op, call.gate.settings.retention), headers=tuple(headers))


async def read(call: Call) -> Answer:
    """GET /v1/operations/{id}: the operation; 304 when unchanged; with `Prefer: wait=N` after the next change."""
    known = call.headers.get("if-none-match")
    wait = _wait(call)
    if wait == 0:
        op = await load(call)
    else:
        op = await _after_change(call, known, wait)
    headers = view.polling_headers(op, call.gate.world.now())
    if wait:
        headers.append(("Preference-Applied", f"wait={wait}"))
    if known is not None and matches(known, view.etag(op)):
        return Answer(status=304, headers=tuple(headers))
    return Answer(content=view.operation(op, call.gate.settings.retention), headers=tuple(headers))


async def load(call: Call) -> Operation:
    """Return the operation named in the path. Raises the one 404 for unknown and foreign ids, 410 for one's own that has expired."""
    op: Operation | None = await call.gate.ledger.read(queries.operation, identity(call), call.principal.owner)
    if op is None:
        stone = await call.gate.ledger.read(queries.tombstone, identity(call), call.principal.owner)
        if stone is None:
            raise not_found()
        ended = view.time_text(stone["ended_at"])
        raise ProblemError("operation_expired", f"it is {stone['state']} since {ended}", extra={"state": stone["state"]})
    return op


def matches(header: str, tag: str) -> bool:
    """Return whether an If-None-Match header names the tag (weak comparison, RFC 9110 section 13.1.2)."""
    named = [item.strip().removeprefix("W/") for item in header.split(",")]
    return "*" in named or tag in named


def _wait(call: Call) -> int:
    found = _WAIT.search(call.headers.get("prefer", ""))
    return min(int(found[1]), call.gate.settings.web.max_wait_seconds) if found else 0


async def _after_change(call: Call, known: str | None, wait: int) -> Operation:
    """Return the operation as soon as it differs from what the caller knows, at the latest after `wait` seconds."""
    operation, closing = identity(call), call.gate.closing
    changed = call.watchers.add(operation)
    watched = [asyncio.ensure_future(_gone(call)), asyncio.ensure_future(closing.wait())]
    try:
        op = await load(call)
        if known is None:
            if settled(op):
                return op
            known = view.etag(op)
        call.wait_longer(wait)
        loop = asyncio.get_running_loop()
        until = loop.time() + wait
        while matches(known, view.etag(op)) and op.state not in FINAL:
            left = until - loop.time()
            if left <= 0 or any(task.done() for task in watched):
                break
            changed.clear()
            woken = asyncio.ensure_future(changed.wait())
            try:
                await asyncio.wait([woken, *watched], timeout=min(left, _FALLBACK_SECONDS), return_when=asyncio.FIRST_COMPLETED)
            finally:
                woken.cancel()
            op = await load(call)
        return op
    finally:
        for task in watched:
            task.cancel()
        call.watchers.remove(operation, changed)


async def _gone(call: Call) -> None:
    """Return when the caller has closed the connection."""
    while (await call.receive())["type"] != "http.disconnect":
        pass


async def find(call: Call) -> Answer:
    """GET /v1/operations: this owner's operations, newest first, by filter, in keyset pages."""
    asked = call.parameters(
        "status", "state", "provider", "reference", "idempotency_key", "remote_job_id", "created_after", "created_before", "cursor", "limit"
    )
    cursor, limit = asked.pop("cursor", None), cursors.limit(asked.pop("limit", None))
    bound = cursors.bind("operations", call.principal.owner, asked)
    status, state = _word(PublicStatus, "status", asked.get("status")), _word(State, "state", asked.get("state"))
    states = None if state is None else frozenset({state})
    if status is not None:
        states = SHOWN_IN[status] if states is None else states & SHOWN_IN[status]
    wanted = queries.OperationFilter(
        owner=call.principal.owner,
        states=states,
        provider=asked.get("provider"),
        reference=asked.get("reference"),
        idempotency_key=asked.get("idempotency_key"),
        remote_job_id=asked.get("remote_job_id"),
        created_after=_time("created_after", asked.get("created_after")),
        created_before=_time("created_before", asked.get("created_before")),
    )
    unreadable: list[str] = []
    shown, place = await _page(call, wanted, status, limit, cursors.read(bound, cursor, (int, str)), unreadable=unreadable)
    following = None if place is None else cursors.write(bound, place)
    listed = [view.operation(op, call.gate.settings.retention) for op in shown]
    return Answer(content={"operations": listed, "unreadable": unreadable, "next_cursor": following})


async def _page(
    call: Call,
    wanted: queries.OperationFilter,
    status: PublicStatus | None,
    limit: int,
    after: tuple[int, str] | None,
    *,
    unreadable: list[str],
) -> tuple[list[Operation], tuple[int, str] | None]:
    """Return up to `limit` operations and the place to go on from, None at the end.

    The public status is a function of more than the state, so rows that show another one are passed over here; after
    a few rounds the page is given as short as it is.
    """
    shown: list[Operation] = []
    for _ in range(_ROUNDS):
        found = await call.gate.ledger.read(queries.operations, wanted, limit + 1, after)
        unreadable += (name for name in found.unreadable if name not in unreadable)
        for op in found[:limit]:
            after = (op.created_at, op.id)
            if status is None or public_status(op) == status:
                shown.append(op)
                if len(shown) == limit:
                    return shown, after if op is not found[-1] else None
        if len(found) <= limit:
            return shown, None
    return shown, after


async def history(call: Call) -> Answer:
    """GET /v1/operations/{id}/history: what happened and why, oldest first, in keyset pages."""
    asked = call.parameters("cursor", "limit")
    op = await load(call)
    limit = cursors.limit(asked.get("limit"), default=100, most=500)
    bound = cursors.bind("history", op.id)
    after = cursors.read(bound, asked.get("cursor"), (int,))
    rows = await call.gate.ledger.read(queries.history, op.id, after[0] if after else 0, limit + 1)
    shown = rows[:limit]
    following = cursors.write(bound, (shown[-1]["seq"],)) if len(rows) > limit else None
    return Answer(content={"operation": op.id, "history": [view.history_row(row) for row in shown], "next_cursor": following})


def _word(kind: type[W], name: str, text: str | None) -> W | None:
    if text is None:
        return None
    try:
        return kind(text)
    except ValueError:
        raise ProblemError("invalid_request", f"{name} must be one of {', '.join(kind)}") from None


def _time(name: str, text: str | None) -> Micros | None:
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise ProblemError("invalid_request", f"{name} must be an RFC 3339 time, as in 2026-01-31T12:00:00Z")
    return (found - _EPOCH) // timedelta(microseconds=1)

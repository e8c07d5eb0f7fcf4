"""The faults as one table, and the grammar that selects them: `name` or `name=value`, separated by commas.

Later layers win: the options, then the create body's field `simulate`, then the request header `X-Simulate`.
`name=off` takes a fault of an earlier layer away. docs/simulator.md shows this table; a test compares the two.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

HEADER = "x-simulate"
MAX_SELECTED = 64
MAX_VALUE = 1_000_000_000.0

Scope = Literal["life", "create", "token", "read", "cancel", "callback", "end", "result"]
Unit = Literal["flag", "seconds", "count", "status"]
Faults = Mapping[str, float]


class FaultError(ValueError):
    """The selection names an unknown fault or a bad value; the message says which and lists what exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One row: when it acts, the unit of its value, the value it has when none is given, and what it does."""

    scope: Scope
    unit: Unit
    default: float
    does: str


def _fault(scope: Scope, unit: Unit, default: float, does: str) -> Fault:
    return Fault(scope=scope, unit=unit, default=default, does=does)


FAULTS: Mapping[str, Fault] = {
    "queue": _fault("life", "seconds", 0, "the job waits this long before it runs (instead of the option)"),
    "run": _fault("life", "seconds", 0, "the job runs this long (instead of the option)"),
    "finalize": _fault("life", "seconds", 0, "batches: `finalizing` lasts this long (instead of the option)"),
    "hide": _fault("life", "seconds", 5, "the job answers 404 and is not listed for this long after its create"),
    "drop_create_response": _fault("create", "flag", 1, "accept the job, then cut the connection without an answer"),
    "delay_create_response": _fault("create", "seconds", 5, "accept the job, answer this much later"),
    "create_status": _fault("create", "status", 503, "answer this status and accept nothing"),
    "accept_anyway": _fault("create", "flag", 1, "with `create_status`: accept the job nevertheless"),
    "create_500_though_done": _fault("create", "flag", 1, "accept the job, answer 500"),
    "reject": _fault("create", "status", 422, "refuse definitely with this status"),
    "sync_success": _fault("create", "flag", 1, "answer 200 with the finished job"),
    "early_callback": _fault("create", "flag", 1, "send a callback, and only after its delivery answer the create"),
    "create_repeats": _fault("create", "count", 1, "the create faults hit the first N requests of a token (or of a body, without token)"),
    "no_idempotency": _fault("token", "flag", 1, "reports: ignore `Idempotency-Key`"),
    "forget_tokens": _fault("token", "seconds", 0, "reports: forget a token this long after its first use"),
    "other_job_id": _fault("token", "flag", 1, "reports: a resend of the token makes another job and answers with its id"),
    "rate_limit": _fault("read", "count", 1, "the next N reads are 429 with `Retry-After`"),
    "html_200": _fault("read", "count", 1, "the next N reads are an HTML page with status 200"),
    "cut_body": _fault("read", "count", 1, "the next N reads promise more bytes than they send, then close"),
    "hang_reads": _fault("read", "count", 1, "the next N reads are never answered"),
    "refuse_cancel": _fault("cancel", "flag", 1, "cancel is refused with 409"),
    "slow_cancel": _fault("cancel", "seconds", 30, "`cancelling` lasts this long (instead of the option)"),
    "ignore_cancel": _fault("cancel", "flag", 1, "cancel is answered as taken, and nothing happens"),
    "complete_during_cancel": _fault("cancel", "flag", 1, "cancel is taken, and the job ends by itself nevertheless"),
    "drop_cancel_response": _fault("cancel", "count", 1, "take the next N cancels, then cut the connection without an answer"),
    "delay_callbacks": _fault("callback", "seconds", 5, "every callback comes this much later"),
    "duplicate_callbacks": _fault("callback", "count", 1, "N more copies at the same time, and one more later; same event id"),
    "reorder_callbacks": _fault("callback", "flag", 1, "the callback about the start comes after the one about the end"),
    "lose_callbacks": _fault("callback", "flag", 1, "no callback is sent"),
    "forge_signature": _fault("callback", "flag", 1, "callbacks are signed with a wrong secret"),
    "stale_signature": _fault("callback", "seconds", 3_600, "callbacks are signed genuinely, with a time this much in the past"),
    "lie_then_correct": _fault("callback", "flag", 1, "a callback claims success when the job starts; the one at its end tells the truth"),
    "fail": _fault("end", "flag", 1, "the job ends as failed"),
    "expire": _fault("end", "flag", 1, "the job ends as expired, half done"),
    "wrong_checksum": _fault("result", "flag", 1, "reports: the status names a SHA-256 that the result does not have"),
    "truncated_result": _fault("result", "flag", 1, "the result is whole for HTTP, and its end is missing"),
    "cut_result": _fault("result", "count", 1, "the next N downloads promise more bytes than they send, then close"),
    "html_result": _fault("result", "flag", 1, "the result is an HTML page with status 200"),
    "one_shot_result": _fault("result", "flag", 1, "reports: reading the result consumes it; every later read is 410"),
    "expire_result": _fault("result", "flag", 1, "the result is gone: 410"),
}  # fmt: skip

COUNTED = frozenset(name for name, fault in FAULTS.items() if fault.unit == "count" and fault.scope in {"read", "cancel", "result"})
"""Faults that are used up, one by one, by the requests which they hit."""

_RANGES: Mapping[Unit, tuple[float, float]] = {
    "flag": (1, 1),
    "seconds": (0, MAX_VALUE),
    "count": (0, 1_000),
    "status": (400, 599),
}


def parse_header(text: str) -> dict[str, float | None]:
    """Return the faults that a header or command-line text selects; None stands for `off`. Raises FaultError."""
    return parse(part for part in text.split(",") if part.strip())


def parse_field(value: Any) -> dict[str, float | None]:
    """Return the faults of a body's field `simulate`: a list of texts, absent means none. Raises FaultError."""
    match value:
        case None:
            return {}
        case list() if all(isinstance(item, str) for item in value):
            return parse(value)
        case _:
            raise FaultError("`simulate` must be a list of texts")


def parse(parts: Iterable[str]) -> dict[str, float | None]:
    """Return the faults selected by `parts`, each `name` or `name=value`. Raises FaultError."""
    chosen: dict[str, float | None] = {}
    for count, part in enumerate(parts):
        if count >= MAX_SELECTED:
            raise FaultError(f"more than {MAX_SELECTED} faults at once")
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name not in FAULTS:
            raise FaultError(f"unknown fault {name[:60]!r}; known: {', '.join(FAULTS)}")
        chosen[name] = _value(name, value)
    return chosen


def merge(*layers: Mapping[str, float | None]) -> dict[str, float]:
    """Return the layers as one; the later wins, and `off` takes away."""
    merged: dict[str, float | None] = {}
    for layer in layers:
        merged.update(layer)
    return {name: value for name, value in merged.items() if value is not None}


def _value(name: str, text: str) -> float | None:
    fault = FAULTS[name]
    if not text:
        return fault.default
    if text == "off":
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    low, high = _RANGES[fault.unit]
    whole = fault.unit == "seconds" or value.is_integer()
    if not (low <= value <= high and whole):
        raise FaultError(f"{name}: {text[:20]!r} is not a value of unit {fault.unit} from {low:g} to {high:g}, nor `off`")
    return value

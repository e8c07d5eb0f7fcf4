"""The signed time of a delivery: where it stands, how it is read, and whether it lies in the contract's window (B006, B007)."""

from typing import Final

from providers.verification.facts import Facts, RefusalError, scalar
from providers.verification.times import END_OF_TIME, parse_time
from schemas.contract import TimestampRule
from schemas.delivery import Reason
from schemas.operation import SECOND, Micros

# 1973. Where any age is allowed, seconds that were read as milliseconds would pass for a delivery of January 1970.
_FLOOR_MS: Final[Micros] = 100_000_000_000_000


def timestamp_text(rule: TimestampRule, facts: Facts, in_signature: bytes | None) -> bytes:
    """Return the text of the signed time as received. Raises RefusalError where it is missing or there twice."""
    match rule.place:
        case "sig":
            text = in_signature
        case "json":
            text = scalar(facts.json_at(tuple(rule.name.split(".")))) or None
        case _:
            values = facts.headers(rule.name.lower().encode())
            if len(values) > 1:
                raise RefusalError(Reason.MALFORMED_TIMESTAMP, f"header {rule.name} is there more than once")
            text = values[0] if values else None
    if not text:
        raise RefusalError(Reason.MISSING_TIMESTAMP, "the signed timestamp is not there")
    return text


def parsed(rule: TimestampRule, text: bytes) -> Micros:
    """Return the time. Raises RefusalError where the text is not exactly of the contract's unit."""
    signed_at = parse_time(text, rule.unit)
    if signed_at is None or (rule.future_seconds is None and signed_at >= END_OF_TIME):
        raise RefusalError(Reason.MALFORMED_TIMESTAMP, f"the signed timestamp is not {rule.unit}")
    earliest = (_FLOOR_MS if rule.unit == "ms" and rule.past_seconds is None else 0) if rule.earliest is None else rule.earliest * SECOND
    if signed_at < earliest:
        raise RefusalError(
            Reason.MALFORMED_TIMESTAMP, f"the signed timestamp lies long before the provider's first one: is it {rule.unit}?"
        )
    return signed_at


def window(past_seconds: int | None, future_seconds: int | None, signed_at: Micros, now: Micros) -> tuple[Reason, str] | None:
    """Return why a time lies outside the window, in which direction and by how much; None: inside. None: that side is open."""
    age = now - signed_at
    if past_seconds is not None and age > past_seconds * SECOND:
        return Reason.TOO_OLD, f"signed {age // SECOND} s ago; {past_seconds} s are allowed"
    if future_seconds is not None and -age > future_seconds * SECOND:
        return Reason.IN_FUTURE, f"signed {-age // SECOND} s in the future; {future_seconds} s are allowed (clock or unit?)"
    return None

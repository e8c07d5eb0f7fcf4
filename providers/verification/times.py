"""Timestamps as providers write them, read strictly, in microseconds UTC. The unit is the contract's, never guessed (B007)."""

import re
from datetime import UTC, datetime, timedelta, timezone
from math import isfinite
from typing import Any, Final

from schemas.operation import Micros

UNITS: Final = ("s", "ms", "iso8601", "rfc1123")
END_OF_TIME: Final[Micros] = 253_402_300_800_000_000  # year 10000: later times are a mistaken unit, and no database column
_DIGITS = re.compile(rb"[0-9]{1,16}")
_DECIMAL = re.compile(r"[0-9]{1,16}(?:\.[0-9]{1,20})?")
_ISO = re.compile(rb"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d{1,12}))?(?:([Zz])|([+-])(\d\d):?(\d\d))")
_RFC1123 = re.compile(rb"[A-Z][a-z]{2}, (\d\d) ([A-Z][a-z]{2}) (\d{4}) (\d\d):(\d\d):(\d\d) GMT")
_MONTHS: Final = (b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def parse_time(text: bytes, unit: str) -> Micros | None:
    """Return the time of a signed timestamp, None where the text is not exactly of its unit.

    `s` and `ms` are ASCII digits, `iso8601` is RFC 3339 (with or without colon in the offset), `rfc1123` an HTTP date.
    """
    match unit:
        case "s":
            return int(text) * 1_000_000 if _DIGITS.fullmatch(text) else None
        case "ms":
            return int(text) * 1_000 if _DIGITS.fullmatch(text) else None
        case "iso8601":
            return _iso(text)
        case _:
            return _http_date(text)


def event_time(value: Any, unit: str) -> Micros | None:
    """Return the provider's own time of an event. It is information only, so fractions and floats are taken too."""
    micros: Micros | None = None
    match value:
        case bool():
            return None
        case str() if unit in {"s", "ms"}:
            if _DECIMAL.fullmatch(value):
                whole, _, fraction = value.partition(".")
                micros = int(whole) * (1_000_000 if unit == "s" else 1_000)
                micros += int(fraction[:6].ljust(6, "0")) // (1 if unit == "s" else 1_000)
        case str():
            micros = parse_time(value.encode("utf-8", "replace")[:100], unit)
        case int() if unit in {"s", "ms"}:
            micros = value * (1_000_000 if unit == "s" else 1_000)
        case float() if unit in {"s", "ms"} and isfinite(value) and abs(value) < END_OF_TIME:
            micros = int(value * (1_000_000 if unit == "s" else 1_000))
        case _:
            return None
    return micros if micros is not None and 0 <= micros < END_OF_TIME else None


def _iso(text: bytes) -> Micros | None:
    found = _ISO.fullmatch(text)
    if not found:
        return None
    year, month, day, hour, minute, second = (int(found[index]) for index in range(1, 7))
    fraction = int((found[7] or b"0")[:6].ljust(6, b"0"))
    try:
        zone = UTC if found[8] else timezone((1 if found[9] == b"+" else -1) * timedelta(hours=int(found[10]), minutes=int(found[11])))
        moment = datetime(year, month, day, hour, minute, second, fraction, tzinfo=zone)
        return (moment - _EPOCH) // _MICROSECOND
    except (ValueError, OverflowError):
        return None


def _http_date(text: bytes) -> Micros | None:
    found = _RFC1123.fullmatch(text)
    if not found or found[2] not in _MONTHS:
        return None
    try:
        month = _MONTHS.index(found[2]) + 1
        moment = datetime(int(found[3]), month, int(found[1]), int(found[4]), int(found[5]), int(found[6]), tzinfo=UTC)
    except ValueError:
        return None
    return (moment - _EPOCH) // _MICROSECOND

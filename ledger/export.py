"""An export of all histories that verifies offline: JSON lines, without people's words (their hashes are in the chain, MISSION D5).

A head line with the checkpoints' public key, a line for each checkpoint with its heads, a line for each operation with its rows,
and an end line with their number. Only what a checkpoint signs is proven; the end line is there against a torn file.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any, Final, TextIO

import sqlalchemy as sa

from ledger.audit import Fault
from ledger.checkpoints import heads_of, rows_of, signed_faults
from ledger.history import link
from ledger.tables import history
from ledger.transaction import View

FORM: Final = "gateway-export-1"
PAGE: Final = 200  # operations read in one transaction
MAX_LINE: Final = 64 << 20
_BYTES: Final = ("changes", "text_hash", "prev_hash", "hash")


def write(file: TextIO, read: Callable[..., Any], tell: Callable[[int], None]) -> int:
    """Write the export; `read` is the record's `read_now`: each page is a transaction of its own (B117). Returns how many operations."""
    checkpoints, number = [], 0
    _line(file, {"form": FORM})
    while page := read(rows_of, number):
        for row in page:
            heads = [[operation, seq, value.hex()] for operation, seq, value in read(heads_of, row["number"])]
            _line(file, {"checkpoint": {name: _text(value) for name, value in row.items()}, "heads": heads})
        checkpoints += page
        number = page[-1]["number"]
    after, count = "", 0
    while rows := read(_page, after):
        for operation, mine in rows.items():
            _line(file, {"operation": operation, "rows": mine})
        after, count = max(rows), count + len(rows)
        tell(count)
    _line(file, {"end": count})
    return count


def _line(file: TextIO, value: Any) -> None:
    file.write(json.dumps(value, separators=(",", ":"), ensure_ascii=True) + "\n")


def _text(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


def _page(view: View, after: str) -> dict[str, list[dict[str, Any]]]:
    c = history.c
    ids = sa.select(c.operation).where(c.operation > after).group_by(c.operation).order_by(c.operation).limit(PAGE)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in view.connection.execute(ids).scalars()}
    query = sa.select(history).where(c.operation.in_(found)).order_by(c.operation, c.seq)
    for row in view.connection.execute(query).mappings() if found else ():
        found[row["operation"]].append({name: _text(value) for name, value in row.items() if name != "operation"})
    return found


def verify_lines(lines: Iterator[str], public: bytes | None) -> Iterator[Fault | int]:
    """Verify an export without any database. Yields faults, and the number of operations done so far. Total: a torn line is a fault."""
    signed: dict[str, list[tuple[int, str]]] = {}
    before: dict[str, Any] | None = None
    done, ended = 0, False
    for number, line in enumerate(lines, start=1):
        try:
            value = json.loads(line)
            if number == 1:
                if value != {"form": FORM}:
                    yield Fault(operation="", seq=0, fault="this is no export, or one of another version")
                    return
            elif "checkpoint" in value:
                row = _checkpoint(value["checkpoint"])
                heads = [(operation, seq, bytes.fromhex(digest)) for operation, seq, digest in value["heads"]]
                for fault in signed_faults(row, before, heads, public):
                    yield Fault(operation="", seq=0, fault=fault)
                for operation, seq, digest in value["heads"]:
                    signed.setdefault(operation, []).append((seq, digest))
                before = row
            elif "operation" in value:
                yield from _history(value["operation"], value["rows"], signed.pop(value["operation"], []))
                done += 1
                yield done
            else:
                ended = value == {"end": done}
        except (ValueError, KeyError, TypeError, AttributeError):
            yield Fault(operation="", seq=0, fault=f"line {number} cannot be read")
            return
    if before is None:
        yield Fault(operation="", seq=0, fault="no checkpoint signs anything here: make one by gateway audit checkpoint")
    if not ended:
        yield Fault(operation="", seq=0, fault="the export ends before its end line")
    for operation, gone in sorted(signed.items()):
        yield Fault(operation=operation, seq=gone[-1][0], fault="a checkpoint signed this history, and it is gone")


def _checkpoint(value: dict[str, Any]) -> dict[str, Any]:
    binary = ("heads", "previous", "digest", "public", "signature")
    return {name: bytes.fromhex(part) if name in binary else part for name, part in value.items()}


def _history(operation: str, rows: list[dict[str, Any]], signed: list[tuple[int, str]]) -> Iterator[Fault]:
    head, state = b"", ""
    known: dict[int, str] = {}
    for expected, row in enumerate(rows, start=1):
        plain: dict[str, Any] = {name: bytes.fromhex(value) if name in _BYTES else value for name, value in row.items()}
        if plain["seq"] != expected:
            yield Fault(operation=operation, seq=expected, fault="missing row")
            return
        if plain["prev_hash"] != head or link({**plain, "operation": operation}, head) != plain["hash"] or plain["from_state"] != state:
            yield Fault(operation=operation, seq=expected, fault="changed row")
            return
        head, state = plain["hash"], plain["to_state"]
        known[expected] = row["hash"]
    for seq, digest in signed:
        if known.get(seq) != digest:
            yield Fault(operation=operation, seq=seq, fault="the row that a checkpoint signed is gone or changed")

"""What is inside a result: its records counted, its items' outcomes told, the caller's schema held against it (MISSION F2, F5).

A `Scan` is fed the bytes of one stored file; all scans of one result share a `Tally`. Everything is total: a hostile file has a
verdict, not an exception. Codes of a verdict: truncated, unreadable, unreadable_records, inflated_too_large,
too_large_to_check, json_schema, items_missing, items_failed, no_item_succeeded, records.
"""

import zlib
from dataclasses import dataclass, field
from typing import Any, Final

from providers.answers import explained
from providers.json_schema import Schema
from providers.places import as_text, compile_place
from providers.records import Reader, Record, reader
from schemas.contract import ItemsRule, ResultFile, ResultRule
from schemas.evidence import Items
from schemas.jsontext import UnreadableJsonError, parse
from schemas.operation import Expect

MAX_REFS: Final = 20  # names of failed items that are kept; the files have them all
MAX_TRACKED: Final = 500_000  # items whose names are remembered, to know one that comes twice: some 40 MB
_MAX_REF: Final = 100  # characters
_HUNDRED: Final = 3  # digits of an HTTP status
_INFLATE_BYTES: Final = 1_048_576
_LINES: Final = frozenset({f"application/{name}" for name in ("jsonl", "jsonlines", "x-jsonlines", "ndjson", "x-ndjson")})


@dataclass(slots=True)
class Tally:
    """What the files of one result held."""

    counted: bool = False  # some file has an items rule
    looked: bool = False  # some file was looked into
    records: int = 0
    succeeded: int = 0
    failed: int = 0
    duplicates: int = 0
    unreadable: int = 0
    refs: list[str] = field(default_factory=list)
    first_error: str = ""
    faults: list[tuple[str, str]] = field(default_factory=list)  # (code, message) of a whole file
    schema_faults: int = 0
    schema_fault: str = ""
    _seen: set[int] = field(default_factory=set, repr=False)

    def items(self, total: int | None) -> Items | None:
        """Return the outcomes; `total` is how many items there must be, where that is known."""
        if not self.counted:
            return None
        return Items(
            succeeded=self.succeeded,
            failed=self.failed,
            missing=max(0, total - self.succeeded - self.failed) if total is not None else 0,
            duplicates=self.duplicates,
            unreadable=self.unreadable,
            failed_refs=tuple(self.refs),
        )

    def fail(self, name: str, error: str = "") -> None:
        """Count a failed item."""
        self.failed += 1
        if len(self.refs) < MAX_REFS:
            self.refs.append(name)
        self.first_error = self.first_error or error

    def new(self, name: str) -> bool:
        """Return whether no record has told of this item yet."""
        mark = hash(name)
        if mark in self._seen:
            self.duplicates += 1
            return False
        if len(self._seen) < MAX_TRACKED:
            self._seen.add(mark)
        return True


class Scan:
    """Looks into one file. `schema` is the caller's, for the main file; `media_type` decides how an opaque file is read then."""

    def __init__(self, file: ResultFile, rule: ResultRule, tally: Tally, *, schema: Schema | None, count: bool, media_type: str) -> None:
        self._file, self._rule, self._tally, self._schema = file, rule, tally, schema
        form = file.format
        self._document = False
        if form == "opaque" and (schema is not None or count):
            form = "jsonl" if media_type in _LINES else "csv" if media_type == "text/csv" and schema is None else "opaque"
            is_json = media_type == "application/json" or media_type.endswith("+json")
            self._document = form == "opaque" and (schema is not None or is_json)
        self.needed = form != "opaque" or self._document
        self._reader: Reader | None = None
        if form != "opaque":
            # Records of a file that the contract leaves opaque are counted as lines or rows, by its media type.
            shape = file if file.format == form else ResultFile(role=file.role, format=form)
            self._reader = reader(shape, rule.max_record_bytes)
        self._whole = bytearray()
        self._inflate = zlib.decompressobj(wbits=31) if file.compression == "gzip" else None
        self._inflated = 0
        self._stopped = False
        tally.counted = tally.counted or file.items is not None
        tally.looked = tally.looked or self.needed

    def feed(self, piece: bytes) -> None:
        """Take the next bytes of the file, as stored."""
        if self._stopped:
            return
        if self._inflate is None:
            self._take(piece)
            return
        data = piece
        while data and not self._stopped:
            try:
                plain = self._inflate.decompress(data, _INFLATE_BYTES)
            except zlib.error:
                self.stop("unreadable", "it is no gzip file, or a broken one")
                return
            self._inflated += len(plain)
            if self._inflated > self._rule.max_inflated_bytes:
                self.stop("inflated_too_large", f"it is more than {self._rule.max_inflated_bytes} bytes when inflated")
                return
            self._take(plain)
            data = self._inflate.unconsumed_tail
            if self._inflate.eof:
                data = self._inflate.unused_data
                if data.strip(b"\0"):  # gzip files may stand one after the other (RFC 1952 section 2.2)
                    self._inflate = zlib.decompressobj(wbits=31)
                else:
                    return

    def end(self) -> None:
        """Say that the file has ended."""
        if self._stopped:
            return
        if self._inflate is not None and not self._inflate.eof:
            self.stop("truncated", "its compressed end is missing")
        elif self._document:
            self._judge_document()
        elif self._reader is not None:
            for record in self._reader.end():
                self._record(record)
            if self._reader.cut:
                self.stop("truncated", "its last record is cut")
            elif self._reader.fault:
                self.stop("unreadable", self._reader.fault)

    def stop(self, code: str, message: str) -> None:
        """Look no further: this is wrong with the file."""
        self._stopped = True
        self._tally.faults.append((code, f"{self._file.role}: {message}"))

    def _take(self, plain: bytes) -> None:
        if self._document:
            if len(self._whole) + len(plain) > self._rule.max_record_bytes:
                self._whole.clear()
                self.stop("too_large_to_check", f"a document of more than {self._rule.max_record_bytes} bytes is not looked into")
            else:
                self._whole += plain
        elif self._reader is not None:
            for record in self._reader.feed(plain):
                self._record(record)
            if self._reader.fault:
                self.stop("truncated" if "end is missing" in self._reader.fault else "unreadable", self._reader.fault)

    def _judge_document(self) -> None:
        try:
            value = parse(bytes(self._whole))
        except UnreadableJsonError as error:
            self.stop("unreadable", f"it is no JSON document: {error}")
            return
        self._tally.records = len(value) if isinstance(value, list) else 1
        self._hold(value, len(self._whole), "the document")

    def _record(self, record: Record) -> None:
        tally, rule = self._tally, self._file.items
        name = f"line {record.number}" if self._file.role == "output" else f"{self._file.role} line {record.number}"
        if rule is None:
            tally.records += 1
            if record.problem:
                tally.unreadable += 1
                tally.refs.extend([name] if len(tally.refs) < MAX_REFS else [])
            else:
                self._hold(record.value, record.size, name)
            return
        item = "" if record.problem else as_text(self._find(rule.id, record.value), _MAX_REF)
        if not item:
            tally.records += 1
            tally.unreadable += 1
            tally.fail(name, f"a record is {record.problem.replace('_', ' ')}" if record.problem else "a record names no item")
        elif tally.new(item):
            tally.records += 1
            self._outcome(rule, item, record)

    def _outcome(self, rule: ItemsRule, item: str, record: Record) -> None:
        error = self._find(rule.error, record.value) if rule.error else None
        word = _word(self._find(rule.outcome, record.value)) if rule.outcome else ""
        if rule.failed or error not in (None, "", [], {}, False) or (rule.outcome and not _is_ok(word, rule.ok)):
            code, message = explained(error)
            self._tally.fail(item, ": ".join(part for part in (code, message) if part) or word)
            return
        self._tally.succeeded += 1
        self._hold(self._find(rule.value, record.value) if rule.value else record.value, record.size, item)

    def _hold(self, value: Any, size: int, name: str) -> None:
        if self._schema is not None and (fault := self._schema.fault(value, size)) is not None:
            self._tally.schema_faults += 1
            self._tally.schema_fault = self._tally.schema_fault or f"{name} {fault}"

    def _find(self, expression: str, value: Any) -> Any:
        if self._file.format == "csv":
            return value.get(expression) if isinstance(value, dict) else None
        return compile_place(f"body:{expression}").find(body=value) if expression else None


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return as_text(value, _MAX_REF)


def _is_ok(word: str, ok: tuple[str, ...]) -> bool:
    hundred = f"{word[0]}xx" if len(word) == _HUNDRED and word.isascii() and word.isdigit() else ""
    return word in ok or (hundred != "" and hundred in ok)


def verdict(tally: Tally, items: Items | None, rule: ResultRule, expect: Expect, *, succeeded: bool) -> tuple[str, str] | None:
    """Return (code, message) of what is wrong with the contents, or None. `succeeded`: the whole work is said to be done.

    What expired or was cancelled may be short of items; what is there must be readable all the same.
    """
    if tally.faults:
        return tally.faults[0]
    if tally.schema_faults:
        return "json_schema", f"{tally.schema_faults} of {tally.records} do not fit the schema; the first: {tally.schema_fault}"
    if items is None and tally.unreadable:
        return "unreadable_records", f"{tally.unreadable} of {tally.records} records cannot be read: {', '.join(tally.refs)}"
    if not succeeded:
        return None
    if items is not None:
        if items.missing and rule.missing_items == "refuse":
            return "items_missing", f"{items.missing} items are in none of the files"
        if items.failed and not items.succeeded:
            return "no_item_succeeded", f"all {items.failed} items failed; the first: {tally.first_error or tally.refs[0]}"
        if items.failed and rule.failed_items == "refuse":
            return "items_failed", f"{items.failed} items failed: {', '.join(items.failed_refs)}"
    low, high = expect.records_min, expect.records_max
    if (low is not None or high is not None) and not tally.looked:
        return "records", "the contract does not say how records stand in this result, and its media type does not either"
    if (low is not None and tally.records < low) or (high is not None and tally.records > high):
        agreed = str(low) if low == high else f"{low if low is not None else 0} to {high if high is not None else 'any number'}"
        return "records", f"{tally.records} records came, {agreed} were agreed"
    return None

"""Records of a result file: JSON lines, CSV rows, or the elements of a JSON array, read from bytes as they come (MISSION F5).

A reader is fed pieces of any size and keeps no more than one record. What cannot be read becomes a record with a problem, never
an exception: an unreadable item is named, not skipped. At the end it says whether the file was cut.
"""

import codecs
import csv
import decimal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

import ijson

from schemas.contract import ResultFile
from schemas.jsontext import MAX_DEPTH, UnreadableJsonError, parse

_BOM: Final = b"\xef\xbb\xbf"
csv.field_size_limit(2**31 - 1)  # a row is bounded by us; Python's own bound is a global 128 KiB


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record. `problem`: too_long, unreadable; then there is no value. `size`: its bytes in the file."""

    number: int  # the first is 1; of JSON lines and CSV the number of the line where it begins
    value: Any = None
    problem: str = ""
    size: int = 0


class Reader(Protocol):
    """Reads one file. After `end`: `cut` says that its end is missing, `fault` that it is no such file at all."""

    cut: bool
    fault: str

    def feed(self, piece: bytes) -> Iterator[Record]:
        """Take the next bytes and yield the records that they complete."""
        ...

    def end(self) -> Iterator[Record]:
        """Say that there are no more bytes and yield what is left."""
        ...


def reader(file: ResultFile, max_record_bytes: int) -> Reader:
    """Return the reader of the file's format, which must not be opaque."""
    match file.format:
        case "csv":
            return CsvReader(max_record_bytes)
        case "json":
            return ArrayReader(file.records, max_record_bytes)
        case _:
            return LinesReader(max_record_bytes)


class LinesReader:
    """JSON lines. Blank lines are none; a line over the bound is passed over and told of."""

    def __init__(self, max_record_bytes: int) -> None:
        self.cut = False
        self.fault = ""
        self._most = max_record_bytes
        self._line = bytearray()
        self._too_long = False
        self._number = 0

    def feed(self, piece: bytes) -> Iterator[Record]:
        """Yield the records of the lines that `piece` ends."""
        start = 0
        while (end := piece.find(b"\n", start)) >= 0:
            self._append(piece[start:end])
            yield from self._take()
            start = end + 1
        self._append(piece[start:])

    def end(self) -> Iterator[Record]:
        """Yield the last line where it has no line end. Unreadable, it is a cut one."""
        if self._line or self._too_long:
            for record in self._take():
                self.cut = record.problem != ""
                yield record

    def _append(self, part: bytes) -> None:
        if self._too_long or len(self._line) + len(part) > self._most:
            self._too_long = True
            self._line.clear()
        else:
            self._line += part

    def _take(self) -> Iterator[Record]:
        self._number += 1
        line, too_long = bytes(self._line), self._too_long
        self._line.clear()
        self._too_long = False
        if self._number == 1:
            line = line.removeprefix(_BOM)
        if too_long:
            yield Record(number=self._number, problem="too_long", size=self._most)
        elif line.strip():
            try:
                yield Record(number=self._number, value=parse(line), size=len(line))
            except UnreadableJsonError:
                yield Record(number=self._number, problem="unreadable", size=len(line))


class CsvReader:
    """CSV (RFC 4180, UTF-8) with a head line: a record is an object of texts by column. Quoted fields may hold line ends."""

    def __init__(self, max_record_bytes: int) -> None:
        self.cut = False
        self.fault = ""
        self._most = max_record_bytes
        self._decode = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._row: list[str] = []
        self._size = 0
        self._quotes = 0
        self._rest = ""
        self._line = 0  # lines so far
        self._inner = 0  # line ends inside the row that is being read
        self._head: list[str] | None = None

    def feed(self, piece: bytes) -> Iterator[Record]:
        """Yield the rows that `piece` ends."""
        yield from self._lines(self._decode.decode(piece))

    def end(self) -> Iterator[Record]:
        """Yield the last row where it has no line end. With an open quote or too few fields it is a cut one."""
        yield from self._lines(self._decode.decode(b"", final=True))
        if self._rest or self._row:
            last, self._rest = self._rest, ""
            open_quote = (self._quotes + last.count('"')) % 2 == 1
            for record in self._take(last):
                self.cut = record.problem != ""
                yield record
            self.cut = self.cut or open_quote
        if self._head is None:
            self.fault = "it has no head line"

    def _lines(self, text: str) -> Iterator[Record]:
        parts = text.split("\n")
        parts[0] = self._rest + parts[0]
        self._rest = parts.pop()
        for line in parts:
            self._quotes += line.count('"')
            if self._quotes % 2:  # inside a quoted field: the row goes on
                self._keep(line + "\n")
                self._line += 1
                self._inner += 1
            else:
                yield from self._take(line)
        if len(self._rest) > self._most:  # no line end in sight, and the row is too long already
            self._keep(self._rest)
            self._quotes += self._rest.count('"')
            self._rest = ""

    def _keep(self, text: str) -> None:
        self._size += len(text)
        if self._size <= self._most:
            self._row.append(text)
        else:
            self._row = [""]

    def _take(self, last: str) -> Iterator[Record]:
        self._line += 1
        self._keep(last)
        text, size, number = "".join(self._row).removesuffix("\r"), self._size, self._line - self._inner
        self._row, self._size, self._quotes, self._inner = [], 0, 0, 0
        if size > self._most:
            yield Record(number=number, problem="too_long", size=size)
            return
        if not text.strip():
            return
        try:
            fields = next(csv.reader([text], strict=True), [])
        except csv.Error:
            fields = []
        if self._head is None:
            self._head = fields
            if not fields or len(set(fields)) != len(fields):
                self.fault = "its head line has a column twice, or none"
        elif self.fault or len(fields) != len(self._head) or "\ufffd" in text:
            yield Record(number=number, problem="unreadable", size=size)
        else:
            yield Record(number=number, value=dict(zip(self._head, fields, strict=True)), size=size)


class ArrayReader:
    """The elements of one array in a JSON document, which is never held whole. `place`: dotted names, empty for the document itself."""

    def __init__(self, place: str, max_record_bytes: int) -> None:
        self.cut = False
        self.fault = ""
        self._most = max_record_bytes
        self._elements = _Elements(tuple(place.split(".")) if place else ())
        self._events: Any = ijson.sendable_list()
        self._parser = ijson.basic_parse_coro(self._events)
        self._since = 0  # bytes since the latest record

    def feed(self, piece: bytes) -> Iterator[Record]:
        """Yield the elements that `piece` ends."""
        if self.fault:
            return
        # One piece may hold a record of any size; small ones keep the bound near what was agreed.
        for start in range(0, len(piece), _PIECE):
            part = piece[start : start + _PIECE]
            self._since += len(part)
            try:
                self._parser.send(part)
            except (ijson.JSONError, ValueError, UnicodeError, decimal.DecimalException) as error:
                self._stop("it is not JSON" if "premature" not in str(error) else "its end is missing")
            yield from self._drain()
            if self._since > self._most and not self.fault:
                self._stop("it has a record over the bound")
            if self.fault:
                return

    def end(self) -> Iterator[Record]:
        """Yield the rest."""
        if not self.fault:
            try:
                self._parser.close()
            except (ijson.JSONError, ValueError, UnicodeError, decimal.DecimalException):
                self.cut = True
                self.fault = "its end is missing"
            yield from self._drain()
        if not self.fault and not self._elements.found:
            self.fault = "the array of records is not where the contract says"

    def _drain(self) -> Iterator[Record]:
        for event, value in self._events:
            record = self._elements.take(event, value, self._since)
            if record is not None:
                self._since = 0
                yield record
        self._events.clear()
        if self._elements.too_deep:
            self._stop(f"it is nested deeper than {MAX_DEPTH}")

    def _stop(self, fault: str) -> None:
        self.fault = self.fault or fault


_PIECE: Final = 65_536


class _Elements:
    """Builds the elements of one array from parser events; everything else passes by."""

    def __init__(self, place: tuple[str, ...]) -> None:
        self.found = False
        self.too_deep = False
        self._place = place
        self._path: list[str | None] = []  # of each open container: the key that is being read, None in an array
        self._inside = False
        self._base = 0
        self._open: list[Any] = []
        self._keys: list[str] = []
        self._twice = False
        self._number = 0

    def take(self, event: str, value: Any, size: int) -> Record | None:
        """Take one event; return the record that it completes."""
        if self.too_deep:
            return None
        match event:
            case "map_key":
                self._key(value)
                return None
            case "start_map" | "start_array":
                self._begin([] if event == "start_array" else {})
                return None
            case "end_map" | "end_array":
                return self._finish(size)
            case _:
                return self._put(value, size)

    def _key(self, value: str) -> None:
        if self._open:
            self._twice = self._twice or value in self._open[-1]
            self._keys[-1] = value
        else:
            self._path[-1] = value

    def _begin(self, container: Any) -> None:
        if len(self._path) + len(self._open) >= MAX_DEPTH:
            self.too_deep = True
        elif self._inside:
            self._open.append(container)
            self._keys.append("")
        elif isinstance(container, list) and not self.found and tuple(self._path) == self._place:
            self.found = self._inside = True
            self._path.append(None)
        else:
            self._path.append(None)

    def _finish(self, size: int) -> Record | None:
        if self._open:
            done = self._open.pop()
            self._keys.pop()
            return self._put(done, size)
        self._inside = False
        self._path.pop()
        return None

    def _put(self, value: Any, size: int) -> Record | None:
        if not self._inside:
            return None
        if not self._open:
            self._number += 1
            twice, self._twice = self._twice, False
            if twice:
                return Record(number=self._number, problem="unreadable", size=size)
            return Record(number=self._number, value=value, size=size)
        parent = self._open[-1]
        if isinstance(parent, list):
            parent.append(value)
        else:
            parent[self._keys[-1]] = value
        return None

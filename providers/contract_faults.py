"""Faults of a contract file: all of them at once, each with its line, its key, what is wrong and the cure.

Lines are found by a small scanner of TOML's outline (table headers and the keys at the start of lines, outside multi-line
texts and arrays): the standard parser tells values without positions. A key inside an inline table or array takes the line of
the nearest key around it.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

Path = tuple[str | int, ...]

_HEADER = re.compile(r"\s*\[(\[?)\s*([^\[\]]+?)\s*\]?\]\s*(?:#.*)?$")
_KEY = re.compile(r"""\s*((?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*'))*)\s*=(.*)""")
_PIECE = re.compile(r"""[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*'""")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'')


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is wrong: where (line from 1; 0: unknown), the dotted key, what and the cure."""

    line: int
    key: str
    message: str

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line else ""
        return f"{where}{self.key}: {self.message}" if self.key else f"{where}{self.message}"


class ContractError(ValueError):
    """The file is not a contract. `faults` are all of them, in the order of lines; `name` is the file's or the caller's name."""

    def __init__(self, faults: tuple[Fault, ...], name: str = "") -> None:
        super().__init__("\n".join(str(fault) for fault in faults))
        self.faults = faults
        self.name = name


class Faults:
    """Collects faults while a file is read."""

    def __init__(self, lines: Mapping[Path, int] | None = None) -> None:
        self._lines = lines or {}
        self._found: list[Fault] = []
        self._unreadable: set[Path] = set()
        self._reading = True

    def judge(self) -> None:
        """End the reading of values: faults of meaning follow, and none of them about a value that could not be read."""
        self._reading = False

    def add(self, path: Path, message: str) -> None:
        """Record that the value at `path` is wrong."""
        if self._reading:
            self._unreadable.add(path)
        elif any(path[: len(bad)] == bad or (len(path) > 1 and bad[: len(path)] == path) for bad in self._unreadable):
            return
        self._found.append(Fault(line=self._line(path), key=dotted(path), message=message))

    def unknown(self, path: Path, known: Iterable[str]) -> None:
        """Record a key that does not exist, with the nearest one that does."""
        names = sorted(known)
        near = get_close_matches(str(path[-1]), names, n=1, cutoff=0.6)
        self.add(path, f"is not known here; did you mean {near[0]}?" if near else f"is not known here; known are {', '.join(names)}")

    def word(self, path: Path, value: object, words: Iterable[str]) -> None:
        """Record a value that is none of the words, with the nearest one."""
        names = list(words)
        near = get_close_matches(str(value), names, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else "use one of " + ", ".join(names)
        self.add(path, f"{str(value)[:60]!r} is not allowed; {hint}")

    def all(self) -> tuple[Fault, ...]:
        """Return what was found, in the order of lines."""
        return tuple(sorted(self._found, key=lambda fault: fault.line))

    def _line(self, path: Path) -> int:
        for end in range(len(path), 0, -1):
            if line := self._lines.get(path[:end]):
                return line
        return 0


def dotted(path: Path) -> str:
    """Return a path as people write it: `signature[1].sig.name`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def outline(source: str) -> dict[Path, int]:
    """Return key path -> line (from 1) of a TOML text, for the keys that begin a line."""
    lines: dict[Path, int] = {}
    counts: dict[Path, int] = {}
    table: Path = ()
    closing = ""  # what ends the multi-line text that we are in
    depth = 0  # open brackets of a multi-line array
    for number, line in enumerate(source.splitlines(), start=1):
        if closing:
            closing = "" if closing in line else closing
            continue
        if depth > 0:
            depth += _brackets(line)
            continue
        if header := _HEADER.match(line):
            table = _table(header, counts)
            for end in range(1, len(table) + 1):  # [a.b.c] is where a and a.b begin, too
                lines.setdefault(table[:end], number)
        elif key := _KEY.match(line):
            path = table + _pieces(key[1])
            for end in range(len(table) + 1, len(path) + 1):
                lines.setdefault(path[:end], number)
            closing = _unclosed(key[2])
            depth = 0 if closing else _brackets(key[2])
    return lines


def _table(header: re.Match[str], counts: dict[Path, int]) -> Path:
    path: Path = ()
    pieces = _pieces(header[2])
    for index, piece in enumerate(pieces):
        path += (piece,)
        last = index == len(pieces) - 1
        if last and header[1]:
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path += (counts[path],)
    return path


def _pieces(text: str) -> tuple[str, ...]:
    return tuple(piece.strip("\"'") for piece in _PIECE.findall(text))


def _unclosed(value: str) -> str:
    start = value.lstrip()[:3]
    return start if start in {'"""', "'''"} and value.count(start) == 1 else ""


def _brackets(line: str) -> int:
    bare = _QUOTED.sub("", line).partition("#")[0]
    return bare.count("[") - bare.count("]")

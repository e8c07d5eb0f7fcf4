"""What commands print: one JSON document, or aligned text with everything of strangers made safe. Progress only on a terminal."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from cli.escaping import safe
from schemas.operation import SECOND, Micros

MAX_CELL: Final = 120

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def emit(value: Any) -> None:
    """Print one JSON document."""
    typer.echo(document(value))


def document(value: Any) -> str:
    """Return one JSON document as commands print it."""
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print aligned columns under their heads; just the heads' line where there are no rows."""
    lines = [list(head), *([cell(value) for value in row] for row in rows)]
    widths = [max(len(line[number]) for line in lines) for number in range(len(head))]
    for line in lines:
        typer.echo("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def facts(values: Mapping[str, Any]) -> None:
    """Print one `name  value` a line; what is absent is left out."""
    shown = {name: value for name, value in values.items() if value not in (None, "", [], {}, ())}
    width = max((len(name) for name in shown), default=0)
    for name, value in shown.items():
        typer.echo(f"{name.ljust(width)}  {cell(value, 2_000)}")


def cell(value: Any, limit: int = MAX_CELL) -> str:
    """Return a value as safe text of one line."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case Mapping():
            return safe(", ".join(f"{name} {cell(part, limit)}" for name, part in value.items() if part is not None), limit)
        case list() | tuple():
            return safe(", ".join(cell(part, limit) for part in value), limit)
        case _:
            return safe(str(value), limit)


def when(at: Micros | None) -> str | None:
    """Return a time as RFC 3339 UTC with whole seconds."""
    if at is None:
        return None
    return datetime.fromtimestamp(at // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@contextmanager
def progress(what: str) -> Iterator[Any]:
    """Give a function that shows a count on stderr while the work lasts; it does nothing in a pipe."""
    if not sys.stderr.isatty():
        yield lambda _count: None
        return

    def tell(count: int) -> None:
        sys.stderr.write(f"\r{what}: {count:,}")
        sys.stderr.flush()

    try:
        yield tell
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()

"""How the demo looks: colours and a drawn table on a terminal, plain stable lines in a pipe, one document with --json."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import typer

from cli import show
from cli.demo.verdict import Audit, Verdict
from cli.escaping import safe
from schemas.operation import SECOND, Micros

HEAD: Final = ("OPERATION", "EXPECTED", "HAPPENED", "JOBS", "VERDICT")
NAME_WIDTH: Final = 12
_STATES: Final = 44
_MAX_TEXT: Final = 100
_COLOURS: Final = {"succeeded": "green", "failed": "red", "cancelled": "yellow"}


class Face(Protocol):
    """What is told while the demo runs."""

    def says(self, text: str) -> None:
        """Show a line of the demo itself."""
        ...

    def called(self, who: str, what: str, status: int) -> None:
        """Show a call of an agent, a person or a service."""
        ...

    def row(self, name: str, since: Micros, row: Mapping[str, Any]) -> None:
        """Show a history row."""
        ...

    def ended(self, verdicts: Sequence[Verdict], audit: Audit, seconds: float) -> None:
        """Show the table."""
        ...


def of(*, json: bool, verbose: bool) -> Face:
    """Return the face for this output."""
    if json:
        return Silent()
    return Coloured(verbose=verbose) if sys.stdout.isatty() else Plain(verbose=verbose)


def line(name: str, since: Micros, row: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return (time and name, states, code and text) of a history row, safe to show."""
    moved = f"{row['from_state'] or '.'} -> {row['to_state']}" if row["from_state"] != row["to_state"] else f"{row['to_state']}"
    text = safe(f"{row['code']} {row['text'] or ''}".strip(), _MAX_TEXT)
    return f"{since / SECOND:7.3f}  {name:<{NAME_WIDTH}}", moved, text


def summary(verdicts: Sequence[Verdict], audit: Audit, seconds: float) -> list[str]:
    """Return what is said under the table."""
    lines = [f"{verdict.name}: {safe(difference)}" for verdict in verdicts for difference in verdict.differences]
    lines.extend(f"audit: {safe(fault)}" for fault in audit.faults)
    lines.extend(f"self-audit: {name} {count}" for name, count in audit.odd.items())
    lines.append(f"audit verify: {audit.operations} operations, {len(audit.faults)} faults; self-audit: {sum(audit.odd.values())}")
    good = sum(verdict.good for verdict in verdicts)
    lines.append(f"{good} of {len(verdicts)} operations ended as they must, in {seconds:.0f} s")
    return lines


def _cells(verdict: Verdict) -> tuple[str, ...]:
    return (verdict.name, verdict.expected, safe(verdict.happened), str(verdict.jobs), "as it must" if verdict.good else "NOT AS IT MUST")


class Plain:
    """Lines for pipes and logs."""

    def __init__(self, *, verbose: bool) -> None:
        self._verbose = verbose

    def says(self, text: str) -> None:
        """Show a line."""
        typer.echo(text)

    def called(self, who: str, what: str, status: int) -> None:
        """Show a call, if asked to."""
        if self._verbose:
            typer.echo(f"         {who:<{NAME_WIDTH}}  {what} -> {status}")

    def row(self, name: str, since: Micros, row: Mapping[str, Any]) -> None:
        """Show a history row."""
        when, states, text = line(name, since, row)
        typer.echo(f"{when}  {states:<{_STATES}}  {text}")

    def ended(self, verdicts: Sequence[Verdict], audit: Audit, seconds: float) -> None:
        """Show the table."""
        typer.echo("")
        show.table(HEAD, [_cells(verdict) for verdict in verdicts])
        typer.echo("")
        for text in summary(verdicts, audit, seconds):
            typer.echo(text)


class Coloured:
    """The same on a terminal. Nothing that a provider wrote is read as markup."""

    def __init__(self, *, verbose: bool) -> None:
        from rich.console import Console

        self._console = Console(highlight=False)
        self._verbose = verbose

    def says(self, text: str) -> None:
        """Show a line."""
        self._console.print(text, markup=False, style="bold", soft_wrap=True)

    def called(self, who: str, what: str, status: int) -> None:
        """Show a call, if asked to."""
        if self._verbose:
            self._console.print(f"         {who:<{NAME_WIDTH}}  {what} -> {status}", markup=False, style="dim", no_wrap=True)

    def row(self, name: str, since: Micros, row: Mapping[str, Any]) -> None:
        """Show a history row; an end has the colour of its kind."""
        from rich.text import Text

        when, states, text = line(name, since, row)
        shown = Text.assemble((when, "cyan"), "  ", (f"{states:<{_STATES}}", _COLOURS.get(row["to_state"], "")), "  ", (text, "dim"))
        self._console.print(shown, no_wrap=True, overflow="ellipsis", crop=True)

    def ended(self, verdicts: Sequence[Verdict], audit: Audit, seconds: float) -> None:
        """Show the table."""
        from rich.table import Table
        from rich.text import Text

        table = Table(*(head.capitalize() for head in HEAD), header_style="bold")
        for verdict in verdicts:
            *cells, word = _cells(verdict)
            table.add_row(*map(Text, cells), Text(word, style="green" if verdict.good else "bold red"))
        self._console.print(table)
        for text in summary(verdicts, audit, seconds):
            self._console.print(text, markup=False, soft_wrap=True)


class Silent:
    """Nothing until the end, then one document."""

    def says(self, text: str) -> None:
        """Say nothing."""

    def called(self, who: str, what: str, status: int) -> None:
        """Say nothing."""

    def row(self, name: str, since: Micros, row: Mapping[str, Any]) -> None:
        """Say nothing."""

    def ended(self, verdicts: Sequence[Verdict], audit: Audit, seconds: float) -> None:
        """Print the document."""
        rows = [
            {
                "name": verdict.name,
                "tells": verdict.tells,
                "operation": verdict.operation,
                "expected": verdict.expected,
                "happened": verdict.happened,
                "remote_jobs": verdict.jobs,
                "good": verdict.good,
                "differences": list(verdict.differences),
            }
            for verdict in verdicts
        ]
        audited = {"operations": audit.operations, "faults": list(audit.faults), "self_audit": dict(audit.odd)}
        good = audit.good and all(verdict.good for verdict in verdicts)
        show.emit({"good": good, "seconds": round(seconds, 1), "operations": rows, "audit": audited})

"""`gateway doctor`: what is misconfigured, and how to mend it."""

import typer

from cli import opening, show
from cli.failure import FAILED


def doctor(config: opening.Config = None, database_url: opening.DatabaseUrl = None, json: show.Json = False) -> None:
    """Look for misconfigurations and say how to mend each. Exit 1 where something does not work."""
    from cli.diagnosis import diagnose
    from cli.world import RealWorld

    found = opening.configuration(config, database_url)
    findings = diagnose(found, RealWorld())
    if json:
        show.emit([{"level": item.level, "about": item.about, "found": item.found, "cure": item.cure} for item in findings])
    else:
        for item in findings:
            cure = f"; {item.cure}" if item.cure else ""
            typer.echo(show.cell(f"{item.level:<7} {item.about}: {item.found}{cure}", 1_000))
    if any(item.level == "fault" for item in findings):
        raise typer.Exit(FAILED)

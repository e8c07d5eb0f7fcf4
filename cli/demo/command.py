"""`gateway demo`: its options."""

import tempfile
from pathlib import Path
from typing import Annotated, Final

import typer

from cli.failure import WRONG_USAGE, CommandError

KEPT: Final = Path("var") / "demo"
"""Where the demo keeps its key file where the database is not its own: what was sealed must open again the next time."""


def demo(
    leave: Annotated[bool, typer.Option("--exit", help="End after the run: 0 only if every operation ended as it must.")] = False,
    database_url: Annotated[
        str | None,
        typer.Option("--database-url", metavar="URL", help="sqlite:///PATH or postgresql://USER@HOST/NAME instead of a temporary SQLite."),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Keep configuration, key and results here; else a temporary folder, with --database-url var/demo."
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port of the gateway; 0: any free one.")] = 0,
    fault: Annotated[
        list[str] | None,
        typer.Option(help="A standing fault of the simulator on top of the script's, NAME or NAME=VALUE; see it disagree. Repeat it."),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Also show every call, and the service's own log.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document at the end; implies --exit.")] = False,
) -> None:
    """Run scripted operations against a provider that drops, repeats, lies and forgets, and show how each of them ends."""
    from cli.demo import face
    from cli.demo.performance import Wanted, run
    from cli.logs import configure
    from simulator.faults import FaultError, merge, parse

    configure(level="info" if verbose else "error", form="auto")
    try:
        merge(parse(fault or ()))
    except FaultError as error:
        raise CommandError(str(error), code=WRONG_USAGE) from error
    with tempfile.TemporaryDirectory(prefix="gateway-demo-") as temporary:
        place = folder or (Path(temporary) if database_url is None else KEPT)
        wanted = Wanted(folder=place.absolute(), database_url=database_url, port=port, faults=tuple(fault or ()), stays=not (leave or json))
        code = run(wanted, face.of(json=json, verbose=verbose))
    if code:
        raise typer.Exit(code)

"""`gateway retention`: remove what is kept no longer, beside a running service or without one."""

import asyncio

import typer

from cli import opening, show

app = typer.Typer(help="What is kept no longer: remove it now.", rich_markup_mode=None)


@app.callback()
def retention() -> None:
    """Keep `run` a command of its own although it is the only one."""


@app.command()
def run(config: opening.Config = None, database_url: opening.DatabaseUrl = None, json: show.Json = False) -> None:
    """Remove all that has expired by [retention]. Safe to interrupt: the next run goes on. A reconciler does it by itself."""
    from cli import house as composition
    from reconciler.retention import Retention

    with opening.record(config, database_url) as house:
        house.ledger.start(several_processes=False)
        duty = Retention(record=house.ledger, world=house.world, store=composition.store(house.settings), settings=house.settings.retention)
        with show.progress("rows removed") as tell:
            counts = asyncio.run(duty.run_once(None, lambda _stage, count: tell(count)))
    if json:
        show.emit(counts)
    else:
        for name, count in counts.items():
            typer.echo(f"{name.replace('_', ' ')}: {count}")
        typer.echo("nothing has expired" if not counts else "done")

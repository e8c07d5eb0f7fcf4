"""`gateway database`: the schema and the soundness of the record's database."""

import typer

from cli import opening, show
from cli.failure import FAILED

app = typer.Typer(help="The database: migrate, check.", rich_markup_mode=None)


@app.command()
def migrate(config: opening.Config = None, database_url: opening.DatabaseUrl = None) -> None:
    """Bring the schema up to date. Safe to interrupt and to run in several places at once."""
    from ledger.engine import open_engines
    from ledger.migrate import migrate as bring_up_to_date

    found = opening.configuration(config, database_url)
    engines = open_engines(found.settings.database_url, pooled=found.settings.database_pooled)
    try:
        changed = bring_up_to_date(engines)
    finally:
        engines.close()
    typer.echo("migrated" if changed else "up to date")


@app.command()
def check(config: opening.Config = None, database_url: opening.DatabaseUrl = None, json: show.Json = False) -> None:
    """Check schema, master key, the soundness of the stored rows, and whether writes are taken."""
    from cli.house import write_trouble
    from ledger import examine

    with opening.record(config, database_url) as house:
        version = house.ledger.read_now(examine.version)
        faults = house.ledger.read_now(examine.faults)
        if trouble := write_trouble(house):
            faults.append(f"takes no writes: {trouble}")
    if json:
        show.emit({"database": version, "faults": faults})
    else:
        typer.echo(f"{version}: " + ("sound" if not faults else f"{len(faults)} faults"))
        for fault in faults:
            typer.echo(show.cell(fault))
    if faults:
        raise typer.Exit(FAILED)

"""`gateway database`: the schema, the soundness and the backups of the record's database."""

from pathlib import Path
from typing import Annotated, Final

import typer

from cli import opening, show
from cli.failure import FAILED

app = typer.Typer(help="The database: migrate, check, backup, restore.", rich_markup_mode=None)

MAX_SHOWN: Final = 1_000


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
    """Check schema, master key, every constraint, chain and fold of every history, and whether writes are taken. Names each bad row."""
    from cli.house import write_trouble
    from ledger import examine
    from ledger.audit import verify_page
    from ledger.soundness import checks

    with opening.record(config, database_url) as house, show.progress("checks and operations done") as tell:
        version = house.ledger.read_now(examine.version)
        faults: list[str] = []
        done = 0
        for look in checks():
            faults += house.ledger.read_now(look)
            tell(done := done + 1)
        after: str | None = ""
        while after is not None and len(faults) < MAX_SHOWN:
            page = house.ledger.read_now(verify_page, after)
            faults += [f"{fault.operation} row {fault.seq}: {fault.fault}" for fault in page.faults]
            after = page.after
            tell(done := done + page.done)
        if trouble := write_trouble(house):
            faults.append(f"takes no writes: {trouble}")
    if json:
        show.emit({"database": version, "faults": faults[:MAX_SHOWN]})
    else:
        typer.echo(f"{version}: " + ("sound" if not faults else f"{len(faults)} faults"))
        for fault in faults[:MAX_SHOWN]:
            typer.echo(show.cell(fault, 300))
    if faults:
        raise typer.Exit(FAILED)


@app.command()
def backup(
    folder: Annotated[Path, typer.Argument(help="Where to: a folder that does not exist yet.")],
    config: opening.Config = None,
    database_url: opening.DatabaseUrl = None,
    json: show.Json = False,
) -> None:
    """Copy database and results while the service runs. The key file is not in it: back it up apart."""
    from cli import backup as backups

    with opening.record(config, database_url) as house, show.progress("pages or bytes copied") as tell:
        manifest = backups.make(house, folder.absolute(), tell)
    if json:
        show.emit({name: value for name, value in manifest.items() if name != "files"})
    else:
        typer.echo(f"{folder}: schema {manifest['schema']}, {manifest['artifacts']} results, sealed with the key {manifest['key']}")
        for artifact in manifest["missing"]:
            typer.echo(show.cell(f"{artifact} is on record and its file is not there or not whole"))


@app.command()
def restore(
    folder: Annotated[Path, typer.Argument(help="A backup's folder.")],
    config: opening.Config = None,
    database_url: opening.DatabaseUrl = None,
) -> None:
    """Verify a backup and bring it into an empty database and the artifact folder. Stop the service first."""
    from cli import backup as backups

    settings = opening.configuration(config, database_url).settings
    with show.progress("pages or bytes copied") as tell:
        manifest = backups.bring_back(settings.database_url, settings.artifact_dir, folder.absolute(), tell)
    typer.echo(f"restored schema {manifest['schema']}, {manifest['artifacts']} results; it opens with the key {manifest['key']}")

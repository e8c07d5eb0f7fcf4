"""`gateway audit`: whether the record is what its history says and nobody has touched it."""

from typing import Annotated, Final

import typer

from cli import opening, show
from cli.failure import FAILED

app = typer.Typer(help="The history: verify its chain and that it folds to the record.", rich_markup_mode=None)

MAX_SHOWN: Final = 1_000


@app.callback()
def audit() -> None:
    """Keep `verify` a command of its own although it is the only one."""


@app.command()
def verify(
    config: opening.Config = None,
    database_url: opening.DatabaseUrl = None,
    json: show.Json = False,
    limit: Annotated[int, typer.Option(min=1, max=MAX_SHOWN, help="Stop after so many faults.")] = 100,
) -> None:
    """Walk every operation: no gap, every link, every text, and the fold. Exit 1 and the exact row on any fault."""
    from ledger.audit import Fault, self_audit, verify_page

    faults: list[Fault] = []
    done, after = 0, ""
    with opening.record(config, database_url) as house:
        with show.progress("operations verified") as tell:
            while len(faults) < limit:
                page = house.ledger.read_now(verify_page, after)  # a transaction of its own: writers go on meanwhile
                faults += page.faults[: limit - len(faults)]
                done += page.done
                tell(done)
                if page.after is None:
                    break
                after = page.after
        odd = {name: count for name, count in house.ledger.read_now(self_audit, house.world.now()).items() if count}
    if json:
        rows = [{"operation": fault.operation, "seq": fault.seq, "fault": fault.fault} for fault in faults]
        show.emit({"operations": done, "faults": rows, "self_audit": odd})
    else:
        for fault in faults:
            typer.echo(show.cell(f"{fault.operation} row {fault.seq}: {fault.fault}"))
        for name, count in odd.items():
            typer.echo(f"self-audit: {name} {count}")
        typer.echo(f"{done} operations verified, {len(faults)} faults, self-audit {sum(odd.values())}")
    if faults or odd:
        raise typer.Exit(FAILED)

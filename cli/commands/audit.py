"""`gateway audit`: whether the record is what its history says and nobody has touched it."""

from typing import Annotated, Any, Final

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
    from ledger.audit import Fault, self_audit
    from ledger.audit import verify as walk

    faults: list[Fault] = []
    done = 0

    def collect(view: Any, tell: Any) -> None:
        nonlocal done
        for found in walk(view):
            if isinstance(found, Fault):
                faults.append(found)
                if len(faults) >= limit:
                    return
            else:
                done = found
                tell(done)

    with opening.record(config, database_url) as house:
        with show.progress("operations verified") as tell:
            house.ledger.read_now(collect, tell)
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

"""`gateway audit`: whether the record is what its history says and nobody has touched it."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli import opening, show
from cli.failure import FAILED, WRONG_USAGE, CommandError

if TYPE_CHECKING:
    from cli.house import House
    from ledger.audit import Fault
    from schemas.upkeep import Checkpointed

app = typer.Typer(help="The history: verify it, sign it, export it.", rich_markup_mode=None)

MAX_SHOWN: Final = 1_000
KEY_BYTES: Final = 32


@app.command()
def verify(
    config: opening.Config = None,
    database_url: opening.DatabaseUrl = None,
    json: show.Json = False,
    limit: Annotated[int, typer.Option(min=1, max=MAX_SHOWN, help="Stop after so many faults.")] = 100,
    file: Annotated[Path | None, typer.Option(metavar="FILE", help="Verify an export, without any database.")] = None,
    public_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="The checkpoints' public key that is trusted, in hex digits.")
    ] = None,
) -> None:
    """Walk every operation: no gap, every link, every text, the fold, the checkpoints. Exit 1 and the exact row on any fault."""
    from ledger.audit import Fault, self_audit, verify_page

    trusted = _key(public_key)
    if file is not None:
        _verify_file(file, trusted, json, limit)
        return
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
            faults += _checkpoints(house, trusted)[: limit - len(faults)]
        odd = {name: count for name, count in house.ledger.read_now(self_audit, house.world.now()).items() if count}
    if json:
        rows = [{"operation": fault.operation, "seq": fault.seq, "fault": fault.fault} for fault in faults]
        show.emit({"operations": done, "faults": rows, "self_audit": odd})
    else:
        _tell(faults)
        for name, count in odd.items():
            typer.echo(f"self-audit: {name} {count}")
        typer.echo(f"{done} operations verified, {len(faults)} faults, self-audit {sum(odd.values())}")
    if faults or odd:
        raise typer.Exit(FAILED)


@app.command()
def checkpoint(config: opening.Config = None, database_url: opening.DatabaseUrl = None, json: show.Json = False) -> None:
    """Sign the heads of all histories that have changed. Keep what it prints elsewhere: it proves later that nothing was cut off."""
    with opening.record(config, database_url) as house:
        made = _sign(house)
    if json:
        show.emit({"number": made.number, "operations": made.operations, "digest": made.digest.hex(), "public_key": made.public.hex()})
    else:
        typer.echo(f"checkpoint {made.number}: {made.digest.hex()}")
        typer.echo(f"public key: {made.public.hex()}")


@app.command()
def export(
    file: Annotated[Path, typer.Argument(help="Where to: a file that does not exist yet.")],
    config: opening.Config = None,
    database_url: opening.DatabaseUrl = None,
) -> None:
    """Make a checkpoint and write all histories to a file that verifies offline. People's words are not in it."""
    from ledger.export import write

    with opening.record(config, database_url) as house, show.progress("operations written") as tell:
        made = _sign(house)
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as opened:
            count = write(opened, house.ledger.read_now, tell)
    typer.echo(f"{count} operations; verify: gateway audit verify --file {file} --public-key {made.public.hex()}")


def _sign(house: "House") -> "Checkpointed":
    from schemas.upkeep import Checkpoint

    made = house.ledger.write_now(Checkpoint(now=house.world.now()))
    while made.more:
        made = house.ledger.write_now(Checkpoint(now=house.world.now()))
    return made


def _checkpoints(house: "House", trusted: bytes | None) -> list["Fault"]:
    from ledger.checkpoints import rows_of, verify_checkpoint

    faults: list[Fault] = []
    before: dict[str, Any] | None = None
    while page := house.ledger.read_now(rows_of, before["number"] if before else 0):
        for row in page:
            faults += house.ledger.read_now(verify_checkpoint, row, before, trusted)
            before = row
    return faults


def _verify_file(file: Path, trusted: bytes | None, json: bool, limit: int) -> None:
    from ledger.audit import Fault
    from ledger.export import verify_lines

    faults: list[Fault] = []
    done = 0
    with file.open(encoding="utf-8", errors="replace") as lines, show.progress("operations verified") as tell:
        for found in verify_lines(iter(lines), trusted):
            if isinstance(found, Fault):
                faults.append(found)
                if len(faults) >= limit:
                    break
            else:
                tell(done := found)
    if json:
        show.emit({"operations": done, "faults": [{"operation": item.operation, "seq": item.seq, "fault": item.fault} for item in faults]})
    else:
        _tell(faults)
        trust = "" if trusted is not None else "; whose key it is was not asked: give --public-key"
        typer.echo(f"{done} operations verified, {len(faults)} faults{trust}")
    if faults:
        raise typer.Exit(FAILED)


def _tell(faults: list["Fault"]) -> None:
    for fault in faults:
        typer.echo(show.cell(f"{fault.operation} row {fault.seq}: {fault.fault}" if fault.operation else fault.fault))


def _key(text: str | None) -> bytes | None:
    try:
        key = None if text is None else bytes.fromhex(text)
    except ValueError:
        key = b""
    if key is not None and len(key) != KEY_BYTES:
        raise CommandError("--public-key takes the 64 hex digits that gateway audit checkpoint prints", code=WRONG_USAGE)
    return key

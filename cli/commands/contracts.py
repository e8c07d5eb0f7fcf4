"""`gateway contracts`: the files that say how providers behave: list, show, check."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from cli import show
from cli.failure import FAILED

app = typer.Typer(help="Contract files: the shipped ones, and checks of your own.", rich_markup_mode=None)


@app.command("list")
def list_(json: show.Json = False) -> None:
    """List the shipped contracts."""
    from cli.contracts import contract, shipped

    found = [contract(name, Path()) for name in shipped()]
    if json:
        show.emit([{"name": item.name, "title": item.title, "origin": item.origin, "can": _abilities(item)} for item in found])
    else:
        show.table(("NAME", "TITLE", "ORIGIN", "CAN"), [(item.name, item.title, item.origin, _abilities(item)) for item in found])


@app.command("show")
def show_(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A shipped contract's name, or a path.")], json: show.Json = False
) -> None:
    """Show a contract: its file, or (--json) what the engine makes of it."""
    from cli.contracts import contract, read

    if json:
        show.emit(_plain(dataclasses.asdict(contract(name, Path.cwd()))))
    else:
        typer.echo(read(name, Path.cwd()).decode("utf-8", "backslashreplace").rstrip("\n"))


@app.command()
def check(
    files: Annotated[list[str], typer.Argument(metavar="FILE…", help="Contract files, or names of shipped ones.")], json: show.Json = False
) -> None:
    """Check contract files and run their samples: all faults at once, with their lines. Exit 1 on any fault."""
    from cli.configuration import ConfigurationError
    from cli.contracts import read, sample_faults
    from providers.contract import ContractError, load
    from providers.contract_faults import outline
    from providers.samples import notes

    outcomes: list[dict[str, Any]] = []
    for file in files:
        faults: list[dict[str, Any]] = []
        name, samples, noted = "", 0, []
        try:
            source = read(file, Path.cwd())
            contract = load(source, name=Path(file).name.removesuffix(".toml"))
            name, samples, noted = contract.name, len(contract.samples), notes(contract)
            begins = outline(source.decode())
            lines = {sample["name"]: begins.get(("samples", index), 0) for index, sample in enumerate(contract.samples)}
            faults = [
                {"line": lines.get(sample, 0), "key": f"sample {sample}", "message": fault} for sample, fault in sample_faults(contract)
            ]
        except ConfigurationError as error:
            named = (f"contract {Path.cwd() / file}: ", f"contract {file[:100]}: ")  # the file is told in front of every fault already
            bare = [fault.removeprefix(named[0]).removeprefix(named[1]) for fault in error.faults]
            faults = [{"line": 0, "key": "", "message": fault} for fault in bare]
        except ContractError as error:
            faults = [{"line": fault.line, "key": fault.key, "message": fault.message} for fault in error.faults]
        outcomes.append({"file": file, "name": name, "samples": samples, "faults": faults, "notes": noted})
    if json:
        show.emit(outcomes)
    else:
        for outcome in outcomes:
            for fault in outcome["faults"]:
                place = f"{outcome['file']}:{fault['line']}" if fault["line"] else outcome["file"]
                typer.echo(show.cell(": ".join(filter(None, (place, fault["key"], fault["message"]))), 500))
            if not outcome["faults"]:
                count = outcome["samples"]
                typer.echo(show.cell(f"{outcome['file']}: ok ({outcome['name']}, {count} sample{'' if count == 1 else 's'})"))
            for note in outcome["notes"]:
                typer.echo(show.cell(f"{outcome['file']}: note: {note}", 500))
    if any(outcome["faults"] for outcome in outcomes):
        raise typer.Exit(FAILED)


def _abilities(contract: Any) -> list[str]:
    kinds = contract.kinds().values()
    parts = {
        "callbacks": contract.signatures,
        "create": any(kind.create for kind in kinds),
        "read": any(kind.status for kind in kinds),
        "cancel": any(kind.cancel for kind in kinds),
        "result": any(kind.result for kind in kinds),
    }
    return [name for name, part in parts.items() if part]


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case str() | int() | float() | None:
            return value
        case _:
            return str(value)

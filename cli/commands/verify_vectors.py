"""`gateway verify --vectors`: one line a failure, and `N passed, M failed`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from cli import show
from cli.failure import FAILED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.contract import SignatureScheme

MAX_BYTES: Final = 67_108_864  # a file with its keys and certificates is far smaller


def run_files(files: "Sequence[str]", *, json: bool) -> None:
    """Run vector files with the shipped contract of their provider's name, else with the schemes that they bring along."""
    results: list[dict[str, Any]] = []
    with show.progress("cases") as tell:
        for file in files:
            results.extend(_run_file(file))
            tell(len(results))
    failed = [result for result in results if not result["passed"]]
    if json:
        show.emit({"passed": len(results) - len(failed), "failed": len(failed), "failures": failed})
    else:
        for result in failed:
            typer.echo(show.cell(f"{result['file']}: {result['case']}: {result['why']}", 500))
        typer.echo(f"{len(results) - len(failed)} passed, {len(failed)} failed")
    if failed or not results:
        raise typer.Exit(FAILED)


def _run_file(file: str) -> list[dict[str, Any]]:
    from providers.contract import ContractError
    from providers.vectors import run
    from schemas.jsontext import UnreadableJsonError, parse

    def failure(why: str) -> list[dict[str, Any]]:
        return [{"file": file, "case": "-", "passed": False, "why": why}]

    try:
        with Path(file).open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
    except OSError as error:
        return failure(error.strerror or "cannot be read")
    if len(data) > MAX_BYTES:
        return failure(f"larger than {MAX_BYTES} bytes")
    try:
        vector = parse(data)
    except UnreadableJsonError as error:
        return failure(str(error))
    if not isinstance(vector, dict) or not isinstance(vector.get("cases"), list) or not vector["cases"]:
        return failure("not a vector file: it has no cases")
    try:
        outcomes = run(vector, _shipped_schemes(vector))
    except ContractError as error:
        return failure("; ".join(str(fault) for fault in error.faults))
    return [{"file": file, "case": name, "passed": passed, "why": why} for name, passed, why in outcomes]


def _shipped_schemes(vector: "Mapping[str, Any]") -> "Sequence[SignatureScheme] | None":
    """Return the schemes of the shipped contract for this provider; None where there is none: the file's own are used."""
    from cli.contracts import contract, shipped

    name = str(vector.get("provider", ""))
    return contract(name, Path()).signatures if name in shipped() else None

"""`gateway simulate`: the misbehaving provider alone, for local development."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from cli.failure import WRONG_USAGE, CommandError


def simulate(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on.")] = 8100,
    fault: Annotated[list[str] | None, typer.Option(help="A standing fault, NAME or NAME=VALUE; repeat it. See --list-faults.")] = None,
    list_faults: Annotated[bool, typer.Option("--list-faults", help="List the faults and exit.")] = False,
    reports_callback_url: Annotated[str | None, typer.Option(metavar="URL", help="Where callbacks about reports go.")] = None,
    batches_callback_url: Annotated[str | None, typer.Option(metavar="URL", help="Where callbacks about batches go.")] = None,
    reports_secret: Annotated[str | None, typer.Option(metavar="REF", help="Signs callbacks about reports: env:NAME or file:PATH.")] = None,
    batches_secret: Annotated[str | None, typer.Option(metavar="REF", help="Signs callbacks about batches.")] = None,
    queue_seconds: Annotated[float, typer.Option(min=0, help="How long a job waits before it runs.")] = 1.0,
    run_seconds: Annotated[float, typer.Option(min=0, help="How long a job runs.")] = 5.0,
    contract: Annotated[
        str | None, typer.Option(metavar="NAME|FILE", help="Speak this contract instead, by its samples; honest, without callbacks.")
    ] = None,
) -> None:
    """Run a provider that drops, repeats, delays, reorders, lies and forgets. Faults also by the header X-Simulate."""
    from cli import show
    from simulator.faults import FAULTS, FaultError

    if list_faults:
        show.table(("FAULT", "VALUE", "WHAT IT DOES"), [(name, row.unit, row.does) for name, row in FAULTS.items()])
        return
    from cli.logs import configure
    from cli.world import RealWorld
    from simulator.options import SimulatorOptions
    from simulator.server import run

    configure(level="info", form="auto")
    if contract is not None:
        _speak(contract, host, port, queue_seconds, run_seconds)
        return
    usual = SimulatorOptions()
    options = SimulatorOptions(
        reports_secret=_secret(reports_secret) or usual.reports_secret,
        batches_secrets=(_secret(batches_secret),) if batches_secret else usual.batches_secrets,
        reports_callback_url=reports_callback_url,
        batches_callback_url=batches_callback_url,
        queue_seconds=queue_seconds,
        run_seconds=run_seconds,
        simulate=tuple(fault or ()),
    )

    def announce(url: str) -> None:
        typer.echo(f"the simulator listens on {url} (reports: /v1/reports, batches: /v1/batches)")
        if reports_secret is None:
            typer.echo(f"its callbacks about reports are signed with {usual.reports_secret}")
        if batches_secret is None:
            typer.echo(f"its callbacks about batches are signed with {', '.join(usual.batches_secrets)}")

    with _listening(host, port):
        try:
            run(options, RealWorld(), host=host, port=port, announce=announce)
        except FaultError as error:
            raise CommandError(str(error), code=WRONG_USAGE) from error


@contextmanager
def _listening(host: str, port: int) -> Iterator[None]:
    """Say of an address that cannot be had which one it is, and how another is chosen."""
    try:
        yield
    except OSError as error:
        raise CommandError(f"cannot listen on {host}:{port}: {error.strerror or error}; choose another by --port or --host") from error


def _speak(reference: str, host: str, port: int, queue_seconds: float, run_seconds: float) -> None:
    from pathlib import Path

    from cli.contracts import contract as found
    from cli.world import RealWorld
    from simulator.account import Fate
    from simulator.speaking import speak

    contract = found(reference, Path.cwd())
    if not contract.kinds():
        raise CommandError(f"{contract.name} is receive-only: it has no jobs to simulate; write [status]", code=WRONG_USAGE)
    fate = Fate(queued=queue_seconds, runs=run_seconds)
    with _listening(host, port):
        speak(contract, RealWorld(), fate=fate, host=host, port=port, announce=lambda url: typer.echo(f"{contract.name} listens on {url}"))


def _secret(reference: str | None) -> str:
    from ledger.vault import resolve

    return "" if reference is None else resolve(reference).decode("utf-8", "replace")

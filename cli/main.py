"""The entry point: finds the command, turns every error into one line that names the cure, and gives the exit code.

Exit codes: 0 done, 1 the answer is no or something failed, 2 wrong usage or configuration.
"""

import contextlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from cli.commands import audit, contracts, database, deliveries, keys, operations, providers, retention, secrets
from cli.commands.doctor import doctor
from cli.commands.serve import reconcile, serve, web
from cli.commands.simulate import simulate
from cli.commands.verify import verify
from cli.demo.command import demo
from cli.failure import FAILED, WRONG_USAGE, Failure, describe
from cli.opening import Frame

INTERRUPTED: Final = 130  # 128 + SIGINT, as shells have it

app = typer.Typer(
    name="gateway",
    help="A webhook-first reconciliation gateway: the durable truth about long-running work that a provider does for a caller.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(version("reconciliation-gateway"))
        raise typer.Exit


@app.callback()
def gateway(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks; may stand anywhere in the command.")] = False,
) -> None:
    """Take the options that stand before the command."""


for command in (serve, web, reconcile, demo, simulate, verify, doctor):
    app.command()(command)
for noun in (keys, operations, deliveries, providers, secrets, contracts, audit, database, retention):
    app.add_typer(noun.app, name=noun.__name__.rpartition(".")[2])


def main() -> None:
    """Run the command line of this process and end it with the exit code."""
    # A value with bytes that are not text must not break an error message.
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run the command in `arguments` and return its exit code. Nothing but SystemExit by a signal gets out."""
    given, debug = _take_debug(arguments)
    try:
        outcome = app(args=given or ["--help"], prog_name="gateway", standalone_mode=False, obj=Frame(debug=debug))
        return (outcome if isinstance(outcome, int) else 0) if given else WRONG_USAGE
    except BrokenPipeError:
        # Whoever read our output has gone (`| head`); the interpreter must not complain about it while ending.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last line of defence: one line for people instead of a traceback
        if debug:
            traceback.print_exception(error)
        failure: Failure = describe(error)
        typer.echo(f"gateway: {failure.message}", err=True)
        return failure.code


def _take_debug(arguments: Sequence[str]) -> tuple[list[str], bool]:
    """Return the arguments without `--debug`, and whether it stood anywhere before a `--`."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    head = [word for word in arguments[:end] if word != "--debug"]
    return [*head, *arguments[end:]], len(head) < end

"""Errors for people: one line, the cure, the exit code. The modules of the house are asked for only when they are loaded."""

import sys
from dataclasses import dataclass
from typing import Final

import typer
from typer.exceptions import TyperException

from cli.escaping import safe

FAILED: Final = 1
WRONG_USAGE: Final = 2
MAX_MESSAGE: Final = 4_000
MAX_LINES: Final = 20  # faults that are told one by one


class CommandError(Exception):
    """A command cannot do what was asked: the message names the cure. `code` is the exit code."""

    def __init__(self, message: str, *, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """How a command ended that did not do what was asked. `message`: safe text, of one line unless there are several faults."""

    message: str
    code: int


def describe(error: Exception) -> Failure:
    """Return what to tell a person about `error`: one line, at most 4,000 characters, no payload of an unexpected error.

    Several faults of a configuration are a line each, behind a line that counts them.
    """
    message, code = _judge(error)
    if _is(error, "cli.configuration", "ConfigurationError") and len(faults := error.faults) > 1:  # type: ignore[attr-defined]
        lines = [f"  {_line(fault)}" for fault in faults[:MAX_LINES]]
        more = [f"  and {len(faults) - MAX_LINES} more"] if len(faults) > MAX_LINES else []
        return Failure(message="\n".join([f"{len(faults)} faults in the configuration:", *lines, *more]), code=code)
    return Failure(message=_line(message), code=code)


def _line(text: str) -> str:
    return safe(" ".join(text.split()), MAX_MESSAGE)


def _judge(error: Exception) -> tuple[str, int]:
    match error:
        case CommandError():
            return str(error), error.code
        case TyperException():
            context = getattr(error, "ctx", None)
            path = context.command_path if context else "gateway"
            return f"{error.format_message().rstrip('.')}; see {path} --help", error.exit_code
        case typer.Abort():
            return "stopped", FAILED
        case _ if _is(error, "cli.configuration", "ConfigurationError") or _is(error, "ledger.errors", "ConfigurationError"):
            return str(error), WRONG_USAGE
        case _ if _is(error, "ledger.errors", "LedgerError"):
            return str(error), FAILED
        case OSError() if error.strerror:
            return f"{error.filename}: {error.strerror}" if error.filename else error.strerror, FAILED
        case _:
            return f"internal error: {type(error).__name__}; this is our fault. Run it again with --debug for the traceback", FAILED


def _is(error: Exception, module: str, name: str) -> bool:
    # An error of a module that was never imported cannot have been raised; importing it here would slow every start.
    loaded = sys.modules.get(module)
    kind = getattr(loaded, name, None)
    return kind is not None and isinstance(error, kind)

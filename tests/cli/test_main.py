"""The command line's frame: exit codes, one line an error, tracebacks only when asked for, a quick start."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.exceptions import TyperException

from cli import main
from cli.configuration import ConfigurationError
from cli.failure import CommandError, describe

ROOT = Path(__file__).parents[2]


def gateway(*arguments: str) -> subprocess.CompletedProcess[str]:
    start = [sys.executable, "-c", "from cli.main import main; main()", *arguments]
    return subprocess.run(start, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)


def test_help_and_version_go_to_stdout() -> None:
    """They end with 0 and leave stderr empty."""
    for option, expected in (("--help", "Usage: gateway"), ("--version", "0.1.0")):
        done = gateway(option)
        assert (done.returncode, done.stderr) == (0, "")
        assert expected in done.stdout


def test_wrong_usage_is_2_and_one_line_that_names_the_cure() -> None:
    """Unknown commands and options say where help is."""
    for arguments in (["nope"], ["--nope"]):
        done = gateway(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        (line,) = done.stderr.splitlines()
        assert line.startswith("gateway: ")
        assert line.endswith("see gateway --help")


def test_no_command_shows_the_help_and_is_2() -> None:
    """A person who types `gateway` sees what there is; a script sees that nothing was done."""
    done = gateway()
    assert done.returncode == 2
    assert "Usage: gateway" in done.stdout


def test_help_loads_nothing_heavy() -> None:
    """`gateway --help` stays under half a second because it loads neither server, database nor client."""
    heavy = [
        "sqlalchemy",
        "starlette",
        "uvicorn",
        "httpx",
        "aiohttp",
        "apscheduler",
        "pydantic",
        "structlog",
        "cryptography",
        "alembic",
        "rich",
    ]
    code = f"import sys; from cli import main; main.run(['--help']); print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (CommandError("no such key; see gateway keys list"), 1, "no such key; see gateway keys list"),
        (CommandError("wrong", code=2), 2, "wrong"),
        (ConfigurationError(["a: b"]), 2, "a: b"),
        (TyperException("no"), 1, "no; see gateway --help"),
        (FileNotFoundError(2, "No such file or directory", "x.json"), 1, "x.json: No such file or directory"),
        (ValueError("canary"), 1, "internal error: ValueError"),
        (CommandError("two\nlines\x1b[31m"), 1, "two lines\\x1b[31m"),
    ],
)
def test_every_error_is_one_line_with_its_code(error: Exception, code: int, words: str) -> None:
    """1: the answer is no or something failed; 2: usage or configuration. An unexpected error's text is not shown."""
    found = describe(error)
    assert found.code == code
    assert words in found.message
    assert len(found.message.splitlines()) == 1
    assert "canary" not in found.message


def test_several_faults_are_a_line_each() -> None:
    """A configuration's faults are counted and told one by one, each in its own line whatever it holds, and never endlessly."""
    found = describe(ConfigurationError(["a: b", "c:\nd"]))
    assert (found.message, found.code) == ("2 faults in the configuration:\n  a: b\n  c: d", 2)
    many = describe(ConfigurationError([f"x{number}: no" for number in range(50)])).message.splitlines()
    assert (len(many), many[-1]) == (22, "  and 30 more")


def test_debug_may_stand_anywhere_before_the_double_dash() -> None:
    """`--debug` is taken out wherever a person puts it, and left alone behind `--`."""
    assert main._take_debug(["--debug", "keys", "list"]) == (["keys", "list"], True)
    assert main._take_debug(["keys", "list", "--debug"]) == (["keys", "list"], True)
    assert main._take_debug(["verify", "--", "--debug"]) == (["verify", "--", "--debug"], False)

"""docs/operating.md and the code agree: commands, log events, the systemd unit's options."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from cli.main import app
from tests.cli.conftest import Command
from tests.cli.stage import ROOT

PAGE = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")


def commands(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def test_the_page_has_every_command_and_no_other() -> None:
    """The table of commands equals what the command line has."""
    documented = re.findall(r"^\| `(gateway [a-z -]+)` \| [a-z]", PAGE.partition("## Commands")[2], re.MULTILINE)
    assert sorted(documented) == sorted(path for path, _ in commands(typer.main.get_command(app), "gateway"))


def test_every_command_says_what_it_does(command: Command) -> None:
    """`--help` of each command exists, and each option has its words."""
    for path, found in commands(typer.main.get_command(app), "gateway"):
        done = command(*path.split()[1:], "--help")
        assert done.code == 0
        assert found.help
        assert all(getattr(parameter, "help", None) for parameter in found.params if parameter.name not in {"help", "name", "files"}), path


def test_the_page_has_every_event_of_the_log() -> None:
    """Events that any room logs stand in the table of events, and nothing else does."""
    files = [file for room in ("cli", "gateway", "reconciler", "ledger", "artifacts") for file in (ROOT / room).rglob("*.py")]
    used = {event for file in files for event in re.findall(r'\blog\.[a-z]+\(\s*"([a-z]+\.[a-z_]+)"', _logs(file))}
    rows = re.findall(r"^\| (`[a-z]+\.[a-z_]+`(?:, `[a-z]+\.[a-z_]+`)*) \|", PAGE.partition("## Logs")[2], re.MULTILINE)
    assert {event for row in rows for event in re.findall(r"`([^`]+)`", row)} == used


def _logs(file: Path) -> str:
    return file.read_text(encoding="utf-8").replace("_log.", "log.")


def test_the_files_that_contributing_names_exist() -> None:
    """Whoever adds a state, errand, contract or setting finds what CONTRIBUTING.md points to."""
    named = re.findall(r"`((?:[a-z_]+/)+[a-z_]*(?:\.[a-z]+)?)`", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert len(named) > 15
    assert [name for name in named if not (ROOT / name).exists()] == []

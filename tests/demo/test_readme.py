"""README.md is true: its walk runs against a real `gateway serve`, its proofs and places exist, its commands are complete."""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import pytest

from tests.demo.conftest import PATIENCE, ROOT, START, environment

README = (ROOT / "README.md").read_text(encoding="utf-8")
FAULTS = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
WALK = README.partition("## From the demo to your own")[2].partition("\n## ")[0]
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", WALK, re.MULTILINE | re.DOTALL)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Lay out a folder whose `./run gateway` is this checkout, without preparing an environment."""
    run = tmp_path / "run"
    run.write_text(f"#!/bin/sh\n[ \"$1\" = gateway ] || exit 9\nshift\nexec '{sys.executable}' -c '{START}' \"$@\"\n", encoding="utf-8")
    run.chmod(0o755)
    return tmp_path


@pytest.fixture
def walk() -> list[str]:
    """Give the blocks of the walk, on ports that are free."""
    ports = {"8080": str(free_port()), "8100": str(free_port())}
    return [re.sub("8080|8100", lambda match: ports[match[0]], block) for block in BLOCKS]


def shell(folder: Path, script: str) -> None:
    done = subprocess.run(
        ["sh", "-eu", "-c", script], cwd=folder, env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr


class Terminal:
    """A terminal in which one line of the walk runs."""

    def __init__(self, folder: Path, line: str) -> None:
        self._process = subprocess.Popen(
            ["sh", "-c", f"exec {line}"],
            cwd=folder,
            env={**environment(), "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.communicate(timeout=PATIENCE)

    def until(self, pattern: str) -> None:
        assert self._process.stdout is not None
        seen = []
        for line in self._process.stdout:
            seen.append(line)
            if re.search(pattern, line):
                return
        raise AssertionError(seen)


def test_the_walk_from_the_demo_to_ones_own(folder: Path, walk: list[str]) -> None:
    """H1: serve, a key, a curl create, a signed callback, the result, exactly as the page has it."""
    prepare, terminals, *rest = walk
    shell(folder, prepare)
    with ExitStack() as stack:
        simulate, serve = (stack.enter_context(Terminal(folder, line)) for line in terminals.strip().splitlines())
        serve.until(r"house\.started")
        simulate.until("listens on")
        # One shell, as one person's: its variables live from block to block.
        shell(folder, "".join(rest))
    operation = json.loads((folder / "operation.json").read_text())
    assert (operation["status"], operation["result"]["media_type"]) == ("succeeded", "text/csv")
    assert json.loads((folder / "delivery.json").read_text())["status"] == "accepted"
    assert len((folder / "report.csv").read_text().splitlines()) == 101
    rows = json.loads((folder / "history.json").read_text())["history"]
    delivered = next(number for number, row in enumerate(rows) if row["cause"] == "delivery")
    assert not [name for name in ("agent.key", "reports.secret", "gateway.toml", "var") if (folder / name).stat().st_mode & 0o077]
    assert rows[delivered]["to_state"] != "succeeded"
    assert rows[-1]["to_state"] == "succeeded"
    assert rows[-1]["cause"] == "reading"


def test_a_callback_signed_with_another_secret_is_refused(folder: Path, walk: list[str]) -> None:
    """B1: the walk's callback is accepted for its signature, not for its looks."""
    prepare, terminals, create, callback, _ = walk
    shell(folder, prepare)
    with Terminal(folder, terminals.strip().splitlines()[1]) as serve:
        serve.until(r"house\.started")
        other = "cp reports.secret kept && printf 'whsec_bm90IHRoZSBzZWNyZXQgb2YgdGhpcyBlbmRwb2ludA==' > reports.secret\n"
        shell(folder, create + other + callback)
    assert json.loads((folder / "delivery.json").read_text())["code"] == "delivery_refused"


def test_what_the_walk_leaves_is_never_committed() -> None:
    """Every file that the walk writes is ignored by git."""
    written = re.findall(r"(?:>|-o) ([a-z]+\.(?:key|secret|toml|json|csv))\b", WALK)
    assert {"agent.key", "reports.secret", "gateway.toml", "operation.json"} <= set(written)
    if not (ROOT / ".git").exists():
        pytest.skip("this is no clone: nothing can be committed")
    done = subprocess.run(["git", "check-ignore", "--no-index", *written], cwd=ROOT, capture_output=True, text=True, check=False)
    assert set(done.stdout.split()) == set(written)


def proofs() -> Iterator[tuple[str, str]]:
    for page in (FAULTS, README, ARCHITECTURE):
        yield from re.findall(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`", page)


def test_every_proof_exists() -> None:
    """A page's guarantee names the test that proves it, by path and name."""
    found = set(proofs())
    assert len(found) >= 14
    for path, name in found:
        text = (ROOT / path).read_text(encoding="utf-8")
        assert not name or re.search(rf"^(async )?def {name}\(", text, re.MULTILINE), (path, name)
    guarantees = README.partition("## What it guarantees")[2].partition("\n## ")[0]
    for row in re.findall(r"^\| (?!Guarantee|-)(.*) \|$", guarantees, re.MULTILINE):
        assert "::test_" in row, row


def test_every_place_exists() -> None:
    """Files, folders and pages that the README and the architecture page name are there."""
    for page in (README, ARCHITECTURE):
        for place in re.findall(
            r"`((?:cli|gateway|reconciler|ledger|artifacts|lifecycle|providers|schemas|simulator|tests|docs)/[\w/.]*)`", page
        ):
            assert (ROOT / place).exists(), place
    for target in re.findall(r"\]\(([^)#]+)(?:#[\w-]+)?\)", README):
        assert (ROOT / target).exists(), target
    assert "\n## Residues" in ARCHITECTURE


def test_every_room_is_on_the_map() -> None:
    """The map has a row for each package that is shipped, and no other."""
    rooms = set(re.findall(r"^\| `(\w+)/` \|", README, re.MULTILINE))
    shipped = re.search(r"packages = \[(.*)\]", (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert shipped is not None
    assert rooms == set(re.findall(r'"(\w+)"', shipped[1]))


def test_the_two_commands_are_the_doors_own() -> None:
    """H1: what the page says is what `./run` takes, and the number of operations is the demo's."""
    from cli.demo.script import SCRIPT

    usage = subprocess.run([str(ROOT / "run"), "help"], capture_output=True, text=True, check=True, env={"PATH": os.environ["PATH"]}).stdout
    assert "  demo " in usage
    assert "  tests " in usage
    words = {20: "twenty", 21: "twenty-one", 22: "twenty-two"}
    assert f"runs {words[len(SCRIPT)]} operations" in README


def test_the_glossary_has_every_state_and_question() -> None:
    """The words page speaks of every public status, and of the questions people are asked."""
    from schemas.states import PublicStatus

    glossary = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    for word in PublicStatus:
        assert f"`{word}`" in glossary, word

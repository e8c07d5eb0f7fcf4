"""`gateway demo`: every scripted operation ends as it must on both databases, and where one does not the exit code says so."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from cli.demo.script import SCRIPT
from tests.demo.conftest import PATIENCE, START, Demo, environment

NAMES = [act.name for act in SCRIPT]


def rows(out: str) -> dict[str, str]:
    """Return the verdict of each row of the table in plain output."""
    table = out.partition("OPERATION ")[2]
    found = re.findall(r"^(\S+)  +.*  +(as it must|NOT AS IT MUST)$", table, re.MULTILINE)
    return dict(found)


def agrees(done: "subprocess.CompletedProcess[str]") -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    assert rows(done.stdout) == dict.fromkeys(NAMES, "as it must")
    assert f"{len(NAMES)} of {len(NAMES)} operations ended as they must" in done.stdout
    assert re.search(r"^audit verify: \d+ operations, 0 faults; self-audit: 0$", done.stdout, re.MULTILINE)
    assert done.stderr == ""


def test_everything_ends_as_it_must(demo: Demo) -> None:
    """H1, H6: at least ten operations; timelines, a table, exit 0; the temporary record leaves nothing behind."""
    done = demo.run("--exit")
    agrees(done)
    assert len(NAMES) >= 10
    for name in NAMES:
        assert re.search(rf"^ +\d+\.\d{{3}}  {name} ", done.stdout, re.MULTILINE), name
    assert re.search(r"lost-answer +create_pending -> create_unknown +create_ambiguous", done.stdout)
    assert re.search(r"half-done +result_collecting -> cancelled", done.stdout)
    assert "\x1b" not in done.stdout, "no colours in a pipe"
    assert "whsec_" not in done.stdout
    assert list(demo.folder.iterdir()) == []


@pytest.mark.postgres
def test_the_same_on_postgresql_twice(demo: Demo, postgres_url: str) -> None:
    """H2: the same script on PostgreSQL; a second run goes on with the same database and its key."""
    agrees(demo.run("--exit", "--database-url", postgres_url))
    agrees(demo.run("--exit", "--database-url", postgres_url))
    key = demo.folder / "var" / "demo" / "master.key"
    assert key.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("fault", "name", "difference"),
    [
        # Nobody could notice but who counts: the provider executes the resend of a token again.
        ("no_idempotency", "lost-answer", "remote jobs: expected 1, got 2"),
        ("truncated_result", "plain", "state: expected succeeded, got "),
        ("fail", "adopted", "state: expected succeeded, got failed"),
    ],
)
def test_a_provider_that_breaks_its_word_is_seen(demo: Demo, fault: str, name: str, difference: str) -> None:
    """Issue 2 point 12: exit 1 where one expectation is false, and a line that says which."""
    done = demo.run("--json", "--fault", fault)
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    assert told["good"] is False
    by_name: dict[str, Any] = {row["name"]: row for row in told["operations"]}
    assert by_name[name]["good"] is False
    assert any(found.startswith(difference) for found in by_name[name]["differences"]), by_name[name]
    assert by_name["rejected"]["good"] is True
    assert told["audit"]["faults"] == []


def test_an_unknown_fault_is_wrong_usage(demo: Demo) -> None:
    """Exit 2 and one line that lists what exists."""
    done = demo.run("--fault", "explode")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "drop_create_response" in done.stderr


@contextmanager
def staying(demo: Demo) -> Iterator[tuple["subprocess.Popen[str]", "Lines"]]:
    process = demo.start("--verbose")
    lines = Lines(process)
    try:
        yield process, lines
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=PATIENCE)


class Lines:
    """What a process has printed; the error stream is read away beside it."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        assert process.stderr is not None
        self._drain = threading.Thread(target=process.stderr.read, daemon=True)
        self._drain.start()

    def until(self, pattern: str) -> "re.Match[str]":
        """Read lines until one matches. The test's own timeout bounds it."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            found = re.search(pattern, line)
            if found:
                return found
        raise AssertionError(f"ended without {pattern}")


def test_the_service_stays_up_and_ctrl_c_ends_it(demo: Demo) -> None:
    """The address, the key and the curl lines that are printed work; Ctrl-C drains and keeps the verdict as exit code."""
    with staying(demo) as (process, lines):
        address = lines.until(r"The gateway goes on at (http://\S+)")[1]
        key = lines.until(r"agent's key: +(rgk_\S+)")[1]
        lines.until(r"^curl .*/v1/operations\?limit=3")
        create = lines.until(r"^curl -s -X POST .*$")[0]
        found = httpx.get(f"{address}/v1/operations?limit=50", headers={"Authorization": f"Bearer {key}"}, trust_env=False).json()
        assert {view["reference"] for view in found["operations"]} == set(NAMES)
        made = subprocess.run(["sh", "-c", create], capture_output=True, text=True, timeout=PATIENCE, check=True)
        assert json.loads(made.stdout)["state"] == "create_pending"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
    assert list(demo.folder.iterdir()) == []


def test_ctrl_c_in_the_middle_is_no_success(demo: Demo) -> None:
    """A run that was interrupted has proven nothing: 130, and nothing stays behind."""
    with staying(demo) as (process, lines):
        place = Path(lines.until(r"configuration in (\S+)")[1])
        lines.until(r"plain +\. -> create_pending")
        assert place.exists()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
    assert not place.parent.exists()


def test_a_taken_port_is_one_line(demo: Demo) -> None:
    """What keeps the gateway from listening is said with its cure."""
    with staying(demo) as (_, lines):
        port = lines.until(r"gateway on http://127\.0\.0\.1:(\d+)")[1]
        done = demo.run("--exit", "--port", port)
        assert done.returncode == 1
        assert "choose another by --port" in done.stderr
        assert done.stderr.count("\n") == 1


def test_a_terminal_gets_colours_and_a_drawn_table(demo: Demo) -> None:
    """On a terminal the states are coloured and the table is drawn."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", START, "demo", "--exit"],
        cwd=demo.folder,
        env={**environment(), "TERM": "xterm-256color"},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 65_536)
        except OSError:  # the other side has closed
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    assert process.wait(PATIENCE) == 0
    text = shown.decode()
    assert "\x1b[32m" in text
    assert "┃" in text
    bare = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert len(re.findall(r"│ as it must +│", bare)) == len(NAMES)

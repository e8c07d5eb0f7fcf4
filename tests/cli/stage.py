"""A stage for the tests of the command line: a folder with a configuration, and real processes of the console script."""

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SECRET = "whsec_c2ltdWxhdG9yLXJlcG9ydHMtc2VjcmV0LTAwMDA="  # the simulator's own
CANARY = "canary-3f9d1c7e"
START = "import sys; from cli.main import main; main()"
WAIT_SECONDS = 60  # far longer than anything here takes on a busy machine


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Return the one JSON document that it printed."""
        assert self.code in {0, 1}, self.err
        return json.loads(self.out)


@dataclass(slots=True)
class Running:
    """A process that serves; its log lines are read by a thread of the test."""

    process: "subprocess.Popen[str]"
    lines: "queue.Queue[str | None]"
    seen: list[dict[str, Any]] = field(default_factory=list)
    text: list[str] = field(default_factory=list)

    def event(self, name: str) -> dict[str, Any]:
        """Wait for a log event and return it."""
        for found in self.seen:
            if found.get("event") == name:
                return found
        while True:
            line = self.lines.get(timeout=WAIT_SECONDS)
            assert line is not None, f"ended without {name}: {self.text}"
            self.text.append(line)
            found = json.loads(line) if line.startswith("{") else {"event": line}
            self.seen.append(found)
            if found.get("event") == name:
                return found

    def forget(self) -> None:
        """Wait for what comes from now on."""
        self.seen.clear()

    @property
    def address(self) -> str:
        """Return where it listens."""
        return str(self.event("house.started")["address"])

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(WAIT_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A working folder and its environment."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    start: str = START  # what the interpreter is given to run

    def run(self, *arguments: str, stdin: str | None = None, **environment: str) -> Done:
        """Run a command to its end."""
        done = subprocess.run(
            [sys.executable, "-c", self.start, *arguments],
            cwd=self.folder,
            env=self._environment(environment),
            input=stdin or "",
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
            check=False,
        )
        return Done(code=done.returncode, out=done.stdout, err=done.stderr)

    @contextmanager
    def running(self, *arguments: str, **environment: str) -> Iterator[Running]:
        """Run a command beside the test; it is killed at the end if it still runs."""
        process = subprocess.Popen(
            [sys.executable, "-c", self.start, *arguments],
            cwd=self.folder,
            env=self._environment(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        lines: queue.Queue[str | None] = queue.Queue()

        def follow() -> None:
            assert process.stderr is not None
            for line in process.stderr:
                lines.put(line.rstrip("\n"))
            lines.put(None)

        follower = threading.Thread(target=follow, daemon=True)
        follower.start()
        try:
            yield Running(process, lines)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait(WAIT_SECONDS)
            follower.join(WAIT_SECONDS)
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()

    def _environment(self, more: dict[str, str]) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name in {"PATH", "HOME", "LANG"} or name.startswith("COVERAGE_")}
        return {**kept, "PYTHONPATH": str(ROOT), **self.environment, **more}


def reports(folder: Path, *, origin: str, more: str = "") -> Stage:
    """Return a stage with the simulator's reports configured as the provider `reports`."""
    (folder / "reports.toml").write_text((ROOT / "tests" / "cli" / "reports.toml").read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "gateway.toml").write_text(
        f"""
        {more}
        [providers.reports]
        contract = "./reports.toml"
        base_url = "{origin}"
        secrets = ["env:REPORTS_SECRET"]
        credential = "env:REPORTS_TOKEN"
        """,
        encoding="utf-8",
    )
    return Stage(folder=folder, environment={"REPORTS_SECRET": SECRET, "REPORTS_TOKEN": CANARY})

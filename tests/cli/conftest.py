"""Commands run in this process: what they print, how they end, and the logging put back afterwards."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog

from cli import logs, main
from tests.cli.stage import CANARY, SECRET, Done, reports


@pytest.fixture
def unlogged() -> Iterator[None]:
    """Give the root logger and structlog back as they were."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    levels = {name: logging.getLogger(name).level for name in logs.LOUD}
    yield
    root.handlers, root.level = handlers, level
    for name, value in levels.items():
        logging.getLogger(name).setLevel(value)
    structlog.reset_defaults()


Command = Callable[..., Done]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], unlogged: None) -> Command:
    """Give a function that runs a command in a folder with a configured provider and returns how it ended."""
    del unlogged
    stage = reports(tmp_path, origin="http://127.0.0.1:9")
    monkeypatch.chdir(tmp_path)
    for name, value in stage.environment.items():
        monkeypatch.setenv(name, value)

    def run(*arguments: str) -> Done:
        capsys.readouterr()
        code = main.run(arguments)
        out, err = capsys.readouterr()
        assert SECRET not in out + err
        assert CANARY not in out + err
        if code == 2:
            assert out == ""
            first, *faults = err.splitlines()
            assert first.startswith("gateway: ")
            assert all(fault.startswith("  ") for fault in faults)
        return Done(code=code, out=out, err=err)

    return run

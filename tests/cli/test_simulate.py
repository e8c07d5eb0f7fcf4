"""`gateway simulate`: it says that it listens once it does, and at which address; what keeps it from that is one line with the cure."""

import socket
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.cli.stage import Stage


@pytest.mark.parametrize("more", [(), ("--contract", "stripe")], ids=["own", "contract"])
def test_a_taken_port_is_named_with_the_cure(command: Command, more: tuple[str, ...]) -> None:
    """Nothing is announced that is not so, and the line says which address and what to do."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = command("simulate", "--port", str(port), *more)
    assert (done.code, done.out) == (1, "")
    assert f"cannot listen on 127.0.0.1:{port}" in done.err
    assert "--port" in done.err
    assert len(done.err.splitlines()) == 1


def test_an_unknown_fault_is_refused_before_anything_is_announced(command: Command) -> None:
    """Wrong usage is 2, one line on stderr, and nothing on stdout."""
    done = command("simulate", "--port", "0", "--fault", "nonsense")
    assert (done.code, done.out) == (2, "")
    assert "unknown fault 'nonsense'" in done.err


def test_any_free_port_is_told(tmp_path: Path) -> None:
    """With --port 0 it tells the address that it has, not the one that was asked for; a signal ends it with 0."""
    with Stage(folder=tmp_path).running("simulate", "--port", "0") as simulator:
        assert simulator.process.stdout is not None
        line = simulator.process.stdout.readline()
        port = int(line.partition("http://127.0.0.1:")[2].split()[0])
        with socket.create_connection(("127.0.0.1", port), timeout=20):
            pass
        assert simulator.stop() == 0

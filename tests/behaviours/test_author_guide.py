"""The author's guide: its file is a contract, its samples hold, and every behaviour plays against it. No code knows its provider."""

import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from cli.main import app
from ledger.engine import open_engines
from ledger.migrate import migrate
from providers.contract import load
from tests.behaviours.behaviours import BEHAVIOURS
from tests.behaviours.capability import capability
from tests.behaviours.play import Kind, Play

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "contract-guide.md").read_text()
(FILE,) = re.findall(r"```toml\n(.*?)```", GUIDE, re.DOTALL)
SHOWN = [line for block in re.findall(r"```\n(glacier.*?)```", GUIDE, re.DOTALL) for line in block.splitlines()]


@pytest.fixture
def checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Checker":
    monkeypatch.chdir(tmp_path)
    return Checker(tmp_path)


class Checker:
    """Writes a file and says what `gateway contracts check` prints about it."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "glacier.toml"

    def says(self, text: str) -> list[str]:
        self._file.write_text(text)
        return CliRunner().invoke(app, ["contracts", "check", "glacier.toml"]).output.splitlines()


def test_the_check_says_what_the_guide_shows(checked: Checker) -> None:
    """The good file, two slips, and a sample that means something else: the very lines of the page."""
    good, reading, word, sample = SHOWN
    assert checked.says(FILE) == [good]
    slipped = checked.says(FILE.replace("[status.readings]", "[status.reading]").replace('good = "succeeded"', 'good = "succeded"'))
    assert {reading, word} <= set(slipped)
    assert checked.says(FILE.replace("accepted = [201]", "accepted = [201]\nrejected = [400]")) == [sample]


def test_a_provider_that_nobody_knows_plays_every_behaviour(tmp_path: Path) -> None:
    """A new provider needs a file and no code (B2): the guide's file comes to every promised end."""
    contract = load(FILE.encode(), name="glacier")
    (kind,) = [Kind(whole=contract, action=action, contract=kind) for action, kind in contract.kinds().items()]
    engines = open_engines("sqlite://")
    migrate(engines)
    play = Play(engines, [contract], tmp_path)
    mine = [behaviour for behaviour in BEHAVIOURS if behaviour.fits(capability(kind))]
    played = [(behaviour, play.add(number, kind, behaviour.part)) for number, behaviour in enumerate(mine, 1)]
    play.run()
    faults = [
        f"{behaviour.name}: {fault}" for behaviour, identity in played for fault in behaviour.ends(capability(kind), play.end(identity))
    ]
    engines.close()
    assert len(mine) >= 30
    assert not faults, "\n".join(faults)
    assert not [text for line in play.lines.values() for text in line.unspoken]


def test_the_command_speaks_the_guide_s_contract(tmp_path: Path) -> None:
    """`gateway simulate --contract FILE` is that provider on a port: its addresses, its documents, and which sample is missing."""
    (tmp_path / "glacier.toml").write_text(FILE)
    command = [
        sys.executable,
        "-m",
        "cli",
        "simulate",
        "--contract",
        "glacier.toml",
        "--port",
        "0",
        "--queue-seconds",
        "0",
        "--run-seconds",
        "0",
    ]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}) as process:
        try:
            assert process.stdout is not None
            base = process.stdout.readline().split()[-1]
            made = httpx.post(f"{base}/renders", json={"scene": "aurora", "tags": {"ref": "op_77"}}, timeout=30).json()["render"]
            assert (made["phase"], made["tags"]) == ("waiting", {"ref": "op_77"})
            read = httpx.get(f"{base}/renders/{made['id']}", timeout=30).json()["render"]
            assert (read["phase"], read["verdict"], read["film"]["url"]) == ("finished", "good", f"{base}/films/{made['id']}.mp4")
            assert httpx.get(read["film"]["url"], timeout=30).headers["content-type"] == "video/mp4"
            assert httpx.get(f"{base}/renders/another", timeout=30).status_code == 404
        finally:
            process.terminate()
    assert process.returncode == 0

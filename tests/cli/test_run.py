"""`./run`: finds a Python, makes the environment once, survives interruption, names what is missing. No network here: pip is a stub."""

import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ("sh", "cat", "cmp", "dirname", "find", "mkdir", "mv", "rm", "sleep", "uname", "chmod", "cp", "touch")
SHELLS = [name for name in ("dash", "bash", "sh") if shutil.which(name)]

# A Python that answers questions truly, and makes environments whose pip only writes down what it was asked.
PYTHON = f"""#!/bin/sh
case "$*" in *ensurepip*) [ ! -e "$STUB/no-ensurepip" ] || exit 1 ;; esac
if [ "$1 $2" = "-m venv" ]; then
    echo "venv $3" >>"$STUB/log"
    rm -rf "$4"; mkdir -p "$4/bin"; cp "$STUB/pip-python" "$4/bin/python"; cp "$STUB/say" "$4/bin/gateway"
    exit 0
fi
exec {sys.executable} "$@"
"""
PIP_PYTHON = """#!/bin/sh
case "$*" in
*--version*) exit 0 ;;
*install*)
    echo "$*" >>"$STUB/log"
    [ ! -e "$STUB/pip-fails" ] || exit 1
    [ ! -e "$STUB/pip-hangs" ] || { touch "$STUB/hanging"; while :; do sleep 1; done; }
    ;;
*) echo "python $*" ;;
esac
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clone:
    """A copy of what `./run` needs, with a PATH that has only the named tools and the stub of Python."""

    root: Path
    stub: Path
    shell: str

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [shutil.which(self.shell) or self.shell, str(self.root / "run"), *arguments],
            env={"PATH": str(self.stub / "bin"), "STUB": str(self.stub), "HOME": str(self.stub), **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str, **environment: str) -> tuple[int, str, str]:
        process = self.start(*arguments, **environment)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def log(self) -> list[str]:
        log = self.stub / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return lines


@pytest.fixture(params=SHELLS)
def clone(tmp_path: Path, request: pytest.FixtureRequest) -> Clone:
    """Lay out the copy in a folder whose name has a space."""
    root, stub = tmp_path / "the clone", tmp_path / "stub"
    root.mkdir()
    (stub / "bin").mkdir(parents=True)
    for name in ("run", "requirements.lock", "requirements-dev.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, root / name)
    for name in TOOLS:
        (stub / "bin" / name).symlink_to(shutil.which(name) or name)
    for place, text in (
        (stub / "bin" / "python3", PYTHON),
        (stub / "pip-python", PIP_PYTHON),
        (stub / "say", '#!/bin/sh\necho "gateway $*"\n'),
    ):
        place.write_text(text)
        place.chmod(0o755)
    return Clone(root=root, stub=stub, shell=request.param)


def test_the_first_call_installs_and_the_second_does_not(clone: Clone) -> None:
    """Hashes are required, the project itself needs no build isolation, and nothing is said in a pipe."""
    assert clone.run("demo", "--exit") == (0, "gateway demo --exit\n", "")
    venv, locked, project = clone.log()
    assert venv == "venv --clear"
    assert f"install --require-hashes --requirement {clone.root}/requirements.lock" in locked
    assert f"install --no-deps --no-build-isolation --editable {clone.root}" in project
    assert clone.run("gateway", "keys", "list") == (0, "gateway keys list\n", "")
    assert clone.log() == []


def test_the_tests_bring_their_own_lock_which_serves_the_demo_too(clone: Clone) -> None:
    """`tests` installs the development lock over the environment; a change of a lock installs again."""
    clone.run("demo")
    clone.log()
    assert clone.run("tests", "-k", "a b")[:2] == (0, "python -m pytest -k a b\n")
    locked, _ = clone.log()
    assert "requirements-dev.lock" in locked
    assert clone.run("demo")[0] == 0
    assert clone.log() == []
    with (clone.root / "requirements-dev.lock").open("a") as lock:
        lock.write("\n")
    assert clone.run("tests")[:2] == (0, "python -m pytest -n 6 --dist worksteal\n")
    assert len(clone.log()) == 2


def test_a_failed_install_is_begun_anew(clone: Clone) -> None:
    """Half an environment is never trusted: the next call makes it from nothing, and says one line with the cure."""
    (clone.stub / "pip-fails").touch()
    code, out, err = clone.run("demo")
    assert (code, out) == (2, "")
    assert (
        err == "run: installing requirements.lock failed (see above);"
        " cure: a reachable package index (pip.conf or PIP_INDEX_URL), then run this again\n"
    )
    (clone.stub / "pip-fails").unlink()
    clone.log()
    assert clone.run("demo")[0] == 0
    assert clone.log()[0] == "venv --clear"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_install_is_begun_anew(clone: Clone, number: signal.Signals) -> None:
    """Ctrl-C, SIGTERM and even SIGKILL of the whole group leave nothing that stops or fools the next call."""
    (clone.stub / "pip-hangs").touch()
    process = clone.start("demo")
    for _ in range(600):
        if (clone.stub / "hanging").exists():
            break
        try:
            process.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
    os.killpg(process.pid, number)
    process.communicate(timeout=30)
    assert process.returncode != 0
    (clone.stub / "pip-hangs").unlink()
    clone.log()
    assert clone.run("demo") == (0, "gateway demo\n", "")
    assert clone.log()[0] == "venv --clear"
    assert not (clone.root / ".venv.guard").exists()


def test_two_at_once_prepare_once(clone: Clone) -> None:
    """Of several first calls one prepares and the others wait for it."""
    started = [clone.start("demo") for _ in range(3)]
    outcomes = {(process.communicate(timeout=60), process.returncode) for process in started}
    assert outcomes == {(("gateway demo\n", ""), 0)}
    assert len(clone.log()) == 3


def test_a_missing_venv_module_is_named_with_its_cure(clone: Clone) -> None:
    """Debian ships Python without ensurepip: one line names the packages, exit 2."""
    (clone.stub / "no-ensurepip").touch()
    code, out, err = clone.run("demo")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert (code, out) == (2, "")
    assert (
        err
        == f"run: python3 cannot make virtual environments; cure: apt install python3-venv (or python{version}-venv), then run this again\n"
    )


@pytest.mark.parametrize(("system", "words"), [("Linux", "apt install python3 python3-venv"), ("Darwin", "brew install python@3.13")])
def test_a_missing_python_is_named_with_its_cure(clone: Clone, system: str, words: str) -> None:
    """An older or broken Python is passed over; where none is left one line names the cure of this system, exit 2."""
    (clone.stub / "bin" / "python3").write_text("#!/bin/sh\nexit 127\n")
    (clone.stub / "bin" / "uname").unlink()
    (clone.stub / "bin" / "uname").write_text(f"#!/bin/sh\necho {system}\n")
    (clone.stub / "bin" / "uname").chmod(0o755)
    code, out, err = clone.run("demo")
    assert (code, out) == (2, "")
    assert err.startswith("run: no Python 3.11 or newer found; cure: ")
    assert words in err
    assert err.count("\n") == 1


def test_a_broken_python_does_not_hide_a_good_one(clone: Clone) -> None:
    """`python3` may be too old or a shim that fails: the versioned names are tried after it."""
    shutil.move(clone.stub / "bin" / "python3", clone.stub / "bin" / "python3.12")
    (clone.stub / "bin" / "python3").write_text("#!/bin/sh\nexit 127\n")
    (clone.stub / "bin" / "python3").chmod(0o755)
    assert clone.run("demo") == (0, "gateway demo\n", "")


def test_python_chooses_the_interpreter(clone: Clone) -> None:
    """PYTHON= names one, with a space in its path or not; one that is too old is a usage error."""
    place = clone.root / "my python"
    shutil.move(clone.stub / "bin" / "python3", place)
    assert clone.run("demo", PYTHON=str(place)) == (0, "gateway demo\n", "")
    shutil.rmtree(clone.root / ".venv")
    assert clone.run("demo", PYTHON="/bin/false")[0] == 2
    (clone.stub / "no-ensurepip").touch()
    assert "apt install python3-venv" in clone.run("demo", PYTHON=str(place))[2]


def test_wrong_usage_is_2(clone: Clone) -> None:
    """No command and an unknown command say what there is and touch nothing."""
    assert clone.run()[0] == 2
    assert clone.run("nope") == (2, "", "run: unknown command: nope; ./run help lists them\n")
    assert clone.run("help")[0] == 0
    assert not (clone.root / ".venv").exists()


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-dev.lock"])
def test_a_lock_has_hashes_and_no_address(name: str) -> None:
    """Every requirement is pinned with hashes, and no index or file is named."""
    text = (ROOT / name).read_text(encoding="utf-8")
    entries = re.split(r"\n(?=\S)", text.replace("\\\n", " ").strip())
    assert all(re.match(r"[a-z0-9-]+==\S+ .*--hash=sha256:[0-9a-f]{64}", entry) for entry in entries)
    assert "://" not in text
    assert not re.search(r"^--", text, re.MULTILINE)


def test_the_locks_agree() -> None:
    """The development lock holds the runtime lock, so that what is tested is what runs."""
    pins = [
        set(re.findall(r"^[a-z0-9-]+==\S+", (ROOT / name).read_text(), re.MULTILINE))
        for name in ("requirements.lock", "requirements-dev.lock")
    ]
    assert pins[0] <= pins[1]

"""Real processes: they start from nothing, serve, reload, drain on the first signal and end at once on the second."""

import datetime as dt
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from cli.serving import stop_while_starting
from schemas.commands import Beat
from tests.cli import records
from tests.cli.callers import calls, client, create, new_key, settled, simulated, until
from tests.cli.stage import ROOT, START, WAIT_SECONDS, Running, Stage, free_port, reports

pytestmark = pytest.mark.timeout(180)


# --- start


def test_with_no_file_at_all_serve_works(tmp_path: Path) -> None:
    """SQLite in ./var, a key file of mode 0600, an admin key that is shown once and opens the API; exit 0 on SIGTERM."""
    stage = Stage(folder=tmp_path)
    with stage.running("serve", "--port", "0") as serving:
        address = serving.address
        assert serving.process.stdout is not None
        line = serving.process.stdout.readline()
        found = re.fullmatch(r"admin key, shown this once: (rgk_\S+)\n", line)
        assert found
        with client(address, found[1]) as api:
            assert api.get("/v1/operations").status_code == 200
            assert api.get("/livez").json()["status"] == "ok"
            until(lambda: api.get("/readyz").status_code == 200)
        assert serving.stop() == 0
    var = tmp_path / "var"
    assert {"gateway.db", "master.key", "artifacts"} <= {place.name for place in var.iterdir()}
    assert (var / "master.key").stat().st_mode & 0o777 == 0o600
    with stage.running("serve", "--port", "0") as again:
        assert again.address
        assert again.stop() == 0
        assert again.process.stdout is not None
        assert again.process.stdout.read() == ""
    assert found[1] not in "".join(serving.text + again.text)


def test_a_port_that_is_taken_is_one_line(tmp_path: Path) -> None:
    """The address and the cure, exit 1, nothing left running."""
    stage = Stage(folder=tmp_path)
    with stage.running("serve", "--port", "0") as serving:
        port = serving.address.rpartition(":")[2]
        other = tmp_path / "other"
        other.mkdir()
        done = Stage(folder=other).run("web", "--port", port)
        assert done.code == 1
        assert f"gateway: cannot listen on 127.0.0.1:{port}: " in done.err
        assert "choose another by --port" in done.err
        said = [line for line in done.err.splitlines() if "ledger.database_made" not in line]  # the first start made one
        assert len(said) == 1  # nothing has begun, so nothing is said to stop
        both = Stage(folder=other).run("serve", "--port", port)
        assert [line for line in both.err.splitlines() if "admin key" not in line] == said
        assert serving.stop() == 0


def test_wrong_configuration_is_2_before_anything_is_made(tmp_path: Path) -> None:
    """Faults of the file stop the process before a database exists."""
    (tmp_path / "gateway.toml").write_text("[web]\nprot = 1\n")
    for command in ("serve", "web", "reconcile"):
        done = Stage(folder=tmp_path).run(command)
        assert done.code == 2
        assert done.err == "gateway: gateway.toml: web.prot: no such setting; the nearest is web.port\n"
    assert not (tmp_path / "var").exists()


def test_a_unix_socket_is_served(tmp_path: Path) -> None:
    """`--uds` serves on a socket and takes it away at the end."""
    with Stage(folder=tmp_path).running("serve", "--uds", "s") as serving:
        assert serving.address == f"unix:{tmp_path}/s"
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(tmp_path / "s")), base_url="http://gateway") as api:
            assert api.get("/livez").status_code == 200
        assert serving.stop(signal.SIGINT) == 0
    assert not (tmp_path / "s").exists()


def test_a_database_that_is_deleted_under_a_process_is_noticed(tmp_path: Path) -> None:
    """B165: within seconds 503 on /readyz and on writes, a line in the log, and no second database beside the live process."""
    stage = reports(tmp_path, origin="http://127.0.0.1:9")
    with stage.running("web", "--port", "0") as serving:
        key = new_key(stage)
        with client(serving.address, key) as api:
            create(api)
            until(lambda: api.get("/readyz").status_code == 200)
            (tmp_path / "var" / "gateway.db").unlink()
            assert "gateway.db is gone" in serving.event("ledger.database_gone")["fault"]
            unready = api.get("/readyz")
            assert (unready.status_code, unready.json()["checks"]["database"]) == (503, "takes no writes: see the log")
            body = {"provider": "reports", "request": {"kind": "sales", "rows": 5}}
            assert api.post("/v1/operations", json=body, headers={"Idempotency-Key": "k2"}).status_code == 503
        done = stage.run("keys", "create", "--owner", "acme", "--subject", "agent-7", "--scope", "all")
        assert (done.code, done.out) == (2, "")
        assert "stop that process first" in done.err
        assert not (tmp_path / "var" / "gateway.db").exists()
        assert serving.stop() == 0


@pytest.mark.skipif(sys.platform != "linux", reason="another process's limits change on Linux only")
def test_a_full_disk_is_told_by_everybody(tmp_path: Path) -> None:
    """B165: `database check` and `doctor` try a write, a process is unready until there is room again (here: a file size limit)."""
    stage = reports(tmp_path, origin="http://127.0.0.1:9")
    with records.opened(tmp_path, **stage.environment) as house, house.ledger.engines.look() as reading:
        reading.exec_driver_sql("SELECT * FROM history").all()  # an open read: the WAL only grows
        for number in range(60):
            house.ledger.write_now(Beat(duty=f"{number}", process="p" * 4_000, now=1, ok=True))
        limit = (tmp_path / "var" / "gateway.db-wal").stat().st_size
        limited = replace(stage, start=f"import resource as r; r.setrlimit(r.RLIMIT_FSIZE, ({limit}, r.RLIM_INFINITY)); {START}")
        done = limited.run("database", "check", "--json")
        assert done.code == 1
        assert [fault.partition(":")[0] for fault in done.json()["faults"]] == ["takes no writes"]
        found = [row for row in limited.run("doctor", "--json").json() if row["about"] == "database" and row["level"] == "fault"]
        assert found[0]["found"].startswith("takes no writes: the database ")
        with limited.running("web", "--port", "0") as serving:
            assert httpx.get(f"{serving.address}/readyz").status_code == 200
            with client(serving.address, new_key(stage)) as api:
                body = {"provider": "reports", "request": {"kind": "sales", "rows": 5}}
                assert api.post("/v1/operations", json=body, headers={"Idempotency-Key": "k1"}).status_code == 503
                assert str(tmp_path) in serving.event("ledger.writes_refused")["fault"]
                assert api.get("/readyz").json()["checks"]["database"] == "takes no writes: see the log"
                resource.prlimit(serving.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
                serving.event("ledger.writes_taken_again")  # a probe has found it, without any request
                assert api.get("/readyz").status_code == 200
            assert serving.stop() == 0
    assert stage.run("database", "check", "--json").json()["faults"] == []


# --- the whole way


def test_serve_brings_an_operation_to_its_result(tmp_path: Path) -> None:
    """One process: create, callback or read, collection, download; then the record verifies and nothing secret was logged.

    B106, B119: it runs where the clock is hours and a half off UTC and knows summer time; log, API and scheduler say UTC.
    """
    elsewhere = {"TZ": "America/St_Johns"}
    with simulated(tmp_path) as (stage, _), stage.running("serve", "--port", str(free_port()), **elsewhere) as serving:
        address = serving.address
        key = new_key(stage)
        with client(address, key) as api:
            began = dt.datetime.now(dt.UTC)  # noqa: TID251 - the real clock is what the process is compared with
            operation = create(api)
            for told in (serving.event("house.started")["time"], api.get(f"/v1/operations/{operation}").json()["created_at"]):
                assert told.endswith("Z")
                assert abs(dt.datetime.fromisoformat(told) - began) < dt.timedelta(minutes=20)
            (row,) = (found for found in stage.run("doctor", "--json", **elsewhere).json() if found["about"] == "scheduler")
            assert "timezone UTC" in row["found"]
            assert settled(api, operation)["state"] == "succeeded"
            assert api.get(f"/v1/operations/{operation}/result").text.startswith("row,")
        assert serving.stop() == 0
        done = stage.run("audit", "verify")
        assert done.out == "1 operations verified, 0 faults, self-audit 0\n"
        written = "".join(serving.text)
        for secret in (*stage.environment.values(), key):
            assert secret not in written


def test_web_and_reconcile_share_a_database(tmp_path: Path) -> None:
    """Two processes on one SQLite file: what the one takes in, the other does."""
    with simulated(tmp_path) as (stage, face), stage.running("web", "--port", "0") as web:
        with client(web.address, new_key(stage)) as api:
            operation = create(api)
            assert calls(face, "POST", "/v1/reports") == 0
            with stage.running("reconcile") as reconciling:
                reconciling.event("house.started")
                assert settled(api, operation)["state"] == "succeeded"
                assert reconciling.stop() == 0
        assert web.stop() == 0


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_the_procfile_runs(tmp_path: Path, shell: str) -> None:
    """Its two lines start as they stand, and `web` listens on $PORT."""
    lines = dict(re.findall(r"^(\w+): (.+)$", (ROOT / "Procfile").read_text(), re.MULTILINE))
    assert set(lines) == {"web", "reconciler"}
    scripts = tmp_path / "bin"
    scripts.mkdir()
    (scripts / "gateway").write_text(f'#!/bin/sh\nexec {sys.executable} -c "import sys; from cli.main import main; main()" "$@"\n')
    (scripts / "gateway").chmod(0o755)
    port = free_port()
    environment = {"PATH": f"{scripts}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "PORT": str(port)}
    started = {}
    for name, line in lines.items():
        started[name] = subprocess.Popen(
            [shell, "-c", f"exec {line}"], cwd=tmp_path, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
    try:
        for process in started.values():  # a signal before its handlers stand would be the shell's
            assert process.stderr is not None
            next(line for line in process.stderr if "house.started" in line)
        assert httpx.get(f"http://127.0.0.1:{port}/livez").status_code == 200
    finally:
        for process in started.values():
            process.terminate()
    for process in started.values():
        process.communicate(timeout=WAIT_SECONDS)
    assert {name: process.wait(WAIT_SECONDS) for name, process in started.items()} == {"web": 0, "reconciler": 0}


def test_without_its_credential_nothing_is_sent(tmp_path: Path) -> None:
    """A credential that is configured and missing stops the call before its first byte; the operation waits for it."""
    with simulated(tmp_path) as (stage, face), stage.running("serve", "--port", "0", REPORTS_TOKEN="") as serving:
        with client(serving.address, new_key(stage)) as api:
            operation = create(api)
            tried = ("operations", "show", operation, "--json")
            until(lambda: stage.run(*tried).json()["attempts"]["creates"])
            until(lambda: stage.run(*tried).json()["attempts"]["open"] is None)
            assert stage.run(*tried).json()["state"] == "create_pending"
            told = stage.run("operations", "history", operation, "--json").out
            assert "credential_missing" in told
            assert "internal" not in told
        for event in ("house.credential_missing", "reconciler.credential_missing"):
            found = serving.event(event)
            assert found["provider"] == "reports"
            assert "env:REPORTS_TOKEN" in found["fault"]
        assert calls(face, "POST", "/v1/reports") == 0
        assert serving.stop() == 0


def test_without_a_secret_every_delivery_is_refused(tmp_path: Path) -> None:
    """B010: no usable secret is 503 and a warning that names the reference, never acceptance."""
    stage = reports(tmp_path, origin="http://127.0.0.1:9")
    with stage.running("web", "--port", "0", REPORTS_SECRET="") as serving:
        assert httpx.post(f"{serving.address}/webhooks/reports", content=b"{}").status_code == 503
        assert "env:REPORTS_SECRET" in serving.event("house.secret_unusable")["fault"]
        assert serving.stop() == 0


# --- signals


def sending(serving: Running, api: httpx.Client, face: httpx.Client, fault: str) -> str:
    """Create an operation whose create call hangs at the provider, and wait until the provider has it."""
    operation = create(api, "k1", fault)
    until(lambda: calls(face, "POST", "/v1/reports"))
    serving.forget()
    return operation


def test_the_first_signal_drains(tmp_path: Path) -> None:
    """B103: a create that is under way at SIGTERM comes to its end, and its answer is committed before the exit with 0."""
    with simulated(tmp_path) as (stage, face), stage.running("serve", "--port", "0") as serving:
        with client(serving.address, new_key(stage)) as api:
            operation = sending(serving, api, face, "delay_create_response=2")
        assert serving.stop() == 0
        drained = serving.event("reconciler.drained")
        assert (drained["finished"], drained["lost"]) == (1, 0)
        shown = stage.run("operations", "show", operation, "--json").json()
        assert shown["remote"]["job_id"] is not None
        assert shown["attempts"] == {"creates": 1, "unsure": 0, "open": None}


def test_the_second_signal_ends_at_once_and_the_next_start_recovers(tmp_path: Path) -> None:
    """Nobody waits for a hanging provider twice; the restart finds the open attempt, resends the same token, and there is one job."""
    with simulated(tmp_path) as (stage, face):
        with stage.running("serve", "--port", "0", GATEWAY_CLOCKWORK__LEASE_SECONDS="13") as serving:
            key = new_key(stage)
            with client(serving.address, key) as api:
                operation = sending(serving, api, face, "delay_create_response=25")
            serving.process.send_signal(signal.SIGTERM)
            serving.event("house.stopping")
            began = time.monotonic()
            assert serving.stop() == 1
            assert time.monotonic() - began < 5
        with stage.running("serve", "--port", "0") as serving, client(serving.address, key) as api:
            assert settled(api, operation)["state"] == "succeeded"
            assert len(face.get("/_simulator/jobs").json()["jobs"]) == 1
            assert serving.stop() == 0


def test_a_signal_during_the_start_ends_it_with_0() -> None:
    """Before the loop takes over SIGTERM and SIGINT have handlers, and SIGHUP is ignored: process 1 would be deaf otherwise."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        stop_while_starting()
        for number in (signal.SIGTERM, signal.SIGINT):
            with pytest.raises(SystemExit) as ended:
                signal.raise_signal(number)
            assert ended.value.code == 0
        signal.raise_signal(signal.SIGHUP)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_what_hangs_at_the_end_is_ended(tmp_path: Path) -> None:
    """B103: a thread that never comes back (a dead network disk) does not keep the process beyond its bound, and the log says so."""
    code = (
        "import threading; from cli.serving import last_resort; from cli.logs import configure; configure(level='info', form='json');"
        "threading.Thread(target=threading.Event().wait).start(); last_resort(0.05)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, timeout=WAIT_SECONDS, check=False
    )
    assert done.returncode == 1
    assert b"house.overdue" in done.stderr


def can_be_process_one() -> bool:
    unshare = shutil.which("unshare")
    return (
        unshare is not None and subprocess.run([unshare, "-pf", "--kill-child", "true"], check=False, capture_output=True).returncode == 0
    )


@pytest.mark.skipif(not can_be_process_one(), reason="making a process namespace needs Linux and its permission")
def test_process_one_of_a_container_ends_on_sigterm(tmp_path: Path) -> None:
    """Process 1 ignores signals that it has no handler for: ours has one from its start."""
    code = "import sys, os; assert os.getpid() == 1; from cli.main import main; main()"
    command = ["unshare", "-pf", "--kill-child", sys.executable, "-c", code, "serve", "--port", "0"]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        assert process.stderr is not None
        next(line for line in process.stderr if "house.started" in line)
        (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(child), signal.SIGTERM)
        rest = process.stderr.read()
        assert process.wait(WAIT_SECONDS) == 0
    assert "reconciler.drained" in rest


def test_a_reload_takes_all_or_nothing(tmp_path: Path) -> None:
    """SIGHUP: a new provider is served at once; a faulty file, or one that changes what is open, changes nothing."""
    stage = reports(tmp_path, origin="http://127.0.0.1:9")
    file = tmp_path / "gateway.toml"
    first = file.read_text()
    with stage.running("serve", "--port", "0", STRIPE_SECRET="whsec_0123456789abcdef0123456789abcdef") as serving:
        address = serving.address

        def status(provider: str) -> int:
            return httpx.post(f"{address}/webhooks/{provider}", content=b"{}").status_code

        def reload(text: str, expected: str) -> dict[str, Any]:
            serving.forget()
            file.write_text(text)
            serving.process.send_signal(signal.SIGHUP)
            return serving.event(expected)

        assert (status("reports"), status("stripe")) == (401, 404)
        more = first + '\n[providers.stripe]\ncontract = "stripe"\nsecrets = ["env:STRIPE_SECRET"]\n'
        assert reload(more, "house.reloaded")["providers"] == ["reports", "stripe"]
        assert (status("reports"), status("stripe")) == (401, 401)
        assert "no such setting" in reload(more + "x = 1\n", "house.reload_refused")["fault"]
        assert "restart it" in reload('database_url = "sqlite:///other.db"\n' + first, "house.reload_refused")["fault"]
        assert status("stripe") == 401
        reload(first, "house.reloaded")
        assert status("stripe") == 404
        assert serving.stop() == 0


# --- the simulator alone


def test_simulate_lists_and_refuses_faults(tmp_path: Path) -> None:
    """The faults are listed; an unknown one is a usage error."""
    stage = Stage(folder=tmp_path)
    assert "drop_create_response" in stage.run("simulate", "--list-faults").out
    done = stage.run("simulate", "--port", str(free_port()), "--fault", "nonsense")
    assert done.code == 2
    assert len(done.err.splitlines()) == 1

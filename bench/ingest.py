"""Webhook ingest through the real receiver beside a Starlette hello-world, in one run, as a ratio.

    python bench/ingest.py [--seconds 8] [--rounds 3] [--connections 64] [--database-url URL] [--profile]

Every 2xx of the gateway is a signed delivery that was verified, deduplicated and committed with fsync. Rounds alternate,
so that both see the same machine. `--profile` samples the gateway's threads and says in which room the time goes.
"""

import argparse
import collections
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SECRET = "whsec_test_0123456789abcdef0123456789abcdef"
CONFIG = """
[providers.stripe]
contract = "stripe"
secrets = ["env:BENCH_SECRET"]
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(port: int, process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if process.poll() is not None:
                raise SystemExit(f"the server ended with {process.returncode}") from None
            time.sleep(0.05)
        else:
            return
    raise SystemExit("the server did not start within 30 s")


def gateway(folder: Path, port: int, url: str, *, profile: bool) -> "subprocess.Popen[bytes]":
    (folder / "gateway.toml").write_text(CONFIG, encoding="utf-8")
    environment = {**os.environ, "BENCH_SECRET": SECRET, "GATEWAY_LOG_LEVEL": "error"}
    runner = [sys.executable, str(ROOT / "bench" / "ingest.py"), "--sampled"] if profile else [sys.executable, "-m", "cli"]
    command = [*runner, "web", "--config", str(folder / "gateway.toml"), "--port", str(port), "--database-url", url]
    return subprocess.Popen(command, cwd=folder, env={**environment, "PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL)


def hello(port: int) -> "subprocess.Popen[bytes]":
    options = ["--port", str(port), "--log-level", "warning", "--no-access-log", "--loop", "uvloop", "--http", "httptools"]
    return subprocess.Popen([sys.executable, "-m", "uvicorn", "bench.hello:app", *options], cwd=ROOT)


def measure(port: int, options: argparse.Namespace, seed: int) -> dict[str, Any]:
    command = [
        sys.executable, str(ROOT / "bench" / "load.py"), "--port", str(port), "--seconds", str(options.seconds),
        "--connections", str(options.connections), "--seed", str(seed),
    ]  # fmt: skip
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def stop(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=30)


def run(options: argparse.Namespace) -> None:
    ratios = []
    with tempfile.TemporaryDirectory() as name:
        for number in range(1, options.rounds + 1):
            folder = Path(name) / str(number)
            folder.mkdir()
            url = options.database_url or f"sqlite:///{folder}/gateway.db"
            port = free_port()
            process = hello(port)
            wait_for(port, process)
            plain = measure(port, options, number)
            stop(process)
            port = free_port()
            process = gateway(folder, port, url, profile=options.profile)
            wait_for(port, process)
            durable = measure(port, options, number)
            stop(process)
            ratios.append(durable["per_second"] / plain["per_second"])
            print(f"round {number}: hello {plain}")
            print(f"round {number}: gateway {durable}")
            print(f"round {number}: {ratios[-1]:.1%} of hello-world, p99 {durable['p99_ms'] / plain['p99_ms']:.1f} of its p99", flush=True)
    print(f"median: {statistics.median(ratios):.1%} of hello-world at {options.connections} connections")


def sampled(arguments: list[str]) -> None:
    """Run the `gateway` command under a sampling thread; print shares by thread and place at the end."""
    from cli.main import main

    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    ended = threading.Event()

    def sample() -> None:
        names = {}
        while not ended.wait(0.005):
            names = {thread.ident: thread.name for thread in threading.enumerate()}
            for ident, frame in sys._current_frames().items():
                if ident != threading.get_ident():
                    counts[names.get(ident, "?")][place(frame)] += 1

    thread = threading.Thread(target=sample, name="sampler", daemon=True)
    thread.start()
    sys.argv = ["gateway", *arguments]
    try:
        main()
    finally:
        ended.set()
        thread.join()
        for name, places in counts.items():
            total = sum(places.values())
            print(f"thread {name}: {total} samples", file=sys.stderr)
            for where, count in places.most_common(18):
                print(f"  {count / total:6.1%}  {where}", file=sys.stderr)


def place(frame: Any) -> str:
    """Say where a sample was taken: the innermost frame of a known room, and what it was waiting for."""
    innermost = f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_name}"
    library = sysconfig.get_paths()["stdlib"]
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if str(path).startswith(str(ROOT)) and ".venv" not in str(path):
            return f"{path.relative_to(ROOT)}:{frame.f_code.co_name} ({innermost})"
        frame = frame.f_back
    return f"outside {'stdlib' if innermost.startswith(library) else ''} {innermost}"


def main() -> None:
    if sys.argv[1:2] == ["--sampled"]:
        sampled(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--database-url", default="")
    parser.add_argument("--profile", action="store_true")
    run(parser.parse_args())


if __name__ == "__main__":
    main()

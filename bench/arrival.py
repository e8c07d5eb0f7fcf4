"""From a callback's arrival to the final state in a waiting agent's hands, against the simulator on loopback.

    python bench/arrival.py [--operations 60] [--database-url URL]

For each operation an agent waits (`Prefer: wait`); the provider ends the job and sends its signed callback. Between the
two lie: verification, commit, the authoritative read, the collection and validation of the result, and the answer to the
agent. Printed in units of the same run's bare delivery (POST until 2xx), so that machines compare.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.ingest import free_port, stop, wait_for  # noqa: E402 - after the path
from cli.world import RealWorld  # noqa: E402 - after the path
from simulator.jobs import Phase  # noqa: E402 - after the path
from simulator.options import SimulatorOptions  # noqa: E402 - after the path
from simulator.server import Simulator  # noqa: E402 - after the path

SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
CONFIG = """
[providers.reports]
contract = "reports"
base_url = "{base}"
secrets = ["env:BENCH_SECRET"]
credential = "env:BENCH_CREDENTIAL"
"""


def start(folder: Path, base: str, port: int, url: str) -> tuple["subprocess.Popen[bytes]", str]:
    (folder / "gateway.toml").write_text(CONFIG.format(base=base), encoding="utf-8")
    environment = {
        **os.environ, "BENCH_SECRET": SECRET, "BENCH_CREDENTIAL": "bench", "PYTHONPATH": str(ROOT), "GATEWAY_LOG_LEVEL": "error",
    }  # fmt: skip
    shared = ["--config", str(folder / "gateway.toml"), "--database-url", url]
    scopes = [word for scope in ("create", "read") for word in ("--scope", f"operations:{scope}")]
    command = [sys.executable, "-m", "cli", "keys", "create", "--owner", "bench", "--subject", "agent", *scopes, *shared]
    key = subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True).stdout.strip()
    server = [sys.executable, "-m", "cli", "serve", "--port", str(port), *shared]
    return subprocess.Popen(server, cwd=folder, env=environment, stdout=subprocess.DEVNULL), key


async def one(client: httpx.AsyncClient, simulator: Simulator, number: int) -> tuple[float, float]:
    """Return (seconds until the agent has the final state, seconds of the delivery alone)."""
    body = {"provider": "reports", "request": {"kind": "sales", "rows": 10}}
    made = (await client.post("/v1/operations", json=body, headers={"Idempotency-Key": f"bench-{number}"})).raise_for_status().json()
    path = f"/v1/operations/{made['id']}"
    view: dict[str, Any] = made
    while view["state"] != "observing":
        answer = await client.get(path, headers={"Prefer": "wait=5", "If-None-Match": f'"{view["version"]}"'})
        view = (await client.get(path)).json() if answer.status_code == 304 else answer.json()
    job = view["remote"]["job_id"]
    waiting = asyncio.create_task(until_final(client, path))
    await asyncio.sleep(0)
    simulator.force(job, Phase.SUCCEEDED)
    began = time.perf_counter()
    await simulator.deliver(job)
    delivered = time.perf_counter() - began
    final = await waiting
    took = time.perf_counter() - began
    if final["status"] != "succeeded":
        raise SystemExit(f"{made['id']} ended as {final['status']}")
    return took, delivered


async def until_final(client: httpx.AsyncClient, path: str) -> dict[str, Any]:
    etag = ""
    while True:
        headers = {"Prefer": "wait=30", **({"If-None-Match": etag} if etag else {})}
        answer = await client.get(path, headers=headers, timeout=40)
        etag = answer.headers.get("etag", etag)
        if answer.status_code == 200 and answer.json()["settled"]:
            view: dict[str, Any] = answer.json()
            return view


async def measure(options: argparse.Namespace) -> None:
    simulation = SimulatorOptions(
        credential="bench", reports_secret=SECRET, queue_seconds=0, run_seconds=3_600, simulate=("lose_callbacks=off",)
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with Simulator(simulation, RealWorld()) as simulator:
            port = free_port()
            process, key = start(folder, simulator.base_url, port, options.database_url or f"sqlite:///{folder}/gateway.db")
            try:
                wait_for(port, process)
                simulator.configure(reports_callback_url=f"http://127.0.0.1:{port}/webhooks/reports")
                headers = {"Authorization": f"Bearer {key}"}
                async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, trust_env=False) as client:
                    found = [await one(client, simulator, number) for number in range(options.operations)]
            finally:
                stop(process)
    took = sorted(each[0] for each in found)
    posts = sorted(each[1] for each in found)
    middle, late, post = statistics.median(took), took[int(len(took) * 0.99)], statistics.median(posts)
    print(f"{len(found)} operations: arrival to final state p50 {middle * 1000:.1f} ms, p99 {late * 1000:.1f} ms")
    print(f"the delivery alone p50 {post * 1000:.1f} ms: ratio {middle / post:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", type=int, default=60)
    parser.add_argument("--database-url", default="")
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()

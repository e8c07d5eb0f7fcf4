"""Callers of a running gateway, and the simulator beside it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.cli.stage import WAIT_SECONDS, Stage, free_port, reports


def until(condition: Callable[[], Any], seconds: float = WAIT_SECONDS) -> Any:
    """Wait for a condition to hold, asking again as fast as it answers, and return what it answered."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
    raise AssertionError("it never came to hold")


def client(address: str, key: str) -> httpx.Client:
    return httpx.Client(base_url=address, headers={"Authorization": f"Bearer {key}"}, timeout=30)


def new_key(stage: Stage) -> str:
    done = stage.run("keys", "create", "--owner", "acme", "--subject", "agent-7", "--scope", "all")
    assert done.code == 0, done.err
    return done.out.strip()


def create(api: httpx.Client, key: str = "k1", *simulate: str) -> str:
    body = {"provider": "reports", "request": {"kind": "sales", "rows": 5, "simulate": list(simulate)}}
    answer = api.post("/v1/operations", json=body, headers={"Idempotency-Key": key})
    assert answer.status_code in {200, 202}, answer.text
    return str(answer.json()["id"])


def settled(api: httpx.Client, operation: str) -> dict[str, Any]:
    """Poll as a caller should, until it says stop."""

    def look() -> dict[str, Any] | None:
        tag = ""
        answer = api.get(f"/v1/operations/{operation}", headers={"Prefer": "wait=5", "If-None-Match": tag}).json()
        return answer if answer["settled"] else None

    found: dict[str, Any] = until(look)
    return found


@contextmanager
def simulated(folder: Path, **settings: str) -> Iterator[tuple[Stage, httpx.Client]]:
    """Run the simulator as a process, and give a stage that is configured for it and a client of its own face."""
    port = free_port()
    more = "\n".join(f'{name} = "{value}"' for name, value in settings.items())
    stage = reports(folder, origin=f"http://127.0.0.1:{port}", more=more)
    with (
        stage.running("simulate", "--port", str(port), "--queue-seconds", "0", "--run-seconds", "0.2") as process,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as face,
    ):

        def answers() -> bool:
            assert process.process.poll() is None, process.text
            try:
                return face.get("/_simulator/jobs").status_code == 200
            except httpx.TransportError:
                return False

        until(answers)
        yield stage, face


def calls(face: httpx.Client, method: str, path: str) -> int:
    return len(face.get("/_simulator/calls", params={"method": method, "path": path}).json()["calls"])

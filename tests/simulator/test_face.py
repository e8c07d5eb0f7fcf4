"""The face for tests and people, the journal, the server's own life, and the page that documents the faults."""

import asyncio
import hashlib
import signal
import socket
import sys
from pathlib import Path

import httpx
import pytest

from simulator.clock import Clock, Schedule
from simulator.faults import FAULTS, FaultError, merge, parse_header
from simulator.jobs import Phase
from simulator.options import SimulatorOptions
from simulator.provider import Provider
from simulator.server import Simulator
from tests.simulator.stage import PATIENCE, RealWorld, Receiver, Stage, options

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.anyio


async def test_journal_of_calls(stage: Stage) -> None:
    """Every request stands in the journal with token, trace and body digest, refused ones too; the face's own do not."""
    await stage.client.post("/v1/reports", json={"kind": "a"}, headers={"Idempotency-Key": "t", "traceparent": "00-1-2-01"})
    await stage.client.post("/v1/reports", content=b"nonsense")
    first, second = stage.sim.calls("POST", "/v1/reports")
    assert (first.headers["idempotency-key"], first.headers["traceparent"]) == ("t", "00-1-2-01")
    assert second.body_sha256 == hashlib.sha256(b"nonsense").hexdigest()
    rows = (await stage.client.get("/_simulator/calls", params={"method": "POST", "path": "/v1/reports"})).json()["calls"]
    assert [row["body_bytes"] for row in rows] == [first.body_bytes, len(b"nonsense")]
    assert len(stage.sim.calls()) == 2


async def test_answers_carry_a_request_id(stage: Stage) -> None:
    """x-request-id of the answer is the one in the journal."""
    answer = await stage.client.get("/v1/batches")
    assert answer.headers["x-request-id"] == stage.sim.calls()[0].request_id


async def test_face_moves_time_and_jobs(stage: Stage) -> None:
    """Advance pushes the clock; a job is forced into a phase, and its end is called back about, again if contradicted."""
    job = await stage.opened("reports")
    await stage.client.post("/_simulator/advance", json={"seconds": 11})
    rows = (await stage.client.get("/_simulator/jobs")).json()["jobs"]
    assert [(row["id"], row["phase"]) for row in rows] == [(job, "running")]
    for phase in ("failed", "succeeded"):
        answer = await stage.client.post(f"/_simulator/jobs/{job}", json={"phase": phase})
        assert answer.json()["phase"] == phase
        assert await stage.status("reports", job) == phase
        await stage.until(lambda phase=phase: any(got.value["data"]["status"] == phase for got in stage.receiver.got))  # type: ignore[misc] # a bound default has no type
    stage.sim.force(job, Phase.RUNNING)
    stage.sim.advance(100)
    assert await stage.status("reports", job) == "running"


async def test_face_delivers_now(stage: Stage) -> None:
    """Deliver answers with what was tried, claims a phase on request, and is in the deliveries."""
    job = await stage.opened("batches")
    tried = (await stage.client.post(f"/_simulator/deliver/{job}", json={"phase": "failed"})).json()["deliveries"]
    assert [(row["type"], row["status"]) for row in tried] == [("batch.failed", 200)]
    assert (await stage.client.get("/_simulator/deliveries", params={"job": job})).json()["deliveries"] == tried
    assert (await stage.client.post(f"/_simulator/deliver/{job}")).json()["deliveries"][0]["type"] == "batch.validating"


async def test_standing_faults(stage: Stage) -> None:
    """Faults of the options hit every job to come, and can be replaced while it runs."""
    await stage.client.post("/_simulator/faults", json={"simulate": ["reject=451"]})
    assert (await stage.report()).status_code == 451
    stage.sim.configure(simulate=("refuse_cancel",))
    job = await stage.opened("reports")
    assert (await stage.cancel("reports", job)).status_code == 409


async def test_face_refuses_nonsense(stage: Stage) -> None:
    """Bad input of the face is a 400 or 404 with a code."""
    job = await stage.opened("reports")
    for path, body, status in [
        ("advance", {"seconds": -1}, 400),
        ("advance", {"seconds": "x"}, 400),
        ("faults", {"simulate": ["droop"]}, 400),
        (f"jobs/{job}", {"phase": "happy"}, 400),
        (f"jobs/{job}", {"phase": []}, 400),
        (f"deliver/{job}", {"phase": {}}, 400),
        ("jobs/none", {"phase": "failed"}, 404),
        ("deliver/none", {}, 404),
    ]:
        answer = await stage.client.post(f"/_simulator/{path}", json=body)
        assert (answer.status_code, bool(answer.json()["error"]["code"])) == (status, True)


async def test_clock_cannot_leave_the_calendar(stage: Stage) -> None:
    """However often it is pushed, times stay writable."""
    job = await stage.opened("reports")
    for _ in range(400):
        stage.sim.advance(10**9)
    assert await stage.status("reports", job) == "succeeded"


async def test_milliseconds_without_a_push(stage: Stage) -> None:
    """Durations of milliseconds pass by themselves: the callback comes without anybody touching the clock."""
    stage.sim.configure(queue_seconds=0.01, run_seconds=0.02)
    job = await stage.opened("reports")
    assert (await stage.receiver.wait(1))[0].value["data"] == {"id": job, "status": "succeeded", "client_reference": None}


async def test_a_taken_port_is_an_error(stage: Stage) -> None:
    """A second simulator on the same port says so."""
    port = int(stage.sim.base_url.rsplit(":", 1)[1])
    with pytest.raises(OSError, match="in use"):
        async with Simulator(SimulatorOptions(), RealWorld(), port=port):
            pass


async def test_run_serves_until_told_to_stop() -> None:
    """run() as a process: it announces its address, answers, and ends with 0 on SIGTERM although a read hangs."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    code = (
        "from simulator.options import SimulatorOptions; from simulator.server import run; from tests.simulator.stage import RealWorld;"
        f"run(SimulatorOptions(), RealWorld(), port={port}, announce=lambda url: print(url, flush=True))"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    async with asyncio.timeout(3 * PATIENCE):
        url = (await process.stdout.readline()).decode().strip()
        assert url == f"http://127.0.0.1:{port}"
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=2 * PATIENCE) as client:
            job = (await client.post("/v1/reports", json={"simulate": ["hang_reads"]})).json()["id"]
            hanging = asyncio.create_task(client.get(f"/v1/reports/{job}"))
            calls: list[object] = []
            while not calls:
                calls = (await client.get("/_simulator/calls", params={"method": "GET"})).json()["calls"]
            process.send_signal(signal.SIGTERM)
            with pytest.raises(httpx.RemoteProtocolError):
                await hanging
        assert await process.wait() == 0


async def test_bounds_of_memory(receiver: Receiver) -> None:
    """Jobs, logs, kept bodies and waiting callbacks have bounds: refused with 503, forgotten, cut, dropped visibly."""
    small = options(receiver, max_jobs=2, max_log=3, max_pending_callbacks=1)
    async with Simulator(small, RealWorld()) as sim, httpx.AsyncClient(base_url=sim.base_url, trust_env=False) as client:
        statuses = [(await client.post("/v1/reports", content=b"{}" + b" " * 20_000)).status_code for _ in range(4)]
        assert statuses == [202, 202, 503, 503]
        assert [len(call.body) for call in sim.calls()] == [16_384] * 3
        assert sim.calls()[0].body_bytes == 20_002
        assert [entry.note for entry in sim.deliveries()] == ["dropped: too many callbacks wait"]


async def test_slow_bodies_are_cut() -> None:
    """A body that does not come within its time is a 408."""
    async with Simulator(SimulatorOptions(body_seconds=0.05), RealWorld()) as sim:
        reader, writer = await asyncio.open_connection(*sim.base_url.removeprefix("http://").split(":"))
        writer.write(b"POST /v1/reports HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{")
        async with asyncio.timeout(PATIENCE):
            assert b" 408 " in await reader.readline()
        writer.close()


def test_memory_of_tokens_is_bounded() -> None:
    """The count of creates by token or body forgets the oldest beyond max_jobs, and only those."""
    provider = Provider(SimulatorOptions(max_jobs=2), RealWorld())
    assert [provider.sighted(key) for key in "abacaba"] == [0, 0, 1, 0, 2, 0, 3]


async def test_bound_of_sends_at_once() -> None:
    """No more callbacks are under way at once than the options allow; the others wait and come."""
    clock = Clock(RealWorld())
    schedule = Schedule(clock, max_pending=10, max_at_once=2)
    gate, all_done, running, done = asyncio.Event(), asyncio.Event(), [0], [0]
    most = [0]

    async def action() -> None:
        running[0] += 1
        most[0] = max(most[0], running[0])
        await gate.wait()
        running[0] -= 1
        done[0] += 1
        if done[0] == 5:
            all_done.set()

    for _ in range(5):
        assert schedule.add(clock.now(), action)
    ticking = asyncio.create_task(schedule.run())
    async with asyncio.timeout(PATIENCE):
        while running[0] < 2:  # noqa: ASYNC110 # the action cannot know when no third one follows
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        gate.set()
        await all_done.wait()
    ticking.cancel()
    assert most == [2]


def test_options_name_known_faults() -> None:
    """Unknown standing faults are refused at the start, with the list of what exists."""
    with pytest.raises(FaultError, match="drop_create_response"):
        Simulator(SimulatorOptions(simulate=("droop",)), RealWorld())


def test_grammar() -> None:
    """Defaults, values, `off`, spaces; later layers win."""
    assert parse_header(" fail , hide=2.5,rate_limit = 3,reject=off") == {"fail": 1, "hide": 2.5, "rate_limit": 3, "reject": None}
    assert merge({"fail": 1.0, "hide": 5.0}, {"hide": 7.0}, {"fail": None}) == {"hide": 7.0}
    for bad in ("fail=2", "rate_limit=1.5", "create_status=200", "hide=-1", "hide=inf", "=3", "x" * 5_000, ",".join(["fail"] * 65)):
        with pytest.raises(FaultError):
            parse_header(bad)


def test_the_page_has_the_table() -> None:
    """docs/simulator.md shows exactly the faults of the code, row by row, in order."""
    page = (ROOT / "docs" / "simulator.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `") and line.count("|") == 6]
    expected = [
        f"| `{name}` | {fault.scope} | {fault.unit} | {f'{fault.default:g}' if fault.unit != 'flag' else ''} | {fault.does} |"
        for name, fault in FAULTS.items()
    ]
    assert rows == expected


def test_every_fault_has_a_test() -> None:
    """Each fault's name stands in a test's code that selects it."""
    text = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    unproven = [name for name in FAULTS if f'"{name}"' not in text and f'"{name}=' not in text]
    assert not unproven

"""The performance: simulator and house in one process over real HTTP on loopback, the script, the table, and then the service stays up."""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cli import house as composition
from cli import serving
from cli.demo import stage
from cli.demo.client import Caller, UnexpectedAnswerError
from cli.demo.face import NAME_WIDTH, Face
from cli.demo.plots import Cast, play
from cli.demo.script import SCRIPT, Act
from cli.demo.timeline import Timeline
from cli.demo.verdict import Verdict, audit, judge
from cli.world import RealWorld
from schemas.operation import SECOND
from simulator.server import Simulator

INTERRUPTED: Final = 130  # as shells have it
ACT_SECONDS: Final = 60.0  # far longer than any act takes; it only keeps a broken one from hanging
_PLACES: Final = ("reports", "batches")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the command was asked for."""

    folder: Path
    database_url: str | None
    port: int
    faults: Sequence[str]
    stays: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """The gateway that is up, and who has a key to it."""

    address: str
    agent_key: str
    person_key: str


def run(wanted: Wanted, face: Face) -> int:
    """Run the demo and return the exit code: 0 only if everything ended as it must."""
    with asyncio.Runner(loop_factory=serving.loop_factory()) as runner:
        return runner.run(_perform(wanted, face))


async def _perform(wanted: Wanted, face: Face) -> int:
    world = RealWorld()
    known = stage.lay_out(wanted.folder)
    async with Simulator(stage.options(known, wanted.faults), world) as simulator:
        configuration = stage.configure(wanted.folder, simulator=simulator.base_url, database_url=wanted.database_url, port=wanted.port)
        house = await asyncio.to_thread(composition.open_house, configuration, world=world, migrate=True, role="demo")
        try:
            return await _serve(house, simulator, known.credential, wanted, face)
        finally:
            await asyncio.to_thread(house.ledger.close)


async def _serve(house: composition.House, simulator: Simulator, credential: str, wanted: Wanted, face: Face) -> int:
    """Serve, play the script once the gateway listens, and go on serving or end. A signal ends it at any time."""
    listening = asyncio.Event()
    addresses: list[str] = []

    def told(address: str) -> None:
        addresses.append(address)
        listening.set()

    process = serving.Process(house, web=True, reconciler=True, reread=lambda: house.configuration, told=told)
    work = asyncio.create_task(process.work(), name="gateway")

    async def play_all() -> tuple[bool, Running]:
        await listening.wait()
        address = addresses[0]
        face.says(f"gateway on {address}, simulator on {simulator.base_url}, record in {_shown(house.settings.database_url)}")
        face.says(
            f"contracts reports and batches as they are shipped, once made of reports; configuration in {wanted.folder / 'gateway.toml'}"
        )
        simulator.configure(**{f"{name}_callback_url": f"{address}/webhooks/{name}" for name in _PLACES})
        return await _show(house, simulator, address, credential, face)

    script = asyncio.create_task(play_all(), name="script")
    await asyncio.wait({work, script}, return_when=asyncio.FIRST_COMPLETED)
    if process.stopping or not script.done():  # a signal, which also makes the script's calls fail; or it could not listen
        script.cancel()
        await asyncio.gather(script, return_exceptions=True)
        await work
        return INTERRUPTED
    if wanted.stays and script.exception() is None:
        _farewell(face, script.result()[1], simulator.base_url, wanted)
    else:
        process.stop()
    await work
    return 0 if script.result()[0] else 1


def _shown(url: str) -> str:
    """Return the address of the record without a user and a password."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}" if scheme != "sqlite" else url


async def _show(house: composition.House, simulator: Simulator, address: str, credential: str, face: Face) -> tuple[bool, Running]:
    """Play the script and show its table. Returns whether all is as it must be, and what somebody needs to go on."""
    world = house.world
    began = world.now()
    run_id = world.new_id("demo_")
    running = Running(
        address=address,
        agent_key=await stage.make_key(house.ledger, world, owner=run_id, subject="agent", scopes=stage.AGENT_SCOPES),
        person_key=await stage.make_key(house.ledger, world, owner=run_id, subject="person", scopes=stage.PERSON_SCOPES),
    )
    for act in SCRIPT:
        face.says(f"  {act.name:<{NAME_WIDTH}}  {act.tells}")
    timeline = Timeline(house.ledger, face.row, began=began)
    following = asyncio.create_task(timeline.run(), name="timeline")
    try:
        async with (
            Caller(address, running.agent_key, lambda what, status: face.called("agent", what, status)) as agent,
            Caller(address, running.person_key, lambda what, status: face.called("person", what, status)) as person,
            Caller(simulator.base_url, credential, lambda what, status: face.called("service", what, status)) as service,
        ):
            cast = Cast(
                agent=agent,
                person=person,
                service=service,
                simulator=simulator,
                run=run_id,
                callback_url=f"{address}/webhooks/reports",
                began=lambda act, operation: timeline.follow(act.name, operation),
            )
            verdicts = await asyncio.gather(*(_one(cast, act) for act in SCRIPT))
    finally:
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
    await timeline.catch_up()
    audited = await audit(house.ledger, world)
    face.ended(verdicts, audited, (world.now() - began) / SECOND)
    return audited.good and all(verdict.good for verdict in verdicts), running


async def _one(cast: Cast, act: Act) -> Verdict:
    operation: str | None = None
    failure = ""
    made: list[str] = []

    def began(it: Act, known: str) -> None:
        made.append(known)
        cast.began(it, known)

    try:
        operation = await play(replace(cast, began=began), act, ACT_SECONDS)
    except UnexpectedAnswerError as error:
        failure = str(error)
    except TimeoutError:
        failure = f"did not settle within {ACT_SECONDS:.0f} s"
    return await judge(cast, act, operation or next(iter(made), None), failure)


def _farewell(face: Face, running: Running, simulator: str, wanted: Wanted) -> None:
    """Say how to go on by hand."""
    face.says("")
    face.says(f"The gateway goes on at {running.address} and the simulator at {simulator}; Ctrl-C ends both.")
    if wanted.database_url is None:
        face.says("The record is temporary and goes with them.")
    face.says(f"agent's key:  {running.agent_key}")
    face.says(f"person's key: {running.person_key}   (may decide: GET /v1/questions)")
    face.says("")
    face.says(f"curl -s -H 'Authorization: Bearer {running.agent_key}' '{running.address}/v1/operations?limit=3'")
    face.says(
        f"curl -s -X POST {running.address}/v1/operations -H 'Authorization: Bearer {running.agent_key}'"
        " -H 'Idempotency-Key: mine-1' -H 'Content-Type: application/json'"
        """ -d '{"provider": "reports", "request": {"kind": "sales", "rows": 10, "simulate": ["drop_create_response"]}}'"""
    )

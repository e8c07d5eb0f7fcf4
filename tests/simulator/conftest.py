"""Fixtures of the simulator's tests."""

from collections.abc import AsyncIterator

import httpx
import pytest

from simulator.server import Simulator
from tests.simulator.stage import RealWorld, Receiver, Stage, options


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver() as running:
        yield running


@pytest.fixture
async def stage(receiver: Receiver) -> AsyncIterator[Stage]:
    async with (
        Simulator(options(receiver), RealWorld()) as sim,
        httpx.AsyncClient(base_url=sim.base_url, timeout=10, trust_env=False) as client,
    ):
        yield Stage(sim=sim, client=client, receiver=receiver)

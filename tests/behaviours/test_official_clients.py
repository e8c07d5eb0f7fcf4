"""The providers' own packages, pointed at the simulator by base URL, create and read jobs; the gateway adopts and settles them."""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import anthropic
import openai
import stripe
from replicate.client import Client as ReplicateClient

from providers.contract import load
from schemas.operation import Operation
from schemas.states import Mode, State
from simulator.account import Fate
from simulator.speaking import Speaker
from tests.reconciler.houses import House, house
from tests.reconciler.worlds import StillWorld

FOLDER: Final = Path(__file__).parents[2] / "providers" / "contracts"
_AT_ONCE: Final = Fate(runs=0.0)  # over when it is first read
T = TypeVar("T")


@contextlib.asynccontextmanager
async def stage(name: str, folder: Path, fate: Fate = _AT_ONCE) -> AsyncIterator[tuple[Speaker, House]]:
    """Run a provider that speaks the shipped contract `name`, and a reconciler that is configured for it."""
    contract = load((FOLDER / f"{name}.toml").read_bytes(), name=name)
    async with (
        Speaker(contract, StillWorld(), fate=lambda _: fate) as provider,
        house(folder, {name: provider.base_url}, contract=contract) as home,
    ):
        yield provider, home


def told(story: Callable[[Path], Awaitable[None]]) -> Callable[[Path], None]:
    """Make a test of a coroutine."""

    @functools.wraps(story)
    def test(tmp_path: Path) -> None:
        asyncio.run(_whole(story(tmp_path)))

    return test


async def _whole(story: Awaitable[None]) -> None:
    await story


async def called(work: Callable[[], T]) -> T:
    """Let a package that blocks do its call in a thread."""
    async with asyncio.timeout(30):
        return await asyncio.to_thread(work)


async def adopted(home: House, provider: str, action: str, job: str, *states: State) -> Operation:
    """Adopt a job that the package has made, and wait for its end."""
    identity = await home.register(provider=provider, action=action, mode=Mode.ADOPT, remote_job_id=job, request=None)
    return await home.reaches(identity, *states, seconds=30)


@told
async def test_openai_makes_and_reads_a_batch_that_the_gateway_settles(tmp_path: Path) -> None:
    """A11, F1: the package understands the simulator's documents, and both see the same job."""
    async with stage("openai", tmp_path) as (provider, home):
        client = openai.OpenAI(base_url=f"{provider.base_url}/v1", api_key="key", max_retries=0)
        made = await called(
            lambda: client.batches.create(
                input_file_id="file-1", endpoint="/v1/responses", completion_window="24h", metadata={"team": "blue"}
            )
        )
        assert made.status == "validating"
        assert (await called(lambda: client.batches.retrieve(made.id))).status == "completed"
        assert made.id in [batch.id for batch in (await called(client.batches.list)).data]
        end = await adopted(home, "openai", "batch", made.id, State.SUCCEEDED)
        assert end.remote_state == "completed"
        assert ("GET", f"/v1/files/{(await called(lambda: client.batches.retrieve(made.id))).output_file_id}/content") in provider.calls


@told
async def test_openai_makes_and_cancels_a_background_response_that_the_gateway_settles(tmp_path: Path) -> None:
    """E1: a cancel by the package is the provider's own end to us."""
    async with stage("openai", tmp_path, Fate(runs=None)) as (provider, home):
        client = openai.OpenAI(base_url=f"{provider.base_url}/v1", api_key="key", max_retries=0)
        made = await called(lambda: client.responses.create(model="gpt-5.2", input="Think.", background=True))
        assert made.status == "queued"
        assert (await called(lambda: client.responses.retrieve(made.id))).status == "in_progress"
        assert (await called(lambda: client.responses.cancel(made.id))).status == "cancelled"
        assert (await adopted(home, "openai", "response", made.id, State.CANCELLED)).remote_state == "cancelled"


@told
async def test_replicate_makes_and_reads_a_prediction_that_the_gateway_settles(tmp_path: Path) -> None:
    """A11: the answer itself is the result."""
    async with stage("replicate", tmp_path) as (provider, home):
        client = ReplicateClient(api_token="token", base_url=provider.base_url)
        made: Any = await called(lambda: client.predictions.create(version="9dcd6d78", input={"text": "Alice"}))
        assert made.status == "starting"
        await called(made.reload)
        assert (made.status, made.output) == ("succeeded", ["hello Alice"])
        assert (await adopted(home, "replicate", "prediction", made.id, State.SUCCEEDED)).remote_state == "succeeded"


@told
async def test_stripe_makes_one_payment_for_one_key_and_the_gateway_settles_it(tmp_path: Path) -> None:
    """A4, B055: the package's own key is honoured; a repeat brings the first answer."""
    async with stage("stripe", tmp_path) as (provider, home):
        client = stripe.StripeClient("sk_test_key", base_addresses={"api": provider.base_url}, max_network_retries=0)

        def pay() -> stripe.PaymentIntent:
            return client.v1.payment_intents.create({"amount": 2000, "currency": "eur"}, {"idempotency_key": "order-1"})

        made, again = await called(pay), await called(pay)
        assert (made.id, made.status) == (again.id, "requires_confirmation")
        assert len(provider.accounts["payment_intent"].jobs) == 1
        assert (await called(lambda: client.v1.payment_intents.retrieve(made.id))).status == "succeeded"
        assert (await adopted(home, "stripe", "payment_intent", made.id, State.SUCCEEDED)).remote_state == "succeeded"


@told
async def test_anthropic_makes_a_batch_and_reads_its_results_and_the_gateway_settles_it(tmp_path: Path) -> None:
    """F1, F5: what the package streams as results is the file that the gateway keeps."""
    async with stage("anthropic", tmp_path) as (provider, home):
        client = anthropic.Anthropic(base_url=provider.base_url, api_key="key", max_retries=0)
        params: Any = {"model": "claude", "max_tokens": 8, "messages": [{"role": "user", "content": "Hi"}]}
        made = await called(lambda: client.messages.batches.create(requests=[{"custom_id": "item-0", "params": params}]))
        assert made.processing_status == "in_progress"
        assert (await called(lambda: client.messages.batches.retrieve(made.id))).processing_status == "ended"
        items = await called(lambda: list(client.messages.batches.results(made.id)))
        assert [item.custom_id for item in items] == [f"item-{number}" for number in range(4)]
        assert (await adopted(home, "anthropic", "message_batch", made.id, State.SUCCEEDED)).remote_state == "ended/1"

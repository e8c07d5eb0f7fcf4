"""Callbacks as they arrive: genuine by the official packages, and bent by the faults."""

import json
import time
from typing import Any

import pytest
import stripe
from standardwebhooks import Webhook, WebhookVerificationError

from simulator.jobs import Phase
from tests.simulator.stage import BATCHES_SECRETS, REPORTS_SECRET, Received, Stage

pytestmark = pytest.mark.anyio
both = pytest.mark.parametrize("api", ["reports", "batches"])
END = 100.0  # seconds after which every job here has ended; within the signatures' tolerance of five minutes
DONE = {"reports": "succeeded", "batches": "completed"}
SIGNED_AT = {"reports": "webhook-timestamp", "batches": "batch-signature"}


def genuine(api: str, got: Received, secret: str = "") -> bool:
    """Ask the official package of the API's scheme."""
    if api == "reports":
        try:
            Webhook(secret or REPORTS_SECRET).verify(got.body, dict(got.headers))
        except WebhookVerificationError:
            return False
        return True
    try:
        stripe.WebhookSignature.verify_header(got.body, got.headers["batch-signature"], secret or BATCHES_SECRETS[0], 300)
    except stripe.SignatureVerificationError:
        return False
    return True


def event_id(api: str, got: Received) -> str:
    return str(got.headers["webhook-id"] if api == "reports" else got.value["id"])


def claims(got: Received) -> str:
    return str(got.value["data"]["status"])


def tampered(got: Received) -> Received:
    return Received(path=got.path, headers=got.headers, body=got.body.replace(b'"status"', b'"Status"'))


@both
async def test_a_finished_job_calls_back_once_and_genuinely(stage: Stage, api: str) -> None:
    """One delivery about the end, which the official package accepts, and refuses once a byte is changed."""
    job = await stage.opened(api)
    stage.sim.advance(END)
    (got,) = await stage.receiver.wait(1)
    assert got.path == f"/hooks/{api}"
    assert genuine(api, got)
    assert not genuine(api, tampered(got))
    assert (got.value["data"]["id"], claims(got)) == (job, DONE[api])
    assert got.value["type"] == f"{'report' if api == 'reports' else 'batch'}.{DONE[api]}"
    await stage.until(lambda: stage.notes(job) == ["original"])
    assert [entry.status for entry in stage.sim.deliveries(job)] == [200]


async def test_shapes_of_the_bodies(stage: Stage) -> None:
    """Reports echo the client reference, batches their metadata; times as each API writes them."""
    await stage.opened("reports", client_reference="ref-1")
    stage.sim.advance(END)
    report = (await stage.receiver.wait(1))[0].value
    assert set(report) == {"type", "timestamp", "data"}
    assert report["data"]["client_reference"] == "ref-1"
    assert report["timestamp"].endswith("Z")
    await stage.opened("batches", metadata={"operation": "op_1"})
    stage.sim.advance(END)
    batch = (await stage.receiver.wait(2))[1].value
    assert set(batch) == {"id", "object", "type", "created_at", "data"}
    assert batch["data"]["metadata"] == {"operation": "op_1"}
    assert isinstance(batch["created_at"], int)


async def test_rotation_signs_with_every_secret(stage: Stage) -> None:
    """Two batches secrets: two v1, and either secret accepts (MISSION B11); with one there is one."""
    await stage.opened("batches")
    stage.sim.advance(END)
    (got,) = await stage.receiver.wait(1)
    assert got.headers["batch-signature"].count("v1=") == 2
    assert all(genuine("batches", got, secret) for secret in BATCHES_SECRETS)
    stage.sim.configure(batches_secrets=BATCHES_SECRETS[:1])
    await stage.opened("batches")
    stage.sim.advance(END)
    got = (await stage.receiver.wait(2))[1]
    assert not genuine("batches", got, BATCHES_SECRETS[1])


@both
@pytest.mark.parametrize("answer", [500, 302, 0])
async def test_refused_deliveries_are_retried_with_the_same_id(stage: Stage, api: str, answer: int) -> None:
    """A non-2xx or no answer: the same event id and bytes again after the pause, signed anew; then it is done."""
    stage.receiver.statuses = [answer]
    job = await stage.opened(api)
    stage.sim.advance(END)
    await stage.until(lambda: stage.notes(job) == ["original"])
    stage.sim.advance(1)
    first, second = await stage.receiver.wait(2)
    assert event_id(api, first) == event_id(api, second)
    assert first.body == second.body
    assert genuine(api, second)
    assert first.headers[SIGNED_AT[api]] != second.headers[SIGNED_AT[api]]
    await stage.until(lambda: stage.notes(job) == ["original", "retry"])


async def test_retries_are_bounded(stage: Stage) -> None:
    """As many retries as the options have pauses, and each failure stands in the journal."""
    stage.receiver.statuses = [503, 503, 503, 503]
    job = await stage.opened("reports")
    stage.sim.advance(END)
    for count in (1, 2, 3):
        await stage.until(lambda count=count: len(stage.notes(job)) == count)  # type: ignore[misc] # a bound default has no type
        stage.sim.advance(10)
    assert [entry.status for entry in stage.sim.deliveries(job)] == [503, 503, 503]
    assert len(stage.receiver.got) == 3


async def test_nobody_listening_is_quiet(stage: Stage) -> None:
    """A receiver that is not there is a row in the journal, never an error of the simulator."""
    job = await stage.opened("reports", callback_url="http://127.0.0.1:1/nobody")
    stage.sim.advance(END)
    await stage.until(lambda: stage.notes(job) == ["original"])
    assert [(entry.status, entry.error) for entry in stage.sim.deliveries(job)] == [(None, "ConnectError")]
    assert (await stage.get("reports", job)).status_code == 200


async def test_callback_url_of_the_request(stage: Stage) -> None:
    """`callback_url` in the create body wins over the options."""
    await stage.opened("reports", callback_url=f"{stage.receiver.url}/mine")
    stage.sim.advance(END)
    assert (await stage.receiver.wait(1))[0].path == "/mine"


@both
async def test_delay_callbacks(stage: Stage, api: str) -> None:
    """delay_callbacks=50: the job has ended, the callback comes 50 s later."""
    job = await stage.opened(api, "run=0", "queue=0", "finalize=0", "delay_callbacks=50")
    assert await stage.status(api, job) == DONE[api]
    stage.sim.advance(49)
    await stage.until(lambda: stage.sim.jobs[job].announced)
    assert not stage.receiver.got
    stage.sim.advance(1)
    assert claims((await stage.receiver.wait(1))[0]) == DONE[api]


@both
async def test_duplicate_callbacks(stage: Stage, api: str) -> None:
    """duplicate_callbacks=2: three of the same event at once, a fourth later, all genuine (MISSION B3)."""
    job = await stage.opened(api, "duplicate_callbacks=2")
    stage.sim.advance(END)
    await stage.until(lambda: len(stage.notes(job)) == 3)
    assert sorted(stage.notes(job)) == ["copy", "copy", "original"]
    stage.sim.advance(30)
    got = await stage.receiver.wait(4)
    await stage.until(lambda: stage.notes(job)[3:] == ["late_copy"])
    assert len({(event_id(api, each), each.body) for each in got}) == 1
    assert all(genuine(api, each) for each in got)


@both
async def test_reorder_callbacks(stage: Stage, api: str) -> None:
    """reorder_callbacks: the end first, then the start, whose time is the earlier one (MISSION B7)."""
    await stage.opened(api, "reorder_callbacks")
    stage.sim.advance(END)
    first, second = await stage.receiver.wait(2)
    assert [claims(first), claims(second)] == [DONE[api], "running" if api == "reports" else "in_progress"]
    written = "timestamp" if api == "reports" else "created_at"
    assert second.value[written] < first.value[written]
    assert genuine(api, second)


@both
async def test_lose_callbacks(stage: Stage, api: str) -> None:
    """lose_callbacks: the journal says lost, nothing arrives, and a read tells the truth."""
    job = await stage.opened(api, "lose_callbacks")
    stage.sim.advance(END)
    await stage.until(lambda: stage.notes(job) == ["lost"])
    assert not stage.receiver.got
    assert await stage.status(api, job) == DONE[api]


@both
async def test_forge_signature(stage: Stage, api: str) -> None:
    """forge_signature: well-formed, and refused by the official package (MISSION B1)."""
    await stage.opened(api, "forge_signature")
    stage.sim.advance(END)
    (got,) = await stage.receiver.wait(1)
    assert not genuine(api, got)
    assert not any(genuine(api, got, secret) for secret in BATCHES_SECRETS if api == "batches")


@both
async def test_stale_signature(stage: Stage, api: str) -> None:
    """stale_signature=7200: signed with the true secret, and too old for the official package (MISSION B8)."""
    await stage.opened(api, "stale_signature=7200")
    stage.sim.advance(END)
    (got,) = await stage.receiver.wait(1)
    assert not genuine(api, got)
    header = got.headers[SIGNED_AT[api]]
    at = int(header if api == "reports" else header.split(",")[0].removeprefix("t="))
    assert 7_000 <= time.time() - at + END <= 7_400  # noqa: TID251 # the signature is judged by the real clock
    if api == "batches":
        stripe.WebhookSignature.verify_header(got.body, header, BATCHES_SECRETS[0], None)


@both
async def test_lie_then_correct(stage: Stage, api: str) -> None:
    """lie_then_correct with fail: a genuine callback claims success of a running job; the last one says failed (MISSION B5)."""
    job = await stage.opened(api, "lie_then_correct", "fail")
    stage.sim.advance(11)
    (lie,) = await stage.receiver.wait(1)
    assert genuine(api, lie)
    assert claims(lie) == DONE[api]
    assert await stage.status(api, job) in {"running", "in_progress"}
    stage.sim.advance(END)
    truth = (await stage.receiver.wait(2))[1]
    assert claims(truth) == "failed"
    assert event_id(api, truth) != event_id(api, lie)


@both
async def test_progress_callbacks(stage: Stage, api: str) -> None:
    """With the option, the start is told too, before the end."""
    stage.sim.configure(progress_callbacks=True)
    await stage.opened(api)
    stage.sim.advance(11)
    await stage.receiver.wait(1)
    stage.sim.advance(END)
    got = await stage.receiver.wait(2)
    assert [claims(each) for each in got] == ["running" if api == "reports" else "in_progress", DONE[api]]


async def test_progress_is_told_of_running_jobs_only(stage: Stage) -> None:
    """A job that was cancelled while it waited never tells a start; with reorder_callbacks the start is told once, last."""
    stage.sim.configure(progress_callbacks=True)
    await stage.cancel("reports", await stage.opened("reports"))
    await stage.opened("reports", "reorder_callbacks", "queue=20")
    for seconds in (6, 5, 10, END):
        stage.sim.advance(seconds)
        await stage.client.get("/_simulator/jobs")  # a round trip, so that what is due has started
    await stage.opened("reports", "sync_success")
    await stage.until(lambda: len(stage.receiver.got) >= 4)
    told = [claims(got) for got in stage.receiver.got]
    assert sorted(told) == ["cancelled", "running", "succeeded", "succeeded"]
    assert told.index("succeeded") < told.index("running")


@both
async def test_a_cancelled_job_calls_back_about_that(stage: Stage, api: str) -> None:
    """A cancel moves the end, and the callback with it: one, `cancelled`."""
    job = await stage.opened(api)
    await stage.cancel(api, job)
    stage.sim.advance(5)
    assert claims((await stage.receiver.wait(1))[0]) == "cancelled"
    stage.sim.advance(END)
    await stage.opened(api)
    stage.sim.advance(END)
    await stage.receiver.wait(2)
    assert len(stage.sim.deliveries(job)) == 1


async def test_deliver_now_and_claim_anything(stage: Stage) -> None:
    """A person or test sends a callback now; with a phase it claims that, signed genuinely."""
    job = await stage.opened("reports")
    await stage.sim.deliver(job)
    await stage.sim.deliver(job, Phase.CANCELLED)
    first, second = stage.receiver.got
    assert [claims(first), claims(second)] == ["queued", "cancelled"]
    assert genuine("reports", second)


async def test_no_address_no_callback(stage: Stage) -> None:
    """Without a callback address nothing is tried again and again."""
    stage.sim.configure(reports_callback_url=None)
    job = await stage.opened("reports")
    stage.sim.advance(END)
    await stage.until(lambda: stage.notes(job) == ["original"])
    stage.sim.advance(END)
    other: Any = json.loads((await stage.client.get("/_simulator/deliveries", params={"job": job})).content)
    assert [entry["error"] for entry in other["deliveries"]] == ["no address"]

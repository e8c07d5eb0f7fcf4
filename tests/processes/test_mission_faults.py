"""The five faults that the mission names, each with real processes, on both databases."""

import concurrent.futures
import signal
from dataclasses import replace

import pytest

from simulator.jobs import Phase
from tests.processes.remote import Remote
from tests.processes.town import Town, create, deliver, signed, until

pytestmark = pytest.mark.timeout(110)
CRASHING = "from tests.processes.crashing import run; run()"


def test_create_response_dropped_after_acceptance(house: Town, remote: Remote) -> None:
    """A6: the provider took the job and its answer is lost: the same token is sent again, and there is one job."""
    with house.running(), house.api() as api:
        operation = create(api, "k1", "drop_create_response", "lose_callbacks")  # a callback would name the job first
        house.settled(operation)
    assert house.states(operation)[:2] == ["create_pending", "create_unknown"]
    tokens = {call.headers["idempotency-key"] for call in remote.calls("POST", "/v1/reports")}
    assert (remote.creates(), len(tokens)) == (2, 1)
    assert remote.jobs_of_operations() == {operation: 1}
    house.sound()


# The job id and the schedule of its first read are one commit. Before it the id is lost with the process and comes back
# by the same token; after it the restart reads.
@pytest.mark.parametrize(("place", "creates"), [("Settle.before_commit", 2), ("Settle.after_commit", 1)])
def test_worker_killed_after_saving_the_job_id_and_before_scheduling_the_first_read(
    house: Town, remote: Remote, place: str, creates: int
) -> None:
    """A2, C2: a worker dies beside the commit of a job id; whatever dies with it, the next one reads the job to its end."""
    with house.running("web"), house.api() as api:
        operation = create(api, "k1", "lose_callbacks")
        crashing = replace(house, stage=replace(house.stage, start=CRASHING))
        with crashing.begun("reconcile", CRASH_AT=place) as worker:
            assert worker.process.wait(60) == -signal.SIGKILL
        (job,) = remote.jobs()
        assert remote.reads(job.id) == 0
        saved = house.row(operation)["remote_job_id"]
        assert saved == (job.id if place == "Settle.after_commit" else None)
        with house.running("reconcile"):
            house.settled(operation)
    assert remote.creates() == creates
    assert remote.jobs_of_operations() == {operation: 1}
    house.sound()


@pytest.mark.parametrize("fault", ["complete_during_cancel", "drop_cancel_response"])
def test_terminal_result_during_a_cancel_race(house: Town, remote: Remote, fault: str) -> None:
    """E2: the job succeeds while it is being cancelled: that is how it ended, with its result, and the request is shown."""
    with house.running(), house.api() as api:
        operation = create(api, "k1", fault, "lose_callbacks", "run=600", "slow_cancel=600")
        until(lambda: house.row(operation)["state"] == "observing", "the job has been seen alive")
        asked = api.post(f"/v1/operations/{operation}/cancel", json={"reason": "no longer wanted", "expected_effect": "stops"})
        assert asked.status_code == 202
        job = str(house.row(operation)["remote_job_id"])
        until(lambda: remote.calls("POST", f"/v1/reports/{job}/cancel"), "the cancel has been sent")
        remote.force(job, Phase.SUCCEEDED)
        house.settled(operation)
        shown = api.get(f"/v1/operations/{operation}").json()
        assert api.get(f"/v1/operations/{operation}/result").text.startswith("row,")
    assert shown["cancel"]["outcome"] == "lost_race"
    assert shown["cancel"]["reason"] == "no longer wanted"
    house.sound()


def test_the_same_webhook_twice(house: Town, remote: Remote) -> None:
    """B3, B4: twelve copies at once over connections to two processes and one later: one is accepted, and applied once."""
    with house.running("web") as one, house.running("web", port=0) as other, house.running("reconcile"):
        with house.api() as api:
            operation = create(api, "k1", "lose_callbacks", "run=600")
        until(lambda: house.row(operation)["state"] == "observing", "the job has been seen alive")
        job = str(house.row(operation)["remote_job_id"])
        delivery = signed("evt_same", job, "running")
        addresses = [one.address, other.address]
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            answers = list(pool.map(lambda number: deliver(addresses[number % 2], delivery), range(12)))
        assert {answer.status_code for answer in answers} == {200}
        words = sorted(answer.json()["status"] for answer in answers)
        assert words == ["accepted", *["duplicate"] * 11]
        remote.force(job, Phase.SUCCEEDED)
        deliver(one.address, signed("evt_end", job))
        house.settled(operation)
        later = deliver(other.address, delivery)
        assert (later.status_code, later.json()["status"]) == (200, "duplicate")
        assert {answer.json()["delivery"] for answer in (*answers, later)} == {later.json()["delivery"]}
    hints = [row for row in house.history(operation) if row["cause"] == "delivery"]
    assert len([row for row in hints if row["cause_id"] == later.json()["delivery"]]) == 1
    assert len(house.rows("SELECT id FROM deliveries WHERE event_id = 'evt_same'")) == 1
    house.sound()


@pytest.mark.parametrize("errand", ["create", "read"])
def test_restart_with_an_expired_lease(house: Town, remote: Remote, errand: str) -> None:
    """C1, C2: a process dies with a call under way; once its lease is over, a restart goes on, and sends no second create."""
    # The first call of the errand is never answered, as far as the process that makes it can tell.
    fault = {"create": "delay_create_response=600", "read": "hang_reads=1"}[errand]
    with house.running() as first, house.api() as api:
        operation = create(api, "k1", fault, "lose_callbacks")
        if errand == "create":
            until(remote.creates, "the create is under way")
        else:
            until(lambda: house.row(operation)["remote_job_id"], "the job is known")
            until(lambda: remote.reads(house.row(operation)["remote_job_id"]), "a read is under way")
        first.process.kill()
        first.process.wait()
    left = house.row(operation)
    assert (left["lease_until"] is not None, left["open_errand"]) == (True, "create" if errand == "create" else None)
    with house.running():
        house.settled(operation)
    assert remote.jobs_of_operations() == {operation: 1}
    assert house.row(operation)["lease_fence"] > left["lease_fence"]
    house.sound()

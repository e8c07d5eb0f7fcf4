"""Nothing sensitive outside: a full flow at log level debug, and every log and every byte of the database searched for canaries."""

import base64
from pathlib import Path

import httpx
import pytest

from ledger import queries
from tests.cli.stage import Running
from tests.processes.remote import Remote
from tests.processes.town import Town, create, deliver, signed, town, until

pytestmark = pytest.mark.timeout(110)
WEBHOOK = b"canary-webhook-secret-8d2e41"
SECRET = "whsec_" + base64.b64encode(WEBHOOK).decode()
CREDENTIAL = "canary-credential-51b7c0"
REQUEST = "canary-request-value-77aa10"
KEY = "canary-idempotency-key-e05b9d"
QUERY = "canary-signed-query-4fe092"
REASON = "canary-reason-of-a-person-09c3"
METADATA = "canary-metadata-2b8f66"
FLAWED = ("drop_create_response", "cut_result=1", "html_200=1", "duplicate_callbacks=1", "stale_signature=3600")


def flow(house: Town, remote: Remote) -> list[str]:
    """Do everything once, wrongly too; return what callers were shown, and the signature of a delivery."""
    shown = []
    with house.running() as serving, house.api() as api:
        body = {"provider": "reports", "request": {"kind": REQUEST, "rows": 5, "simulate": list(FLAWED)}, "metadata": {"a": METADATA}}
        first = api.post("/v1/operations", json=body, headers={"Idempotency-Key": KEY}).json()["id"]
        house.settled(first)
        assert api.get(f"/v1/operations/{first}/result").status_code == 200
        second = create(api, f"{KEY}-2", "run=600", "lose_callbacks", kind=f"{REQUEST}-2")
        until(lambda: house.row(second)["state"] == "observing", "seen alive")
        delivery = signed("evt_1", str(house.row(second)["remote_job_id"]), "running", secret=SECRET)
        assert deliver(serving.address, delivery).status_code == 200
        headers, sent = delivery
        assert deliver(serving.address, (headers, sent + b" ")).status_code == 401
        api.post(f"/v1/operations/{second}/cancel", json={"reason": REASON, "expected_effect": f"{REASON}-2"})
        house.settled(second, "cancelled")
        # Wrong in every way that comes to mind; each is refused, none is repeated in a log.
        api.post("/v1/operations", json={**body, "wrong": REQUEST}, headers={"Idempotency-Key": KEY})
        api.post("/v1/operations", content=f'{{"a": "{REQUEST}"', headers={"Idempotency-Key": KEY})
        api.post("/v1/operations", json={**body, "request": {"kind": f"{REQUEST}-3"}}, headers={"Idempotency-Key": KEY})
        httpx.get(f"{serving.address}/v1/operations", headers={"Authorization": f"Bearer {house.key}x"})
        httpx.get(f"{serving.address}/v1/operations?{QUERY}", headers={"Authorization": f"Bearer {house.key}"})
        rejected = create(api, f"{KEY}-4", "reject", kind=f"{REQUEST}-4")
        house.settled(rejected, "failed")
        shown += [api.get(f"/v1/operations/{operation}/history").text for operation in (first, second, rejected)]
        serving.process.kill()
    with house.running() as serving:
        assert serving.stop() == 0
    for arguments in (("operations", "history", first), ("audit", "verify"), ("providers", "show", "reports")):
        done = house.stage.run(*arguments, GATEWAY_LOG_LEVEL="debug")
        assert done.code == 0, done.err
        shown.append(done.out + done.err)
    assert remote.calls("GET", f"/v1/reports/{house.row(first)['remote_job_id']}/result")[-1].query == QUERY
    assert REQUEST.encode() in (house.record.read_now(queries.operation, first, None).request or b"")  # type: ignore[union-attr] # it is there
    return [*shown, headers["webhook-signature"].removeprefix("v1,")]


def test_secrets_are_in_no_log_and_only_sealed_in_the_record(tmp_path: Path) -> None:
    """B142, D6: keys, credentials, signatures, request values, people's words and signed addresses, in a flow with faults."""
    url = f"sqlite:///{tmp_path}/gateway.db"
    with (
        Remote(credential=CREDENTIAL, reports_secret=SECRET, result_query=QUERY) as remote,
        town(tmp_path, url, remote, REPORTS_SECRET=SECRET, REPORTS_TOKEN=CREDENTIAL, GATEWAY_LOG_LEVEL="debug") as house,
    ):
        *shown, signature = flow(house, remote)
        logs = "\n".join(line for running in house.logs for line in running.text + _rest(running))
        tokens = [str(row["idempotency_token"]) for row in house.rows("SELECT idempotency_token FROM operations")]
        record = b"".join(place.read_bytes() for place in tmp_path.glob("gateway.db*"))
        stored = [
            str(row)
            for table in ("history", "exchanges", "attempts", "deliveries")
            for row in house.rows(f"SELECT * FROM {table}")  # noqa: S608 - four names
        ]
    assert "house.started" in logs
    assert "receiver.refused" in logs
    hidden = [house.key, SECRET, SECRET.removeprefix("whsec_"), WEBHOOK.decode(), CREDENTIAL, REQUEST, QUERY, REASON, METADATA, signature]
    # The caller's key and the provider's token are looked up, so they stand in the record as they are; logs and history have neither.
    for secret in hidden:
        assert secret.encode() not in record, secret
    for secret in (*hidden, KEY, *tokens):
        assert secret not in logs, secret
        assert secret not in "".join(stored), secret
    for secret in {*hidden} - {REASON}:  # the owner and the operator may read a person's words
        assert secret not in "".join(shown), secret


def _rest(running: Running) -> list[str]:
    rest: list[str] = []
    while not running.lines.empty():
        line = running.lines.get()
        rest += [line] if line is not None else []
    return rest

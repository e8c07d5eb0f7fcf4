"""The real application on a real SQLite ledger, with contracts of its own, keys, a clock that stands, and files for results."""

import asyncio
import contextlib
import hashlib
import hmac
import itertools
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from gateway.app import create_app
from gateway.counts import Metrics
from gateway.gate import Endpoint, Endpoints, Gate
from gateway.keys import SCOPES, new_key
from ledger.ledger import Ledger
from ledger.vault import Vault
from providers.contract import load
from providers.verification import prepare
from schemas.commands import AddKey
from schemas.contract import Contract
from schemas.delivery import Secret
from schemas.operation import SECOND, Micros
from schemas.settings import ProviderSettings, Settings, WebSettings

START: Micros = 1_800_000_000 * SECOND
SECRET = b"correct-horse-battery-staple"

SIGNED = """
[signature]
primitive = "hmac"
message = "{ts}.{body}"
sig = { in = "header", name = "X-Sig", parser = "kv", sep = ",", key = "v1", ts_key = "t" }
timestamp = { in = "sig", unit = "s", tolerance = 300, future = 300 }
"""
WORK = """
[create]
path = "/jobs"
job_id = "body:id"
token = { in = "header", name = "Idempotency-Key", window_seconds = 3600 }
[recovery]
strategies = ["resend"]
[status]
path = "/jobs/{remote_job_id}"
state = "body:status"
readings = { queued = "queued", running = "running", done = "succeeded", failed = "failed", cancelled = "cancelled" }
[cancel]
path = "/jobs/{remote_job_id}/cancel"
"""
EVENT = """
[event]
id = "body:id"
type = "body:type"
job_id = "body:job"
state = "body:state"
"""
HEAD = 'name = "{name}"\norigin = "https://api.{name}.example"\n'

CONTRACTS = {
    "reports": HEAD + SIGNED + EVENT + WORK,
    "github": HEAD
    + '[signature]\nprimitive = "hmac"\nmessage = "{body}"\n'
    + 'sig = { in = "header", name = "X-Hub-Signature-256", parser = "prefix", prefix = "sha256=" }\n'
    + EVENT
    + WORK,
    "token": HEAD + '[signature]\nprimitive = "token"\ntoken = { in = "header", name = "X-Token" }\n' + EVENT + "body_signed = false\n",
    "batch": HEAD + SIGNED + EVENT.replace('id = "body:id"', 'each = "events"\nid = "body:id"') + WORK,
    "custom": HEAD + SIGNED + EVENT + '[retry]\nsuccess_status = 202\nsuccess_body = "[accepted]"\n',
    "small": HEAD + SIGNED + EVENT + "[limits]\ndelivery_bytes = 2000\n",
    "private": HEAD + SIGNED + EVENT + WORK,
    "secretless": HEAD + SIGNED + EVENT + WORK,
    "payments": HEAD
    + SIGNED
    + EVENT
    + """
[actions.refund.create]
path = "/refunds"
job_id = "body:id"
token = { in = "header", name = "Idempotency-Key", form = "uuid", max_length = 36 }
take = ["charge"]
[actions.refund.status]
path = "/refunds/{remote_job_id}"
state = "body:status"
readings = { done = "succeeded" }
[actions.refund.deadlines]
create_seconds = 77
[actions.report.status]
path = "/reports/{remote_job_id}"
state = "body:status"
readings = { done = "succeeded" }
""",
    "adopted": HEAD
    + SIGNED
    + EVENT
    + '[status]\npath = "/jobs/{remote_job_id}"\nstate = "body:status"\nreadings = { done = "succeeded" }\n',
}


class StandingWorld:
    """A world whose clock moves only when told, with numbered ids."""

    def __init__(self, first_id: int = 1) -> None:
        self.micros = START
        self.seconds = 1_000.0
        self._numbers = itertools.count(first_id)

    def now(self) -> Micros:
        return self.micros

    def monotonic(self) -> float:
        return self.seconds

    def new_id(self, prefix: str) -> str:
        return f"{prefix}{next(self._numbers):032x}"

    def new_token(self) -> str:
        return f"token-{next(self._numbers):032x}"

    def chance(self) -> float:
        return 0.5

    def pass_seconds(self, seconds: float) -> None:
        self.micros += int(seconds * SECOND)
        self.seconds += seconds


def contract(name: str) -> Contract:
    return load(CONTRACTS[name].replace("{name}", name).encode())


def contracts() -> dict[str, Contract]:
    return {name: contract(name) for name in CONTRACTS}


def endpoint(name: str, known: Contract) -> Endpoint:
    secrets = () if name == "secretless" else (Secret(id="sec_1", value=SECRET),)
    owners = ("acme",) if name == "private" else ()
    settings = ProviderSettings(name=name, contract=name, owners=owners)
    return Endpoint(name=name, contract=known, settings=settings, verifier=prepare(known.signatures, secrets) if secrets else None)


@dataclass(slots=True)
class House:
    """What a test works with."""

    app: Any
    gate: Gate
    ledger: Ledger
    world: StandingWorld
    files: dict[str, bytes]
    counted: Counter[tuple[str, str]]
    clients: list[httpx.AsyncClient] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)

    async def key(self, owner: str = "acme", subject: str = "agent-7", scopes: tuple[str, ...] = SCOPES) -> tuple[str, str]:
        """Store a new key and return its id and text."""
        key_id, text, digest = new_key(self.world)
        await self.ledger.write(AddKey(id=key_id, key_sha256=digest, owner=owner, subject=subject, scopes=scopes, now=self.world.now()))
        return key_id, text

    async def client(self, owner: str = "acme", subject: str = "agent-7", scopes: tuple[str, ...] = SCOPES) -> httpx.AsyncClient:
        """Return a client that holds a key of its own."""
        _, text = await self.key(owner, subject, scopes)
        return self.bare({"Authorization": f"Bearer {text}"})

    def bare(self, headers: Mapping[str, str] | None = None) -> httpx.AsyncClient:
        """Return a client without a key."""
        transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
        client = httpx.AsyncClient(transport=transport, base_url="http://house", headers=dict(headers or {}), timeout=30)
        self.clients.append(client)
        return client

    async def deliver(self, provider: str, body: bytes, *, offset: int = 0, headers: Mapping[str, str] | None = None) -> httpx.Response:
        """Send a signed delivery."""
        signed = {"X-Sig": signature(body, self.world.now() // SECOND + offset), **(headers or {})}
        return await self.bare().post(f"/webhooks/{provider}", content=body, headers=signed)


def signature(body: bytes, at: int, secret: bytes = SECRET) -> str:
    """Return the header of the contract SIGNED."""
    mac = hmac.new(secret, b"%d.%s" % (at, body), hashlib.sha256).hexdigest()
    return f"t={at},v1={mac}"


def event(number: int | str, job: str = "job-1", state: str = "running", **more: Any) -> bytes:
    """Return a delivery's body."""
    return json.dumps({"id": f"evt_{number}", "type": "job.changed", "job": job, "state": state, **more}).encode()


@contextlib.asynccontextmanager
async def house(
    folder: Path, *, first_id: int = 1, expects_reconciler: bool = False, late: list[str] | None = None, **changes: Any
) -> AsyncIterator[House]:
    """Open the house in `folder`; `changes` go to the web settings, `late` are duties of a reconciler that do not go well."""
    known = contracts()
    world = StandingWorld(first_id)
    ledger = Ledger.open(f"sqlite:///{folder}/gateway.db", vault=Vault(bytes(range(32))), contracts=known)
    ledger.start()
    files: dict[str, bytes] = {}
    counted: Counter[tuple[str, str]] = Counter()

    async def open_artifact(key: str, start: int, length: int) -> AsyncIterator[bytes]:
        if key not in files:
            raise FileNotFoundError(key)
        wanted = files[key][start : start + length]
        for offset in range(0, len(wanted), 4):
            await asyncio.sleep(0)
            yield wanted[offset : offset + 4]

    metrics = Metrics()

    def count(name: str, labels: Mapping[str, str]) -> None:
        metrics.count(name, labels)  # refuses what is not in the table
        counted[name, labels.get("reason", labels.get("status", ""))] += 1

    gate = Gate(
        ledger=ledger,
        endpoints=Endpoints({name: endpoint(name, found) for name, found in known.items()}),
        settings=Settings(public_url="https://hooks.example", web=WebSettings(port=0, **changes)),
        world=world,
        open_artifact=open_artifact,
        count=count,
        metrics=metrics,
        expects_reconciler=expects_reconciler,
        late=lambda: late or (),
    )
    opened = House(app=create_app(gate), gate=gate, ledger=ledger, world=world, files=files, counted=counted)
    try:
        yield opened
    finally:
        for client in opened.clients:
            await client.aclose()
        ledger.close()

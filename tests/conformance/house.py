"""Intents, deliveries and one-transaction calls for the conformance tests of the record."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import sqlalchemy as sa

from ledger import faults
from ledger.audit import Fault, self_audit, verify
from ledger.engine import Engines
from ledger.ingest import ingest
from ledger.leases import claim
from ledger.register import register
from ledger.settle import settle
from ledger.transaction import Transaction, View
from ledger.vault import Vault
from schemas.commands import Claimed, ClaimWork, Ingest, Ingested, Intent, Register, Registered, Settle, Settled
from schemas.contract import (
    CancelRule,
    Contract,
    CreateRule,
    RecoveryRule,
    ResultFile,
    ResultRule,
    StatusRule,
    TokenRule,
)
from schemas.delivery import Delivery, Event
from schemas.evidence import Evidence, JobKnown, Read, StatusFacts
from schemas.operation import SECOND, Micros
from schemas.states import Mode, Reading

C = TypeVar("C")
A = TypeVar("A")
NOW: Micros = 1_800_000_000 * SECOND
LEASE: Micros = 45 * SECOND

REPORTS = Contract(
    name="reports",
    digest="d" * 64,
    create=CreateRule(token=TokenRule(place="header", name="Idempotency-Key", window_seconds=86_400)),
    recovery=RecoveryRule(strategies=("resend",), replay_guaranteed=True),
    status=StatusRule(),
    cancel=CancelRule(),
    result=ResultRule(files=(ResultFile(url="body:url"),)),
)


def intent(number: int, **changes: Any) -> Intent:
    """Return an intent whose ids end in `number`."""
    values: dict[str, Any] = {
        "id": f"op_{number:032d}",
        "owner": "acme",
        "subject": "agent-7",
        "provider": "reports",
        "action": "create",
        "mode": Mode.SEND,
        "origin": "https://api.example",
        "contract_digest": "d" * 64,
        "idempotency_token": f"token-{number}",
        "trace_id": f"{number:032d}",
        "request_fingerprint": f"sha256:{number:064d}",
        "create_seconds": 900,
        "result_seconds": 3_600,
        "cancel_seconds": 300,
        "collect_seconds": 600,
        "idempotency_key": f"key-{number}",
        "request": b'{"kind":"sales"}',
        "metadata": {"team": "blue"},
    }
    return Intent(**{**values, **changes})


def delivery(number: int, job: str = "", **changes: Any) -> Delivery:
    """Return a verified delivery about `job`; `key` and `content` say what dedup sees."""
    key, content = changes.pop("key", f"id:{number}"), changes.pop("content", f"{number:064d}")
    provider = changes.pop("provider", "reports")
    event = Event(dedup_key=key, content_sha256=content, remote_job_id=job, event_id=key, **changes)
    return Delivery(
        id=f"dlv_{number:032d}", provider=provider, received_at=NOW, event=event, secret_id="s1", scheme_id="v1", body=b"{}"
    )  # fmt: skip


@dataclass(slots=True)
class Record:
    """The record under test: every call is one transaction."""

    engines: Engines
    vault: Vault
    contracts: dict[str, Contract] = field(default_factory=lambda: {"reports": REPORTS, "other": REPORTS})
    now: Micros = NOW
    patience: int = 0

    def tx(self, function: Callable[[Transaction, list[C]], list[A]], *commands: C) -> list[A]:
        for left in range(self.patience, -1, -1):
            try:
                with self.engines.write.begin() as connection:
                    return function(Transaction(connection, self.vault, self.contracts), list(commands))
            except sa.exc.OperationalError as error:
                # On a busy machine SQLite's one writer may wait longer than its busy timeout. On PostgreSQL a retry would
                # hide the deadlock that is looked for.
                if left == 0 or self.engines.postgres or faults.classify(error) is not faults.Fault.CONFLICT:
                    raise
        raise AssertionError("the last round returns or raises")

    def register(self, *intents: Intent) -> list[Registered]:
        return self.tx(register, *(Register(intent=each, now=self.now) for each in intents))

    def ingest(self, *deliveries: Delivery) -> list[Ingested]:
        return self.tx(ingest, *(Ingest(delivery=each, now=self.now) for each in deliveries))

    def claim(self, worker: str = "w1", *, limit: int = 100, after: Micros = 0, **more: Any) -> Sequence[Claimed]:
        room = more.pop("room", {"reports": limit, "other": limit})
        command = ClaimWork(
            worker=worker, room=room, limit=limit, lease=more.pop("lease", LEASE), send_budget=10 * SECOND,
            now=self.now + after, chance=0.5, **more,
        )  # fmt: skip
        return self.tx(claim, command)[0].items

    def settle(self, claimed: Claimed, evidence: Evidence, *, after: Micros = 0) -> Settled:
        return self.tx(settle, self.settlement(claimed, evidence, after=after))[0]

    def settlement(self, claimed: Claimed, evidence: Evidence, *, after: Micros = 0) -> Settle:
        return Settle(
            operation_id=claimed.operation.id, fence=claimed.fence, errand=claimed.errand, evidence=evidence,
            started_at=self.now + after, now=self.now + after, chance=0.5, actor="w1", attempt_id=claimed.attempt_id,
        )  # fmt: skip

    def accept(self, number: int, job: str) -> None:
        """Register, send and accept one operation."""
        self.register(intent(number))
        mine = next(item for item in self.claim() if item.operation.id == intent(number).id)
        self.settle(mine, JobKnown(remote_job_id=job, source="create"))

    def audit(self) -> dict[str, int]:
        with self.engines.read.begin() as connection:
            return self_audit(View(connection, self.vault), self.now)

    def faults(self) -> list[Fault]:
        with self.engines.read.begin() as connection:
            return [item for item in verify(View(connection, self.vault)) if isinstance(item, Fault)]


def reading(reading_: Reading, word: str = "", **facts: Any) -> Read:
    """Return an answered read."""
    return Read(facts=StatusFacts(reading=reading_, remote_state=word or str(reading_), **facts), digest=f"{reading_}{word}{facts}")

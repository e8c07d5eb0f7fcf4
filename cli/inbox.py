"""Stored deliveries and kept refusals as the operator's commands need them: found, judged again, explained, applied again."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cli import house as composition
from cli.failure import CommandError
from cli.house import House
from ledger import inbox
from providers import restored
from providers.diagnosis import Account
from providers.verification import prepare
from schemas.commands import Ingest, Ingested, Replay, Replayed
from schemas.contract import Contract
from schemas.delivery import Delivery, Event, InboundRequest, Secret
from schemas.operation import SECOND, Micros

HOUR: Final[Micros] = 3_600 * SECOND
SHOWN_AGAIN: Final = 20  # newest deliveries of a provider that its clock is measured by


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One stored delivery or kept refusal. `request` None: too large to be kept."""

    row: Mapping[str, Any]
    refusal: bool
    account: Account  # whose secrets of other providers are there too, to tell a wrong slot
    contract: Contract
    request: InboundRequest | None

    @property
    def at(self) -> Micros:
        """Return when it was received."""
        return int(self.row["at" if self.refusal else "received_at"])

    def review(self) -> restored.Review:
        """Verify with today's secrets at the time of receipt. Raises CommandError for one that was too large to keep."""
        if self.request is None:
            raise CommandError(f"{self.row['id']} was too large to be kept ({self.row['bytes']} bytes); have it sent again")
        account = self.account
        verifier = prepare(account.schemes, account.secrets, account.params)
        return restored.review(verifier, self.contract, self.request, self.at, account.keys)


def find(house: House, identity: str) -> Item:
    """Return a delivery (dlv_…) or refusal (rfs_…) with what judges it today. Raises CommandError, LedgerError."""
    refusal = identity.startswith("rfs_")
    row = house.ledger.read_now(inbox.refusal, identity) if refusal else house.ledger.read_now(inbox.stored, identity, None)
    if row is None:
        raise CommandError(f"there is no delivery or refusal {identity[:100]}; see gateway deliveries list")
    name = row["provider"]
    if name not in house.settings.providers:
        raise CommandError(f"the provider {name} of {identity} is not configured; configure [providers.{name}] again")
    return item(house, row, account(house, name), refusal=refusal)


def item(house: House, row: Mapping[str, Any], whose: Account, *, refusal: bool) -> Item:
    """Return an opened row with what judges it today."""
    url = f"{house.settings.public_url.rstrip('/')}/webhooks/{row['provider']}"
    request = restored.refusal_request(row, url) if refusal else restored.delivery_request(row, url)
    return Item(row=row, refusal=refusal, account=whose, contract=house.contracts[row["provider"]], request=request)


def account(house: House, provider: str) -> Account:
    """Return what a provider's deliveries are judged by now, with the secrets of every other one. Raises LedgerError."""
    stored, now = composition.material(house), house.world.now()
    usable = {name: composition.secrets(settings, stored.stored, now)[0] for name, settings in house.settings.providers.items()}
    params, _ = composition.constants(house.settings.providers[provider])
    return Account(
        schemes=house.contracts[provider].signatures,
        secrets=usable.pop(provider),
        params=params,
        others=[Secret(id=f"{name} {secret.id}", value=secret.value) for name, secrets in usable.items() for secret in secrets],
        keys=stored.keys(provider),
    )


# --- applied again


def replay(house: House, found: Item, by: str) -> list[tuple[str, str, str | None]]:
    """Apply it again; return (delivery, what became of it, operation) of each event. Raises CommandError where it is not genuine."""
    review = found.review()
    actor = f"operator:{by}"
    if found.refusal:
        if not review.right:
            identity, reason = found.row["id"], getattr(review.verdict, "reason", "")
            raise CommandError(f"{identity} is still not genuine ({reason}); see gateway deliveries diagnose {identity}")
        return _ingest(house, found, review, list(review.events), actor=actor, holder="")
    number = found.row["element"]
    answer: Replayed = house.ledger.write_now(
        Replay(
            delivery_id=found.row["id"],
            owner=None,
            actor=actor,
            event=restored.element(review.events, number),
            verified=review.right,
            now=house.world.now(),
            chance=house.world.chance(),
        )
    )
    told: list[tuple[str, str, str | None]] = [(found.row["id"], str(answer.outcome), answer.operation_id)]
    if not found.row["parent"] and review.right and answer.outcome != "unreadable":
        # A dead letter may turn out to be an array: its other events are deliveries that were never stored.
        told += _ingest(house, found, review, list(review.events[1:]), actor=actor, holder=found.row["id"])
    return told


def _ingest(
    house: House, found: Item, review: restored.Review, events: list[Event], *, actor: str, holder: str
) -> list[tuple[str, str, str | None]]:
    """Take events in as hints, as those of a stale delivery are: verified now, never trusted (B8)."""
    told: list[tuple[str, str, str | None]] = []
    assert found.request is not None
    for event in events:
        delivery = Delivery(
            id=house.world.new_id("dlv_"),
            provider=found.row["provider"],
            received_at=found.at,
            event=event,
            secret_id=review.verdict.secret_id,
            scheme_id=review.verdict.scheme_id,
            body=b"" if holder else found.request.body,
            headers=() if holder else restored.headers_of(found.request),
            parent=holder,
            replayed_by=actor,
            standing="stale",
        )
        answer: Ingested = house.ledger.write_now(Ingest(delivery=delivery, now=house.world.now()))
        told.append((answer.delivery_id, answer.status, answer.operation_id))
        holder = holder or answer.delivery_id
    return told


# --- the provider's clock


def clock_offset(house: House, provider: str) -> float | None:
    """Return by how many seconds a provider's deliveries come after the time that they were signed at: the median of the newest.

    Measured from what is stored: each is verified again at the time of its receipt, stale ones too. None: nothing to measure.
    """
    rows = house.ledger.read_now(inbox.listed, status=None, provider=provider, limit=SHOWN_AGAIN)
    if not rows:
        return None
    whose = account(house, provider)
    offsets: list[Micros] = []
    for head in rows:
        row = house.ledger.read_now(inbox.stored, head["id"], None)
        if row is None or row["parent"]:
            continue
        signed_at = getattr(item(house, row, whose, refusal=False).review().verdict, "signed_at", None)
        if signed_at is not None:
            offsets.append(row["received_at"] - signed_at)
    return sorted(offsets)[len(offsets) // 2] / SECOND if offsets else None


def clock_warning(contract: Contract, offset: float | None) -> str:
    """Return what is wrong with a provider's clock or ours: more than half of what the contract allows. Empty: nothing."""
    rules = [scheme.timestamp for scheme in contract.signatures if scheme.timestamp is not None]
    if offset is None or not rules:
        return ""
    allowed = [rule.past_seconds if offset >= 0 else rule.future_seconds for rule in rules]
    limits = [limit for limit in allowed if limit is not None]
    if not limits or abs(offset) <= min(limits) / 2:
        return ""
    side = "old" if offset >= 0 else "in the future"
    return f"deliveries are {abs(offset):.0f} s {side} when they come, and {min(limits)} s are allowed"

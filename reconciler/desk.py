"""What an errand has at hand: its operation, its provider's account, and the record of the calls it made."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from artifacts.store import Store
from lifecycle.errands import acts
from providers import interpret
from reconciler.pace import Pace
from reconciler.transport import Transport
from reconciler.wire import Departure
from schemas.contract import Contract
from schemas.http import AnsweredOutcome, Exchange, HttpRequest, Outcome
from schemas.operation import SECOND, Micros, Operation
from schemas.settings import ProviderSettings
from schemas.states import ACTING, Errand
from schemas.world import World

_SLOW_DOWN: Final = frozenset({429, 503})  # answers that concern the whole account, not one operation (C3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One configured provider account. `origin` is what its credential is bound to."""

    settings: ProviderSettings
    contract: Contract
    transport: Transport

    @property
    def origin(self) -> str:
        """Return the origin that the operator configured."""
        return (self.settings.base_url or self.contract.origin).rstrip("/")


@dataclass(slots=True, kw_only=True)
class Desk:
    """One errand's working place. Holds the latest exchange and whether bytes of an acting call may have left."""

    world: World
    store: Store
    pace: Pace
    account: Account
    operation: Operation
    errand: Errand
    credential: Callable[[str], str | None]
    public_url: str
    started_at: Micros
    send_by: float
    departure: Departure
    attempt_id: str | None = None
    exchange: Exchange | None = None
    calls: int = 0
    store_fault: str = ""  # why a result could not be stored

    @property
    def contract(self) -> Contract:
        """Return the provider's contract as the operation's action has it."""
        return self.account.contract.of(self.operation.action)

    @property
    def consuming(self) -> bool:
        """Return whether this errand fetches a result that reading consumes (F4)."""
        return self.errand is Errand.COLLECT and acts(self.errand, self.contract, self.operation)

    def secret(self) -> str | None:
        """Return the account's credential. It is fetched for each errand, so that a rotated one counts at once."""
        return self.credential(self.operation.provider)

    async def call(self, request: HttpRequest) -> Outcome:
        """Perform one call of this errand, note its exchange, and slow the account down where it asks for that."""
        self.spend()
        began = self.world.now()
        acting = self.errand in ACTING  # else it is a read, which may be made again
        departure = self.departure if acting else None
        outcome = await self.account.transport.perform(request, send_by=self.send_by if acting else None, departure=departure)
        self.note(request, outcome, began)
        return outcome

    def note(self, request: HttpRequest, outcome: Outcome, began: Micros, *, sha256: str = "") -> None:
        """Keep what may be kept of a call; of several calls of one errand the last is kept. `sha256`: of a streamed body."""
        now = self.world.now()
        exchange = interpret.record(
            request, outcome, id=self.world.new_id("exc_"), errand=self.errand.value, started_at=began, finished_at=now
        )
        self.exchange = replace(exchange, response_digest=sha256) if sha256 else exchange
        if isinstance(outcome, AnsweredOutcome) and outcome.status in _SLOW_DOWN:
            until = interpret.retry_after(outcome, now)
            if until is not None:
                self.pace.hold(self.operation.provider, (until - now) / SECOND, self.world.monotonic())

    def spend(self) -> None:
        """Count a call against the account's rate; the first was counted when the errand started."""
        if self.calls:
            self.pace.spend(self.operation.provider, self.world.monotonic())
        self.calls += 1


Accounts = Mapping[str, Account]

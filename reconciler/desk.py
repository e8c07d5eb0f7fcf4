"""What an errand has at hand: its operation, its provider's account, and the record of the calls it made."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from artifacts.store import Store
from ledger.errors import SecretMissingError
from lifecycle.errands import acts
from providers import interpret, requests
from providers.exchanges import without
from providers.origins import origin_of
from reconciler.pace import Pace
from reconciler.transport import Transport
from reconciler.wire import Departure
from schemas.contract import Contract
from schemas.http import AnsweredOutcome, Exchange, HttpRequest, NotSentOutcome, Outcome
from schemas.operation import SECOND, Micros, Operation
from schemas.settings import ProviderSettings
from schemas.states import ACTING, Errand
from schemas.world import World

_UNAUTHENTICATED: Final = frozenset({401, 403})


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
    renew: Callable[[], Awaitable[None]]
    public_url: str
    started_at: Micros
    send_by: float
    departure: Departure
    attempt_id: str | None = None
    exchange: Exchange | None = None
    calls: int = 0
    rotated: str | None = field(default=None, repr=False)  # the credential that replaced a refused one
    sent_secrets: set[str] = field(default_factory=set, repr=False)
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
        found = self.credential(self.operation.provider)
        if found is not None:
            self.sent_secrets.add(found)
        return found

    async def call(self, request: HttpRequest) -> Outcome:
        """Perform one call of this errand, note its exchange, and slow the account down where it asks for that.

        Where the provider refuses the credential it is read anew, once. If it has changed, a read is made again with it; an
        acting call that was refused for good was not executed, and becomes one that was not sent (H4).
        """
        if self.rotated is not None and request.secret_headers:
            request = requests.with_credential(request, self.contract, self.rotated)
        outcome = await self._perform(request)
        if not isinstance(outcome, AnsweredOutcome) or outcome.status not in _UNAUTHENTICATED or not request.secret_headers:
            return outcome
        fresh = await self._renewed(request)
        if fresh is None:
            return outcome
        if self.errand in ACTING:
            refused = interpret.refuses_for_good(outcome.status, self.errand, self.contract)
            return NotSentOutcome(error="credential_rotated") if refused else outcome
        return await self._perform(fresh)

    async def _perform(self, request: HttpRequest) -> Outcome:
        self.spend()
        began = self.world.now()
        acting = self.errand in ACTING  # else it is a read, which may be made again
        departure = self.departure if acting else None
        outcome = await self.account.transport.perform(request, send_by=self.send_by if acting else None, departure=departure)
        outcome = without(outcome, self.sent_secrets)
        self.note(request, outcome, began)
        return outcome

    async def _renewed(self, request: HttpRequest) -> HttpRequest | None:
        """Return the request with the credential as it is at its source now, or None where that is the same, or none."""
        if self.rotated is not None:
            return None
        await self.renew()
        try:
            found = self.secret()
            fresh = requests.with_credential(request, self.contract, found)
        except (SecretMissingError, requests.UnbuildableError):
            return None  # the answer stands; the next errand tells what is wrong with the credential
        if set(fresh.headers) == set(request.headers):
            return None
        self.rotated = found
        return fresh

    def note(self, request: HttpRequest, outcome: Outcome, began: Micros, *, sha256: str = "") -> None:
        """Tell the account's pace how a call went, and keep what may be kept of it; of several calls of one errand the last is kept.

        `sha256`: of a streamed body.
        """
        now, outcome = self.world.now(), without(outcome, self.sent_secrets)
        exchange = interpret.record(
            request, outcome, id=self.world.new_id("exc_"), errand=self.errand.value, started_at=began, finished_at=now
        )
        self.exchange = replace(exchange, response_digest=sha256) if sha256 else exchange
        if origin_of(request.url) == origin_of(self.operation.origin):  # a file host's troubles are not the account's
            until = interpret.retry_after(outcome, now) if isinstance(outcome, AnsweredOutcome) else None
            self.pace.heard(
                self.operation.provider,
                self.operation.id,
                outcome,
                now=self.world.monotonic(),
                chance=self.world.chance(),
                wait=None if until is None else (until - now) / SECOND,
            )

    def spend(self) -> None:
        """Count a call against the account's rate; the first was counted when the errand started."""
        if self.calls:
            self.pace.spend(self.operation.provider, self.world.monotonic())
        self.calls += 1


Accounts = Mapping[str, Account]

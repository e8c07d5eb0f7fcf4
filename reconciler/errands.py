"""Performing errands: one leased errand in, one command for the ledger out. Nothing here writes state.

A request is built, sent and interpreted; what it means is evidence, which `ledger` judges and folds. An errand that is
cancelled (shutdown, a lost lease) or that fails by a fault of our own still says what is known: nothing left, or maybe.
"""

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import structlog

from artifacts.store import Store
from ledger.errors import SecretMissingError
from lifecycle.errands import acts
from providers import interpret, recovery, requests
from providers.origins import same_base
from providers.recovery import ListWalk
from providers.requests import UnbuildableError
from reconciler import collect
from reconciler.desk import Accounts, Desk
from reconciler.leases import Leases
from reconciler.pace import Pace
from reconciler.transfer import ONE_SHOT_LOST
from reconciler.wire import Departure
from schemas.commands import Claimed, Defer, Settle
from schemas.evidence import (
    CancelAmbiguous,
    CollectFailed,
    CreateAmbiguous,
    Evidence,
    JobKnown,
    JobsConflict,
    Lapsed,
    NotSent,
    Read,
    ReadFailed,
)
from schemas.http import AnsweredOutcome, Outcome
from schemas.states import ACTING, Errand
from schemas.world import World

_log = structlog.get_logger("reconciler")

_FAULT: Final = "internal"


async def _as_it_is() -> None:
    """Renew nothing: environment and files are read at each errand anyway."""


class Performer:
    """Performs errands for the configured accounts. `credential` answers the account's credential, or None.

    `renew` reads what it answers from anew; it never raises.
    """

    def __init__(
        self,
        *,
        world: World,
        store: Store,
        pace: Pace,
        accounts: Accounts,
        leases: Leases,
        credential: Callable[[str], str | None],
        public_url: str,
        actor: str,
        renew: Callable[[], Awaitable[None]] = _as_it_is,
    ) -> None:
        self._world = world
        self._store = store
        self._pace = pace
        self._accounts = accounts
        self._leases = leases
        self._credential = credential
        self._renew = renew
        self._public_url = public_url.rstrip("/")
        self._actor = actor

    async def perform(self, claimed: Claimed, taken: float, send_by: float) -> Settle | Defer | None:
        """Do one errand and return what to commit; None: the lease is lost and there is nothing to say.

        `taken` is the monotonic time before the claim was submitted, `send_by` the one from which no byte of an acting
        errand leaves. Must be a task of its own: cancelled, it ends its call and still returns what is known.
        """
        task = asyncio.current_task()
        assert task is not None, "an errand is a task"
        desk = self._desk(claimed, send_by)
        lost = asyncio.Event()
        transfer = claimed.errand is Errand.COLLECT and not desk.consuming

        def lose() -> None:
            lost.set()
            if transfer:  # anything else still brings evidence that counts
                task.cancel()

        self._leases.hold(claimed, taken, lose)
        try:
            evidence = await self._evidence(desk, claimed)
        except asyncio.CancelledError:
            if lost.is_set() and transfer:
                return None
            return self._interrupted(desk, claimed)
        except SecretMissingError as error:
            provider = claimed.operation.provider
            _log.error("reconciler.credential_missing", operation=claimed.operation.id, provider=provider, fault=str(error))
            evidence = _unknown(desk, "credential_missing")
        except Exception as error:  # noqa: BLE001 - a fault of ours in one errand stops nothing else (B113)
            _log.error("reconciler.errand_failed", operation=claimed.operation.id, errand=claimed.errand.value, **_where(error))
            evidence = _unknown(desk, _FAULT)
        finally:
            self._leases.release(claimed)
        return self._settle(desk, claimed, evidence)

    def _desk(self, claimed: Claimed, send_by: float) -> Desk:
        return Desk(
            world=self._world,
            store=self._store,
            pace=self._pace,
            account=self._accounts[claimed.operation.provider],
            operation=claimed.operation,
            errand=claimed.errand,
            credential=self._credential,
            renew=self._renew,
            public_url=self._public_url,
            started_at=self._world.now(),
            send_by=send_by,
            departure=Departure(),
            attempt_id=claimed.attempt_id,
        )

    async def _evidence(self, desk: Desk, claimed: Claimed) -> Evidence:
        operation, errand = claimed.operation, claimed.errand
        if errand is Errand.LAPSE:
            return Lapsed()
        if not same_base(operation.origin, desk.account.origin):
            # The credential belongs to the configured origin and goes nowhere else, not even to where it once was (B148).
            return _origin_changed(desk)
        if acts(errand, desk.contract, operation) and claimed.attempt_id is None:
            raise RuntimeError("an acting errand without an open attempt")  # A1: never a byte without one
        try:
            match errand:
                case Errand.CREATE:
                    return await _create(desk)
                case Errand.READ:
                    return await _read(desk)
                case Errand.CANCEL:
                    return interpret.cancel(await _send(desk), operation, desk.contract, desk.world.now())
                case Errand.RECOVER:
                    return await _recover(desk)
                case Errand.COLLECT:
                    return await collect.collect(desk)
        except UnbuildableError as error:
            return requests.refusal(error, errand, operation)

    def _interrupted(self, desk: Desk, claimed: Claimed) -> Settle | Defer:
        if claimed.errand in ACTING or (desk.departure.sent and desk.consuming):
            return self._settle(desk, claimed, _unknown(desk, "interrupted"))
        now = self._world.now()
        return Defer(operation_id=claimed.operation.id, fence=claimed.fence, due_at=now, now=now, attempt_id=claimed.attempt_id)

    def _settle(self, desk: Desk, claimed: Claimed, evidence: Evidence) -> Settle:
        return Settle(
            operation_id=claimed.operation.id,
            fence=claimed.fence,
            errand=claimed.errand,
            evidence=evidence,
            started_at=desk.started_at,
            now=self._world.now(),
            chance=self._world.chance(),
            actor=self._actor,
            attempt_id=claimed.attempt_id,
            exchange=desk.exchange,
        )


async def _send(desk: Desk) -> Outcome:
    """Build and perform the one call of a create, read or cancel errand."""
    callback = f"{desk.public_url}/webhooks/{desk.operation.provider}" if desk.public_url else ""
    request = requests.build(
        desk.errand, desk.operation, desk.contract, credential=desk.secret(), now=desk.world.now(), callback_url=callback
    )
    return await desk.call(request)


async def _create(desk: Desk) -> Evidence:
    outcome = await _send(desk)
    evidence = interpret.create(outcome, desk.operation, desk.contract, desk.world.now())
    if isinstance(evidence, JobKnown) and evidence.status is not None and isinstance(outcome, AnsweredOutcome):
        return replace(evidence, status=await collect.inline(desk, evidence.status, outcome))
    return evidence


async def _read(desk: Desk) -> Evidence:
    outcome = await _send(desk)
    evidence = interpret.status(outcome, desk.operation, desk.contract, desk.world.now())
    if isinstance(evidence, Read) and isinstance(outcome, AnsweredOutcome):
        facts = await collect.inline(desk, evidence.facts, outcome)
        return replace(evidence, facts=facts)
    return evidence


async def _recover(desk: Desk) -> Evidence:
    operation, contract, secret = desk.operation, desk.contract, desk.secret()
    match _lookup(desk):
        case "lookup":
            request = recovery.first_page(operation, contract, credential=secret, now=desk.world.now())
            return recovery.interpret_lookup(await desk.call(request), operation, contract, desk.world.now())
        case "list":
            walk = ListWalk.start(operation, contract, credential=secret, now=desk.world.now())
            while True:  # bounded by the contract's max_pages
                step = walk.step(await desk.call(walk.request), desk.world.now())
                if not isinstance(step, ListWalk):
                    return step
                walk = step
        case _:
            return ReadFailed(layer="protocol", error="no_recovery")


def _lookup(desk: Desk) -> str | None:
    """Return the strategy of a recover errand. Resending is a create errand, never this one."""
    return next((strategy for strategy in desk.contract.recovery.strategies if strategy != "resend"), None)


def _origin_changed(desk: Desk) -> Evidence:
    """Return the contradiction for a job that is known; what was not created yet waits for its deadline unsent."""
    if desk.errand in {Errand.CREATE, Errand.RECOVER}:
        return _unknown(desk, "origin_changed")
    home = f"pinned to {desk.operation.origin}, configured is {desk.account.origin}"
    return JobsConflict(code="origin_changed", message=home)


def _unknown(desk: Desk, error: str) -> Evidence:
    """Return what is known of an errand that did not come to its answer."""
    match desk.errand:
        case Errand.CREATE if desk.departure.sent:
            return CreateAmbiguous(error=error)
        case Errand.CANCEL if desk.departure.sent:
            return CancelAmbiguous(error=error)
        case Errand.CREATE | Errand.CANCEL:
            return NotSent(errand=desk.errand, error=error)
        case Errand.COLLECT if desk.consuming and desk.departure.sent:
            return ONE_SHOT_LOST
        case Errand.COLLECT:
            return CollectFailed(error=error)
        case Errand.READ | Errand.RECOVER:
            return ReadFailed(layer="transport", error=error)
        case Errand.LAPSE:
            return Lapsed()


def _where(error: Exception) -> dict[str, str]:
    """Return an error's type and place. Its message and its frames' values may hold a payload or a secret."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return {"error": type(error).__name__, "at": place}

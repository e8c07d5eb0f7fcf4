"""The composition of the house: settings in, the parts of a process out. Everything is made here and nothing is a global."""

import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from cli import contracts as contract_files
from cli.configuration import Configuration
from cli.material import VAULT, Material, Stored, credentials, renewer
from ledger.beats import PROBE
from ledger.engine import open_engines
from ledger.errors import ConfigurationError, LedgerUnavailableError, SecretMissingError
from ledger.keyfile import load_keys, load_or_create_keys
from ledger.ledger import Ledger
from ledger.vault import Vault, is_sealed, resolve
from providers.verification import Verifier, check_secret, prepare
from schemas.commands import Beat
from schemas.contract import Contract
from schemas.delivery import Secret
from schemas.operation import Micros
from schemas.settings import ProviderSettings, Settings
from schemas.world import World

if TYPE_CHECKING:
    from asyncio import Event

    from artifacts.store import Store
    from gateway.gate import Endpoint, Endpoints, Gate
    from reconciler.clockwork import Clockwork

NOTHING: Final = Stored()
CHUNK_BYTES: Final = 262_144  # of a stored result on its way to a caller
_log = structlog.get_logger("house")


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """The open record with what belongs to it. Close `ledger` at the end."""

    configuration: Configuration
    contracts: Mapping[str, Contract]
    ledger: Ledger
    world: World

    @property
    def settings(self) -> Settings:
        """Return the settings."""
        return self.configuration.settings


def open_house(configuration: Configuration, *, world: World, migrate: bool, role: str = "command") -> House:
    """Read contracts and master key and open the record. Raises ConfigurationError (ours and the ledger's), LedgerUnavailableError."""
    logging.getLogger("alembic").setLevel(logging.WARNING)
    contracts = contract_files.of_providers(configuration.settings.providers, configuration.folder)
    url = configuration.settings.database_url
    try:
        vault = Vault(*_master_keys(configuration.settings), reload=partial(load_keys, configuration.settings.key_file))
        ledger = Ledger.open(
            url,
            vault=vault,
            contracts=contracts,
            migrate=migrate,
            chance=world.chance,
            application_name=f"gateway-{role}",
            pooled=configuration.settings.database_pooled,
        )
    except LedgerUnavailableError as error:
        raise LedgerUnavailableError(f"{error} (the address comes from {configuration.database_source})") from error
    return House(configuration=configuration, contracts=contracts, ledger=ledger, world=world)


def _master_keys(settings: Settings) -> tuple[bytes, ...]:
    """Return the master keys, or a new one where there is none, unless the database has been sealed with another."""
    place = Path(settings.key_file)
    if place.exists():
        return load_keys(place)
    engines = open_engines(settings.database_url, pooled=settings.database_pooled)
    try:
        with engines.look() as connection:
            sealed = is_sealed(connection)
    finally:
        engines.close()
    if sealed and not place.exists():  # else another process, which started at the same time, has made both
        raise ConfigurationError(
            f"the key file {place} does not exist, and the database {engines.place} was sealed with it; restore it from your backup,"
            " point key_file at it, or name another database by database_url. A new key would open nothing, so none was made"
        )
    return load_or_create_keys(place)


def write_trouble(house: House) -> str:
    """Return why the database takes no write now, or the empty text. What is written to learn it is removed in the same transaction."""
    try:
        house.ledger.write_now(Beat(duty=PROBE, process=worker_name(), now=house.world.now(), ok=True))
    except LedgerUnavailableError as error:
        return str(error)
    return ""


def worker_name() -> str:
    """Return this process's name in leases, heartbeats and history. Leases are told apart by fences, not by it."""
    return f"{socket.gethostname()[:100]}:{os.getpid()}"


# --- the HTTP edge


def secrets(settings: ProviderSettings, stored: Stored = NOTHING, now: Micros = 0) -> tuple[tuple[Secret, ...], dict[str, str]]:
    """Return the usable webhook secrets of a provider, and what is wrong with the others by reference. No value is shown.

    What its references name, and whatever else is stored for it: a captured or added secret needs no reference.
    """
    found: dict[str, Secret] = {}
    faults: dict[str, str] = {}
    for reference in settings.secrets:
        try:
            if reference.startswith(VAULT):
                secret = stored.resolve(reference, settings.name, "webhook", now)
                found[secret.id] = Secret(id=secret.id, value=secret.value)
            else:
                found[reference] = Secret(id=reference, value=resolve(reference))
        except SecretMissingError as error:
            faults[reference] = str(error)
    for secret in stored.usable(settings.name, "webhook", now):
        found.setdefault(secret.id, Secret(id=secret.id, value=secret.value))
    return tuple(found.values()), faults


def constants(settings: ProviderSettings) -> tuple[dict[str, str], dict[str, str]]:
    """Return the constants of an account with their references resolved, and what is wrong with the others by name."""
    found: dict[str, str] = {}
    faults: dict[str, str] = {}
    for name, text in settings.params.items():
        try:
            found[name] = resolve(text).decode("utf-8", "replace") if text.startswith(("env:", "file:")) else text
        except SecretMissingError as error:
            faults[name] = str(error)
    return found, faults


def malformed(contract: Contract, secret: Secret) -> str:
    """Return why a secret serves none of the contract's schemes, or the empty text."""
    faults = [check_secret(scheme, secret.value) for scheme in contract.signatures]
    return "" if not faults or None in faults else f"{secret.id} {faults[0]}"


def endpoints(settings: Settings, contracts: Mapping[str, Contract], material: Material, now: Micros) -> dict[str, "Endpoint"]:
    """Return the endpoints of the configured providers. One without a usable secret refuses everything (B010)."""
    from gateway.gate import Endpoint

    made = {}
    for name, provider in settings.providers.items():
        contract = contracts[name]
        usable, faults = secrets(provider, material.stored, now)
        params, wrong = constants(provider)
        for fault in [*faults.values(), *wrong.values(), *filter(None, (malformed(contract, secret) for secret in usable))]:
            _log.warning("house.secret_unusable", provider=name, fault=fault)
        verifier = prepare(contract.signatures, usable, params)
        made[name] = Endpoint(
            name=name,
            contract=contract,
            settings=provider,
            verifier=verifier if serves(verifier) else None,
            secrets=usable,
            params=params,
            keys=material.keys(name),
        )
    return made


def keyless(contract: Contract) -> bool:
    """Return whether some scheme of a contract needs no secret: published keys, or a delivery that is only a hint."""
    return serves(prepare(contract.signatures, ()))


def serves(verifier: Verifier) -> bool:
    """Return whether any scheme has what it needs to accept a delivery."""
    return any(checker is not None for _, checker in verifier.checkers)


def material(house: House) -> Material:
    """Return what is stored for verification, read now. Raises LedgerError."""
    made = Material(house.ledger, house.world)
    made.load()
    return made


def gate(
    house: House,
    *,
    endpoints: "Endpoints",
    closing: "Event",
    expects_reconciler: bool,
    refresh: Callable[[], Awaitable[None]] | None = None,
    late: Callable[[], Sequence[str]] | None = None,
) -> "Gate":
    """Return what the HTTP edge is given."""
    from gateway.counts import Metrics
    from gateway.gate import Gate, nothing_late, unrefreshed

    metrics = Metrics()
    return Gate(
        ledger=house.ledger,
        endpoints=endpoints,
        settings=house.settings,
        world=house.world,
        open_artifact=opener(store(house.settings)),
        refresh=refresh or unrefreshed,
        count=metrics.count,
        metrics=metrics,
        expects_reconciler=expects_reconciler,
        late=late or nothing_late,
        closing=closing,
    )


def store(settings: Settings) -> "Store":
    """Return the room of stored results. Raises OSError where its folder cannot be used."""
    from artifacts.store import Store

    return Store(settings.artifact_dir)


def opener(room: "Store") -> Callable[[str, int, int], AsyncIterator[bytes]]:
    """Return how the HTTP edge reads stored results: (id, first byte, length) -> chunks."""

    async def read(artifact: str, start: int, length: int) -> AsyncIterator[bytes]:
        from artifacts.store import MissingArtifactError

        try:
            reader = await room.open(artifact)
        except MissingArtifactError as error:
            raise FileNotFoundError(str(error)) from error
        try:
            end = start + length
            while start < end:
                chunk = await reader.read(start, min(CHUNK_BYTES, end - start))
                if not chunk:
                    break
                start += len(chunk)
                yield chunk
        finally:
            reader.close()

    return read


# --- the reconciler


def _warn_of_credentials(settings: Settings, credential_of: Callable[[str], str | None]) -> None:
    for name, provider in settings.providers.items():
        try:
            credential_of(name)
        except SecretMissingError as error:
            _log.warning("house.credential_missing", provider=name, reference=provider.credential, fault=str(error))


def clockwork(house: House, stored: Material | None = None) -> "Clockwork":
    """Return the reconciler of this process, not started yet. `stored` is what the process follows; None: as it is now."""
    from ledger.audit import self_audit
    from providers.key_requests import key_request
    from reconciler.clockwork import Clockwork
    from reconciler.desk import Account
    from reconciler.errands import Performer
    from reconciler.fetching import Fetcher
    from reconciler.leases import Leases
    from reconciler.pace import Pace
    from reconciler.retention import Retention
    from reconciler.transport import Transport
    from reconciler.walker import Walker

    settings, world, contracts = house.settings, house.world, house.contracts
    known = stored or material(house)
    credential_of = credentials(settings.providers, known, world)
    _warn_of_credentials(settings, credential_of)
    worker = worker_name()
    room = store(settings)
    accounts = {
        name: Account(
            settings=provider,
            contract=contracts[name],
            transport=Transport(world, concurrency=contracts[name].limits.concurrency),
        )
        for name, provider in settings.providers.items()
    }
    pace = Pace({name: contract.limits for name, contract in contracts.items()}, now=world.monotonic())
    leases = Leases(house.ledger, world, lease_seconds=settings.clockwork.lease_seconds)

    async def audit() -> Mapping[str, int]:
        counts = await house.ledger.read(self_audit, world.now())
        found = {name: count for name, count in counts.items() if count}
        if found:
            _log.warning("house.audit_found", **found)
        return found

    performer = Performer(
        world=world,
        store=room,
        pace=pace,
        accounts=accounts,
        leases=leases,
        credential=credential_of,
        public_url=settings.public_url,
        actor=f"reconciler:{worker}",
        renew=renewer(known, world),
    )
    return Clockwork(
        record=house.ledger,
        world=world,
        performer=performer,
        leases=leases,
        pace=pace,
        accounts=accounts,
        store=room,
        settings=settings.clockwork,
        worker=worker,
        audit=audit,
        retention=Retention(record=house.ledger, world=world, store=room, settings=settings.retention),
        fetcher=Fetcher(
            record=house.ledger,
            world=world,
            transport=Transport(world, concurrency=4),
            providers=list(accounts),
            asks={
                name: partial(key_request, house.contracts[name].signatures, constants(settings.providers[name])[0]) for name in accounts
            },
        ),
        walker=Walker(record=house.ledger, world=world, accounts=accounts, pace=pace, credential=credential_of),
    )

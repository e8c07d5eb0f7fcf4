"""What `gateway doctor` looks at: settings, key file, folders, secrets, database, reconciler, clocks. It changes nothing."""

import asyncio
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from cli import contracts as contract_files
from cli import house as composition
from cli import inbox as kept
from cli.commands.providers import faults as provider_faults
from cli.commands.providers import stored_of
from cli.configuration import Configuration, ConfigurationError
from cli.exposure import exposed
from cli.house import House
from cli.material import Stored
from gateway.conflicts import USUAL
from ledger import backlog, examine, inbox, queries, rowfaults
from ledger.audit import self_audit
from ledger.errors import LedgerError
from ledger.keyfile import load_keys
from providers.contract import params_of
from reconciler.conditions import told
from schemas.operation import SECOND, Micros
from schemas.settings import Settings
from schemas.world import World

Level = Literal["ok", "note", "warning", "fault"]
FRESH: Final[Micros] = 90 * SECOND  # the slowest duty of the reconciler runs every minute
SKEW: Final[Micros] = 2 * SECOND  # more than this and `readyz` fails
SHOWN_ROWS: Final = 20
ROOM_BYTES: Final = 1 << 30  # less free disk than this is told


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at. `fault`: something does not work. `warning`: it will not, or not for everybody."""

    level: Level
    about: str
    found: str
    cure: str = ""


def diagnose(configuration: Configuration, world: World) -> list[Finding]:
    """Return all findings, in the order in which things depend on each other."""
    settings = configuration.settings
    findings = [Finding(level="ok", about="configuration", found=str(configuration.file or "no file: defaults and environment"))]
    findings.extend(_addresses(settings))
    findings.extend(Finding(level="warning", about=f"provider {name}", found=found, cure=cure) for name, found, cure in exposed(settings))
    findings.extend(_key_file(settings))
    findings.extend(_folders(settings))
    findings.extend(_scheduler(world))
    try:
        contracts = contract_files.of_providers(settings.providers, configuration.folder)
    except ConfigurationError as error:
        return [*findings, *(Finding(level="fault", about="contracts", found=fault) for fault in error.faults)]
    try:
        stored = stored_of(configuration)
    except LedgerError:
        stored = Stored()  # what is wrong with the record is told below
    for name, provider in settings.providers.items():
        whole = contract_files.contract(provider.contract, configuration.folder)
        if contract_files.receives_only(whole, provider):
            missing = ", ".join(sorted(params_of(whole)))
            cure = f"give {missing} in [providers.{name}.params] and a credential, to make calls"
            findings.append(Finding(level="note", about=f"provider {name}", found="deliveries are received, operations refused", cure=cure))
        wrong = provider_faults(provider, contracts[name], stored, world.now())
        findings.extend(Finding(level="fault", about=f"provider {name}", found=fault) for fault in wrong)
        if not wrong:
            findings.append(Finding(level="ok", about=f"provider {name}", found="contract, secrets and credential are usable"))
        if any(kind.create for kind in contracts[name].kinds().values()) and provider.credential is None:
            cure = f'add credential = "env:NAME" to [providers.{name}] unless it takes calls without one'
            findings.append(Finding(level="warning", about=f"provider {name}", found="calls are sent without a credential", cure=cure))
    findings.extend(_record(configuration, world))
    return findings


def _addresses(settings: Settings) -> Iterator[Finding]:
    host = urlsplit(settings.public_url).hostname or ""
    local = host in {"localhost", "::1"} or host.startswith("127.")
    outside = [name for name, provider in settings.providers.items() if not _is_local(provider.base_url)]
    if local and outside:
        cure = "set public_url to the https address that providers can reach"
        yield Finding(level="warning", about="public_url", found=f"{settings.public_url} is reachable from this machine only", cure=cure)
    elif not local and settings.public_url.startswith("http://"):
        yield Finding(
            level="warning", about="public_url", found="deliveries and keys travel unencrypted", cure="serve it by https, behind a proxy"
        )
    else:
        yield Finding(level="ok", about="public_url", found=settings.public_url)


def _is_local(url: str | None) -> bool:
    host = urlsplit(url or "").hostname or ""
    return host in {"localhost", "::1"} or host.startswith("127.")


def _key_file(settings: Settings) -> Iterator[Finding]:
    place = Path(settings.key_file)
    try:
        found = place.stat()
    except FileNotFoundError:
        if _sqlite_file(settings) is not None:
            cure = "restore it from your backup, or point key_file at it: no other key opens the database"
            yield Finding(level="fault", about="key file", found=f"{place} does not exist, and the database does", cure=cure)
        else:
            cure = "the first start makes it; back it up apart from the database"
            yield Finding(level="note", about="key file", found=f"{place} does not exist", cure=cure)
        return
    except OSError as error:
        yield Finding(level="fault", about="key file", found=f"{place}: {error.strerror}", cure="give this user access to it")
        return
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o077:
        yield Finding(level="fault", about="key file", found=f"{place} may be used by others (mode {mode:04o})", cure=f"chmod 600 {place}")
        return
    try:
        keys = load_keys(place)
    except LedgerError as error:
        yield Finding(level="fault", about="key file", found=str(error))
    else:
        held = "a key" if len(keys) == 1 else f"{len(keys)} keys"
        cure = "" if len(keys) == 1 else "gateway keys rotate-master, then gateway keys forget-master"
        yield Finding(level="ok" if len(keys) == 1 else "note", about="key file", found=f"{place} holds {held}", cure=cure)


def _sqlite_file(settings: Settings) -> Path | None:
    """Return the file of the database where there is one already, with anything in it."""
    if not settings.database_url.startswith("sqlite:///"):
        return None
    place = Path(settings.database_url.removeprefix("sqlite:///"))
    return place if place.exists() and place.stat().st_size else None


def _folders(settings: Settings) -> Iterator[Finding]:
    folders = {"artifacts": Path(settings.artifact_dir)}
    if settings.database_url.startswith("sqlite:///"):
        folders["database"] = Path(settings.database_url.removeprefix("sqlite:///")).parent
    for about, folder in folders.items():
        there = next(place for place in (folder, *folder.parents) if place.exists())
        free = shutil.disk_usage(there).free
        if not os.access(there, os.W_OK | os.X_OK):
            yield Finding(
                level="fault", about=about, found=f"{there} cannot be written", cure="give this user write access, or name another folder"
            )
        elif free < ROOM_BYTES:
            yield Finding(
                level="warning", about=about, found=f"{free >> 20} MiB are free at {there}", cure="make room: a full disk stops deliveries"
            )
        else:
            yield Finding(level="ok", about=about, found=f"{folder}, {free >> 30} GiB free")


def _scheduler(world: World) -> Iterator[Finding]:
    """Start a scheduler with a duty that is never due, and read back what it honours (B102)."""
    from reconciler.ticks import DEMANDED, Duty, Ticks

    async def nothing() -> dict[str, int]:
        return {}

    async def look() -> list[dict[str, Any]]:
        ticks = Ticks((Duty(name="look", seconds=3_600, run=nothing),), monotonic=world.monotonic)
        ticks.start()
        try:
            return ticks.describe()
        finally:
            ticks.stop()

    try:
        (job,) = asyncio.run(look())
    except RuntimeError as error:
        yield Finding(level="fault", about="scheduler", found=str(error), cure="install the locked version: ./run setup")
    else:
        shown = ", ".join(f"{name} {job[name]}" for name in DEMANDED)
        kept = f"late ticks are made up for, once, and no duty runs twice at a time ({shown})"
        yield Finding(level="ok", about="scheduler", found=kept)


def _record(configuration: Configuration, world: World) -> Iterator[Finding]:
    url = configuration.settings.database_url
    if url.startswith("sqlite:///") and not Path(url.removeprefix("sqlite:///")).exists():
        yield Finding(level="note", about="database", found="does not exist", cure="the first start of gateway serve makes it")
        return
    if not Path(configuration.settings.key_file).exists():
        yield Finding(level="note", about="database", found="is not looked into: opening it without a key file would make one")
        return
    try:
        house = composition.open_house(configuration, world=world, migrate=False)
    except LedgerError as error:
        yield Finding(level="fault", about="database", found=str(error))
        return
    try:
        yield from _database(house)
        yield from _rows(house)
        yield from _operations(house)
        yield from _heartbeats(house)
        yield from _inbox(house)
    except LedgerError as error:
        yield Finding(level="fault", about="database", found=str(error))
    finally:
        house.ledger.close()


def _database(house: House) -> Iterator[Finding]:
    version = house.ledger.read_now(examine.version)
    if house.ledger.read_now(examine.takes_one_process):
        cure = "use gateway serve, or install SQLite 3.51.3 or later (pip install pysqlite3), or PostgreSQL"
        yield Finding(
            level="warning", about="database", found=f"{version} allows one process only (sqlite.org/wal.html#walresetbug)", cure=cure
        )
    else:
        yield Finding(level="ok", about="database", found=f"{version}, schema and master key are right")
    if trouble := composition.write_trouble(house):
        cure = "make room where it lies and on the disk of its server, and see its permissions"
        yield Finding(level="fault", about="database", found=f"takes no writes: {trouble}", cure=cure)
    if (grown := backlog.wal_bytes(house.ledger.engines)) > backlog.TEND_BYTES:
        cure = "a reader keeps it: end the program that has the file open (a shell, a copy); our own never do"
        yield Finding(level="warning", about="database", found=f"the WAL file has {grown >> 20} MiB", cure=cure)
    if (lasts := house.ledger.read_now(backlog.oldest_transaction)) > backlog.OLD_SECONDS:
        cure = "see pg_stat_activity: until it ends nothing that was deleted is cleaned away"
        yield Finding(level="warning", about="database", found=f"a transaction has been open for {lasts} s", cure=cure)
    clock = house.ledger.read_now(examine.clock)
    if clock is not None and abs(clock - house.world.now()) > SKEW:
        skew = (house.world.now() - clock) / SECOND
        yield Finding(level="fault", about="clock", found=f"this host is {skew:+.1f} s off the database's", cure="run NTP on both")


def _rows(house: House) -> Iterator[Finding]:
    """Tell the rows that were set aside because they cannot be read or written (B113)."""
    for row in house.ledger.read_now(rowfaults.left_alone, SHOWN_ROWS):
        cure = "gateway database check names what is wrong; it is tried again by itself, ever more seldom"
        found = f"{row['row']} is left alone, for the {row['times']}. time: {row['reason']}"
        yield Finding(level="fault", about=row["place"], found=found, cure=cure)


def _operations(house: House) -> Iterator[Finding]:
    missing = sorted(set(house.ledger.read_now(queries.live_providers)) - set(house.contracts))
    for name in missing:
        cure = f"configure [providers.{name}] again, or end its operations (gateway operations list --provider {name})"
        yield Finding(level="fault", about=f"provider {name}", found="has operations that are not final and is not configured", cure=cure)
    asked = len(house.ledger.read_now(queries.questions, None, 1_000))
    if asked:
        cure = "gateway operations list --status attention"
        yield Finding(level="note", about="questions", found=f"{asked} operations wait for a person", cure=cure)
    odd = {name: count for name, count in house.ledger.read_now(self_audit, house.world.now()).items() if count}
    for name, count in odd.items():
        cure = "start gateway reconcile or serve" if name in {"active_overdue", "receipts_unprocessed"} else "gateway audit verify"
        yield Finding(level="fault", about="self-audit", found=f"{name} {count}", cure=cure)
    owners = {key.owner for key in house.ledger.read_now(queries.api_keys) if key.revoked_at is None}
    if not owners:
        yield Finding(level="note", about="keys", found="no API key is valid", cure="gateway keys create")
    for name, provider in house.settings.providers.items():
        if len(owners) > 1 and not provider.owners:
            cure = f'add owners = ["…"] to [providers.{name}]'
            yield Finding(level="warning", about=f"provider {name}", found=f"all {len(owners)} owners may use it", cure=cure)


def _inbox(house: House) -> Iterator[Finding]:
    """Tell refusals and conflicts of the last hour, and clocks that are about to make more refusals."""
    since = house.world.now() - kept.HOUR
    for name, reasons in house.ledger.read_now(inbox.refusals_since, since).items():
        counted = ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items()))
        cure = f"gateway deliveries list --status refused --provider {name}, then gateway deliveries diagnose ID"
        yield Finding(level="warning", about=f"provider {name}", found=f"refused in the last hour: {counted}", cure=cure)
    for name, count in house.ledger.read_now(inbox.conflicts_since, since).items():
        found = f"in the last hour {count} known event ids came with other bytes"
        cure = "does the provider reuse ids? else event.id of the contract names something that is not one event's"
        yield Finding(level="warning" if count > USUAL else "note", about=f"provider {name}", found=found, cure=cure)
    for name, contract in house.contracts.items():
        wrong = kept.clock_warning(contract, kept.clock_offset(house, name))
        if wrong:
            yield Finding(level="warning", about=f"provider {name}", found=wrong, cure="run NTP here; look for a queue before the gateway")


def _heartbeats(house: House) -> Iterator[Finding]:
    beats = house.ledger.read_now(queries.heartbeats)
    now = house.world.now()
    newest = max((beat["last_at"] for beat in beats), default=None)
    if newest is None or now - newest > FRESH:
        when = "has never run" if newest is None else f"ran last {(now - newest) // SECOND} s ago"
        yield Finding(level="warning", about="reconciler", found=when, cure="start gateway serve, or gateway reconcile beside gateway web")
        return
    if newest - now > SKEW:
        yield Finding(
            level="fault", about="clock", found=f"the reconciler's is {(newest - now) // SECOND} s ahead of this one", cure="run NTP"
        )
    failing = [beat for beat in beats if now - beat["last_at"] <= FRESH and beat["error"]]
    for beat in failing:
        yield Finding(
            level="fault", about=f"duty {beat['duty']}", found=f"fails in {beat['process']}: {beat['error']}", cure="see that process's log"
        )
    if not failing:
        yield Finding(level="ok", about="reconciler", found="its duties run")
    for name, conditions in told(beats, now).items():
        for each in conditions:
            why = f"{each.failures} calls in a row failed" if each.state != "held" else "it asked to wait"
            cure = (
                "nothing, if it is known to be down: it is tried again by itself; else last_read_error of its operations says what is wrong"
            )
            found = f"is not called for {each.paused_seconds} s by {each.process} ({each.state}): {why}"
            yield Finding(level="warning", about=f"provider {name}", found=found, cure=cure)

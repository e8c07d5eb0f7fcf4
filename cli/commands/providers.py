"""`gateway providers`: the configured accounts, their contracts and secrets. A secret itself is never shown."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli import opening, show
from cli.failure import FAILED, WRONG_USAGE, CommandError

if TYPE_CHECKING:
    from cli.configuration import Configuration
    from cli.material import Stored
    from schemas.contract import Contract
    from schemas.settings import ProviderSettings

app = typer.Typer(help="Configured providers: list, show, check.", rich_markup_mode=None)


@app.command("list")
def list_(config: opening.Config = None, json: show.Json = False) -> None:
    """List the configured providers."""
    found, contracts = _read(config)
    rows = [
        {
            "name": name,
            "contract": provider.contract,
            "origin": provider.base_url or contracts[name].origin,
            "endpoint": f"{found.settings.public_url}/webhooks/{name}",
            "owners": list(provider.owners),
            "secrets": len(provider.secrets),
            "credential": provider.credential is not None,
        }
        for name, provider in found.settings.providers.items()
    ]
    if json:
        show.emit(rows)
    else:
        show.table(("NAME", "CONTRACT", "ORIGIN", "ENDPOINT", "OWNERS", "SECRETS", "CREDENTIAL"), [list(row.values()) for row in rows])


@app.command("show")
def show_(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    config: opening.Config = None,
    database_url: opening.DatabaseUrl = None,
    json: show.Json = False,
) -> None:
    """Show one provider: its contract, its secrets' state, its deliveries."""
    from cli import inbox as kept
    from cli.commands.secrets import described
    from cli.material import Stored
    from ledger import examine, inbox, queries
    from ledger.secrets import stored_secrets
    from ledger.walks import open_findings
    from reconciler.conditions import told

    with opening.record(config, database_url) as house:
        settings = house.settings.providers.get(name)
        if settings is None:
            raise _unknown(name, house.configuration)
        came = house.ledger.read_now(examine.last_deliveries, name)
        contract = house.contracts[name]
        stored = Stored(tuple(house.ledger.read_now(stored_secrets)))
        refused = house.ledger.read_now(inbox.refusals_since, house.world.now() - kept.HOUR).get(name, {})
        conflicts = house.ledger.read_now(inbox.conflicts_since, house.world.now() - kept.HOUR).get(name, 0)
        offset = kept.clock_offset(house, name)
        shown = {
            "name": name,
            "contract": settings.contract,
            "contract_digest": contract.digest,
            "title": contract.title,
            "origin": settings.base_url or contract.origin,
            "endpoint": f"{house.settings.public_url}/webhooks/{name}",
            "owners": list(settings.owners),
            "schemes": [scheme.id for scheme in contract.signatures],
            "secrets": [row for row in described(house, name) if row["purpose"] == "webhook"],
            "credential": _credential(settings, stored, house.world.now()),
            "concurrency": contract.limits.concurrency,
            "rate_per_second": contract.limits.rate_per_second,
            "pauses": [asdict(each) for each in told(house.ledger.read_now(queries.heartbeats), house.world.now()).get(name, [])],
            "last_delivery": show.when(came["last_at"]),
            "deliveries": came["by_status"],
            "refused_last_hour": refused,
            "conflicts_last_hour": conflicts,
            "sweep_findings": house.ledger.read_now(open_findings, name),
            "clock_offset_seconds": offset,
            "clock_warning": kept.clock_warning(contract, offset),
        }
    if json:
        show.emit(shown)
    else:
        show.facts({**shown, "secrets": [_told(row) for row in shown["secrets"]], "pauses": [_paused(row) for row in shown["pauses"]]})


@app.command()
def check(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only this one.")] = None,
    config: opening.Config = None,
    json: show.Json = False,
) -> None:
    """Check that contracts load and that secrets and credentials are there and of the right form. Exit 1 on any fault."""
    found, contracts = _read(config)
    if name is not None and name not in contracts:
        raise _unknown(name, found)
    from cli.world import RealWorld

    stored, now = stored_of(found), RealWorld().now()
    outcomes = {
        key: faults(provider, contracts[key], stored, now)
        for key, provider in found.settings.providers.items()
        if name is None or key == name
    }
    if json:
        show.emit([{"name": key, "faults": wrong} for key, wrong in outcomes.items()])
    else:
        for key, wrong in outcomes.items():
            typer.echo(f"{key}: ok" if not wrong else "\n".join(show.cell(f"{key}: {fault}", 500) for fault in wrong))
        if not outcomes:
            typer.echo("no providers are configured")
    if any(outcomes.values()):
        raise typer.Exit(FAILED)


def faults(settings: "ProviderSettings", contract: "Contract", stored: "Stored", now: int) -> list[str]:
    """Return what is wrong with a provider's secrets, constants and credential, each with its cure; no value is shown."""
    from cli.house import constants, keyless, malformed, secrets

    usable, missing = secrets(settings, stored, now)
    found = [*missing.values(), *constants(settings)[1].values(), *filter(None, (malformed(contract, secret) for secret in usable))]
    if contract.signatures and not settings.secrets and not usable and not keyless(contract):
        found.append('no secrets are configured, so every delivery is refused; add secrets = ["env:NAME"], or gateway secrets add')
    state = _credential(settings, stored, now)
    if state not in {None, "ok"}:
        found.append(f"credential: {state}")
    return found


def stored_of(found: "Configuration", *, asked: bool = False) -> "Stored":
    """Return the stored secrets where any provider may need them (or they are asked for) and there is a record. Raises LedgerError."""
    from cli.house import open_house
    from cli.material import VAULT, Stored
    from cli.world import RealWorld
    from ledger.secrets import stored_secrets

    url = found.settings.database_url
    wanted = asked or any(
        not provider.secrets or any(text.startswith(VAULT) for text in (*provider.secrets, provider.credential or ""))
        for provider in found.settings.providers.values()
    )
    if not wanted or (url.startswith("sqlite:///") and not Path(url.removeprefix("sqlite:///")).exists()):
        return Stored()
    house = open_house(found, world=RealWorld(), migrate=False)
    try:
        return Stored(tuple(house.ledger.read_now(stored_secrets)))
    finally:
        house.ledger.close()


def _told(row: dict[str, Any]) -> str:
    used = f", last used {row['last_used_at']}" if row["last_used_at"] else ", never used"
    return f"{row['name']} ({row['state']}{used}{', safe to retire' if row['safe_to_retire'] else ''})"


def _paused(row: dict[str, Any]) -> str:
    return f"{row['process']}: {row['state']}, called again in {row['paused_seconds']} s, {row['failures']} calls in a row failed"


def _credential(settings: "ProviderSettings", stored: "Stored", now: int) -> str | None:
    from cli.material import credential
    from ledger.errors import SecretMissingError

    if settings.credential is None:
        return None
    try:
        credential(settings.credential, settings.name, stored, now)
    except SecretMissingError as error:
        return str(error)
    return "ok"


def _read(config: str | None) -> tuple["Configuration", dict[str, "Contract"]]:
    from cli.contracts import of_providers

    found = opening.configuration(config)
    return found, of_providers(found.settings.providers, found.folder)


def _unknown(name: str, found: "Configuration") -> CommandError:
    known = ", ".join(sorted(found.settings.providers)) or "none"
    return CommandError(f"no provider {name[:100]} is configured; configured are: {known}", code=WRONG_USAGE)

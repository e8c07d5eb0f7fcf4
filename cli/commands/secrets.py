"""`gateway secrets`: the encrypted store of webhook secrets and credentials. A value comes in by stdin or a file and never goes out."""

import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli import opening, show
from cli.failure import WRONG_USAGE, CommandError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cli.house import House
    from schemas.receiving import SecretUse, StoredSecret

MAX_VALUE: Final = 65_536  # a certificate chain or a key set fits; a wrongly named device or log does not
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_DURATION: Final = re.compile(r"([0-9]{1,6})([smhd])")
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_SECOND: Final = 1_000_000

app = typer.Typer(help="Webhook secrets and credentials in the encrypted store: add, list, retire, revoke.", rich_markup_mode=None)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The secret's name; vault:NAME refers to it.")]


@app.command()
def add(
    name: Name,
    provider: Annotated[str, typer.Option(help="The configured provider that may use it.")],
    purpose: Annotated[str, typer.Option(help="webhook (verifies deliveries) or credential (goes along with calls).")] = "webhook",
    file: Annotated[str | None, typer.Option("--file", metavar="PATH", help="Read the value from this file; else from stdin.")] = None,
    not_before: Annotated[str | None, typer.Option(metavar="TIME", help="Usable from then on (RFC 3339).")] = None,
    not_after: Annotated[str | None, typer.Option(metavar="TIME", help="Usable until then (RFC 3339).")] = None,
    by: opening.Who = None,
    config: opening.Config = None,
    database_url: opening.DatabaseUrl = None,
) -> None:
    """Seal a secret and store it. The value is read from stdin or --file, never from the command line."""
    from schemas.receiving import AddSecret

    if not _NAME.fullmatch(name):
        raise CommandError("NAME takes letters, digits, _, . and -, beginning with a letter or digit, at most 100", code=WRONG_USAGE)
    if purpose not in {"webhook", "credential"}:
        raise CommandError("--purpose takes webhook or credential", code=WRONG_USAGE)
    begin, end = _time("--not-before", not_before), _time("--not-after", not_after)
    if begin is not None and end is not None and begin >= end:
        raise CommandError("--not-before must lie before --not-after", code=WRONG_USAGE)
    value = _value(file)
    with opening.record(config, database_url, make=True) as house:
        _check(house, provider, purpose, value)
        stored = house.ledger.write_now(
            AddSecret(
                id=house.world.new_id("sec_"),
                name=name,
                provider=provider,
                purpose="credential" if purpose == "credential" else "webhook",
                value=value,
                by=f"operator:{opening.who(by)}",
                now=house.world.now(),
                not_before=begin,
                not_after=end,
            )
        )
        if stored is None:
            raise CommandError(f"there is a secret {name} already; a new one has another name, so that both can verify for a while")
        used = purpose == "webhook" or house.settings.providers[provider].credential == f"vault:{name}"
    typer.echo(f"stored {name} ({stored})")
    if not used:
        typer.echo(f'to use it, set credential = "vault:{name}" in [providers.{provider}]', err=True)


@app.command("list")
def list_(
    provider: Annotated[str | None, typer.Option(help="Only this provider's.")] = None,
    config: opening.Config = None,
    database_url: opening.DatabaseUrl = None,
    json: show.Json = False,
) -> None:
    """List secrets and references with their last use, and which are safe to retire. No value is shown."""
    with opening.record(config, database_url) as house:
        rows = described(house, provider)
    if json:
        show.emit(rows)
        return
    head = ("NAME", "PROVIDER", "PURPOSE", "STATE", "LAST USED", "USES", "SAFE TO RETIRE")
    names = ("name", "provider", "purpose", "state", "last_used_at", "uses", "safe_to_retire")
    show.table(head, [[row[key] for key in names] for row in rows])


@app.command()
def retire(
    name: Name,
    after: Annotated[str, typer.Option(metavar="DURATION", help="How long it still verifies: 45s, 30m, 12h, 7d.")] = "0s",
    config: opening.Config = None,
    database_url: opening.DatabaseUrl = None,
) -> None:
    """End a secret, at once or after an overlap with its successor. An earlier end stays."""
    found = _DURATION.fullmatch(after)
    if found is None:
        raise CommandError("--after takes a duration such as 45s, 30m, 12h or 7d", code=WRONG_USAGE)
    seconds = int(found[1]) * _UNITS[found[2]]
    _end(name, seconds, config, database_url)
    typer.echo(f"retired {name}" if seconds == 0 else f"{name} ends in {after}")


@app.command()
def revoke(name: Name, config: opening.Config = None, database_url: opening.DatabaseUrl = None) -> None:
    """Revoke a secret for good: nothing that it signed is taken from the next request on, in every process."""
    _end(name, None, config, database_url)
    typer.echo(f"revoked {name}")


def _end(name: str, seconds: int | None, config: str | None, database_url: str | None) -> None:
    from schemas.receiving import EndSecret

    with opening.record(config, database_url) as house:
        now = house.world.now()
        known = house.ledger.write_now(EndSecret(name=name, now=now, not_after=None if seconds is None else now + seconds * _SECOND))
    if known is None:
        shown = name if _NAME.fullmatch(name) else "of that name"
        raise CommandError(f"there is no secret {shown}; see gateway secrets list")


def described(house: "House", provider: str | None = None) -> list[dict[str, Any]]:
    """Return what `list` and `providers show` tell of secrets: stored ones, and references of the configuration that verify."""
    from cli.house import malformed, secrets
    from cli.material import VAULT, Stored
    from ledger.secrets import stored_secrets, uses

    now = house.world.now()
    everything = house.ledger.read_now(stored_secrets)
    used = {(use.provider, use.secret_id): use for use in house.ledger.read_now(uses)}
    rows: list[dict[str, Any]] = []
    for name, settings in house.settings.providers.items():
        if provider not in {None, name}:
            continue
        usable, faults = secrets(settings, Stored(tuple(everything)), now)
        wrong = {secret.id: malformed(house.contracts[name], secret) for secret in usable}
        ids = [identity for identity, fault in wrong.items() if not fault]
        horizon = house.contracts[name].retry.horizon_seconds * _SECOND
        for reference in settings.secrets:
            if not reference.startswith(VAULT) or reference in faults:
                state = faults.get(reference) or wrong.get(reference) or "usable"
                rows.append(_row(reference, reference, name, "webhook", state, used.get((name, reference)), now, horizon, ids, since=None))
        for secret in everything:
            if secret.provider == name:
                since = max(secret.created_at, secret.not_before or 0)
                row = _row(
                    secret.name,
                    secret.id,
                    name,
                    secret.purpose,
                    _state(secret, now),
                    used.get((name, secret.id)),
                    now,
                    horizon,
                    ids,
                    since=since,
                )
                rows.append({**row, **_periods(secret)})
    return [*rows, *_homeless(house, everything, provider, now)]


def _homeless(house: "House", everything: "Iterable[StoredSecret]", provider: str | None, now: int) -> list[dict[str, Any]]:
    """Return the secrets of providers that are not configured: kept, and used by nobody."""
    return [
        {
            **_row(secret.name, secret.id, secret.provider, secret.purpose, _state(secret, now), None, now, 0, [], since=None),
            **_periods(secret),
        }
        for secret in everything
        if secret.provider not in house.settings.providers and provider in {None, secret.provider}
    ]


def _row(
    name: str,
    identity: str,
    provider: str,
    purpose: str,
    state: str,
    use: "SecretUse | None",
    now: int,
    horizon: int,
    usable: list[str],
    *,
    since: int | None,
) -> dict[str, Any]:
    last = use.last_used_at if use is not None else since
    # Another one must be able to take over, and the provider must have had the time to repeat everything that it signed with this.
    safe = identity in usable and len(usable) > 1 and last is not None and now - last > horizon
    return {
        "name": name,
        "id": identity,
        "provider": provider,
        "purpose": purpose,
        "state": state,
        "last_used_at": show.when(use.last_used_at if use is not None else None),
        "uses": use.uses if use is not None else 0,
        "safe_to_retire": safe,
    }


def _periods(secret: "StoredSecret") -> dict[str, Any]:
    return {
        "source": secret.source,
        "created_at": show.when(secret.created_at),
        "created_by": secret.created_by,
        "not_before": show.when(secret.not_before),
        "not_after": show.when(secret.not_after),
        "revoked_at": show.when(secret.revoked_at),
    }


def _state(secret: "StoredSecret", now: int) -> str:
    if secret.revoked_at is not None:
        return "revoked"
    if secret.not_after is not None and secret.not_after <= now:
        return "retired"
    if secret.not_before is not None and secret.not_before > now:
        return "waiting"
    return "usable" if secret.not_after is None else "ending"


def _check(house: "House", provider: str, purpose: str, value: bytes) -> None:
    from cli.house import malformed
    from schemas.delivery import Secret

    if provider not in house.settings.providers:
        known = ", ".join(sorted(house.settings.providers)) or "none"
        raise CommandError(f"no provider {provider[:100]} is configured; configured are: {known}", code=WRONG_USAGE)
    if purpose == "webhook" and (fault := malformed(house.contracts[provider], Secret(id="the value", value=value))):
        raise CommandError(fault, code=WRONG_USAGE)


def _value(file: str | None) -> bytes:
    if file is None:
        if sys.stdin.isatty():
            typer.echo("the value, then Ctrl-D:", err=True)
        value = sys.stdin.buffer.read(MAX_VALUE + 1)
    else:
        with Path(file).open("rb") as opened:
            value = opened.read(MAX_VALUE + 1)
    if len(value) > MAX_VALUE:
        raise CommandError(f"the value has more than {MAX_VALUE} bytes and is surely no secret", code=WRONG_USAGE)
    if not value.strip():
        raise CommandError("there is no value; give it by stdin or --file", code=WRONG_USAGE)
    return value.strip()


def _time(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise CommandError(f"{option} takes a time with its zone, as in 2027-01-31T12:00:00Z", code=WRONG_USAGE)
    return round((at - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()) * _SECOND

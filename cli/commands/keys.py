"""`gateway keys`: API keys. A key is shown once, when it is made; the record keeps only its hash."""

from typing import TYPE_CHECKING, Annotated

import typer

from cli import opening, show
from cli.failure import FAILED, WRONG_USAGE, CommandError
from cli.nearest import nearest

if TYPE_CHECKING:
    from cli.rotation import Rotation

app = typer.Typer(help="API keys: make, list, revoke. The master key: rotate.", rich_markup_mode=None)


@app.command()
def create(
    owner: Annotated[str, typer.Option(help="Whose operations the key reaches (the tenant).")],
    subject: Annotated[str, typer.Option(help="Who acts with it: a person, an agent, a service.")],
    scope: Annotated[list[str], typer.Option(help="What it may do; repeat it, or separate by commas. Or: all.")],
    config: opening.Config = None,
    database_url: opening.DatabaseUrl = None,
    json: show.Json = False,
) -> None:
    """Make a key and print it, alone on stdout. It is shown this once."""
    from gateway.keys import SCOPES, new_key
    from schemas.commands import AddKey

    scopes = _scopes(scope, SCOPES)
    for name, value in (("--owner", owner), ("--subject", subject)):
        if not value.strip() or len(value) > 200 or not value.isprintable():  # noqa: PLR2004 - as long as the API takes
            raise CommandError(f"{name} takes a name of at most 200 printable characters", code=WRONG_USAGE)
    with opening.record(config, database_url, make=True) as house:
        key_id, text, digest = new_key(house.world)
        made = house.ledger.write_now(
            AddKey(id=key_id, key_sha256=digest, owner=owner, subject=subject, scopes=scopes, now=house.world.now())
        )
    if json:
        show.emit(
            {
                "id": made.id,
                "key": text,
                "owner": owner,
                "subject": subject,
                "scopes": made.scopes,
                "created_at": show.when(made.created_at),
            }
        )
    else:
        typer.echo(text)


@app.command("list")
def list_(config: opening.Config = None, database_url: opening.DatabaseUrl = None, json: show.Json = False) -> None:
    """List the keys, revoked ones too. The keys themselves cannot be shown."""
    from ledger import queries

    with opening.record(config, database_url) as house:
        keys = house.ledger.read_now(queries.api_keys)
    rows = [
        {
            "id": key.id,
            "owner": key.owner,
            "subject": key.subject,
            "scopes": list(key.scopes),
            "created_at": show.when(key.created_at),
            "revoked_at": show.when(key.revoked_at),
        }
        for key in keys
    ]
    if json:
        show.emit(rows)
    else:
        show.table(("ID", "OWNER", "SUBJECT", "SCOPES", "CREATED", "REVOKED"), [list(row.values()) for row in rows])


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The key's id (key_…), as `keys list` shows it.")],
    config: opening.Config = None,
    database_url: opening.DatabaseUrl = None,
) -> None:
    """Revoke a key: it fails within a second in every process."""
    from schemas.commands import RevokeKey

    with opening.record(config, database_url) as house:
        known = house.ledger.write_now(RevokeKey(id=key_id, now=house.world.now()))
    if not known:
        which = "of that id (give its id, not the key itself)" if key_id.startswith("rgk_") else key_id[:100]
        raise CommandError(f"there is no key {which}; see gateway keys list")
    typer.echo(f"revoked {key_id}")


def _scopes(given: list[str], known: tuple[str, ...]) -> tuple[str, ...]:
    words = [word.strip() for text in given for word in text.split(",") if word.strip()]
    for word in words:
        if word not in known and word != "all":
            near = nearest(word, known)
            told = f"the nearest is {near} (all of them: {', '.join(known)})" if near else f"there are {', '.join(known)}"
            raise CommandError(f"there is no scope {word[:100]}; {told}", code=WRONG_USAGE)
    if not words:
        raise CommandError(f"--scope takes one of: {', '.join(known)}, all", code=WRONG_USAGE)
    return known if "all" in words else tuple(dict.fromkeys(words))


@app.command("rotate-master")
def rotate_master(
    prepare: Annotated[
        bool, typer.Option("--prepare", help="Only write the new key into the key file, to be copied to other hosts.")
    ] = False,
    config: opening.Config = None,
    database_url: opening.DatabaseUrl = None,
    json: show.Json = False,
) -> None:
    """Seal everything anew with a new master key, while the service runs. Safe to interrupt: run it again."""
    from cli import rotation

    found = opening.configuration(config, database_url)
    added = rotation.add_where_none_waits(found)
    if prepare:
        place = found.settings.key_file
        told = f"copy {place} to every host that serves this database, then: gateway keys rotate-master"
        if json:
            show.emit({"added": added, "key_file": place})
        else:
            typer.echo(f"{'a new key was added' if added else 'a new key waits'}; {told}")
        return
    with opening.record(config, database_url) as house, show.progress("rows looked at") as tell:
        done = rotation.rotate(house.ledger, tell)
    told = f"sealed anew with the key {done.key_id}: {done.sealed} values; once no backup needs the former key: gateway keys forget-master"
    _rotated(done, json, told)


@app.command("forget-master")
def forget_master(config: opening.Config = None, database_url: opening.DatabaseUrl = None, json: show.Json = False) -> None:
    """Make sure that nothing needs the former master keys and take them out of the key file. Older backups still need them."""
    from cli import rotation

    with opening.record(config, database_url) as house, show.progress("rows looked at") as tell:
        done = rotation.forget(house, tell)
    _rotated(done, json, f"the key file holds only the key {done.key_id}")


def _rotated(done: "Rotation", json: bool, told: str) -> None:
    if json:
        show.emit({"key": done.key_id, "sealed": done.sealed, "unopened": list(done.unopened)})
    else:
        for place in done.unopened:
            typer.echo(show.cell(f"{place} does not open with any key of the key file: it stays as it is"))
        typer.echo(told if not done.unopened else "the key file is left as it is")
    if done.unopened:
        raise typer.Exit(FAILED)

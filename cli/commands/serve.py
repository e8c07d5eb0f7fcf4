"""`gateway serve`, `web` and `reconcile`: the processes of the house."""

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli import opening

if TYPE_CHECKING:
    from cli.house import House

BOOTSTRAP_OWNER: Final = "default"
BOOTSTRAP_SUBJECT: Final = "admin"

Host = Annotated[str | None, typer.Option(help="Address to listen on.")]
Port = Annotated[int | None, typer.Option(min=0, max=65_535, help="Port to listen on; 0: any free one.")]
Uds = Annotated[str | None, typer.Option(metavar="PATH", help="Unix socket to listen on instead.")]


def serve(
    context: typer.Context,
    host: Host = None,
    port: Port = None,
    uds: Uds = None,
    config: opening.Config = None,
    database_url: opening.DatabaseUrl = None,
) -> None:
    """Run everything in one process: web and reconciler."""
    _run(context, config, database_url, web=True, reconciler=True, options={"web.host": host, "web.port": port, "web.uds": uds})


def web(
    context: typer.Context,
    host: Host = None,
    port: Port = None,
    uds: Uds = None,
    config: opening.Config = None,
    database_url: opening.DatabaseUrl = None,
) -> None:
    """Run the HTTP half: API and receiver of deliveries."""
    _run(context, config, database_url, web=True, reconciler=False, options={"web.host": host, "web.port": port, "web.uds": uds})


def reconcile(context: typer.Context, config: opening.Config = None, database_url: opening.DatabaseUrl = None) -> None:
    """Run the other half: reads, sends, cancels, collects, sweeps."""
    _run(context, config, database_url, web=False, reconciler=True, options={})


def _run(
    context: typer.Context, config: str | None, database_url: str | None, *, web: bool, reconciler: bool, options: dict[str, Any]
) -> None:
    import structlog

    from cli import serving
    from cli.house import open_house
    from cli.logs import configure
    from cli.world import RealWorld

    serving.stop_while_starting()
    role = "serve" if web and reconciler else "web" if web else "reconcile"

    def reread() -> Any:
        return opening.read(config, database_url, **options)

    found = reread()
    settings = found.settings
    configure(level=settings.log_level, form=settings.log_format, debug=isinstance(context.obj, opening.Frame) and context.obj.debug)
    log = structlog.get_logger("house")
    house = open_house(found, world=RealWorld(), migrate=True, role=role)

    def told(address: str) -> None:
        database = settings.database_url.partition(":")[0]
        log.info("house.started", role=role, address=address, database=database, providers=sorted(settings.providers))

    if role == "serve" and found.file is None:
        _bootstrap(house)
    serving.run(serving.Process(house, web=web, reconciler=reconciler, reread=reread, told=told))


def _bootstrap(house: "House") -> None:
    """Make a first key where there is none at all, and show it once: somebody without a file is trying the product out."""
    from gateway.keys import SCOPES, new_key
    from ledger import queries
    from schemas.commands import AddKey

    if house.ledger.read_now(queries.api_keys, 1):
        return
    key_id, text, digest = new_key(house.world)
    house.ledger.write_now(
        AddKey(id=key_id, key_sha256=digest, owner=BOOTSTRAP_OWNER, subject=BOOTSTRAP_SUBJECT, scopes=SCOPES, now=house.world.now())
    )
    typer.echo(f"admin key, shown this once: {text}")

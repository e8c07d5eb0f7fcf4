"""What almost every command begins with: read the configuration, open the record, know who asks."""

import contextlib
import getpass
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.failure import WRONG_USAGE, CommandError

if TYPE_CHECKING:
    from cli.configuration import Configuration
    from cli.house import House

Config = Annotated[
    str | None, typer.Option("--config", metavar="FILE", help="Configuration file (else $GATEWAY_CONFIG, else ./gateway.toml).")
]
DatabaseUrl = Annotated[str | None, typer.Option("--database-url", metavar="URL", help="sqlite:///PATH or postgresql://USER@HOST/NAME.")]
Who = Annotated[str | None, typer.Option("--as", metavar="NAME", help="Who acts, for the history; else the login name.")]


@dataclass(frozen=True, slots=True)
class Frame:
    """What stands before a command: whether tracebacks are wanted."""

    debug: bool = False


def read(config: str | None = None, database_url: str | None = None, **options: Any) -> "Configuration":
    """Return the configuration of this process. Raises ConfigurationError."""
    from cli.configuration import load

    return load(file=config, environment=os.environ, folder=Path.cwd(), options={"database_url": database_url, **options})


def configuration(config: str | None = None, database_url: str | None = None) -> "Configuration":
    """Return the configuration for a short command, whose log holds warnings only. Raises ConfigurationError."""
    from cli.logs import configure

    configure(level="warning", form="auto")  # before anything can log: the default writes to stdout
    return read(config, database_url)


@contextlib.contextmanager
def record(config: str | None, database_url: str | None, *, make: bool = False) -> Iterator["House"]:
    """Open the house for one command. `make`: a database that is missing or older is made or migrated. Raises CommandError."""
    from cli.house import open_house
    from cli.world import RealWorld
    from ledger.filelock import missing

    found = configuration(config, database_url)
    url = found.settings.database_url
    place = url.removeprefix("sqlite:///")
    if not make and url.startswith("sqlite:///") and not Path(place).exists():
        first = "start gateway serve first, name another by --config or --database-url, or put it back from the backup"
        raise CommandError(missing(place) or f"there is no database at {url}; {first}", code=WRONG_USAGE)
    house = open_house(found, world=RealWorld(), migrate=make)
    try:
        yield house
    finally:
        house.ledger.close()


def who(name: str | None) -> str:
    """Return the name of the person who acts."""
    if name is not None:
        if not name.strip() or len(name) > 200 or not name.isprintable():  # noqa: PLR2004 - as long as the API takes
            raise CommandError("--as takes a name of at most 200 printable characters", code=WRONG_USAGE)
        return name
    with contextlib.suppress(OSError, KeyError, ImportError):
        return getpass.getuser()
    return f"uid {os.getuid()}"

"""The stage: a folder with a configuration as an operator would write it, secrets in files, and keys for everybody who acts."""

import base64
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cli import contracts
from cli.configuration import Configuration, load
from gateway.keys import new_key
from ledger.ledger import Ledger
from schemas.commands import AddKey
from schemas.world import World
from simulator.options import SimulatorOptions

AGENT_SCOPES: Final = ("operations:create", "operations:adopt", "operations:read", "operations:cancel", "operations:download")
PERSON_SCOPES: Final = ("operations:read", "operations:decide", "operations:adopt", "operations:download")
_FILES: Final = ("reports.secret", "batches.secret", "provider.credential")
_ONE_SHOT: Final = (('name = "reports"\n', 'name = "once"\n'), ("[result]\n", "[result]\none_shot = true # asked for once, never again\n"))
_CONFIGURATION: Final = """\
# Written by `gateway demo`. The contracts are the shipped ones as they are: their times are short already. once.toml is the
# one of reports, told that reading a result consumes it.
database_url = "{database}"
key_file = "master.key"
artifact_dir = "artifacts"

[providers.reports]
contract = "reports"
base_url = "{simulator}"
secrets = ["file:reports.secret"]
credential = "file:provider.credential"

[providers.batches]
contract = "batches"
base_url = "{simulator}"
secrets = ["file:batches.secret"]
credential = "file:provider.credential"

[providers.once]
contract = "./once.toml"
base_url = "{simulator}"
secrets = ["file:reports.secret"]
credential = "file:provider.credential"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """What both sides of a provider account know."""

    reports: str
    batches: str
    credential: str


def lay_out(folder: Path) -> Secrets:
    """Write new secrets into the folder, each in a file of its own that only its owner reads. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    made = Secrets(
        reports="whsec_" + base64.b64encode(secrets.token_bytes(24)).decode(),
        batches="whsec_" + secrets.token_urlsafe(24),
        credential=secrets.token_urlsafe(24),
    )
    for name, value in zip(_FILES, (made.reports, made.batches, made.credential), strict=True):
        place = folder / name
        place.touch(mode=0o600)
        place.write_text(value, encoding="utf-8")
    return made


def options(known: Secrets, faults: Sequence[str]) -> SimulatorOptions:
    """Return how the simulator is started: short jobs, short pauses, the standing faults that were asked for."""
    return SimulatorOptions(
        credential=known.credential,
        reports_secret=known.reports,
        batches_secrets=(known.batches,),
        queue_seconds=0.3,
        run_seconds=1.0,
        callback_retry_seconds=(0.5,),
        simulate=tuple(faults),
    )


def configure(folder: Path, *, simulator: str, database_url: str | None, port: int) -> Configuration:
    """Write once.toml and gateway.toml and read it as `gateway serve` would, without this machine's environment.

    Raises ConfigurationError.
    """
    contract = contracts.read("reports", folder).decode()
    for shipped, told in _ONE_SHOT:
        contract = contract.replace(shipped, told, 1)
    (folder / "once.toml").write_text(contract, encoding="utf-8")
    place = folder / "gateway.toml"
    place.write_text(_CONFIGURATION.format(database="sqlite:///gateway.db", simulator=simulator), encoding="utf-8")
    given = {"database_url": database_url, "web.port": port}
    return load(file=str(place), environment={}, folder=Path.cwd(), options=given)


async def make_key(ledger: Ledger, world: World, *, owner: str, subject: str, scopes: tuple[str, ...]) -> str:
    """Make an API key and return its text."""
    key_id, text, digest = new_key(world)
    await ledger.write(AddKey(id=key_id, key_sha256=digest, owner=owner, subject=subject, scopes=scopes, now=world.now()))
    return text

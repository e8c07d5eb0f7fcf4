"""The rotation of the master key: a new one is added to the key file, the database names it, everything is sealed anew."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from cli.configuration import Configuration
from cli.house import House
from ledger.engine import open_engines
from ledger.keyfile import add_key, keep_key, load_keys
from ledger.ledger import Ledger
from ledger.rewrap import MAX_NAMED, SEALED
from ledger.vault import FOLLOW_SECONDS, Vault
from schemas.upkeep import Rewrap, Switch

WINDOW = 500
"""Rows of one transaction."""
SETTLED_SECONDS = FOLLOW_SECONDS + 1.0
"""After this every process seals with the new key, but for a transaction that has lasted longer: `forget` looks again."""
Tell = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """How it went: the id of the key that seals, how many values were sealed anew, and which do not open."""

    key_id: str
    sealed: int
    unopened: tuple[str, ...]


def add_where_none_waits(configuration: Configuration) -> bool:
    """Add a key to the key file unless its newest is not in use yet (prepared, or left by a run that was killed)."""
    place = configuration.settings.key_file
    keys = load_keys(place)
    vault = Vault(*keys)
    engines = open_engines(configuration.settings.database_url, pooled=configuration.settings.database_pooled)
    try:
        with engines.begin() as connection:
            vault.prove(connection)
    finally:
        engines.close()
    if vault.key_id != Vault(keys[-1]).key_id:
        return False
    add_key(place)
    return True


def rotate(ledger: Ledger, tell: Tell, *, settled: float | None = None) -> Rotation:
    """Switch to the newest key and seal everything with it; then once more what others had sealed before they followed."""
    key_id = ledger.write_now(Switch())
    began = time.monotonic()
    first = sweep(ledger, tell)
    wait = SETTLED_SECONDS if settled is None else settled
    time.sleep(max(0.0, wait - (time.monotonic() - began)))
    second = sweep(ledger, tell)
    return Rotation(key_id=key_id, sealed=first.sealed + second.sealed, unopened=second.unopened)


def sweep(ledger: Ledger, tell: Tell) -> Rotation:
    """Seal everything with the current key that is not."""
    looked, sealed = 0, 0
    unopened: list[str] = []
    for place in SEALED:
        after: tuple[str | int, ...] | None = ()
        while after is not None:
            done = ledger.write_now(Rewrap(place=place, after=after, limit=WINDOW))
            looked, sealed, after = looked + done.looked_at, sealed + done.sealed, done.after
            unopened += done.unopened[: MAX_NAMED - len(unopened)]
            tell(looked)
    return Rotation(key_id=ledger.vault.key_id, sealed=sealed, unopened=tuple(unopened))


def forget(house: House, tell: Tell) -> Rotation:
    """Look at everything once more and leave only the current key in the file, unless something does not open."""
    done = sweep(house.ledger, tell)
    if not done.unopened:
        place = house.settings.key_file
        keep_key(place, next(key for key in load_keys(place) if Vault(key).key_id == done.key_id))
    return done

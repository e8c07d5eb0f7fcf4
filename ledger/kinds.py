"""The closed kinds of commands and the set-based function of each: `function(tx, commands) -> results`, in order."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ledger.transaction import Transaction
from schemas.commands import (
    AddKey,
    Beat,
    ClaimWork,
    Command,
    Defer,
    Ingest,
    Petition,
    Quarantine,
    Register,
    Renew,
    Replay,
    RevokeKey,
    Settle,
    Sweep,
)  # fmt: skip
from schemas.receiving import AddSecret, ClaimFetches, EndSecret, NoteHandshake, SettleFetch, WantKey
from schemas.sweeping import ClaimWalks, SettleWalk
from schemas.upkeep import Checkpoint, Expire, Rewrap, Switch

Function = Callable[[Transaction, Any], Sequence[Any]]

_FUNCTIONS: Final[Mapping[type[Command], tuple[str, str]]] = {
    Register: ("ledger.register", "register"),
    Ingest: ("ledger.ingest", "ingest"),
    Petition: ("ledger.petition", "petition"),
    ClaimWork: ("ledger.leases", "claim"),
    Renew: ("ledger.leases", "renew"),
    Defer: ("ledger.leases", "defer"),
    Settle: ("ledger.settle", "settle"),
    Sweep: ("ledger.sweep", "sweep"),
    Beat: ("ledger.beats", "beat"),
    AddKey: ("ledger.keys", "add_keys"),
    RevokeKey: ("ledger.keys", "revoke_keys"),
    AddSecret: ("ledger.secrets", "add_secrets"),
    EndSecret: ("ledger.secrets", "end_secrets"),
    NoteHandshake: ("ledger.handshakes", "note_handshakes"),
    WantKey: ("ledger.fetches", "want_keys"),
    ClaimFetches: ("ledger.fetches", "claim_fetches"),
    SettleFetch: ("ledger.fetches", "settle_fetches"),
    Quarantine: ("ledger.quarantine", "quarantine"),
    Replay: ("ledger.replay", "replay"),
    ClaimWalks: ("ledger.walks", "claim_walks"),
    SettleWalk: ("ledger.walks", "settle_walks"),
    Expire: ("ledger.retention", "expire"),
    Rewrap: ("ledger.rewrap", "rewrap"),
    Switch: ("ledger.rewrap", "switch"),
    Checkpoint: ("ledger.checkpoints", "checkpoint"),
}

KINDS: Final = tuple(_FUNCTIONS)
LAST: Final = frozenset({Quarantine})
"""Kinds that are taken only while nothing else waits: what strangers can cause at will must not delay anybody (B10)."""
CAREFUL: Final = frozenset({ClaimWork, Ingest, Sweep, Expire})
"""Kinds that concern many rows, or what a provider has sent once: where the database refuses one, it is run again row by row (B113)."""


_loaded: Final[dict[type[Command], Function]] = {}


def function_of(kind: type[Command]) -> Function:
    """Return the function of a kind of command. Imported on first use: a command line that only reads needs none."""
    function = _loaded.get(kind)
    if function is None:
        module, name = _FUNCTIONS[kind]
        function = _loaded[kind] = getattr(importlib.import_module(module), name)
    return function

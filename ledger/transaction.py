"""What every set-based command function is given: one open transaction and what it needs to judge."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import sqlalchemy as sa

from ledger.vault import Vault
from schemas.contract import Contract
from schemas.operation import Micros

RECEIVING = "receiving"
"""Among the ids that changed: secrets or published keys did, and whoever verifies looks at them anew."""
_CLOCK = sa.text("SELECT (extract(epoch from clock_timestamp()) * 1000000)::bigint")


@dataclass(frozen=True, slots=True)
class Transaction:
    """One open write transaction (SQLite: BEGIN IMMEDIATE; PostgreSQL: READ COMMITTED)."""

    connection: sa.Connection
    vault: Vault
    contracts: Mapping[str, Contract]  # provider's configured name -> its contract
    changed: set[str] = field(default_factory=set)  # ids of operations that were written: told to listeners after the commit
    due: set[str] = field(default_factory=set)  # ids whose errand is due now: the reconciler is woken after the commit
    careful: bool = False  # the same command has failed before: some row is at fault, and is looked for one by one

    @property
    def postgres(self) -> bool:
        """Return whether this is PostgreSQL (else SQLite)."""
        return self.connection.dialect.name == "postgresql"

    def unsigned(self, provider: str) -> bool:
        """Return whether a provider's signature leaves the body free, so that a delivery only earns a budgeted read (B8)."""
        contract = self.contracts.get(provider)
        return contract is not None and not contract.event.body_signed

    def lease_clock(self, now: Micros) -> Micros:
        """Return the clock by which leases are written and judged: the database's own, or on SQLite the argument."""
        if self.postgres:
            return int(self.connection.execute(_CLOCK).scalar_one())
        return now


@dataclass(frozen=True, slots=True)
class View:
    """What every query is given: one open read transaction and the vault to unseal with."""

    connection: sa.Connection
    vault: Vault

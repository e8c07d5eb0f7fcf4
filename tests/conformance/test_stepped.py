"""A wall clock that was set back: nothing waits for the old time to come round, on both databases."""

from typing import Any

import sqlalchemy as sa

from ledger import tables
from ledger.engine import Engines
from ledger.sweep import sweep
from ledger.transaction import Transaction
from ledger.vault import Vault
from schemas.commands import Sweep
from schemas.operation import SECOND, Micros
from schemas.states import Reading
from tests.conformance.house import Record, intent, reading

HOURS: Micros = 2 * 3_600 * SECOND
MOST: Micros = 600 * SECOND


def _sweep(record: Record, now: Micros, *, stepped: bool = True) -> int:
    command = Sweep(now=now, limit=10, chance=0.5, stepped=stepped, longest_lease=MOST)
    (swept,) = record.tx(sweep, command)
    return swept.counts.get("set_right", 0)


def _columns(engines: Engines, number: int) -> Any:
    c = tables.operations.c
    with engines.look() as connection:
        return connection.execute(sa.select(c.due_at, c.lease_until, c.last_read_at, c.created_at).where(c.id == intent(number).id)).one()


def test_a_dead_workers_lease_is_not_stretched(engines: Engines, vault: Vault) -> None:
    """B106: the step makes a lease of a minute last two hours; a sweep frees it, the open attempt is judged, and one of now stays."""
    record = Record(engines=engines, vault=vault)
    record.register(intent(1), intent(2))
    assert len(record.claim()) == 2
    with engines.begin() as connection:  # as the step leaves it, whoever's clock it was
        connection.execute(
            sa.update(tables.operations)
            .where(tables.operations.c.id == intent(1).id)
            .values(lease_until=tables.operations.c.lease_until + HOURS, due_at=tables.operations.c.due_at + HOURS)
        )
    kept = _columns(engines, 2)
    with engines.begin() as connection:
        now = max(record.now, Transaction(connection, vault, {}).lease_clock(record.now))
    assert _sweep(record, now, stepped=False) == 0
    assert _sweep(record, now) == 1
    assert _sweep(record, now) == 0
    assert _columns(engines, 2) == kept
    (item,) = record.claim("another", after=now - record.now)
    assert item.operation.id == intent(1).id
    assert item.operation.unsure_creates == 1  # never a second blind send


def test_a_wait_is_as_long_as_it_was_meant(engines: Engines, vault: Vault) -> None:
    """B106: after a step of two hours back the next read comes after the wait that was decided on, not two hours later, and once."""
    record = Record(engines=engines, vault=vault)
    record.accept(1, "job-1")
    (item,) = record.claim(after=60 * SECOND)
    record.settle(item, reading(Reading.RUNNING), after=60 * SECOND)
    before = _columns(engines, 1)
    assert before.due_at is not None
    assert before.last_read_at is not None
    wait = before.due_at - before.last_read_at
    assert wait > 0
    now = record.now - HOURS
    assert _sweep(record, now) == 1
    assert _columns(engines, 1).due_at == now + wait
    assert _sweep(record, now + SECOND) == 0
    assert _columns(engines, 1).due_at == now + wait


def test_what_was_registered_in_the_future_is_sent(engines: Engines, vault: Vault) -> None:
    """B106: an intent that was recorded before the step, and not sent yet, is due now."""
    record = Record(engines=engines, vault=vault)
    record.register(intent(1))
    with engines.begin() as connection:
        connection.execute(sa.update(tables.operations).values(due_at=record.now + SECOND))  # its send was put off by a second
    now = record.now - HOURS
    assert _sweep(record, now) == 1
    assert _columns(engines, 1).due_at == now + SECOND

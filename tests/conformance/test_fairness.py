"""Fairness of claims between owners and providers where room is scarce, on both databases (C3)."""

from collections import Counter

import pytest

from ledger.engine import Engines
from ledger.leases import claim
from ledger.vault import Vault
from schemas.commands import ClaimWork
from schemas.operation import SECOND
from tests.conformance.house import LEASE, Record, intent


@pytest.fixture
def record(engines: Engines, vault: Vault) -> Record:
    return Record(engines, vault)


def fill(record: Record, *shares: tuple[str, str, int]) -> None:
    """Register so many due operations of each (provider, owner)."""
    numbers = iter(range(1, 10_000))
    intents = [
        intent(number, provider=provider, owner=owner)
        for provider, owner, count in shares
        for number, _ in zip(numbers, range(count), strict=False)
    ]
    record.register(*intents)


class Claims:
    """Claims in a row, each going on where the former ended; nothing that was claimed is settled."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.after: dict[str, str] = {}

    def take(self, limit: int = 64, **room: int) -> Counter[tuple[str, str]]:
        command = ClaimWork(
            worker="w", room=room, limit=limit, lease=LEASE, send_budget=SECOND, now=self.record.now, chance=0.5, after=self.after
        )
        (work,) = self.record.tx(claim, command)
        self.after = dict(work.after)
        return Counter((item.operation.provider, item.operation.owner) for item in work.items)


def test_one_free_place_goes_round_the_owners(record: Record) -> None:
    """C3: with room for one call at a time, an owner with hundreds of due operations holds up another's only one by one turn."""
    fill(record, ("reports", "acme", 300), ("reports", "zeta", 1), ("reports", "middle", 2))
    claims = Claims(record)
    turns = [claims.take(reports=1) for _ in range(6)]
    owners = ["acme", "middle", "zeta", "acme", "middle", "acme"]
    assert turns == [{("reports", owner): 1} for owner in owners]


def test_a_claim_shares_the_room_of_a_provider(record: Record) -> None:
    """C3: owners who all have more than fits get equal parts; what one does not need goes to the others."""
    fill(record, ("reports", "acme", 40), ("reports", "beta", 40), ("reports", "zeta", 2))
    taken = Claims(record).take(reports=18)
    assert taken == {("reports", "acme"): 10, ("reports", "beta"): 6, ("reports", "zeta"): 2}


def test_the_turns_of_one_provider_do_not_depend_on_another(record: Record) -> None:
    """C3: a provider with much room, behind one with little, does not send the round back to the first owner."""
    fill(record, *(("other", owner, 5) for owner in "abc"), ("reports", "a", 60))
    claims = Claims(record)
    assert [claims.take(other=1, reports=10)["other", owner] for owner in "abc"] == [1, 1, 1]


def test_more_owners_than_fit_in_a_claim_all_have_their_turn(record: Record) -> None:
    """C3: of eighty owners each is served once before any is served twice, whatever fits; nobody is left out at the seams."""
    fill(record, *(("reports", f"owner-{number:02}", 2) for number in range(80)))
    claims = Claims(record)
    served: Counter[tuple[str, str]] = Counter()
    for room in (7, 64, 5, 4):
        served += claims.take(limit=64, reports=room)
    assert len(served) == 80
    assert set(served.values()) == {1}


def test_a_small_limit_goes_round_the_providers(record: Record) -> None:
    """C3: a process with one free worker serves the second provider too, although the first has much to do."""
    fill(record, ("other", "a", 50), ("reports", "a", 50))
    claims = Claims(record)
    assert [claims.take(limit=1, other=9, reports=9) for _ in range(4)] == [{("other", "a"): 1}, {("reports", "a"): 1}] * 2

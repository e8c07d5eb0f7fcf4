"""What a contract can: everything that the expected ends depend on. No provider is named here."""

from dataclasses import dataclass

from schemas.contract import Contract
from schemas.states import Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """The promises of one contract, as the behaviours ask for them."""

    creates: bool
    resends: bool  # the same token is answered instead of executed
    searches: bool  # what was created can be looked for
    sent_again: frozenset[int]  # statuses of a create that surely did nothing
    cancels: bool
    deletes: bool  # cancelled is what is gone after our cancel
    callbacks: bool
    names_job: bool  # a status answer says which job it is about
    files: bool  # the result is fetched
    fetched_at_home: bool  # from the provider's own origin
    one_shot: bool
    partial: bool  # an expired job may have a result
    words: frozenset[Reading]

    @property
    def recovers(self) -> bool:
        """Say whether a lost answer to a create is resolved without a person."""
        return self.resends or self.searches


def capability(contract: Contract) -> Capability:
    """Return what this contract can."""
    create, status, result, cancel = contract.create, contract.status, contract.result, contract.cancel
    strategies = contract.recovery.strategies
    assert status is not None
    addresses = [address for sample in contract.samples for address in sample.get("files", ())]
    return Capability(
        creates=create is not None,
        resends="resend" in strategies,
        searches="lookup" in strategies or "list" in strategies,
        sent_again=frozenset(create.not_executed if create else ()),
        cancels=cancel is not None,
        deletes=cancel is not None and cancel.absent_after_cancel,
        callbacks=bool(contract.signatures) and bool(contract.event.job_id),
        names_job=bool(status.job_id),
        files=result is not None,
        fetched_at_home=all(address.startswith(contract.origin + "/") for address in addresses),
        one_shot=result is not None and result.one_shot,
        partial=result is not None and Reading.EXPIRED in result.readings,
        words=frozenset(status.readings.values()),
    )

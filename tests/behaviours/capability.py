"""What a contract can: everything that the expected ends depend on. No provider is named here."""

from dataclasses import dataclass

from schemas.states import Reading
from tests.behaviours.play import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """The promises of one contract, as the behaviours ask for them."""

    creates: bool
    resends: bool  # the same token is answered instead of executed
    searches: bool  # what was created can be looked for
    shown_late: bool  # it may be some time before a search shows a new job
    sent_again: frozenset[int]  # statuses of a create that surely did nothing
    id_beside: bool  # the job's id does not stand in the answer's body
    cancels: bool
    deletes: bool  # cancelled is what is gone after our cancel
    callbacks: bool
    echoes: bool  # a signed callback names our operation beside its job
    names_job: bool  # a status answer says which job it is about
    files: bool  # the result is fetched
    fetched_at_home: bool  # from the provider's own origin
    one_shot: bool
    partial: bool  # an expired job may have a result
    watched: bool  # an end may be reversed
    strange: bool  # it can say a word that is not in the table
    words: frozenset[Reading]

    @property
    def recovers(self) -> bool:
        """Say whether a lost answer to a create is resolved without a person."""
        return self.resends or self.searches


def capability(kind: Kind) -> Capability:
    """Return what this kind of operation can."""
    whole, contract = kind.whole, kind.contract
    create, status, result, cancel = contract.create, contract.status, contract.result, contract.cancel
    strategies = contract.recovery.strategies
    assert status is not None
    mine = [sample for sample in whole.samples if "kind" in sample and sample.get("action", kind.action) == kind.action]
    addresses = [address for sample in mine for address in sample.get("files", ())]
    ends = {reading for rule in status.outcome for reading in (*rule.readings.values(), rule.present, rule.absent) if reading is not None}
    return Capability(
        creates=create is not None,
        resends="resend" in strategies,
        searches="lookup" in strategies or "list" in strategies,
        shown_late=contract.recovery.visibility_seconds >= 30 and status.not_found_grace_seconds >= 60,
        sent_again=frozenset(create.not_executed if create else ()),
        id_beside=create is not None and not create.job_id.startswith("body:"),
        cancels=cancel is not None,
        deletes=cancel is not None and cancel.absent_after_cancel,
        callbacks=bool(whole.signatures) and bool(whole.event.job_id),
        echoes=bool(whole.signatures)
        and whole.event.body_signed
        and bool(whole.event.client_reference)
        and create is not None
        and any("{operation}" in template for _, template in create.add),
        names_job=bool(status.job_id),
        files=result is not None,
        fetched_at_home=all(address.startswith(whole.origin + "/") for address in addresses),
        one_shot=result is not None and result.one_shot,
        partial=result is not None and Reading.EXPIRED in result.readings,
        strange=any(sample.get("reading") == Reading.UNKNOWN for sample in mine),
        watched=status.watch_seconds > 0,
        words=frozenset(status.readings.values()) | ends,
    )

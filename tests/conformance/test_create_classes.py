"""The classes of idempotency through the record, on both databases: what is sent, what is looked up, and how it ends (A6, A7, B055)."""

from dataclasses import replace

import pytest
import sqlalchemy as sa

from ledger import tables
from ledger.engine import Engines
from ledger.rows import from_row
from ledger.vault import Vault
from schemas.contract import Contract, CreateRule, RecoveryRule, TokenRule
from schemas.evidence import CreateAmbiguous, Evidence, JobKnown, JobNotFound, JobsConflict
from schemas.operation import SECOND, Micros, Operation
from schemas.states import Errand, State
from tests.conformance.house import NOW, REPORTS, Record, intent

BOTH = replace(REPORTS, recovery=RecoveryRule(strategies=("resend", "lookup"), path="/j", match="r", visibility_seconds=1, confirmations=1))
SEARCH = replace(REPORTS, recovery=RecoveryRule(strategies=("lookup",), path="/j", match="r", visibility_seconds=1, proves_absence=False))
NAMED = replace(
    REPORTS,
    create=CreateRule(path="/j/{token}", token=TokenRule(place="path"), job_id="{token}"),
    recovery=RecoveryRule(strategies=("lookup",), path="/j/{token}", items="", visibility_seconds=1),
)
LATER = 200 * SECOND  # after every byte has left and every job is visible


def start(engines: Engines, vault: Vault, contract: Contract) -> Record:
    """Return a record with one operation whose create is under way."""
    record = Record(engines=engines, vault=vault, contracts={"reports": contract})
    record.register(intent(1))
    return record


def stored(record: Record) -> Operation:
    with record.engines.read.begin() as connection:
        return from_row(connection.execute(sa.select(tables.operations)).one(), record.vault)


def meets(record: Record, errand: Errand, evidence: Evidence, after: Micros) -> Operation:
    """Claim the errand that is owed, settle it, and return the operation."""
    (item,) = record.claim(after=after)
    assert item.errand is errand
    record.settle(item, evidence, after=after)
    return stored(record)


def test_a_stored_error_is_looked_up_and_ends_as_not_created(engines: Engines, vault: Vault) -> None:
    """B055: one resend shows that the error is stored; then no further send, whatever the order of strategies."""
    record = start(engines, vault, BOTH)
    meets(record, Errand.CREATE, CreateAmbiguous(error="read_timeout"), 0)
    op = meets(record, Errand.CREATE, CreateAmbiguous(error="replayed_http_500", spent=True), 100 * SECOND)
    assert (op.state, op.token_spent) == (State.CREATE_UNKNOWN, "replayed_http_500")
    op = meets(record, Errand.RECOVER, JobNotFound(), LATER)
    assert (op.state, op.error_code, op.verdict_cause, op.sends) == (State.FAILED, "not_created", "absence", 2)
    assert record.faults() == []


def test_a_failure_that_is_not_stored_is_sent_again_after_a_proven_absence(engines: Engines, vault: Vault) -> None:
    """A6: looked up first; absent, the same token goes out again."""
    record = start(engines, vault, BOTH)
    meets(record, Errand.CREATE, CreateAmbiguous(error="http_502", spent=True), 0)
    op = meets(record, Errand.RECOVER, JobNotFound(), LATER)
    assert (op.state, op.token_spent) == (State.CREATE_PENDING, None)
    op = meets(record, Errand.CREATE, JobKnown(remote_job_id="job-1", source="create", remembered={"u": "/j/1"}), LATER + SECOND)
    assert (op.state, op.idempotency_token, op.remembered) == (State.ACCEPTED, intent(1).idempotency_token, {"u": "/j/1"})


def test_what_is_never_proven_absent_ends_with_a_question(engines: Engines, vault: Vault) -> None:
    """A7: looked for until the deadline, sent once."""
    record = start(engines, vault, SEARCH)
    op = meets(record, Errand.CREATE, CreateAmbiguous(error="read_timeout"), 0)
    looked, at = 0, LATER
    while op.state is State.CREATE_UNKNOWN:
        op, looked = meets(record, Errand.RECOVER, JobNotFound(), at), looked + 1
        at = max(at + SECOND, (op.due_at or 0) - NOW)
    assert (op.state, op.error_code, op.sends) == (State.CREATE_UNRESOLVED, "create_deadline", 1)
    assert 2 <= looked <= 20
    assert record.audit() == dict.fromkeys(record.audit(), 0)


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (JobKnown(remote_job_id="token-1", source="recovery"), State.ACCEPTED),
        (JobsConflict(remote_job_ids=("token-1",), code="name_taken"), State.QUARANTINED),
    ],
    ids=["ours", "taken"],
)
def test_a_name_that_exists_already_is_adopted_or_stops_everything(
    engines: Engines, vault: Vault, found: JobKnown | JobsConflict, state: State
) -> None:
    """A6, A8: after "already exists" the job of our name is ours by its mark, or a person decides."""
    record = start(engines, vault, NAMED)
    meets(record, Errand.CREATE, CreateAmbiguous(error="http_409"), 0)
    assert meets(record, Errand.RECOVER, found, LATER).state is state

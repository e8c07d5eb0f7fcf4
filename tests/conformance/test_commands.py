"""The command functions of the record, one by one, on both databases."""

import itertools
from dataclasses import replace

import pytest
import sqlalchemy as sa

from ledger import tables
from ledger.audit import settled_faults, verify_operation
from ledger.beats import beat
from ledger.engine import Engines
from ledger.leases import defer, renew
from ledger.petition import petition
from ledger.rows import from_row
from ledger.settle import settle
from ledger.sweep import sweep
from ledger.transaction import View
from ledger.vault import Vault
from schemas.commands import Beat, Defer, Petition, Renew, Sweep
from schemas.contract import RecoveryRule
from schemas.evidence import CancelAsked, Collected, CreateAmbiguous, JobKnown, JobNotFound, NotSent, RefreshAsked, StoredFile
from schemas.operation import SECOND
from schemas.states import Errand, Mode, Reading, State
from tests.conformance.house import LEASE, NOW, REPORTS, Record, delivery, intent, reading


@pytest.fixture
def record(engines: Engines, vault: Vault) -> Record:
    return Record(engines=engines, vault=vault)


def count(record: Record, table: sa.Table, *conditions: sa.ColumnElement[bool]) -> int:
    with record.engines.read.begin() as connection:
        return int(connection.execute(sa.select(sa.func.count()).select_from(table).where(*conditions)).scalar_one())


# --- register


def test_the_same_key_and_request_is_the_same_operation(record: Record) -> None:
    """A3: in one batch and in a later one."""
    first, again = record.register(intent(1), intent(2, idempotency_key="key-1", request_fingerprint=intent(1).request_fingerprint))
    later = record.register(intent(3, idempotency_key="key-1", request_fingerprint=intent(1).request_fingerprint))[0]
    assert [first.outcome, again.outcome, later.outcome] == ["created", "replayed", "replayed"]
    assert {answer.operation.id for answer in (first, again, later) if answer.operation} == {intent(1).id}
    assert count(record, tables.operations) == 1


def test_the_same_key_with_another_request_is_refused_and_changes_nothing(record: Record) -> None:
    """A3, B057."""
    record.register(intent(1))
    answer = record.register(intent(2, idempotency_key="key-1"))[0]
    assert (answer.outcome, answer.operation) == ("key_reused", None)
    assert count(record, tables.operations) == 1


def test_keys_of_two_owners_are_two_keys(record: Record) -> None:
    """B152: owner is part of the key."""
    answers = record.register(intent(1, idempotency_key="k"), intent(2, idempotency_key="k", owner="other"))
    assert [answer.outcome for answer in answers] == ["created", "created"]


def test_adopting_is_idempotent_for_its_owner_and_opaque_for_others(record: Record) -> None:
    """A11: a job id is unique per provider account across owners."""
    adopt = {"mode": Mode.ADOPT, "remote_job_id": "job-1", "idempotency_key": None, "request": None}
    assert record.register(intent(1, **adopt))[0].outcome == "created"
    assert record.register(intent(2, **adopt))[0].outcome == "replayed"
    taken = record.register(intent(3, owner="other", **adopt))[0]
    assert (taken.outcome, taken.operation) == ("job_taken", None)
    assert record.register(intent(4, provider="other", **adopt))[0].outcome == "created"


def test_the_key_of_a_repeated_adopt_stands_for_the_operation_that_was_answered(record: Record) -> None:
    """A3, A11: also in the batch that adopts, and after a refusal the key is free."""
    adopt = {"mode": Mode.ADOPT, "remote_job_id": "job-1", "request": None}
    first, same_batch = record.register(intent(1, **adopt), intent(2, **adopt))
    assert [first.outcome, same_batch.outcome] == ["created", "replayed"]
    again = record.register(intent(3, **{**adopt, "idempotency_key": "key-2", "request_fingerprint": intent(2).request_fingerprint}))[0]
    assert again.outcome == "replayed"
    assert {answer.operation.id for answer in (first, same_batch, again) if answer.operation} == {intent(1).id}
    stranger = {**adopt, "owner": "other", "idempotency_key": "k", "request_fingerprint": "sha256:s"}
    twice = record.register(intent(4, **stranger), intent(5, **stranger))
    assert [answer.outcome for answer in (*twice, *record.register(intent(6, **stranger)))] == ["job_taken"] * 3


def test_nothing_is_sent_without_a_committed_record_and_attempt(record: Record) -> None:
    """A1: the claim commits the open attempt that a send needs; until then there is nothing to send."""
    assert not record.claim()
    record.register(intent(1))
    item = record.claim()[0]
    assert item.errand is Errand.CREATE
    assert count(record, tables.attempts, tables.attempts.c.id == item.attempt_id, tables.attempts.c.outcome == "open") == 1


# --- claim, leases, fences


def test_a_leased_operation_is_not_claimed_again_before_its_lease_ends(record: Record) -> None:
    """C1: one owner per operation at a time."""
    record.register(intent(1))
    assert len(record.claim("a")) == 1
    assert not record.claim("b", after=LEASE - SECOND if record.engines.write.dialect.name == "sqlite" else 0)


def test_an_open_attempt_of_somebody_else_is_ambiguous(record: Record) -> None:
    """A6: found after a crash or a stall, it is `create_unknown`; the same token is sent again by this contract."""
    record.register(intent(1))
    first = record.claim("a", lease=1)[0]
    again = record.claim("a", after=2 * SECOND, lease=1)[0]
    assert first.attempt_id != again.attempt_id
    assert again.operation.state is State.CREATE_UNKNOWN
    assert again.errand is Errand.CREATE
    assert again.operation.idempotency_token == first.operation.idempotency_token
    assert count(record, tables.attempts, tables.attempts.c.outcome == "lost") == 1


def test_a_stale_worker_brings_evidence_but_does_not_reschedule(record: Record) -> None:
    """C1, B125: the fence of the successor stands; a late create answer still counts."""
    record.register(intent(1))
    stale = record.claim("a", lease=1)[0]
    fresh = record.claim("b", after=2 * SECOND)[0]
    settled = record.settle(stale, JobKnown(remote_job_id="job-1", source="create"), after=3 * SECOND)
    assert settled.stale
    assert settled.operation.state is State.ACCEPTED
    assert settled.operation.lease_fence == fresh.fence
    assert settled.operation.due_at == fresh.operation.due_at
    assert not record.claim("c", after=3 * SECOND) or record.engines.write.dialect.name == "postgresql"


def test_a_stale_worker_never_renews_the_lease_of_its_successor(record: Record) -> None:
    """B125: every renewal carries the fence in its WHERE."""
    record.register(intent(1))
    old = record.claim("a", lease=1)[0]
    new = record.claim("a", after=2 * SECOND)[0]
    renewals = [Renew(operation_id=old.operation.id, fence=item.fence, lease=LEASE, now=NOW + 3 * SECOND) for item in (old, new)]
    assert record.tx(renew, *renewals) == [False, True]


def test_giving_a_lease_back_closes_the_attempt_as_not_sent(record: Record) -> None:
    """A worker that made no call leaves no doubt behind."""
    record.register(intent(1))
    item = record.claim()[0]
    back = Defer(operation_id=item.operation.id, fence=item.fence, due_at=NOW + SECOND, now=NOW, attempt_id=item.attempt_id)
    assert record.tx(defer, back) == [True]
    again = record.claim(after=2 * SECOND)[0]
    assert again.operation.state is State.CREATE_PENDING


def test_claims_are_fair_between_owners(record: Record) -> None:
    """A flood of one owner does not starve another (ARCHITECTURE, The way of a due operation)."""
    record.register(*(intent(number, owner="flood") for number in range(50)), intent(99, owner="small"))
    owners = {item.operation.owner for item in record.claim(limit=10)}
    assert owners == {"flood", "small"}


def test_a_provider_without_room_is_not_claimed(record: Record) -> None:
    """C3: the pace of one account does not hold another."""
    record.register(intent(1), intent(2, provider="other"))
    assert [item.operation.provider for item in record.claim(room={"other": 5})] == ["other"]


def test_a_row_that_cannot_be_read_or_judged_holds_nothing_back(record: Record) -> None:
    """B113, B115: one undecodable row and one whose attempt is missing sink; the others are claimed in the same round."""
    record.register(*(intent(number) for number in range(6)))
    with record.engines.write.begin() as connection:
        connection.execute(sa.update(tables.operations).where(tables.operations.c.id == intent(0).id).values(request=b"not sealed"))
        broken = {"open_attempt": "att_gone", "open_errand": "create"}
        connection.execute(sa.update(tables.operations).where(tables.operations.c.id == intent(1).id).values(**broken))
    assert {item.operation.id for item in record.claim()} == {intent(number).id for number in range(2, 6)}
    assert count(record, tables.operations, tables.operations.c.due_at == NOW + 60 * SECOND) == 2
    assert count(record, tables.history) == 6


# --- deliveries


def test_a_delivery_is_applied_once_however_often_it_comes(record: Record) -> None:
    """B3, B024: within a batch and later; one history row."""
    record.accept(1, "job-1")
    first = record.ingest(delivery(1, "job-1"), delivery(2, "job-1", key="id:1", content=f"{1:064d}"))
    later = record.ingest(delivery(3, "job-1", key="id:1", content=f"{1:064d}"))
    assert [answer.status for answer in [*first, *later]] == ["accepted", "duplicate", "duplicate"]
    assert {answer.delivery_id for answer in [*first, *later]} == {delivery(1).id}
    assert count(record, tables.history, tables.history.c.cause == "delivery") == 1


def test_the_same_id_with_other_bytes_is_a_conflict(record: Record) -> None:
    """B027: the first payload stays, one conflict row, one read is due."""
    record.accept(1, "job-1")
    record.ingest(delivery(1, "job-1"))
    answers = record.ingest(delivery(2, "job-1", key="id:1", content="f" * 64), delivery(3, "job-1", key="id:1", content="f" * 64))
    assert [answer.status for answer in answers] == ["conflict", "conflict"]
    assert count(record, tables.delivery_conflicts) == 1
    assert count(record, tables.history, tables.history.c.code == "delivery_conflict") == 1
    assert record.claim()[0].errand is Errand.READ


def test_event_ids_are_scoped_to_the_endpoint(record: Record) -> None:
    """B032: the same id from two accounts is two events."""
    answers = record.ingest(delivery(1, key="id:x"), delivery(2, key="id:x", provider="other"))
    assert "duplicate" not in {answer.status for answer in answers}
    assert count(record, tables.deliveries) == 2


def test_a_duplicate_in_a_batch_does_not_hinder_its_neighbours(record: Record) -> None:
    """B128."""
    record.ingest(delivery(1, "a"))
    answers = record.ingest(delivery(2, "b"), delivery(3, "a", key="id:1", content=f"{1:064d}"), delivery(4, "c"))
    assert [answer.status for answer in answers] == ["unmatched", "duplicate", "unmatched"]
    assert count(record, tables.deliveries) == 3


def test_no_unique_key_has_a_nullable_column() -> None:
    """B035: NULLs differ from each other, so such a key lets duplicates in."""
    for table in tables.metadata.tables.values():
        for constraint in table.constraints:
            if isinstance(constraint, sa.UniqueConstraint | sa.PrimaryKeyConstraint):
                assert not [column.name for column in constraint.columns if column.nullable], table.name


def test_an_early_delivery_attaches_when_the_create_answer_comes(record: Record) -> None:
    """B6, B042: the callback came before the job id was known."""
    record.register(intent(1))
    item = record.claim()[0]
    assert record.ingest(delivery(1, "job-1"))[0].status == "unmatched"
    settled = record.settle(item, JobKnown(remote_job_id="job-1", source="create"), after=SECOND)
    assert settled.operation.hints == 1
    assert count(record, tables.deliveries, tables.deliveries.c.operation == item.operation.id) == 1
    assert record.claim(after=SECOND)[0].errand is Errand.READ


def test_a_stale_worker_that_uses_up_the_granted_read_of_a_parked_operation_leaves_nothing_owed(record: Record) -> None:
    """C1, C4: its evidence counts, and no lease or due time is kept for a read that nobody owes any more."""
    record.accept(1, "job-1")
    after = 3_700 * SECOND
    late = record.claim(after=after)[0]
    assert record.settle(late, reading(Reading.RUNNING), after=after).operation.state is State.RESULT_TIMED_OUT
    refresh = Petition(
        operation_id=intent(1).id, owner="acme", actor="a", evidence=RefreshAsked(by="a"), now=NOW + after + 10 * SECOND, chance=0.5
    )
    assert record.tx(petition, refresh)[0].outcome == "applied"
    slow = record.claim("slow", after=after + 10 * SECOND, lease=1)[0]  # over at once, by either database's clock
    quick = record.claim("quick", after=after + 10 * SECOND + LEASE)[0]
    stale = record.settle(slow, reading(Reading.RUNNING), after=after + 11 * SECOND + LEASE)
    assert (stale.stale, stale.operation.due_at, stale.operation.lease_until) == (True, None, None)
    assert record.tx(petition, replace(refresh, now=NOW + after + 60 * SECOND + LEASE))[0].outcome == "applied"
    assert record.claim("next", after=after + 60 * SECOND + LEASE)[0].fence > quick.fence


def test_absence_after_a_broken_connection_counts_only_from_the_attempts_own_limit(record: Record) -> None:
    """A6, A7: the provider may execute what was sent long after our end of the connection broke."""
    record.register(intent(1))
    item = record.claim()[0]
    with record.engines.read.begin() as connection:
        limit = connection.execute(sa.select(tables.attempts.c.sent_before).where(tables.attempts.c.id == item.attempt_id)).scalar_one()
    at_once = min(0, limit - 1 - NOW)  # before the limit by either database's clock
    settled = record.settle(item, CreateAmbiguous(error="reset"), after=at_once)
    assert (settled.operation.state, settled.operation.sent_before) == (State.CREATE_UNKNOWN, limit)


def test_a_lost_attempt_that_was_not_sent_takes_no_doubt_away_from_a_later_one(record: Record) -> None:
    """A4, A6: its own doubt was cleared by proven absence; the later attempt may have been executed."""
    rule = RecoveryRule(strategies=("lookup",), visibility_seconds=0, confirmations=1, path="/lookup/{operation}")
    record.contracts["reports"] = replace(REPORTS, recovery=rule)
    record.register(intent(1))
    paused = record.claim("paused", lease=1)[0]
    lookup = record.claim("next", after=SECOND)[0]
    absent = record.settle(lookup, JobNotFound(), after=100 * SECOND)
    assert (lookup.errand, absent.operation.state) == (Errand.RECOVER, State.CREATE_PENDING)
    again = record.claim("next", after=100 * SECOND)[0]
    assert record.settle(again, CreateAmbiguous(error="reset"), after=101 * SECOND).operation.unsure_creates == 1
    late = record.settle(paused, NotSent(errand=Errand.CREATE, error="too_late"), after=102 * SECOND)
    assert (late.operation.state, late.operation.unsure_creates) == (State.CREATE_UNKNOWN, 1)


def test_an_early_delivery_attaches_to_an_adopted_job(record: Record) -> None:
    """B6: the callback came before the registration."""
    record.ingest(delivery(1, "job-1"))
    record.register(intent(1, mode=Mode.ADOPT, remote_job_id="job-1", idempotency_key=None))
    assert count(record, tables.deliveries, tables.deliveries.c.status == "applied") == 1


def test_an_echo_of_our_id_or_token_matches_before_the_job_id_is_known(record: Record) -> None:
    """B6: client references."""
    record.register(intent(1))
    answers = record.ingest(
        delivery(1, "job-1", client_reference=intent(1).id),
        delivery(2, "job-1", client_reference=intent(1).idempotency_token),
        delivery(3, "job-1", client_reference=intent(1).id, provider="other"),
    )
    assert [answer.status for answer in answers] == ["accepted", "accepted", "unmatched"]


def test_a_delivery_alone_never_ends_an_operation(record: Record) -> None:
    """B5, D2, B045: whatever the callback claims, a read is due and nothing more."""
    record.accept(1, "job-1")
    for number, claimed in enumerate(("succeeded", "failed", "cancelled", "running"), start=1):
        record.ingest(delivery(number, "job-1", claimed_state=claimed, event_type="job.finished"))
    item = record.claim()[0]
    assert (item.operation.state, item.errand) == (State.ACCEPTED, Errand.READ)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_any_order_of_deliveries_ends_the_same(record: Record, order: tuple[int, ...]) -> None:
    """B038, B039: only the readings decide; late ones are history rows."""
    record.accept(1, "job-1")
    claims = ("queued", "running", "succeeded")
    first, *rest = order
    record.ingest(delivery(first, "job-1", claimed_state=claims[first]))
    item = record.claim()[0]
    record.settle(item, reading(Reading.FAILED, has_result=False))
    late = record.ingest(*(delivery(number, "job-1", claimed_state=claims[number]) for number in rest))
    assert [answer.status for answer in late] == ["accepted", "accepted"]
    with record.engines.read.begin() as connection:
        state = connection.execute(sa.select(tables.operations.c.state)).scalar_one()
        codes = connection.execute(sa.select(tables.history.c.code).order_by(tables.history.c.seq)).scalars().all()
    assert state == "failed"
    assert codes[-2:] == ["late_delivery", "late_delivery"]


def test_a_flood_of_events_is_counted_not_written_row_by_row(record: Record) -> None:
    """ARCHITECTURE, The way of a callback: coalesced."""
    record.accept(1, "job-1")
    record.ingest(*(delivery(number, "job-1") for number in range(200)))
    with record.engines.read.begin() as connection:
        hints = connection.execute(sa.select(tables.operations.c.hints)).scalar_one()
    assert hints == 200
    assert count(record, tables.history, tables.history.c.cause == "delivery") == 20


def test_a_hint_during_a_read_is_followed_by_another_read(record: Record) -> None:
    """No lost wake-up: the hint is newer than the read's start."""
    record.accept(1, "job-1")
    item = record.claim(after=60 * SECOND)[0]
    record.now = NOW + 61 * SECOND
    record.ingest(delivery(1, "job-1"))
    record.now = NOW
    settled = record.settle(item, reading(Reading.RUNNING), after=62 * SECOND)
    assert settled.operation.due_at is not None
    late = replace(record.settlement(item, reading(Reading.RUNNING), after=62 * SECOND), started_at=NOW + 60 * SECOND)
    assert settled.operation.due_at > NOW + 62 * SECOND  # a read that began after the hint needs no other one
    record.accept(2, "job-2")
    second = next(found for found in record.claim(after=70 * SECOND) if found.operation.id == intent(2).id)
    record.now = NOW + 71 * SECOND
    record.ingest(delivery(2, "job-2"))
    late = replace(record.settlement(second, reading(Reading.RUNNING), after=SECOND), started_at=NOW + 70 * SECOND)
    assert record.tx(settle, late)[0].operation.due_at == NOW + 72 * SECOND


def test_a_receipt_that_was_never_processed_is_finished_by_the_sweep(record: Record) -> None:
    """B036: a crash between receipt and application loses nothing."""
    record.accept(1, "job-1")
    record.ingest(delivery(1, "job-9"))
    with record.engines.write.begin() as connection:
        connection.execute(sa.update(tables.deliveries).values(status="received", remote_job_id="job-1"))
    counts = record.tx(sweep, Sweep(now=NOW + 31 * SECOND, limit=10, chance=0.5))[0].counts
    assert counts["receipts_applied"] == 1
    assert count(record, tables.deliveries, tables.deliveries.c.status == "applied") == 1


def test_heartbeats_of_processes_long_gone_are_forgotten(record: Record) -> None:
    """C7: the table does not grow with every restart; one that beats is kept."""
    record.tx(
        beat, Beat(duty="work", process="old", now=NOW, ok=True), Beat(duty="work", process="new", now=NOW + 86_000 * SECOND, ok=True)
    )
    record.tx(sweep, Sweep(now=NOW + 86_401 * SECOND, limit=10, chance=0.5))
    assert count(record, tables.heartbeats) == 1


def test_an_orphan_is_unclaimed_after_the_retry_horizon_and_still_attaches(record: Record) -> None:
    """B6: kept, set aside, and found again when its job turns up."""
    record.ingest(delivery(1, "job-1"))
    far = NOW + (REPORTS.retry.horizon_seconds + 1) * SECOND
    record.tx(sweep, Sweep(now=far, limit=10, chance=0.5))
    assert count(record, tables.deliveries, tables.deliveries.c.status == "unclaimed") == 1
    assert record.ingest(delivery(2, "job-1", key="id:1", content=f"{1:064d}"))[0].status == "duplicate"
    record.accept(1, "job-1")
    assert count(record, tables.deliveries, tables.deliveries.c.status == "applied") == 1


# --- settle


def test_a_job_of_another_operation_is_a_contradiction(record: Record) -> None:
    """A8: a create answer that names another operation's job quarantines; nothing is overwritten."""
    record.accept(1, "job-1")
    record.register(intent(2))
    item = next(found for found in record.claim() if found.operation.id == intent(2).id)
    settled = record.settle(item, JobKnown(remote_job_id="job-1", source="create"))
    assert settled.operation.state is State.QUARANTINED
    assert settled.operation.remote_job_id is None


def test_a_second_job_for_one_token_is_a_contradiction(record: Record) -> None:
    """A8: both answers are kept, automation stops."""
    record.register(intent(1))
    first = record.claim("a", lease=1)[0]
    second = record.claim("b", after=2 * SECOND)[0]
    record.settle(second, JobKnown(remote_job_id="job-2", source="create"), after=3 * SECOND)
    settled = record.settle(first, JobKnown(remote_job_id="job-1", source="create"), after=4 * SECOND)
    assert settled.operation.state is State.QUARANTINED
    assert settled.operation.remote_job_id == "job-2"


def test_identical_readings_are_one_observation(record: Record) -> None:
    """C4, Storage: count, first, last; history rows only on change."""
    record.accept(1, "job-1")
    for step in range(1, 4):
        item = record.claim(after=step * 1_000 * SECOND)[0]
        record.settle(item, reading(Reading.RUNNING), after=step * 1_000 * SECOND)
    with record.engines.read.begin() as connection:
        rows = connection.execute(sa.select(tables.observations.c.count)).scalars().all()
    assert rows == [3]
    assert count(record, tables.history, tables.history.c.cause == "reading") == 1


def test_success_needs_its_result(record: Record) -> None:
    """F1, D2: a succeeded reading collects; only the stored result ends it; the end cites the reading."""
    record.accept(1, "job-1")
    read = record.claim(after=60 * SECOND)[0]
    assert record.settle(read, reading(Reading.SUCCEEDED), after=60 * SECOND).operation.state is State.RESULT_COLLECTING
    item = record.claim(after=61 * SECOND)[0]
    assert item.errand is Errand.COLLECT
    file = StoredFile(role="output", key="art_1", media_type="text/csv", bytes=3, sha256="0" * 64)
    done = record.settle(item, Collected(files=(file,)), after=61 * SECOND).operation
    assert (done.state, done.due_at, done.result_artifact) == (State.SUCCEEDED, None, "art_1")
    assert count(record, tables.artifacts) == 1
    assert not record.faults()


def test_the_database_refuses_a_final_state_without_an_admissible_cause(record: Record) -> None:
    """D2, invariant 3: a CHECK and a foreign key, not only our code."""
    record.accept(1, "job-1")
    change = sa.update(tables.operations).values(due_at=None, state="succeeded")
    with pytest.raises(sa.exc.IntegrityError), record.engines.write.begin() as connection:
        connection.execute(change)
    with pytest.raises(sa.exc.IntegrityError), record.engines.write.begin() as connection:
        connection.execute(change.values(verdict_seq=1, verdict_cause="delivery"))
    with pytest.raises(sa.exc.IntegrityError), record.engines.write.begin() as connection:
        connection.execute(change.values(verdict_seq=1, verdict_cause="reading"))


def test_a_cancel_before_any_send_is_withdrawn_at_once_and_never_against_an_open_attempt(record: Record) -> None:
    """ARCHITECTURE, Cancelling: compare-and-set against an open attempt."""
    record.register(intent(1), intent(2))
    open_item = record.claim(limit=1)[0]
    other = next(item for item in (intent(1).id, intent(2).id) if item != open_item.operation.id)
    asks = [
        Petition(operation_id=each, owner="acme", actor="a", evidence=CancelAsked(by="a", reason="wrong year"), now=NOW, chance=0.5)
        for each in (open_item.operation.id, other)
    ]
    answers = [answer.operation for answer in record.tx(petition, *asks)]
    assert [answer.state for answer in answers if answer] == [State.CREATE_PENDING, State.WITHDRAWN]
    assert count(record, tables.history_texts) == 2  # E1: why somebody wants it stopped is in the history
    settled = record.settle(open_item, NotSent(errand=Errand.CREATE, error="connect_refused"))
    assert settled.operation.state is State.WITHDRAWN


def test_a_foreign_operation_is_not_found(record: Record) -> None:
    """G4, B144."""
    record.register(intent(1))
    asks = [
        Petition(operation_id=each, owner="other", actor="x", evidence=CancelAsked(by="x"), now=NOW, chance=0.5)
        for each in (intent(1).id, "op_unknown")
    ]
    assert {(answer.outcome, answer.operation) for answer in record.tx(petition, *asks)} == {("not_found", None)}


def test_history_is_ordered_by_a_sequence_of_its_own(record: Record) -> None:
    """B130: many rows in one microsecond keep their order, without gaps."""
    record.accept(1, "job-1")
    record.ingest(*(delivery(number, "job-1") for number in range(15)))
    with record.engines.read.begin() as connection:
        sequence = connection.execute(sa.select(tables.history.c.seq).order_by(tables.history.c.seq)).scalars().all()
    assert sequence == list(range(1, len(sequence) + 1))
    assert not record.faults()


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (sa.update(tables.history).where(tables.history.c.seq == 2).values(actor="nobody"), "changed row"),
        (sa.delete(tables.history).where(tables.history.c.seq == 1), "missing row"),
        (sa.delete(tables.history).where(tables.history.c.seq == 2), "history ends before"),
        (sa.update(tables.operations).values(remote_state="else"), "the record's remote_state"),
        (sa.update(tables.operations).values(history_seq=9), "history ends before"),
    ],
)
def test_tampering_is_found(record: Record, change: sa.UpdateBase, fault: str) -> None:
    """D5, D4: edited, removed, truncated rows and a record that is not its fold."""
    record.accept(1, "job-1")
    assert not record.faults()
    with record.engines.write.begin() as connection:
        if record.engines.write.dialect.name == "postgresql":
            connection.execute(sa.text("ALTER TABLE history DISABLE TRIGGER ALL"))
        else:
            connection.execute(sa.text("DROP TRIGGER history_keeps_update"))
            connection.execute(sa.text("DROP TRIGGER history_keeps_delete"))
        connection.execute(change)
    assert any(found.fault.startswith(fault) for found in record.faults())


def test_an_operation_written_while_it_is_verified_is_not_blamed(record: Record) -> None:
    """D5: on PostgreSQL record and history are read at two moments; what changed between them is looked at again."""
    record.accept(1, "job-1")
    with record.engines.read.begin() as connection:
        before = from_row(connection.execute(sa.select(tables.operations)).one(), record.vault)
    record.ingest(delivery(1, "job-1"))
    with record.engines.read.begin() as connection:
        view = View(connection, record.vault)
        assert list(verify_operation(view, before))  # the older record beside the newer history
        assert list(settled_faults(view, before)) == []


def test_an_ambiguous_create_without_recovery_asks_a_person(record: Record) -> None:
    """A7, B062: never auto-failed, never resent."""
    record.contracts["reports"] = replace(REPORTS, recovery=replace(REPORTS.recovery, strategies=()))
    record.register(intent(1))
    settled = record.settle(record.claim()[0], CreateAmbiguous(error="read_timeout"))
    assert settled.operation.state is State.CREATE_UNRESOLVED
    assert settled.operation.question_id is not None
    assert not record.claim(after=10_000 * SECOND)


def test_the_self_audit_reports_nothing(record: Record) -> None:
    """C2: after all kinds of life, every count is 0."""
    record.accept(1, "job-1")
    record.register(intent(2))
    record.ingest(delivery(1, "job-1"), delivery(2, "unknown"))
    assert set(record.audit().values()) == {0}

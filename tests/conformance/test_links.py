"""Linked operations in the record: on both databases, in every order, under races (A3, D1)."""

import threading
from typing import Any

import pytest
import sqlalchemy as sa

from ledger import queries
from ledger.bundle import gather
from ledger.engine import Engines
from ledger.petition import petition
from ledger.register import register
from ledger.rows import from_row
from ledger.tables import operations
from ledger.transaction import View
from ledger.vault import Vault
from lifecycle.rules_links import LOOK_SECONDS
from schemas.commands import Intent, Petition, Register, Registered
from schemas.evidence import Answered, CancelAsked, CancelTaken, JobKnown
from schemas.operation import SECOND, Operation
from schemas.states import Answer, Errand, Mode, Question, Reading, State
from tests.conformance.house import Record, intent, reading


@pytest.fixture
def record(engines: Engines, vault: Vault) -> Record:
    return Record(engines=engines, vault=vault)


def successor(number: int = 2, of: int = 1, **changes: Any) -> Intent:
    return intent(number, supersedes=intent(of).id, **changes)


def get(record: Record, number: int) -> Operation:
    with record.engines.read.begin() as connection:
        row = connection.execute(sa.select(operations).where(operations.c.id == intent(number).id)).one()
        return from_row(row, record.vault)


def codes(record: Record, number: int) -> list[tuple[str, str]]:
    with record.engines.read.begin() as connection:
        rows = queries.history(View(connection, record.vault), intent(number).id)
    return [(row["code"], row["cause_id"]) for row in rows]


def states(record: Record, *numbers: int) -> list[State]:
    return [get(record, number).state for number in numbers]


def sound(record: Record) -> None:
    assert record.faults() == []
    # A lease's due time is the database's own: against this test's clock it says nothing.
    assert {name: count for name, count in record.audit().items() if count and name != "active_overdue"} == {}


def test_an_unsent_predecessor_is_withdrawn_and_its_successor_is_sent(record: Record) -> None:
    """A3: what was never sent ends at once, in the same transaction, and both histories name the other."""
    record.register(intent(1))
    (made,) = record.register(successor())
    assert made.operation is not None
    assert states(record, 1, 2) == [State.WITHDRAWN, State.CREATE_PENDING]
    assert (get(record, 1).superseded_by, get(record, 2).supersedes) == (intent(2).id, intent(1).id)
    assert ("superseded", intent(2).id) in codes(record, 1)
    assert ("predecessor_ended", intent(1).id) in codes(record, 2)
    assert [item.errand for item in record.claim()] == [Errand.CREATE]
    sound(record)


def test_a_running_predecessor_is_cancelled_first_and_its_end_sends_the_successor(record: Record) -> None:
    """A3: no create is sent before the provider confirms the end; then it is due at once."""
    record.accept(1, "job-1")
    record.register(successor())
    assert states(record, 1, 2) == [State.CANCEL_REQUESTED, State.CREATE_PENDING]
    (cancel,) = record.claim()
    assert cancel.errand is Errand.CANCEL
    record.settle(cancel, CancelTaken())
    later = 1_000 * SECOND
    assert get(record, 2).create_deadline is None
    (read,) = record.claim(after=later)
    assert (read.operation.id, read.errand) == (intent(1).id, Errand.READ)
    record.settle(read, reading(Reading.CANCELLED, has_result=False), after=later)
    (create,) = record.claim(after=later)
    assert (create.operation.id, create.errand) == (intent(2).id, Errand.CREATE)
    assert get(record, 2).create_deadline == record.now + later + 900 * SECOND
    sound(record)


def test_a_predecessor_that_succeeds_makes_a_person_answer(record: Record) -> None:
    """A3: the work is done after all, so nothing is sent until somebody says so."""
    record.accept(1, "job-1")
    record.register(successor())
    (cancel,) = record.claim()
    record.settle(cancel, reading(Reading.FAILED, has_result=False))
    assert states(record, 1, 2) == [State.FAILED, State.CREATE_PENDING]
    record.accept(3, "job-3")
    read = next(item for item in record.claim(after=60 * SECOND) if item.operation.id == intent(3).id)
    record.settle(read, reading(Reading.SUCCEEDED, has_result=False), after=60 * SECOND)
    assert states(record, 3) == [State.RESULT_UNAVAILABLE]
    record.register(successor(4, 3))
    assert states(record, 4) == [State.AWAITING_APPROVAL]
    asked = get(record, 4)
    assert asked.question_id is not None
    answered = Answered(by="boss", question_id=asked.question_id, question=Question.APPROVAL, answer=Answer.APPROVE, reason="again")
    _petition(record, 4, answered)
    assert (get(record, 4).state, get(record, 4).waits_for) == (State.CREATE_PENDING, None)
    sound(record)


def test_a_person_who_gives_the_predecessor_up_sends_the_successor(record: Record) -> None:
    """A3: the answer to the predecessor's own question answers the successor's too."""
    record.accept(1, "job-1")
    (read,) = record.claim(after=60 * SECOND)
    record.settle(read, reading(Reading.SUCCEEDED, has_result=False), after=60 * SECOND)
    record.register(successor())
    question = get(record, 1).question_id
    assert question is not None
    kind = Question.RESULT_UNAVAILABLE
    _petition(record, 1, Answered(by="boss", question_id=question, question=kind, answer=Answer.ABANDON, reason="lost"))
    record.claim()
    assert states(record, 1, 2) == [State.ABANDONED, State.CREATE_PENDING]
    assert (get(record, 2).waits_for, get(record, 2).question_id) == (None, None)
    sound(record)


def test_a_lost_wake_up_is_made_up_for(record: Record) -> None:
    """A3, C2: a successor whose predecessor's end nobody told it of looks for itself."""
    record.accept(1, "job-1")
    record.register(successor())
    (cancel,) = record.claim()
    record.settle(cancel, reading(Reading.CANCELLED, has_result=False))
    with record.engines.write.begin() as connection:  # as if the successor's row had been locked just then
        held = record.now + LOOK_SECONDS * SECOND
        connection.execute(sa.update(operations).where(operations.c.id == intent(2).id).values(due_at=held))
    assert record.claim() == ()
    (create,) = record.claim(after=LOOK_SECONDS * SECOND)
    assert create.errand is Errand.CREATE


def test_a_successor_of_a_waiting_successor_waits_for_the_first_one(record: Record) -> None:
    """A3: replacing a plan that was never sent does not forget the job that it waited for."""
    record.accept(1, "job-1")
    record.register(successor(2, 1))
    record.register(successor(3, 2))
    assert states(record, 1, 2, 3) == [State.CANCEL_REQUESTED, State.WITHDRAWN, State.CREATE_PENDING]
    assert get(record, 3).waits_for == intent(1).id
    (cancel,) = record.claim()
    record.settle(cancel, reading(Reading.CANCELLED, has_result=False))
    (create,) = record.claim()
    assert create.operation.id == intent(3).id
    sound(record)


def test_a_second_successor_is_refused_and_changes_nothing(record: Record) -> None:
    """A3: one successor only, in one batch or later, whichever key it has; the refused key stands for nothing."""
    record.register(intent(1))
    first, second, again = record.register(
        successor(2), successor(3), successor(4, idempotency_key="key-3", request_fingerprint=intent(3).request_fingerprint)
    )
    assert [answer.outcome for answer in (first, second, again)] == ["created", "already_superseded", "already_superseded"]
    assert record.register(successor(5))[0].outcome == "already_superseded"
    assert get(record, 1).superseded_by == intent(2).id
    assert record.register(intent(6, idempotency_key="key-3"))[0].outcome == "created"
    assert record.register(successor(2))[0].outcome == "created"  # the same command again, its answer was lost
    sound(record)


@pytest.mark.parametrize("link", ["supersedes", "resumes"])
def test_links_to_foreign_and_unknown_operations_look_the_same(record: Record, link: str) -> None:
    """G4, B144: whoever names somebody else's operation learns nothing, and nothing is recorded."""
    record.register(intent(1, owner="globex"))
    foreign = record.register(intent(2, **{link: intent(1).id}))
    unknown = record.register(intent(3, **{link: "op_nowhere"}))
    assert foreign == unknown == [Registered(outcome="unknown_link")]
    assert get(record, 1).history_seq == 1


def test_only_what_has_ended_is_resumed_and_both_histories_say_so(record: Record) -> None:
    """D1: a retry is a new operation with its own token; the final one keeps its state and names its follower."""
    record.accept(1, "job-1")
    assert record.register(intent(2, resumes=intent(1).id))[0].outcome == "not_final"
    (read,) = record.claim(after=60 * SECOND)
    record.settle(read, reading(Reading.FAILED, has_result=False), after=60 * SECOND)
    assert record.register(intent(3, resumes=intent(1).id, provider="other"))[0].outcome == "unknown_link"
    (made,) = record.register(intent(4, resumes=intent(1).id))
    assert made.operation is not None
    assert (made.operation.resumes, made.operation.idempotency_token) == (intent(1).id, "token-4")
    assert states(record, 1) == [State.FAILED]
    assert codes(record, 1)[-1] == ("resumed_by_another", intent(4).id)
    adopted = intent(5, resumes=intent(1).id, mode=Mode.ADOPT, remote_job_id="job-5", idempotency_key=None)
    assert record.register(adopted)[0].outcome == "created"
    assert codes(record, 1)[-1] == ("resumed_by_another", intent(5).id)
    sound(record)


def test_a_predecessor_that_ends_while_its_successor_registers(record: Record) -> None:
    """A3: whichever commits first, the successor is sent exactly when the predecessor is final (both orders, at once)."""
    record.patience = 20
    later = 60 * SECOND
    for round_ in range(12):
        old, new = 100 + 2 * round_, 101 + 2 * round_
        record.accept(old, f"job-{old}")
        read = next(item for item in record.claim(after=later) if item.operation.id == intent(old).id)
        barrier = threading.Barrier(2)
        failures: list[Exception] = []

        def settle(item: Any = read, gate: threading.Barrier = barrier, failed: list[Exception] = failures) -> None:
            gate.wait(20)
            try:
                record.settle(item, reading(Reading.FAILED, has_result=False), after=later)
            except Exception as error:  # noqa: BLE001 - told to the test
                failed.append(error)

        thread = threading.Thread(target=settle)
        thread.start()
        barrier.wait(20)
        record.register(successor(new, old))
        thread.join(30)
        assert failures == []
        assert states(record, old, new) == [State.FAILED, State.CREATE_PENDING]
        due = record.claim(after=later + LOOK_SECONDS * SECOND)
        assert (intent(new).id, Errand.CREATE) in [(item.operation.id, item.errand) for item in due]
        mine = next(item for item in due if item.operation.id == intent(new).id)
        record.settle(mine, JobKnown(remote_job_id=f"job-{new}", source="create"), after=later)
    sound(record)


def test_a_waiting_successor_that_is_cancelled_is_withdrawn_unsent(record: Record) -> None:
    """E1, A3: nothing was sent, so nothing is waited for any longer."""
    record.accept(1, "job-1")
    record.register(successor())
    _petition(record, 2, CancelAsked(by="agent", reason="enough"))
    assert states(record, 1, 2) == [State.CANCEL_REQUESTED, State.WITHDRAWN]
    assert all(item.operation.id != intent(2).id for item in record.claim(after=3_600 * SECOND))
    sound(record)


def _petition(record: Record, number: int, evidence: Any) -> None:
    command = Petition(operation_id=intent(number).id, owner="acme", actor="boss", evidence=evidence, now=record.now, chance=0.5)
    (answer,) = record.tx(petition, command)
    assert answer.outcome == "applied", answer


def test_a_refused_link_in_a_batch_leaves_its_neighbours_alone(record: Record) -> None:
    """B128: the others of the batch are registered."""
    commands = [Register(intent=each, now=record.now) for each in (intent(1), intent(2, supersedes="op_nowhere"), intent(3))]
    assert [answer.outcome for answer in record.tx(register, *commands)] == ["created", "unknown_link", "created"]


def test_a_bundle_is_gathered_with_a_history_that_fits_its_head(record: Record) -> None:
    """E4, D5: attempts, observations and every history row, oldest first, on both databases."""
    record.accept(1, "job-1")
    (read,) = record.claim(after=60 * SECOND)
    record.settle(read, reading(Reading.FAILED, has_result=False), after=60 * SECOND)
    with record.engines.read.begin() as connection:
        gathered = gather(View(connection, record.vault), intent(1).id, "acme")
        assert gather(View(connection, record.vault), intent(1).id, "globex") is None
    assert gathered is not None
    assert [row["errand"] for row in gathered.attempts] == ["create"]
    assert [row["reading"] for row in gathered.observations] == ["failed"]
    assert gathered.history[-1]["hash"] == gathered.operation.history_hash
    assert [row["seq"] for row in gathered.history] == list(range(1, gathered.operation.history_seq + 1))

"""Pauses, deadlines and errands: when the next call is due and what it is."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle import recovery, schedule
from lifecycle.errands import Sleep, next_errand
from lifecycle.judge import decide
from schemas.contract import CancelRule, Contract, RecoveryRule
from schemas.decision import DueAt
from schemas.evidence import JobNotFound, ReadFailed
from schemas.operation import SECOND
from schemas.states import CancelOutcome, Errand, Mode, Reading, State
from tests.lifecycle.cases import CONTRACT, EVIDENCE, LOOKUP, NO_RECOVERY, NOW, operation, read


@given(st.floats(0.001, 1e6), st.integers(-5, 10_000), st.floats(0.001, 1e6), st.floats(0, 0.999999))
def test_pauses_are_jittered_capped_and_never_zero(base: float, doublings: int, cap: float, chance: float) -> None:
    """C3: capped exponential back-off; no pause is longer than its cap, none is nothing."""
    pause = schedule.pause(base, doublings, cap, chance)
    assert 1 <= pause <= max(1, int(cap * SECOND))


def test_pauses_spread() -> None:
    """B073: operations that failed in the same instant do not return in the same instant."""
    pauses = {schedule.pause(1, 5, 600, chance / 100) for chance in range(100)}
    assert len(pauses) == 100
    assert max(pauses) > 5 * min(pauses)


def due(state: State, evidence: ReadFailed, **changes: int | None) -> int:
    decision = decide(replace(operation(state), **changes), evidence, CONTRACT, now=NOW, chance=0.5)  # type: ignore[arg-type] # times only
    return next(effect.at for effect in decision.effects if isinstance(effect, DueAt))


def test_the_providers_wish_is_never_undercut() -> None:
    """B067: Retry-After 3600 with a deadline in two hours: nothing before that, also where the back-off is shorter."""
    wish = NOW + 3_600 * SECOND
    failed = ReadFailed(layer="protocol", error="http_429", retry_after=wish)
    assert due(State.OBSERVING, failed, result_deadline=NOW + 7_200 * SECOND) >= wish


def test_a_short_wish_does_not_switch_the_back_off_off() -> None:
    """B064: a wish in the past is no reason to hurry."""
    failed = ReadFailed(layer="protocol", error="http_429", retry_after=NOW - SECOND)
    assert due(State.OBSERVING, failed) > NOW


def test_a_read_follows_a_deadline_at_once() -> None:
    """C6: the next check never lies past the running clock."""
    assert (
        due(State.OBSERVING, ReadFailed(layer="transport", error="x"), read_failures=12, result_deadline=NOW + 3 * SECOND)
        == NOW + 3 * SECOND
    )


@pytest.mark.parametrize("state", [State.ACCEPTED, State.OBSERVING])
def test_a_deadline_is_declared_only_after_a_read_that_began_after_it(state: State) -> None:
    """C6: a read that began before the deadline says nothing about it; one after it does."""
    op = replace(operation(state), result_deadline=NOW - SECOND)
    early = decide(op, read(Reading.RUNNING), CONTRACT, now=NOW, chance=0.5, started_at=NOW - 2 * SECOND)
    assert all(step.to is not State.RESULT_TIMED_OUT for step in early.steps)
    late = decide(op, read(Reading.RUNNING), CONTRACT, now=NOW, chance=0.5, started_at=NOW)
    assert late.steps[-1].to is State.RESULT_TIMED_OUT
    assert late.steps[-1].changes.get("unverified", False) is False


def test_without_an_answer_the_deadline_waits_for_the_window_and_says_unverified() -> None:
    """C6: a provider that does not answer is shown as unverified."""
    failed = ReadFailed(layer="transport", error="read_timeout")
    window = CONTRACT.deadlines.final_read_seconds * SECOND
    inside = replace(operation(State.OBSERVING), result_deadline=NOW - window + SECOND)
    assert not decide(inside, failed, CONTRACT, now=NOW, chance=0.5).steps
    over = replace(operation(State.OBSERVING), result_deadline=NOW - window)
    step = decide(over, failed, CONTRACT, now=NOW, chance=0.5).steps[-1]
    assert (step.to, step.changes["unverified"]) == (State.RESULT_TIMED_OUT, True)


def test_an_outage_of_an_hour_shows_its_run_of_failures_and_moves_nothing() -> None:
    """B070, B076: the state stays, the failures in a row are counted, and the deadline still ends the looking."""
    op, now = operation(State.OBSERVING), NOW
    for _ in range(20):
        decision = decide(op, ReadFailed(layer="transport", error="read_timeout"), CONTRACT, now=now, chance=0.5)
        assert not decision.steps
        op = replace(op, **decision.working)
        now = next(effect.at for effect in decision.effects if isinstance(effect, DueAt))
        if now >= NOW + 3_600 * SECOND:
            break
    assert op.state is State.OBSERVING
    assert op.read_failures >= 10
    over = decide(op, ReadFailed(layer="transport", error="read_timeout"), CONTRACT, now=NOW + 4_000 * SECOND, chance=0.5)
    assert [step.to for step in over.steps] == [State.RESULT_TIMED_OUT]


def test_a_success_at_the_deadline_is_a_success() -> None:
    """C6: the clock stops the looking, not the job."""
    op = replace(operation(State.OBSERVING), result_deadline=NOW - SECOND)
    assert decide(op, read(Reading.SUCCEEDED), CONTRACT, now=NOW, chance=0.5).steps[-1].to is State.RESULT_COLLECTING


def test_not_found_right_after_the_create_is_patience() -> None:
    """B068: inside the grace a 404 moves nothing; later, and twice, the job has vanished and a person is asked."""
    young = replace(operation(State.ACCEPTED), accepted_at=NOW - SECOND)
    assert not decide(young, read(Reading.ABSENT), CONTRACT, now=NOW, chance=0.5).steps
    old = operation(State.ACCEPTED)
    once = decide(old, read(Reading.ABSENT), CONTRACT, now=NOW, chance=0.5)
    assert {step.to for step in once.steps} == {State.ACCEPTED}
    twice = decide(replace(old, absences=1), read(Reading.ABSENT), CONTRACT, now=NOW, chance=0.5)
    assert twice.steps[-1].to is State.QUARANTINED


def test_absence_after_our_cancel_means_cancelled_only_where_the_contract_says_so() -> None:
    """ARCHITECTURE, Cancelling: `absent_after_cancel`."""
    op = replace(operation(State.CANCELLING), cancel_sent_at=NOW - SECOND)
    contract = replace(CONTRACT, cancel=CancelRule(absent_after_cancel=True))
    assert decide(op, read(Reading.ABSENT), contract, now=NOW, chance=0.5).steps[-1].to is State.CANCELLED
    assert decide(op, read(Reading.ABSENT), CONTRACT, now=NOW, chance=0.5).steps[-1].to is State.CANCELLING


def test_absence_of_a_create_counts_only_late_and_repeated() -> None:
    """A6: after the visibility delay, and as often as the contract says."""
    op = replace(operation(State.CREATE_UNKNOWN), sent_before=NOW - 29 * SECOND)
    early = decide(op, JobNotFound(), LOOKUP, now=NOW, chance=0.5)
    assert not early.steps
    assert "absences" not in early.working
    ripe = replace(op, sent_before=NOW - 30 * SECOND)
    once = decide(ripe, JobNotFound(), LOOKUP, now=NOW, chance=0.5)
    assert (once.steps, once.working["absences"]) == ((), 1)
    twice = decide(replace(ripe, absences=1), JobNotFound(), LOOKUP, now=NOW, chance=0.5)
    assert twice.steps[-1].to is State.CREATE_PENDING


def test_nothing_is_concluded_while_another_try_is_under_way() -> None:
    """C1: another worker's open attempt forbids every conclusion about absence."""
    op = replace(operation(State.CREATE_UNKNOWN), absences=9, open_attempt="att_other")
    assert not decide(op, JobNotFound(), LOOKUP, now=NOW, chance=0.5).steps
    gone = decide(replace(op, unsure_creates=1), EVIDENCE["create not sent"], CONTRACT, now=NOW, chance=0.5)
    assert {step.to for step in gone.steps} == {State.CREATE_UNKNOWN}


@pytest.mark.parametrize(
    ("changes", "contract", "plan"),
    [
        ({}, CONTRACT, "resend"),
        ({"first_sent_at": NOW - 86_400 * SECOND}, CONTRACT, None),
        ({"first_sent_at": NOW - 86_300 * SECOND}, CONTRACT, "resend"),
        ({"first_sent_at": NOW - 86_341 * SECOND}, CONTRACT, None),
        ({"create_deadline": NOW}, CONTRACT, None),
        ({"mode": Mode.EXTERNAL}, CONTRACT, None),
        ({}, LOOKUP, "lookup"),
        ({"create_deadline": NOW}, LOOKUP, "lookup"),
        ({}, NO_RECOVERY, None),
        ({"sends": 9}, replace(CONTRACT, recovery=RecoveryRule(strategies=("resend", "lookup"))), "lookup"),
        ({"cancel_requested_at": NOW}, CONTRACT, "resend"),
        ({"cancel_requested_at": NOW}, replace(CONTRACT, recovery=RecoveryRule(strategies=("resend",))), None),
    ],
)  # fmt: skip
def test_which_recovery_is_safe(changes: dict[str, object], contract: object, plan: str | None) -> None:
    """A6, E3: inside the window with a margin, not after the deadline, never for an external create."""
    op = replace(operation(State.CREATE_UNKNOWN), **changes)  # type: ignore[arg-type] # names of fields
    assert recovery.plan(op, contract, NOW) == plan  # type: ignore[arg-type] # contracts


def test_errands_of_every_state() -> None:
    """C8: every active state owes something or sleeps until a time; final ones owe nothing."""
    owed = {state: next_errand(operation(state), CONTRACT, NOW) for state in State}
    hour = Sleep(until=NOW + 3_600 * SECOND)
    assert owed == {
        State.AWAITING_APPROVAL: hour,
        State.CREATE_PENDING: Errand.CREATE,
        State.AWAITING_OUTCOME: hour,
        State.CREATE_UNKNOWN: Errand.CREATE,
        State.ACCEPTED: Errand.READ,
        State.OBSERVING: Errand.READ,
        State.CANCEL_REQUESTED: Errand.CANCEL,
        State.CANCELLING: Errand.READ,
        State.RESULT_COLLECTING: Errand.COLLECT,
        **dict.fromkeys(state for state in State if state not in _ACTIVE),
    }


_ACTIVE = {
    State.AWAITING_APPROVAL, State.CREATE_PENDING, State.AWAITING_OUTCOME, State.CREATE_UNKNOWN, State.ACCEPTED,
    State.OBSERVING, State.CANCEL_REQUESTED, State.CANCELLING, State.RESULT_COLLECTING,
}  # fmt: skip


@pytest.mark.parametrize("state", [State.CREATE_PENDING, State.CREATE_UNKNOWN, State.CANCEL_REQUESTED, State.AWAITING_OUTCOME])
def test_a_refresh_never_hastens_a_send(state: State) -> None:
    """G8: it asks for a read; a send that is owed keeps its back-off, however often somebody asks."""
    decision = decide(operation(state, due_at=NOW + 60 * SECOND), EVIDENCE["refresh asked"], CONTRACT, now=NOW, chance=0.5)
    assert (decision.refused, decision.effects) == (None, ())


@pytest.mark.parametrize(("state", "contract"), [(State.OBSERVING, CONTRACT), (State.CANCELLING, CONTRACT), (State.CREATE_UNKNOWN, LOOKUP)])
def test_a_refresh_hastens_a_read_or_a_lookup(state: State, contract: Contract) -> None:
    """G8."""
    decision = decide(operation(state, due_at=NOW + 60 * SECOND), EVIDENCE["refresh asked"], contract, now=NOW, chance=0.5)
    assert decision.effects == (DueAt(at=NOW),)


def test_an_unanswered_cancel_is_read_before_it_is_repeated() -> None:
    """E4: the resend needs a read that began after the send, and the pause of the contract."""
    sent = NOW - 120 * SECOND
    op = replace(operation(State.CANCELLING), cancel_sent_at=sent)
    assert next_errand(op, CONTRACT, NOW) is Errand.READ
    assert next_errand(replace(op, last_read_at=sent - SECOND), CONTRACT, NOW) is Errand.READ
    assert next_errand(replace(op, last_read_at=sent + SECOND), CONTRACT, NOW) is Errand.CANCEL
    assert next_errand(replace(op, last_read_at=sent + SECOND, read_failures=1), CONTRACT, NOW) is Errand.READ
    taken = replace(op, last_read_at=sent + SECOND, cancel_outcome=CancelOutcome.TAKEN)
    assert next_errand(taken, CONTRACT, NOW) is Errand.READ


def test_a_destructive_cancel_is_sent_only_after_a_fresh_read() -> None:
    """Jobs, state traps: a DELETE that destroys a finished result is preceded by a read."""
    contract = replace(CONTRACT, cancel=CancelRule(destructive=True))
    op = operation(State.CANCEL_REQUESTED)
    assert next_errand(op, contract, NOW) is Errand.READ
    fresh = replace(op, last_read_at=NOW - SECOND // 2, verified_at=NOW)
    assert next_errand(fresh, contract, NOW) is Errand.CANCEL
    assert next_errand(fresh, contract, NOW + 60 * SECOND) is Errand.READ

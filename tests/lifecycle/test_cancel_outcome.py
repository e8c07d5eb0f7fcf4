"""What a cancel came to, as told when the job has ended."""

from dataclasses import replace

import pytest

from lifecycle.judge import decide
from schemas.states import CancelOutcome, Reading, State
from tests.lifecycle.cases import CONTRACT, NOW, operation, read


@pytest.mark.parametrize(
    ("before", "reading", "after"),
    [
        (CancelOutcome.TAKEN, Reading.CANCELLED, CancelOutcome.CONFIRMED),
        (CancelOutcome.TAKEN, Reading.SUCCEEDED, CancelOutcome.LOST_RACE),
        (CancelOutcome.TAKEN, Reading.FAILED, CancelOutcome.LOST_RACE),
        (CancelOutcome.REFUSED, Reading.SUCCEEDED, CancelOutcome.REFUSED),
        (CancelOutcome.REFUSED, Reading.FAILED, CancelOutcome.REFUSED),
        (CancelOutcome.REFUSED, Reading.CANCELLED, CancelOutcome.CONFIRMED),
        (CancelOutcome.TOO_LATE, Reading.SUCCEEDED, CancelOutcome.TOO_LATE),
    ],
)
def test_the_end_says_what_became_of_the_cancel(before: CancelOutcome, reading: Reading, after: CancelOutcome) -> None:
    """E2, E4: a taken cancel is confirmed or loses its race; a refused one lost no race, and the refusal stays shown."""
    state = State.OBSERVING if before is CancelOutcome.REFUSED else State.CANCELLING
    op = replace(operation(state), cancel_requested_at=NOW - 1, cancel_outcome=before)
    decision = decide(op, read(reading), CONTRACT, now=NOW, chance=0.5)
    told = [step.changes["cancel_outcome"] for step in decision.steps if "cancel_outcome" in step.changes]
    assert (told or [before])[-1] == after

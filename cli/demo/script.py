"""The script as data: what each operation asks for, what is done to it on the way, and how it must end whatever was done."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from schemas.states import CancelOutcome, PublicStatus, State

Plot = Literal["straight", "repeated", "cancelled", "adopted", "twins", "wrong_result"]
"""What people and agents do besides creating the operation and waiting for its end; `cli/demo/plots.py` plays it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """How an operation must end. All of it is compared."""

    state: State = State.SUCCEEDED
    status: PublicStatus = PublicStatus.SUCCEEDED
    error: str | None = None
    jobs: int = 1  # remote jobs at the provider that belong to the operation
    result: Literal["whole", "partial"] | None = "whole"  # its SHA-256 is compared with what the provider made
    items: tuple[int, int] | None = None  # how many succeeded and failed; None: not compared
    cancel: CancelOutcome | None = None
    accepted_by_person: bool = False
    callbacks: int | None = 1  # tries to deliver about its jobs; None: not compared
    answers: frozenset[int | None] = frozenset({200})  # how all of them were answered; None: never sent
    codes: tuple[str, ...] = ()  # history rows that must be there
    deliveries: int | None = None  # deliveries that caused a history row; None: not compared
    spent: tuple[str, ...] = ()  # counted faults that must have hit
    downloads: int | None = None  # how often the result was fetched from the provider; None: not compared
    reads: int = 0  # status reads that there must have been at least


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One scripted operation."""

    name: str
    tells: str
    provider: Literal["reports", "batches", "once"] = "reports"
    request: Mapping[str, Any] = field(default_factory=lambda: {"kind": "sales", "rows": 500})
    faults: tuple[str, ...] = ()  # in the simulator's grammar; they travel in the request's field `simulate`
    expect: Mapping[str, Any] = field(default_factory=dict)  # what the caller demands of the result
    plot: Plot = "straight"
    expected: Expected = field(default_factory=Expected)


_CSV: Final = {"media_type": "text/csv", "min_bytes": 100}
_REFUSED: Final = frozenset({401})
_SLOW: Final = ("queue=0.2", "run=60")  # ends only by what is done to it

SCRIPT: Final[tuple[Act, ...]] = (
    Act(
        name="plain",
        tells="created twice by an agent that lost its memory; one job, a CSV of 500 rows",
        plot="repeated",
        expect=_CSV,
        expected=Expected(codes=("registered", "ended_succeeded"), deliveries=1),
    ),
    Act(
        name="lost-answer",
        tells="the provider accepts and its answer is lost; the same token is sent again",
        faults=("drop_create_response", "lose_callbacks"),
        expect=_CSV,
        expected=Expected(answers=frozenset({None}), codes=("create_ambiguous", "accepted"), deliveries=0),
    ),
    Act(
        name="lost-batch",
        tells="the same, and the provider knows no tokens: found by listing and comparing",
        provider="batches",
        request={"input": {"count": 40}},
        faults=("drop_create_response", "finalize=0.2", "lose_callbacks"),
        expected=Expected(answers=frozenset({None}), codes=("create_ambiguous", "recovered"), deliveries=0),
    ),
    Act(
        name="partly-bad",
        tells="2 of 500 items of a batch fail: succeeded, with the other 498",
        provider="batches",
        request={"input": {"count": 500, "fail": 2}},
        faults=("finalize=0.2",),
        expected=Expected(items=(498, 2), codes=("ended_succeeded",), deliveries=1),
    ),
    Act(
        name="echoes",
        tells="callbacks come four times each, the older event last",
        faults=("duplicate_callbacks=2", "reorder_callbacks"),
        expected=Expected(callbacks=8, deliveries=2),
    ),
    Act(
        name="early-bird",
        tells="a callback comes before the answer to the create",
        faults=("early_callback",),
        expected=Expected(callbacks=2, deliveries=2),
    ),
    Act(
        name="silence",
        tells="no callback ever comes; reads find the end",
        faults=("lose_callbacks",),
        expected=Expected(answers=frozenset({None}), deliveries=0),
    ),
    Act(
        name="liar",
        tells="a signed callback claims success while the job runs; the job fails",
        faults=("lie_then_correct", "fail"),
        expected=Expected(
            state=State.FAILED, status=PublicStatus.FAILED, error="report_failed", result=None, callbacks=2, codes=("ended_failed",)
        ),
    ),
    Act(
        name="forger",
        tells="callbacks with a wrong signature: 401, and nothing happens",
        faults=("forge_signature",),
        expected=Expected(callbacks=2, answers=_REFUSED, deliveries=0),
    ),
    Act(
        name="stale",
        tells="a callback signed an hour ago: 401, good for one read at most",
        faults=("stale_signature",),
        expected=Expected(callbacks=2, answers=_REFUSED),
    ),
    Act(
        name="forged-batch",
        tells="the same forgery in the other scheme",
        provider="batches",
        request={"input": {"count": 10}},
        faults=("forge_signature", "finalize=0.2"),
        expected=Expected(callbacks=2, answers=_REFUSED, deliveries=0),
    ),
    Act(
        name="lost-race",
        tells="cancelled, but the job completes meanwhile: succeeded, and the wish stays on record",
        faults=(*_SLOW, "complete_during_cancel"),
        plot="cancelled",
        expected=Expected(cancel=CancelOutcome.LOST_RACE, codes=("cancel_asked", "cancel_taken")),
    ),
    Act(
        name="half-done",
        tells="a slow cancel, confirmed by a read; what was finished is kept",
        provider="batches",
        request={"input": {"count": 1000}},
        faults=("queue=0.2", "run=20", "slow_cancel=1.5"),
        plot="cancelled",
        expected=Expected(
            state=State.CANCELLED,
            status=PublicStatus.CANCELLED,
            result="partial",
            cancel=CancelOutcome.CONFIRMED,
            codes=("cancel_taken", "ended_cancelled"),
        ),
    ),
    Act(
        name="no-cancel",
        tells="the provider refuses to cancel: the job is observed to its end",
        faults=("queue=0.2", "run=4", "refuse_cancel"),
        plot="cancelled",
        expected=Expected(cancel=CancelOutcome.REFUSED, codes=("cancel_asked", "cancel_refused")),
    ),
    Act(
        name="rejected",
        tells="the provider refuses the create for good; no job",
        faults=("reject=422",),
        expected=Expected(
            state=State.FAILED, status=PublicStatus.FAILED, error="rejected", jobs=0, result=None, callbacks=0, answers=frozenset()
        ),
    ),
    Act(
        name="rough-reads",
        tells="404 right after the create, then 429, then an HTML page with status 200",
        faults=("hide=1.5", "run=2", "rate_limit", "html_200", "lose_callbacks"),
        expected=Expected(answers=frozenset({None}), spent=("rate_limit", "html_200"), reads=4),
    ),
    Act(
        name="twins",
        tells="the answer is lost again and again and every resend of the token makes another job: a person chooses",
        faults=("queue=0.2", "run=0.5", "drop_create_response", "create_repeats=4", "other_job_id", "lose_callbacks"),
        plot="twins",
        expected=Expected(jobs=4, callbacks=None, codes=("jobs_conflict", "adopted")),
    ),
    Act(
        name="at-once",
        tells="the answer to the create is the finished report",
        faults=("sync_success", "lose_callbacks"),
        expect=_CSV,
        expected=Expected(answers=frozenset({None}), codes=("accepted",), deliveries=0),
    ),
    Act(
        name="once",
        tells="the result can be read once: it is fetched once, kept, and given out from here",
        provider="once",
        faults=("one_shot_result", "lose_callbacks"),
        expect=_CSV,
        expected=Expected(answers=frozenset({None}), deliveries=0, downloads=1),
    ),
    Act(
        name="adopted",
        tells="a service made the job itself; its callback came before anybody had registered it",
        plot="adopted",
        expected=Expected(codes=("adopted",), deliveries=1),
    ),
    Act(
        name="wrong-sum",
        tells="the result is not what its checksum says; a person looks and accepts it",
        faults=("wrong_checksum",),
        plot="wrong_result",
        expected=Expected(accepted_by_person=True, codes=("result_accepted",)),
    ),
)

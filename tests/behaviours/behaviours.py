"""The scripted behaviours of a provider, and the end that each must come to: by what the contract can, never by who the provider is."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from schemas.states import CancelOutcome, Reading, State
from simulator.account import Fate
from tests.behaviours.capability import Capability
from tests.behaviours.line import WAIT_SECONDS, Mishap, Script
from tests.behaviours.play import End, Part

Faults = Iterable[str]


def _always(_: Capability) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """One scripted behaviour. `fits`: which contracts can meet it; `ends`: what is wrong with an end, nothing if it is right."""

    name: str
    why: str
    part: Part
    ends: Callable[[Capability, End], Faults]
    fits: Callable[[Capability], bool] = _always


def _is(end: End, *states: State) -> Faults:
    if end.operation.state not in states:
        yield f"is {end.operation.state} ({end.operation.error_code}), not {' or '.join(states)}: {', '.join(end.codes)}"


def _succeeds(_: Capability, end: End) -> Faults:
    yield from _is(end, State.SUCCEEDED)
    yield from _one_job(end)


def _one_job(end: End, jobs: int = 1) -> Faults:
    if len(end.jobs) != jobs:
        yield f"the provider has {len(end.jobs)} jobs, not {jobs}"


def _found_or_asked(can: Capability, end: End) -> Faults:
    """Demand, of a job whose answer is lost: found without a second one, or a person is asked and nothing is resent (A6, A7)."""
    yield from _one_job(end)
    yield from _is(end, State.SUCCEEDED if can.recovers else State.CREATE_UNRESOLVED)
    if not can.resends and end.made("create") != 1:
        yield f"the create was sent {end.made('create')} times, and nothing promises that this is one job"


def _echoed(can: Capability, end: End) -> Faults:
    """Demand that a signed callback with our reference finds the job, where nothing else does."""
    yield from _one_job(end)
    yield from _is(end, State.SUCCEEDED if can.recovers or can.echoes else State.CREATE_UNRESOLVED)


def _named_or_found_or_asked(can: Capability, end: End) -> Faults:
    """Demand the job's end where its id does not stand in the spoiled body; else as for any lost answer."""
    yield from _succeeds(can, end) if can.id_beside else _found_or_asked(can, end)


def _absent_or_asked(can: Capability, end: End) -> Faults:
    """Demand, where nothing was executed and nobody knows: proven and sent again, or a person is asked (A6, A7)."""
    yield from _is(end, State.SUCCEEDED if can.recovers else State.CREATE_UNRESOLVED)
    yield from _one_job(end, 1 if can.recovers else 0)
    if not can.recovers and end.made("create") != 1:
        yield f"the create was sent {end.made('create')} times"


def _sent_again(can: Capability, end: End) -> Faults:
    if 429 not in can.sent_again:
        yield from _absent_or_asked(can, end)
        return
    yield from _succeeds(can, end)
    yield from _waited(end, "create")


def _waited(end: End, kind: str) -> Faults:
    calls = [call for call in end.calls if call.kind == kind]
    for call, following in pairwise(calls):
        if call.mishap == "slow_down" and following.at - call.at < WAIT_SECONDS * 1_000_000:
            yield f"came back after {(following.at - call.at) / 1e6:.1f} s, asked for {WAIT_SECONDS}"


def _read_again(can: Capability, end: End) -> Faults:
    yield from _succeeds(can, end)
    yield from _waited(end, "read")


def _fails(code: str = "") -> Callable[[Capability, End], Faults]:
    def ends(_: Capability, end: End) -> Faults:
        yield from _is(end, State.FAILED)
        if code and end.operation.error_code != code:
            yield f"the error is {end.operation.error_code}, not {code}"

    return ends


def _refused(_: Capability, end: End) -> Faults:
    yield from _is(end, State.FAILED)
    yield from _one_job(end, 0)
    if end.made("create") != 1:
        yield f"a definite no was asked {end.made('create')} times"


def _expired(can: Capability, end: End) -> Faults:
    yield from _fails("provider_expired")(can, end)
    if can.partial and end.operation.result_complete is not False:
        yield "a partial result is not called one"


def _parked(state: State, code: str = "") -> Callable[[Capability, End], Faults]:
    def ends(_: Capability, end: End) -> Faults:
        yield from _is(end, state)
        if code and end.operation.error_code != code:
            yield f"the error is {end.operation.error_code}, not {code}"

    return ends


def _cancelled(can: Capability, end: End) -> Faults:
    """Demand a cancelled end where the provider has a cancel and says so; else the job goes on and the wish is answered (E1, E4)."""
    if not can.cancels:
        yield from _not_stopped(can, end)
        return
    yield from _is(end, State.CANCELLED)
    if end.operation.cancel_outcome != CancelOutcome.CONFIRMED:
        yield f"the cancel is {end.operation.cancel_outcome}, not confirmed"


def _not_stopped(can: Capability, end: End) -> Faults:
    yield from _is(end, State.SUCCEEDED)
    if end.operation.cancel_outcome != CancelOutcome.REFUSED:
        yield f"the cancel is {end.operation.cancel_outcome}, not refused"
    if not can.cancels and end.made("cancel"):
        yield "a cancel was sent that the contract does not have"


def _cancelled_once(can: Capability, end: End) -> Faults:
    """Demand that an unanswered cancel is followed by a read before another (E4)."""
    yield from _cancelled(can, end)
    if can.cancels and end.made("cancel") != 1:
        yield f"the cancel was sent {end.made('cancel')} times"


def _raced(can: Capability, end: End) -> Faults:
    """Demand that completed after a cancel is a legitimate end, with its result (E2)."""
    if not can.cancels:
        yield from _not_stopped(can, end)
        return
    yield from _is(end, State.SUCCEEDED)
    if end.operation.cancel_outcome not in {CancelOutcome.LOST_RACE, CancelOutcome.TOO_LATE}:
        yield f"the cancel is {end.operation.cancel_outcome}, not lost_race"


def _unconfirmed(can: Capability, end: End) -> Faults:
    if not can.cancels:
        yield from _not_stopped(can, end)
        return
    yield from _is(end, State.CANCELLATION_UNCONFIRMED)


def _file_again(can: Capability, end: End) -> Faults:
    if can.one_shot:
        yield from _is(end, State.RESULT_UNAVAILABLE)
        return
    yield from _succeeds(can, end)
    if end.made("file") < 2:
        yield "the spoiled file was not fetched again"


def _reversed(_: Capability, end: End) -> Faults:
    yield from _is(end, State.SUCCEEDED)
    if end.operation.incident_id is None:
        yield "the reversal was not told"


def _told(*answers: str) -> Callable[[Capability, End], Faults]:
    def ends(can: Capability, end: End) -> Faults:
        yield from _succeeds(can, end)
        if can.callbacks and end.deliveries != answers:
            yield f"the callbacks were {', '.join(end.deliveries)}, not {', '.join(answers)}"

    return ends


def _creates(can: Capability) -> bool:
    return can.creates


def _has(*readings: Reading) -> Callable[[Capability], bool]:
    return lambda can: can.words.issuperset(readings)


_PAGES: Final[tuple[Mishap, ...]] = ("gone_page",) * 8  # for longer than any grace
_STOPPED: Final = _has(Reading.CANCELLED)
_LONG: Final = Fate(runs=200.0)
_BACK: Final = Fate(reversed_after=600.0)
_VANISHES: Final = Fate(runs=None, vanishes=300.0)


def _behaviour(
    name: str,
    why: str,
    ends: Callable[[Capability, End], Faults],
    fits: Callable[[Capability], bool] = _always,
    script: Script | None = None,
    **part: Any,
) -> Behaviour:
    return Behaviour(name=name, why=why, part=Part(script=script or Script(), **part), ends=ends, fits=fits)


def _create(name: str, why: str, ends: Callable[[Capability, End], Faults], *mishaps: Mishap) -> Behaviour:
    """Return a behaviour of the create call. No callback comes to the rescue: what follows is the contract's own recovery."""
    return _behaviour(f"create {name}", why, ends, _creates, Script(create=mishaps), callbacks="none")


def _reads(name: str, why: str, *mishaps: Mishap) -> Behaviour:
    return _behaviour(name, why, _read_again, script=Script(read=mishaps), callbacks="none")


def _files(can: Capability) -> bool:
    return can.files


_CREATING: Final = (
    _create("dropped after acceptance", "I, B050", _found_or_asked, "dropped"),
    _create("lost on its way", "A6", _absent_or_asked, "lost"),
    _create("never left", "A6: surely not sent, so sent again by everybody", _succeeds, "unsent", "unsent"),
    _create("answered 500 though done", "B048", _found_or_asked, "error_though_done"),
    _create("answered 502 and not done", "A6", _absent_or_asked, "error"),
    _create("answered, and the answer is cut", "A6", _found_or_asked, "cut"),
    _create("answered with half a document", "A6", _named_or_found_or_asked, "garbled"),
    _create("answered with nothing", "A6", _named_or_found_or_asked, "empty"),
    _create("met a login page", "B069", _absent_or_asked, "html"),
    _create("redirected", "B060", _absent_or_asked, "redirect"),
    _create("told to slow down", "C3, B067", _sent_again, "slow_down"),
    _behaviour("create dropped, and a callback names the operation", "B6, A6", _echoed, _creates, Script(create=("dropped",))),
    _behaviour(
        "create dropped, and lists show the job late",
        "A6: not found counts only late and repeated",
        _found_or_asked,
        lambda can: can.creates and can.shown_late,
        Script(create=("dropped",)),
        callbacks="none",
        fate=Fate(hidden=40.0, runs=90.0),
    ),
    _behaviour("create refused", "A10", _refused, _creates, fate=Fate(refused=True)),
)

_READING: Final = (
    _behaviour("smooth", "nothing goes wrong (F1)", _succeeds),
    _reads("not visible at first", "C4: 404 within the grace means not yet", "gone"),
    _reads("reads answered with nonsense", "C4, B069: nonsense moves nothing", "html", "empty", "garbled", "redirect"),
    _reads("reads answered 404 by a page", "B069: a proxy's page says nothing about a job", *_PAGES),
    _reads("reads fail", "C4: a transport's failure moves nothing", "lost", "unsent", "cut", "error"),
    _reads("reads told to slow down", "C3", "slow_down", "slow_down"),
    _behaviour("gone for good", "a vanished job is a contradiction", _parked(State.QUARANTINED, "job_vanished"), fate=_VANISHES),
    _behaviour("a word of tomorrow for a while", "B071", _succeeds, lambda can: can.strange, fate=Fate(runs=120.0, strange=(10.0, 60.0))),
    _behaviour(
        "a word of tomorrow for ever",
        "B071, C6",
        _parked(State.RESULT_TIMED_OUT),
        lambda can: can.strange,
        fate=Fate(runs=None, strange=(10.0, 1e9)),
    ),
    _behaviour(
        "an answer about another job",
        "A8",
        _parked(State.QUARANTINED, "jobs_conflict"),
        lambda can: can.names_job,
        Script(read=("another_job",)),
        fate=_LONG,
    ),
    _behaviour("never ends", "C6, C8", _parked(State.RESULT_TIMED_OUT), fate=Fate(runs=None)),
    _behaviour("callback lost", "I: callback never", _told(), callbacks="none"),
    _behaviour("callback three times", "B3", _told("accepted", "duplicate", "duplicate"), callbacks="thrice"),
    _behaviour("callback before the create's answer", "B6", _succeeds, lambda can: can.callbacks and can.creates, callbacks="early"),
)

_CANCELLING: Final = (
    _behaviour("cancelled", "E1", _cancelled, _STOPPED, fate=_LONG, cancel_after=60.0),
    _behaviour("cancelled slowly", "E1", _cancelled, _STOPPED, fate=Fate(runs=500.0, cancel_takes=70.0), cancel_after=60.0),
    _behaviour("cancel's answer lost", "E4", _cancelled_once, _STOPPED, Script(cancel=("dropped",)), fate=_LONG, cancel_after=60.0),
    _behaviour("cancel refused", "E4", _not_stopped, fate=Fate(runs=200.0, cancel="refused"), cancel_after=60.0),
    _behaviour("cancel loses its race", "E2", _raced, fate=Fate(runs=100.0, cancel="races"), cancel_after=60.0),
    _behaviour(
        "cancel never confirmed",
        "E4",
        _unconfirmed,
        lambda can: can.cancels and not can.deletes,
        fate=Fate(runs=None, cancel="ignored"),
        cancel_after=60.0,
    ),
)

_ENDING: Final = (
    _behaviour("failed", "D2", _fails(), _has(Reading.FAILED), fate=Fate(ending=Reading.FAILED)),
    _behaviour("expired at the provider", "F5", _expired, _has(Reading.EXPIRED), fate=Fate(ending=Reading.EXPIRED)),
    _behaviour("cancelled by the provider", "D2", _parked(State.CANCELLED), _STOPPED, fate=Fate(ending=Reading.CANCELLED)),
    _behaviour("reversed after its end", "D1: the state stays, a person is told", _reversed, lambda can: can.watched, fate=_BACK),
    _behaviour("result expired", "F1", _parked(State.RESULT_UNAVAILABLE), _files, fate=Fate(result_gone=True)),
    _behaviour("result cut", "B090", _file_again, _files, Script(file=("cut",))),
    _behaviour("result is a web page", "B098", _file_again, lambda can: can.files and not can.one_shot, Script(file=("html",))),
)

BEHAVIOURS: Final = (*_CREATING, *_READING, *_CANCELLING, *_ENDING)

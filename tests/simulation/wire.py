"""The way to a provider and back: refused, lost, slow, cut, repeated answers. Bytes leave only by here.

The check of `send_by` and the leaving of the bytes are one step, as in `reconciler/transport.py`; what was sent executes
whether its sender still lives or not, at the latest SEND_BUDGET after it left.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from schemas.http import AnsweredOutcome, HttpRequest, MaybeOutcome, NotSentOutcome, Outcome
from schemas.operation import SECOND, Micros
from schemas.states import Errand
from tests.simulation.remote import Remote
from tests.simulation.world import World

SEND_BUDGET: Final[Micros] = 10 * SECOND
PATIENCE: Final[Micros] = 10 * SECOND  # how long the sender waits for an answer
Seen = Callable[[Outcome], None]


@dataclass(slots=True)
class Wire:
    """The transport to one provider."""

    world: World
    remote: Remote
    check_send_by: bool = True
    in_flight: int = 0  # requests that have left and may still execute

    def send(self, request: HttpRequest, errand: Errand, seen: Seen, *, send_by: float | None, departs: Callable[[], None]) -> None:
        """Send one request; `seen` gets its outcome later. `departs` is called at the moment when bytes leave."""
        world = self.world
        if send_by is not None and self.check_send_by and world.monotonic() >= send_by:
            world.tell("too late to send")
            world.after(0.001, lambda: seen(NotSentOutcome(error="too_late")))
            return
        if world.hit(0.04):
            world.after(0.05, lambda: seen(NotSentOutcome(error="refused")))
            return
        departs()
        acts = errand in {Errand.CREATE, Errand.CANCEL}
        self._travel(request, seen, acts=acts, download=errand is Errand.COLLECT)

    def _travel(self, request: HttpRequest, seen: Seen, *, acts: bool, download: bool) -> None:
        world = self.world
        if world.hit(0.04):
            world.tell("lost on the way, never executed")
            world.at(world.time + PATIENCE, lambda: seen(MaybeOutcome(error="read_timeout")))
            return
        early = self._error_before()
        if early is not None:
            world.after(world.between(0.01, 0.5), lambda: seen(early))
            return
        slow = world.hit(0.12)
        until_executed = world.between(1.0, 9.9) if slow else world.between(0.005, 0.2)
        # A connection that is reset says nothing about the request on the provider's side: it may be executed later.
        reset = world.between(0.05, 5.0) if slow and world.hit(0.6) else None
        answered = [False]

        def see(outcome: Outcome) -> None:
            if not answered[0]:
                answered[0] = True
                seen(outcome)

        if reset is not None:
            world.after(reset, lambda: see(MaybeOutcome(error="reset")))
        self.in_flight += 1
        world.after(until_executed, lambda: self._execute(request, see, acts=acts, download=download))

    def _execute(self, request: HttpRequest, see: Seen, *, acts: bool, download: bool) -> None:
        world = self.world
        self.in_flight -= 1
        answer = self.remote.answer(request)
        outcome, delay = self._return(answer, acts=acts, download=download)
        world.after(delay, lambda: see(outcome))

    def _return(self, answer: AnsweredOutcome, *, acts: bool, download: bool) -> tuple[Outcome, float]:
        """Return what the sender sees of an executed request, and after how many seconds."""
        world = self.world
        if world.hit(0.10 if acts else 0.04):
            world.tell("the answer is lost")
            return MaybeOutcome(error="read_timeout"), PATIENCE / SECOND
        if world.hit(0.03):
            return MaybeOutcome(error="cut", status=answer.status), 0.1
        if world.hit(0.03):
            return AnsweredOutcome(status=503, body=b"upstream failed"), 0.1
        if world.hit(0.03):
            return AnsweredOutcome(status=200, headers=(("content-type", "text/html"),), body=b"<html>hello</html>"), 0.1
        if download and answer.status == 200 and answer.body and world.hit(0.05):
            return AnsweredOutcome(status=200, headers=answer.headers, body=answer.body[:-1]), 0.1
        return answer, world.between(0.005, 2.0)

    def _error_before(self) -> AnsweredOutcome | None:
        """Return an answer of something that stands before the provider: the request is never executed."""
        world = self.world
        if world.hit(0.02):
            return AnsweredOutcome(status=503, body=b"overloaded")
        if world.hit(0.03):
            return AnsweredOutcome(status=429, headers=(("retry-after", str(world.random.choice((1, 7, 40)))),))
        if world.hit(0.01):
            return AnsweredOutcome(status=401, body=b'{"error":"expired key"}')
        return None

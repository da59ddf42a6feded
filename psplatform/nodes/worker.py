"""A gradient worker: executes what its session asks for, and what it does for others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from psplatform.core.protocol.effects import (
    CancelCompute,
    Compute,
    Depart,
    Effect,
    Expose,
    ForgetParts,
    ForgetSum,
    HandOn,
    Send,
    SendPart,
    SetTimer,
    SumUp,
)
from psplatform.core.protocol.events import TimerFired
from psplatform.core.protocol.messages import Moved, Pulled, StateRequest
from psplatform.core.protocol.names import COORDINATOR
from psplatform.core.workers.aggregator import OWN, Aggregator
from psplatform.core.workers.counting import COUNTING, Counting
from psplatform.core.workers.relay import Relay
from psplatform.core.workers.session import Activity, WorkerSession
from psplatform.nodes.in_turn import InTurn
from psplatform.nodes.ports import Gradients, Relaying, Sums, Timers

_ASIDE: Final = OWN | {StateRequest}
"""What concerns an aggregator."""


class WorkerNode(InTurn):
    """Executes the effects of one session, and of what is beside it, all of them in the caller's thread.

    Parameters
    ----------
    session
        The state machine.
    clock
        Returns the time of the worker's process, in seconds.
    send
        Takes what the session sends, the pulls to servers among it.
    make_timers, make_gradients
        Return the ports; what they are given takes the events that they answer with.
    depart
        Takes the reason for which the worker leaves the run.
    note
        Told of each effect before it is executed, where that is wanted.
    make_sums
        Returns the port of the aggregator, as `make_gradients` does; ``None`` where nothing is summed on the way.
    relay
        Hands parameters on, with its port; ``None`` where no process does that.
    counting
        Says what the interface of the host carries; ``None`` where nobody wants to know.

    Attributes
    ----------
    closed
        Whether the worker has gone: it hears nothing and does nothing any more.
    """

    def __init__(
        self,
        session: WorkerSession,
        clock: Callable[[], float],
        send: Callable[[Send], None],
        make_timers: Callable[[Callable[[str], None]], Timers],
        make_gradients: Callable[[Callable[[Any], None]], Gradients],
        depart: Callable[[str], None],
        note: Callable[[Effect], None] | None = None,
        *,
        make_sums: Callable[[Callable[[Any], None]], Sums] | None = None,
        relay: tuple[Relay, Relaying] | None = None,
        counting: Counting | None = None,
    ) -> None:
        self.session = session
        self.closed = False
        self._aggregator = Aggregator(session.member) if make_sums is not None else None
        self._clock, self._note, self._counting = clock, note, counting
        self._timers = make_timers(self._fire)
        self._gradients = make_gradients(self.feed)
        self._send, self._depart = send, depart
        self._relay = relay[0] if relay is not None else None
        if relay is not None:
            self._execute_of_relay: dict[type, Callable[[Any], None]] = {Send: relay[1].send, HandOn: relay[1].hand_on}
        if make_sums is not None:
            self._sums = make_sums(self.feed)

    @property
    def waits_for(self) -> str | None:
        """What the worker waits for, in words, or ``None`` once it is gone."""
        return None if self.closed or self.session.activity is Activity.GONE else self.session.waiting_for

    def expects(self, answer: Pulled) -> bool:
        """Whether the content that comes with `answer` belongs into the parameters now."""
        return not self.closed and self.session.expects(answer)

    def feed(self, event: Any) -> None:
        """Hand an event to whom it concerns, and execute what they answer, in turn."""
        self._take_in_turn(self._handle, event)

    def _handle(self, event: Any) -> None:
        if self.closed:
            return
        if self._counting is not None:
            self._wake(self._counting)
        kind = type(event)
        if kind is Moved:
            self._handle_of_relay(event)
        for effect in self._handle_aside(event) if kind in _ASIDE else self.session.handle(event, self._clock()):
            if self._note is not None:
                self._note(effect)
            _EXECUTE[type(effect)](self, effect)

    def _handle_aside(self, event: Any) -> list[Effect]:
        """Hand an event to the aggregator, and to the session if it concerns that too."""
        now, effects = self._clock(), list[Effect]()
        if self._aggregator is not None:
            effects += self._aggregator.handle(event, now)
        if type(event) not in OWN:
            effects += self.session.handle(event, now)
        return effects

    def feed_relay(self, event: Any) -> None:
        """Hand an event to the relay, and execute what it answers, in turn."""
        self._take_in_turn(self._handle_of_relay, event)

    def _handle_of_relay(self, event: Any) -> None:
        if self._relay is None or self.closed:
            return
        if self._counting is not None:
            self._wake(self._counting)
        for effect in self._relay.handle(event, self._clock()):
            if self._note is not None:
                self._note(effect)
            self._execute_of_relay[type(effect)](effect)

    def relays(self, answer: Pulled) -> bool:
        """Whether the content that comes with `answer` is to be kept for others."""
        return self._relay is not None and not self.closed and self._relay.expects(answer)

    def close(self) -> None:
        """Hear and do nothing any more."""
        self.closed = True
        self._timers.close()
        self._gradients.close()

    def _fire(self, tag: str) -> None:
        if tag == COUNTING and self._counting is not None:
            at, said = self._counting.go_on(self._clock())
            if said is not None:
                self._send(Send(COORDINATOR, said))
            self._count_at(at)
        else:
            self.feed(TimerFired(tag))

    def _wake(self, counting: Counting) -> None:
        """Let what the interface carries be counted: with anything that happens here, a transfer may begin."""
        self._count_at(counting.wake(self._clock()))

    def _count_at(self, at: float | None) -> None:
        if at is not None:
            self._timers.set(COUNTING, at)


_EXECUTE: Final[dict[type, Callable[[WorkerNode, Any], None]]] = {
    Send: lambda self, effect: self._send(effect),
    Compute: lambda self, effect: self._gradients.compute(effect),
    CancelCompute: lambda self, effect: self._gradients.cancel(effect.sequence),
    Expose: lambda self, effect: self._gradients.expose(effect, self.session.counter),
    SetTimer: lambda self, effect: self._timers.set(effect.tag, effect.at),
    Depart: lambda self, effect: self._depart(effect.reason),
    SendPart: lambda self, effect: self._sums.send_part(effect),
    SumUp: lambda self, effect: self._sums.sum_up(effect),
    ForgetParts: lambda self, effect: self._sums.forget(effect),
    ForgetSum: lambda self, effect: self._sums.forget_sum(effect),
}
"""One table for all: with one of its own for each of thousands of workers, every look at it would miss the caches."""

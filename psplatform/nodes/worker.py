"""A gradient worker: executes what its session asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from psplatform.core.protocol.effects import CancelCompute, Compute, Depart, Effect, Expose, Send, SetTimer
from psplatform.core.protocol.events import TimerFired
from psplatform.core.protocol.messages import Pulled
from psplatform.core.workers.session import Activity, WorkerSession
from psplatform.nodes.ports import Gradients, Timers


class WorkerNode:
    """Executes the effects of one session, all of them in the caller's thread.

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
        Told of each effect before it is executed.

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
        note: Callable[[Effect], None] = lambda effect: None,
    ) -> None:
        self.session = session
        self.closed = False
        self._clock, self._note = clock, note
        self._timers = timers = make_timers(self._fire)
        self._gradients = gradients = make_gradients(self.feed)
        self._execute: dict[type, Callable[[Any], None]] = {
            Send: send,
            Compute: gradients.compute,
            CancelCompute: lambda effect: gradients.cancel(effect.sequence),
            Expose: lambda effect: gradients.expose(effect, session.counter),
            SetTimer: lambda effect: timers.set(effect.tag, effect.at),
            Depart: lambda effect: depart(effect.reason),
        }

    @property
    def waits_for(self) -> str | None:
        """What the worker waits for, in words, or ``None`` once it is gone."""
        return None if self.closed or self.session.activity is Activity.GONE else self.session.waiting_for

    def expects(self, answer: Pulled) -> bool:
        """Whether the content that comes with `answer` belongs into the parameters now."""
        return not self.closed and self.session.expects(answer)

    def feed(self, event: Any) -> None:
        """Hand an event to the session, and execute what it answers."""
        if self.closed:
            return
        for effect in self.session.handle(event, self._clock()):
            self._note(effect)
            self._execute[type(effect)](effect)

    def close(self) -> None:
        """Hear and do nothing any more."""
        self.closed = True
        self._timers.close()
        self._gradients.close()

    def _fire(self, tag: str) -> None:
        self.feed(TimerFired(tag))

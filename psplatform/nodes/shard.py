"""The server or a replica of a shard: executes what its state machine asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar, cast

from psplatform.core.protocol.effects import Archive, Effect, Gather, Load, Publish, Send, Serve, Skip, Stage, Transmit
from psplatform.core.protocol.events import GatherFailed
from psplatform.core.protocol.messages import GRADIENTS
from psplatform.core.shards.replica import ShardCopy
from psplatform.core.shards.server import Server
from psplatform.nodes.in_turn import InTurn
from psplatform.nodes.ports import ShardState, Work

State = TypeVar("State", bound=ShardState)


def _raise(error: Exception) -> None:
    raise error


class ShardNode(InTurn, Generic[State]):
    """Executes the effects of one copy of a shard.

    What is shown and sent is so at once.  What is computed is handed to the state, which does it in the order in which
    it was asked for; only a step whose gradients are still to come lets what was asked for later go before it.

    Parameters
    ----------
    control
        The state machine.
    clock
        Returns the time of the process, in seconds.
    send
        Takes what the state machine sends.
    make_state
        Returns the port; what it is given takes the events that the port answers with.
    note
        Told of each event, with what is about to be executed about it.
    on_failure
        Takes what handling an event has raised; raises it, where nothing else is given.

    Attributes
    ----------
    state
        The port.
    now
        When the event at hand came, in seconds.
    closed
        Whether nothing is heard and done any more.
    failure
        What handling an event, or computing, has raised: later events are ignored.
    """

    def __init__(
        self,
        control: ShardCopy,
        clock: Callable[[], float],
        send: Callable[[Send], None],
        make_state: Callable[[Callable[[Any], None]], State],
        note: Callable[[Any, list[Effect]], None] = lambda event, effects: None,
        on_failure: Callable[[Exception], None] = _raise,
    ) -> None:
        self.control = control
        self.now = 0.0
        self.closed = False
        self.failure: Exception | None = None
        self._clock, self._note, self._on_failure = clock, note, on_failure
        self.state = state = make_state(self.feed)
        self._at_once: dict[type, Callable[[Any], None]] = {
            Send: send,
            Publish: state.publish,
            Skip: state.skip,
            Serve: state.serve,
        }
        self._computed: dict[type, Callable[[Any], Any]] = {
            Gather: state.gather,
            Stage: state.stage,
            Load: state.load,
            Transmit: state.capture,
            Archive: state.archive,
        }

    @property
    def server(self) -> Server | None:
        """The server it is, or ``None`` while it is a replica."""
        return self.control.part if isinstance(self.control.part, Server) else None

    def has_room_for(self, counter: int) -> bool:
        """Whether a block that contributes to the version after `counter` may be pushed here now."""
        server = self.server
        return server is not None and server.has_room_for(counter)

    def feed(self, event: Any) -> None:
        """Hand an event to the state machine, and execute what it answers, in turn."""
        self._take_in_turn(self._handle, event)

    def _handle(self, event: Any) -> None:
        if self.closed or self.failure is not None:
            return
        try:
            self._execute_after(event)
        except Exception as error:  # noqa: BLE001  whatever it is, this state machine cannot go on
            self.failure = error
            self._on_failure(error)

    def _execute_after(self, event: Any) -> None:
        self.now = self._clock()
        effects = self.control.handle(event, self.now)
        self._note(event, effects)
        work: list[Work] = []
        for effect in effects:
            kind = type(effect)
            if kind in self._at_once:
                self._at_once[kind](effect)
            elif isinstance(effect, Transmit) and effect.transfer.kind == GRADIENTS:
                self.state.refer(effect)
            else:
                work.append(cast(Work, effect))  # the state machine asks for nothing else
        if work:
            self._arrange(work)

    def close(self) -> None:
        """Hear and do nothing any more."""
        self.closed = True

    def _arrange(self, work: list[Work]) -> None:
        place = next((place for place, one in enumerate(work) if isinstance(one, Gather)), len(work))
        gather = work[place] if place < len(work) else None
        if not isinstance(gather, Gather) or self.state.has_all(gather):
            self.state.run(work, self._compute)
            return
        if place:
            self.state.run(work[:place], self._compute)
        self.state.when_there(gather, partial(self.state.run, work[place:], self._compute))

    def _compute(self, work: Sequence[Work]) -> list[Any]:
        """Do the work, where the state computes; return the events that come of it."""
        try:
            return self._events_of(work)
        except Exception as error:
            self.failure = error
            raise

    def _events_of(self, work: Sequence[Work]) -> list[Any]:
        events: list[Any] = []
        for one in work:
            event = self._computed[type(one)](one)
            if event is not None:
                events.append(event)
            if isinstance(event, GatherFailed):
                break  # there is nothing to stage
        return events

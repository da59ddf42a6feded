"""The node of a server or replica: what it has computed in which order, what at once, and what it does not do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Archive, Effect, Gather, Load, Publish, Send, Serve, Skip, Stage, Transmit
from psplatform.core.protocol.events import GatherDone, GatherFailed
from psplatform.core.protocol.names import COORDINATOR
from psplatform.core.shards.replica import Replica, ShardCopy
from psplatform.core.shards.server import MOST_AHEAD, Server
from psplatform.nodes.ports import Work
from psplatform.nodes.shard import ShardNode

CONTRIBUTIONS = (msg.Contribution("w", 0, 9),)
GATHER = Gather(1, CONTRIBUTIONS, norms=False)
STAGE = Stage(1, 1.0, 0.1)
ARCHIVE = Archive(1, 0, 0, ())
SAYS = Send(COORDINATOR, msg.Retiring("server-0"))


def transmit(kind: str) -> Transmit:
    return Transmit("replica-0-0", msg.Transfer("server-0", 0, 1, 1, kind, 1, 1, 1.0, ()))


class State:
    """A shard's state that notes what is asked of it; `run` computes when a test says so."""

    def __init__(self, feed: Callable[[Any], None]) -> None:
        self.feed = feed
        self.done: list[Any] = []
        self.queue: list[Callable[[], list[Any]]] = []
        self.arrived = True
        self.then: Callable[[], None] = lambda: pytest.fail("nothing is waited for")
        self.gathers = True

    def note(self, effect: Any) -> Any:
        self.done.append(effect)

    publish = skip = serve = refer = stage = load = capture = archive = note

    def gather(self, effect: Gather) -> GatherDone | GatherFailed:
        self.done.append(effect)
        return GatherDone(effect.position, ()) if self.gathers else GatherFailed(effect.position)

    def has_all(self, effect: Gather) -> bool:
        return self.arrived

    def when_there(self, effect: Gather, then: Callable[[], None]) -> None:
        self.then = then

    def run(self, work: Sequence[Work], compute: Callable[[Sequence[Work]], list[Any]]) -> None:
        self.queue.append(lambda: compute(work))

    def compute(self) -> list[Any]:
        """Compute what was to be run; return the events of each."""
        queue, self.queue = self.queue, []
        return [one() for one in queue]


class World:
    """A node whose state machine asks for what a test says."""

    def __init__(self, part: Server | Replica | None = None) -> None:
        self.now = 3.0
        self.effects: list[Effect] = []
        self.control = ShardCopy(part or Server(0, name="server-0"), SimpleNamespace)
        self.sent: list[Send] = []
        self.noted: list[Any] = []
        note = lambda event, effects: self.noted.append((event, list(effects), list(self.sent)))  # noqa: E731
        self.node = ShardNode(self.control, lambda: self.now, self.sent.append, State, note)
        self.state: Any = self.node.state

    def after(self, *effects: Effect) -> State:
        """Let the state machine ask for `effects`."""
        self.control.handle = lambda event, now: list(effects)  # type: ignore[method-assign]
        self.node.feed("an event")
        return self.state  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "effect", [Publish(1, 1), Skip(1, 1), Serve(2, 1), transmit(msg.GRADIENTS)], ids=lambda one: type(one).__name__
)
def test_what_is_shown_or_refers_to_gradients_is_done_at_once(effect: Effect) -> None:
    world = World()
    assert world.after(effect, SAYS).done == [effect]
    assert world.state.queue == []
    assert world.sent == [SAYS]


@pytest.mark.parametrize(
    "effect",
    [STAGE, ARCHIVE, transmit(msg.STATE), transmit(msg.UPDATE), Load(transmit(msg.STATE).transfer)],
    ids=lambda one: type(one).__name__,
)
def test_what_takes_time_is_run_and_not_done_in_the_callers_thread(effect: Effect) -> None:
    state = World().after(effect)
    assert state.done == []
    state.compute()
    assert state.done == [effect]


def test_what_comes_of_an_event_at_once_is_handled_when_all_is_done_about_it() -> None:
    world, seen = World(), list[Any]()

    def handle(event: Any, now: float) -> list[Effect]:
        seen.append(event)
        return [ARCHIVE, GATHER, STAGE] if event == "an event" else []

    world.control.handle = handle  # type: ignore[method-assign]
    world.state.arrived = False
    world.state.run = lambda work, compute: world.node.feed("archived")
    world.state.when_there = lambda gather, then: seen.append("waits")
    world.node.feed("an event")
    assert seen == ["an event", "waits", "archived"]


def test_after_a_failure_nothing_is_heard_any_more() -> None:
    world, seen, error = World(), list[Any](), ValueError("wrong")

    def handle(event: Any, now: float) -> list[Effect]:
        seen.append(event)
        world.node.feed("followed")
        raise error

    world.control.handle = handle  # type: ignore[method-assign]
    assert world.node.failure is None
    with pytest.raises(ValueError, match="wrong"):
        world.node.feed("fails")
    world.node.feed("next")
    assert (seen, world.node.failure) == (["fails"], error)


def test_work_that_fails_is_a_failure_of_the_node() -> None:
    world, error = World(), OSError("no room")

    def fail(effect: Any) -> Any:
        raise error

    world.node._computed[Stage] = fail
    world.after(STAGE)
    with pytest.raises(OSError, match="no room"):
        world.state.compute()
    assert world.node.failure is error
    assert world.after(SAYS).done == []
    assert world.sent == []


def test_work_is_done_in_its_order_in_one_go_and_its_events_are_returned() -> None:
    state = World().after(ARCHIVE, transmit(msg.UPDATE), GATHER, STAGE)
    assert state.compute() == [[GatherDone(1, ())]], "the others answered nothing"
    assert state.done == [ARCHIVE, transmit(msg.UPDATE), GATHER, STAGE]


def test_nothing_is_staged_where_a_gradient_is_gone() -> None:
    world = World()
    world.state.gathers = False
    assert world.after(GATHER, STAGE).compute() == [[GatherFailed(1)]]
    assert world.state.done == [GATHER]


def test_only_a_step_waits_for_its_gradients() -> None:
    """What is to be copied before must not wait, and what comes after may go before it."""
    world = World()
    world.state.arrived = False
    state = world.after(ARCHIVE, GATHER, STAGE)
    world.after(transmit(msg.STATE))
    state.compute()
    assert state.done == [ARCHIVE, transmit(msg.STATE)]
    state.then()
    assert state.compute() == [[GatherDone(1, ())]]
    assert state.done[-2:] == [GATHER, STAGE]


def test_who_checks_it_hears_of_effects_before_they_are_executed() -> None:
    world = World()
    world.after(SAYS)
    assert world.noted == [("an event", [SAYS], [])]


def test_the_state_machine_is_told_the_time_of_the_process() -> None:
    world = World()
    seen: list[float] = []
    world.control.handle = lambda event, now: seen.append(now) or []  # type: ignore[method-assign, func-returns-value]
    world.node.feed("an event")
    assert seen == [3.0] == [world.node.now]


def test_a_closed_node_hears_and_does_nothing() -> None:
    world = World()
    world.node.close()
    state = world.after(Publish(1, 1), SAYS, STAGE)
    assert (state.done, state.queue, world.sent, world.noted) == ([], [], [], [])


def test_blocks_are_pushed_only_to_a_server_and_not_too_far_ahead() -> None:
    server = World().node
    assert server.has_room_for(MOST_AHEAD)
    assert not server.has_room_for(MOST_AHEAD + 1)
    replica = World(Replica(0, "replica-0-0")).node
    assert replica.server is None
    assert not replica.has_room_for(0)

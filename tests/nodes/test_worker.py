"""The worker's node: every effect of its session reaches the port that it is for, and a closed one is silent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from psplatform.core.policy import Scope, Traits
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import CancelCompute, Compute, Depart, Expose, Send, SetTimer
from psplatform.core.protocol.events import Begin, Computed, Reachable
from psplatform.core.protocol.names import COORDINATOR, Role, first_server
from psplatform.core.workers.counting import COUNTING, Counted, Counting
from psplatform.core.workers.pulling import PullRule
from psplatform.core.workers.session import Activity, WorkerSession
from psplatform.nodes.worker import WorkerNode


class World:
    """Timers and gradients of one worker: notes what is asked for, and answers when a test says so."""

    def __init__(self, traits: Traits, shards: int, counting: Counting | None = None) -> None:
        self.now = 0.0
        self.done: list[Any] = []
        self.noted: list[Any] = []
        self.has_pulled: Callable[[msg.Pull], None] = lambda pull: None
        session = WorkerSession("w", "here", shards, traits)
        self.node = WorkerNode(
            session,
            lambda: self.now,
            self._send,
            self._take_fire,
            lambda feed: self,
            lambda reason: self.done.append(("left", reason)),
            self.noted.append,
            counting=counting,
        )

    def _send(self, effect: Send) -> None:
        self.done.append(effect)
        if isinstance(effect.message, msg.Pull):
            self.has_pulled(effect.message)

    def _take_fire(self, fire: Any) -> World:
        self.fire = fire
        return self

    def compute(self, effect: Compute) -> None:
        self.done.append(effect)

    def cancel(self, sequence: int) -> None:
        self.done.append(("cancelled", sequence))

    def expose(self, effect: Expose, counter: int) -> None:
        self.done.append(("exposed", effect.sequence, counter))

    def set(self, tag: str, at: float) -> None:
        self.done.append(("timer", tag, at))

    def close(self) -> None:
        self.done.append("closed")

    def after(self, *events: Any) -> list[Any]:
        """Feed events; return what was done about the last."""
        for event in events:
            self.done.clear()
            self.node.feed(event)
        return list(self.done)


STARTED = (Begin(), msg.Welcome(1, 0, 1), msg.Release(1, 1, 4, None))
PULLED = msg.Pulled(0, 1, 4, 1)
COMPUTED = Computed(1, 4, 0.5, 2.0, 0.75)


@pytest.fixture
def world() -> World:
    return World(Traits(exact=True), shards=1)


def test_what_a_session_asks_for_is_done_by_the_port_that_it_is_for(world: World) -> None:
    pull = msg.Pull("w", 0, 1, 4)
    assert world.after(*STARTED) == [Send(Role.copy(first_server(0)), pull)]
    assert world.node.expects(PULLED)
    assert world.after(PULLED) == [Compute(0, 1, None)]
    assert world.after(COMPUTED) == [("exposed", 1, 4)]
    (said,) = world.after(Reachable(1))
    assert (said.to, said.message.sequence) == (COORDINATOR, 1)
    assert world.after(msg.Stop(1, "over")) == [("left", "over")]


def test_what_comes_of_an_effect_at_once_follows_when_all_effects_are_executed() -> None:
    world = World(Traits(exact=True), shards=2)
    world.has_pulled = lambda pull: world.node.feed(msg.Pulled(pull.shard, pull.request, 4, 1))
    pulls = [Send(Role.relay("r"), msg.Pull("w", shard, shard + 1, 4)) for shard in range(2)]
    release = msg.Release(1, 1, 4, None, relay="r", patience_s=2.0)
    assert world.after(*STARTED[:2], release) == [*pulls, ("timer", "relayed", 2.0), Compute(0, 1, None)]
    assert world.after(COMPUTED) == [("exposed", 1, 4)]


def test_a_worker_that_could_not_pull_hears_all_the_same_that_it_is_to_leave(world: World) -> None:
    def fail(pull: msg.Pull) -> None:
        world.node.feed(msg.Stop(1, "over"))
        raise RuntimeError("no way there")

    world.has_pulled = fail
    with pytest.raises(RuntimeError, match="no way there"):
        world.after(*STARTED)
    assert world.done[-1] == ("left", "over")


def test_an_interrupted_computation_is_cancelled(world: World) -> None:
    world.after(*STARTED, PULLED)
    assert world.after(msg.Abort(1, 1)) == [("cancelled", 1)]


def test_a_timer_that_is_due_comes_back_as_an_event() -> None:
    world = World(Traits(exact=False, scope=Scope.BLOCK, pull=PullRule(0.5, timeout_s=3.0)), shards=2)
    first = [msg.Pulled(shard, shard + 1, 4, 1) for shard in range(2)]  # it needs the whole model once
    world.after(*STARTED, *first, COMPUTED, Reachable(1, (0, 1)))
    world.now = 2.0
    world.after(msg.Release(1, 2, 5, None))
    assert world.after(msg.Pulled(1, 4, 5, 1)) == [("timer", "pull", 5.0)]
    world.fire("pull")
    assert world.done[-1] == Compute(0, 2, None)


def test_what_the_interface_carries_is_counted_from_when_something_happens() -> None:
    """And said to the coordinator; the session is not told of the timer."""
    carried = [0]
    world = World(Traits(exact=True), shards=1, counting=Counting("w", "h", lambda: Counted(carried[0], 0)))
    assert world.after(Begin())[0] == ("timer", COUNTING, 0.125)
    assert ("timer", COUNTING, 0.125) not in world.after(STARTED[1])
    world.done.clear()
    for _ in range(4):
        world.now, carried[0] = world.now + 0.125, carried[0] + 100_000
        world.fire(COUNTING)
    said = [one.message for one in world.done if isinstance(one, Send)]
    assert said == [msg.Carried("w", "h", (0.125,) * 4, (100_000,) * 4, (0,) * 4)]
    assert world.done[-1] == ("timer", COUNTING, 0.625)


def test_each_effect_is_noted_before_it_is_executed(world: World) -> None:
    world.after(*STARTED, PULLED, msg.Abort(1, 1), msg.Stop(1, "over"))
    kinds = [type(one) for one in world.noted]
    assert kinds == [Send, Send, Compute, CancelCompute, CancelCompute, Depart]
    assert SetTimer not in kinds


def test_a_closed_node_hears_and_does_nothing(world: World) -> None:
    world.after(*STARTED)
    assert world.node.waits_for == "shards [0]"
    world.node.close()
    assert world.done[-2:] == ["closed", "closed"]
    assert not world.node.expects(PULLED)
    assert world.after(PULLED) == []
    assert world.node.waits_for is None
    assert world.node.session.activity is Activity.PULLING

"""The coordinator's node: every effect reaches the port that it is for, and what goes wrong ends the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from psplatform.core.coordination import Coordinator
from psplatform.core.plan import Plan, Stop
from psplatform.core.protocol import effects as fx
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.events import Begin, RunBroken, StopRequested, TimerFired
from psplatform.core.protocol.names import Role
from psplatform.core.supervision.replicated_coordinator import ReplicatedCoordinator
from psplatform.errors import ClusterError, PsplatformError
from psplatform.jobs.schedules import Constant
from psplatform.nodes.coordinator import CoordinatorNode
from psplatform.policies.asp import Asynchronous


class Port:
    """Notes every call of a method, and raises where a test says so."""

    def __init__(self, done: list[Any], name: str) -> None:
        self.done, self.name = done, name
        self.due: dict[str, float] = {}
        self.broken = False

    def __getattr__(self, method: str) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            if self.broken:
                raise RuntimeError("a fault of our own")
            self.done.append((self.name, method, *arguments))

        return call


class World:
    """A coordinator and its ports."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.explained: list[Any] = []
        plan = Plan("run", workers=1, shards=1, samples=8, batch_size=4, stop=Stop(updates=9), schedule=Constant())
        self.lead = ReplicatedCoordinator(Coordinator(plan, Asynchronous()))
        self.ports = {name: Port(self.done, name) for name in ("shards", "workers", "standbys", "arbiter", "store")}
        self.node = CoordinatorNode(
            self.lead,
            lambda: 2.0,
            send=self.done.append,
            log=lambda record: self.done.append(("log", record["kind"])),
            make_timers=self._make_timers,
            shards=self.ports["shards"],
            workers=self.ports["workers"],
            standbys=self.ports["standbys"],
            arbiter=self.ports["arbiter"],
            checkpoints=self.ports["store"],
            finish=self.done.append,
            depart=lambda reason: self.done.append(("departs", reason)),
            explain=self._explain,
            note=lambda event, effects: self.done.append(("noted", event, len(effects))),
        )

    def _make_timers(self, fire: Callable[[str], None]) -> Port:
        self.fire = fire
        return Port(self.done, "timers")

    def _explain(self, error: Exception, event: Any) -> PsplatformError:
        self.explained.append((str(error), type(event).__name__))
        return ClusterError(f"explained: {error}")

    def does(self, effect: fx.Effect) -> Any:
        self.done.clear()
        self.node.execute([effect])
        return self.done[0] if len(self.done) == 1 else list(self.done)

    def deciding(self, *answers: Any) -> None:
        """Let the state machine answer the next events so, or raise what is an exception."""
        waiting = list(answers)

        def handle(event: Any, now: float) -> list[fx.Effect]:
            self.seen = event, now
            answer = waiting.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return list(answer)

        self.lead.handle = handle  # type: ignore[method-assign]


@pytest.fixture
def world() -> World:
    return World()


SEAL = fx.Seal(3, 7, (), {})
REDIRECT = fx.Redirect(0, 2, "replica-0-0")
HELLO = fx.Send(Role.member("w"), msg.Stop(1, "over"))


@pytest.mark.parametrize(
    ("effect", "expected"),
    [
        (HELLO, HELLO),
        (fx.Log({"kind": "commit"}), ("log", "commit")),
        (fx.SetTimer("tag", 4.0), ("timers", "set", "tag", 4.0)),
        (fx.CancelTimer("tag"), ("timers", "cancel", "tag")),
        (fx.Evaluate(3, measure=True), ("workers", "order", fx.Evaluate(3, measure=True))),
        (fx.SaveModel(3), ("workers", "order", fx.SaveModel(3))),
        (REDIRECT, ("workers", "redirect", REDIRECT)),
        (fx.Recruit(1), ("shards", "recruit", 1)),
        (fx.Retire("replica-0-0", "lost"), ("shards", "retire", "replica-0-0")),
        (SEAL, ("store", "seal", SEAL)),
        (fx.Discard(3), ("store", "discard", 3)),
        (fx.Appoint(2), ("standbys", "appoint", 2)),
        (fx.Claim(2), [("standbys", "suspect", 2), ("arbiter", "claim", 2)]),
        (fx.Consult(5), ("arbiter", "consult", 5)),
        (fx.Depart("replaced"), ("departs", "replaced")),
    ],
    ids=lambda one: type(one).__name__ if not isinstance(one, tuple | list) else "",
)
def test_what_a_coordinator_asks_for_is_done_by_the_port_that_it_is_for(
    world: World, effect: fx.Effect, expected: Any
) -> None:
    assert world.does(effect) == expected


def test_a_worker_that_is_dismissed_is_forgotten_by_the_shards_first(world: World) -> None:
    """They may be waiting for a gradient of it."""
    (_, forget, member, position_of), dismissed = world.does(fx.Dismiss("w", "lost"))
    assert (forget, member) == ("forget", "w")
    assert position_of(0) == world.lead.coordinator.state.last_position("w", 0)
    assert dismissed == ("workers", "dismiss", "w", "lost")


def test_what_it_exposed_is_forgotten_when_nothing_of_it_waits_to_be_decided(world: World) -> None:
    _, forget, member, position_of = world.does(fx.Forget("w"))
    assert (forget, member, position_of(0)) == ("forget", "w", 0)


def test_an_event_is_handled_at_its_time_and_noted_before_anything_is_done_about_it(world: World) -> None:
    world.deciding([HELLO])
    world.node.feed("an event")
    assert world.seen == ("an event", 2.0)
    assert world.done == [("noted", "an event", 1), HELLO]


def test_a_timer_that_is_due_comes_back_as_an_event(world: World) -> None:
    world.deciding([])
    world.fire("tag")
    assert world.seen == (TimerFired("tag"), 2.0)
    world.node.close()
    assert world.done[-1] == ("timers", "close")


def test_what_a_policy_raises_ends_the_run(world: World) -> None:
    world.deciding(ValueError("a bug"), [HELLO])
    world.node.feed(Begin())
    event, _ = world.seen
    assert isinstance(event, RunBroken)
    assert str(event.error) == "explained: a bug"
    assert world.explained == [("a bug", "Begin")]
    assert world.done[-1] == HELLO, "in good order"


def test_what_fails_in_acting_ends_the_run_in_good_order_or_at_once(world: World) -> None:
    """The second time nothing is left to try."""
    world.node.feed(Begin())
    world.ports["shards"].broken = True
    world.node.execute([fx.Recruit(0), HELLO])
    assert world.explained == [("a fault of our own", "NoneType")]
    assert world.lead.coordinator.state.stopping
    world.done.clear()
    world.node.execute([fx.Recruit(0)])
    (end,) = world.done
    assert (end.outcome, str(end.failure)) == ("failed", "explained: a fault of our own")


def test_after_the_end_only_good_byes_and_witnesses_are_heard(world: World) -> None:
    world.does(fx.Finish("stopped", ""))
    assert world.node.over
    heard: list[Any] = []
    world.lead.handle = lambda event, now: heard.append(event) or []  # type: ignore[method-assign, func-returns-value]
    last = [msg.Leave("w", "told so"), msg.Acknowledged(2, 9), msg.Lease(2, 1.0, 3.0)]
    for event in [StopRequested("late"), TimerFired("tag"), *last]:
        world.node.feed(event)
    assert heard == last

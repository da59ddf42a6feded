"""What the log tells of workers that have got the parameters, where transfers are planned."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from psplatform.core.coordination import Coordinator
from psplatform.core.plan import Plan, Stop
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.events import Begin
from psplatform.core.transfers import Grant, Offer, PullGrant, PullPlan, PullRequest, TransferPlan
from psplatform.jobs.schedules import Constant
from psplatform.policies.asp import Asynchronous

TAKES_S = 0.25


@dataclass
class Planner:
    """Grants all at once: gradients straight, and parameters through the relay on the host of that name, if any.

    Without `relays`, workers pull whenever they go on.
    """

    relays: bool = True
    relay: str | None = None
    lasts_s: float = TAKES_S
    tick_s: float = 0.125
    sums: bool = False
    waits: bool = False
    servers: ClassVar[tuple[tuple[str, float], ...]] = ()

    def plan(self, offers: Sequence[Offer], now: float, able: Collection[str] | None = None) -> TransferPlan:
        return TransferPlan((), (), tuple(one.key for one in offers))

    def grant_at_once(self, offer: Offer, now: float, waiting: Iterable[Offer] = ()) -> Grant | float:
        return Grant((offer.key,), (now,), None, now + TAKES_S)

    def plan_pulls(self, waiting: Sequence[PullRequest], now: float, able: Collection[str] | None = None) -> PullPlan:
        known = [] if self.waits else waiting
        return PullPlan(tuple(PullGrant(one.key, self.relay, now + self.lasts_s) for one in known), now + self.tick_s)

    def pulled(self, key: int, begin: float, end: float) -> None: ...

    def settle_pull(self, key: int) -> None: ...

    def arrive(self, key: int, host: str, begin: float, end: float) -> None: ...

    def seen(self, sender: str, receiver: str, begin: float, end: float) -> None: ...

    def settle(self, key: int) -> None: ...

    def serve(self, shard: int, host: str, now: float) -> None: ...


Planned = Callable[..., Any]


@pytest.fixture
def planned(open_scene: Callable[..., Any]) -> Planned:
    """Open a run of two shards, of workers on hosts of their own, as a planner has it."""

    def make(planner: Planner | None, *names: str) -> Any:
        plan = Plan("r", 3, 2, 100, 4, Stop(updates=1000), Constant())
        scene = open_scene()
        scene.coordinator, scene.plan = Coordinator(plan, Asynchronous(), planner=planner), plan
        scene.handle(Begin())
        for name in names:
            scene.handle(msg.Join(name, f"process of {name}", f"host of {name}"))
        return scene

    return make


def offer(scene: Any, name: str, sequence: int = 1) -> Any:
    label = msg.Label((0, 0), (1, 1))
    announce = msg.Announce(name, sequence, label, 4, 1.0, 1.0, 0.1, 0.75, 0.0, 0.0)
    scene.handle(msg.Offer(announce, f"host of {name}"))
    return scene


def pulls(scene: Any) -> list[dict[str, Any]]:
    return [{name: one[name] for name in one.keys() - {"kind", "at"}} for one in scene.logged("pull")]


def pull(slot: int, host: str, **fields: Any) -> dict[str, Any]:
    known = {"sequence": 1, "relay": None, "sent": True, "took_s": 0.5, "planned_s": TAKES_S}
    return {"slot": slot, "host": f"host of {host}", **known, **fields}


def test_a_pull_is_logged_when_its_worker_says_that_it_has_the_parameters(planned: Planned) -> None:
    scene = planned(Planner(), "a", "b")
    scene.handle(msg.Fetched("b", 1, 0.5))
    assert pulls(scene) == [pull(1, "b")]
    offer(scene, "b").announce("b")
    assert len(pulls(scene)) == 1, "the gradient tells no news"
    scene.handle(msg.Fetched("b", 2, 0.5))
    assert pulls(scene)[1:] == [pull(1, "b", sequence=2)]


def test_of_those_that_a_relay_serves_together_the_first_has_made_the_servers_send(planned: Planned) -> None:
    planner = Planner(waits=True)
    scene = planned(planner, "a", "b", "c")
    planner.waits, planner.relay = False, "host of b"
    scene.fire("pulls", at=0.125)
    for name in "cab":
        scene.handle(msg.Fetched(name, 1, 0.5))
    through = {"relay": "host of b"}
    assert pulls(scene) == [
        pull(2, "c", **through),
        pull(0, "a", sent=False, **through),
        pull(1, "b", sent=False, **through),
    ]
    offer(scene, "a").announce("a")
    scene.handle(msg.Fetched("a", 2, 0.5))
    assert pulls(scene)[3:] == [pull(0, "a", sequence=2, **through)], "of another plan: they were sent again"


def test_a_relay_whose_worker_is_not_there_hands_nothing_on(planned: Planned) -> None:
    scene = planned(Planner(relay="host of z"), "a")
    scene.handle(msg.Fetched("a", 1, 0.5))
    assert pulls(scene) == [pull(0, "a")]


def test_where_pulls_are_not_planned_the_gradient_tells_of_them(planned: Planned) -> None:
    """Offered, and offered again, or announced at once where servers see it."""
    scene = offer(offer(planned(Planner(relays=False), "a", "b"), "a"), "a")
    assert pulls(scene) == [pull(0, "a", took_s=0.75, planned_s=None)]
    scene.announce("b", pull_s=0.5)
    assert pulls(scene)[1:] == [pull(1, "b", planned_s=None)]
    assert len(pulls(scene.announce("a"))) == 2


def test_nobody_knows_how_long_what_gets_nowhere_takes(planned: Planned) -> None:
    scene = planned(Planner(lasts_s=math.inf), "a")
    scene.handle(msg.Fetched("a", 1, 0.5))
    assert pulls(scene) == [pull(0, "a", planned_s=None)]


def test_a_coordinator_that_takes_over_logs_what_is_left(planned: Planned) -> None:
    """Not again what its predecessor has logged, and with the relay that its predecessor has named."""
    scene = planned(Planner(relay="host of a"), "a", "b")
    scene.handle(msg.Fetched("a", 1, 0.5))
    scene.take_over()
    for shard in (0, 1):
        scene.handle(msg.ServerState(shard, f"server-{shard}", 2, 1, serving=True, position=0, commits=()))
    for name in "ab":
        scene.handle(msg.Fetched(name, 1, 0.5))
    assert pulls(scene)[1:] == [pull(1, "b", relay="host of a")]


def test_what_is_said_by_a_worker_that_is_gone_is_not_logged(planned: Planned) -> None:
    scene = planned(Planner(), "a").lose("a")
    scene.handle(msg.Fetched("a", 1, 0.5))
    offer(scene, "a")
    assert pulls(scene) == []


@pytest.mark.parametrize("relays", [True, False])
def test_workers_that_are_gone_are_forgotten(planned: Planned, relays: bool) -> None:
    """However many come and go, whether they have told of their pull or not."""
    scene = planned(Planner(relays=relays))
    for number in range(20):
        scene.handle(msg.Join(f"w{number}", "process", f"host of w{number}"))
        if number % 2:
            scene.handle(msg.Fetched(f"w{number}", 1, 0.5))
        scene.lose(f"w{number}")
    assert len(scene.coordinator.pulls._pulls) <= 2


def test_without_a_planner_nothing_is_logged(planned: Planned) -> None:
    scene = planned(None, "a")
    scene.handle(msg.Fetched("a", 1, 0.5))
    offer(scene, "a").announce("a")
    assert pulls(scene) == []

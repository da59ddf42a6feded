"""What interfaces carry is told to the planner, and what that believes of them is logged when it has changed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from psplatform.core.coordination import Coordinator
from psplatform.core.plan import Plan, Stop
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.events import Begin, CoordinatorLost
from psplatform.jobs.schedules import Constant
from psplatform.policies.asp import Asynchronous

MB = 1e6


class Planner:
    """Believes what the test says."""

    tick_s, sums, relays, servers = 0.125, False, False, ()

    def __init__(self) -> None:
        self.believed: dict[str, tuple[float, float]] = {}
        self.counted: list[tuple[msg.Carried, float]] = []

    def count(self, count: msg.Carried, now: float) -> tuple[float, float]:
        self.counted.append((count, now))
        return self.believed[count.host]


def carried(host: str) -> msg.Carried:
    return msg.Carried(f"at {host}", host, (0.125,), (1000,), (2000,))


@pytest.fixture
def open_planned(open_scene: Callable[..., Any]) -> Callable[..., Any]:
    """Open a run whose transfers a planner plans."""

    def make(planner: Any, **fields: Any) -> Any:
        plan = Plan("r", workers=1, shards=1, samples=100, batch_size=4, stop=Stop(), schedule=Constant(), **fields)
        scene = open_scene()
        scene.coordinator, scene.plan = Coordinator(plan, Asynchronous(), planner=planner), plan
        scene.handle(Begin())
        return scene

    return make


def logged(scene: Any) -> list[tuple[str, float, float]]:
    return [(one["host"], one["out"], one["into"]) for one in scene.logged("rates")]


def test_the_planner_is_told_what_is_carried(open_planned: Callable[..., Any]) -> None:
    planner = Planner()
    planner.believed["a"] = 50 * MB, 50 * MB
    scene = open_planned(planner)
    scene.handle(carried("a"), at=1.0)
    assert planner.counted == [(carried("a"), 1.0)]


def test_without_a_planner_nothing_comes_of_it(open_planned: Callable[..., Any]) -> None:
    scene = open_planned(None)
    scene.handle(carried("a"))
    assert logged(scene) == []


def test_what_is_believed_is_logged_when_it_has_clearly_changed(open_planned: Callable[..., Any]) -> None:
    planner = Planner()
    scene = open_planned(planner)
    for rates in ((50, 50), (50, 50), (45, 55), (45, 70), (6, 70), (6, 70)):
        planner.believed["a"] = rates[0] * MB, rates[1] * MB
        scene.handle(carried("a"))
    planner.believed["b"] = 50 * MB, 50 * MB
    scene.handle(carried("b"))
    assert logged(scene) == [
        ("a", 50 * MB, 50 * MB),
        ("a", 45 * MB, 70 * MB),
        ("a", 6 * MB, 70 * MB),
        ("b", 50 * MB, 50 * MB),
    ]


def test_nothing_is_logged_as_long_as_nothing_is_known(open_planned: Callable[..., Any]) -> None:
    planner = Planner()
    planner.believed["a"] = 50 * MB, 1e15
    scene = open_planned(planner)
    scene.handle(carried("a"))
    planner.believed["a"] = 50 * MB, math.inf
    scene.handle(carried("a"))
    assert logged(scene) == []


def test_what_is_carried_during_a_takeover_is_not_told_afterwards(open_planned: Callable[..., Any]) -> None:
    """It would be taken for what is carried then."""
    planner = Planner()
    planner.believed["a"] = 50 * MB, 50 * MB
    scene = open_planned(planner)
    scene.coordinator.take_over(2, CoordinatorLost("gone"), 1.0)
    assert scene.coordinator.takeover.awaited_shards == {0}
    scene.handle(carried("a"), at=2.0)
    server = scene.coordinator.state.shards[0]
    scene.handle(msg.ServerState(0, server.server, 2, server.epoch, True, 0, ()), at=3.0)
    assert scene.coordinator.takeover.awaited_shards == set()
    assert planner.counted == []
    scene.handle(carried("a"), at=4.0)
    assert len(planner.counted) == 1

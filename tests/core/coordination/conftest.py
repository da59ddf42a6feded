"""Runs in each phase of their end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from psplatform.core.coordination.ending import Phase
from psplatform.core.plan import Stop


# How to bring a run that stops after one update into each phase of its end.
def to_running(scene: Any) -> Any:
    return scene.join("a")


def to_draining(scene: Any) -> Any:
    return to_running(scene).announce("a")


def to_evaluating(scene: Any) -> Any:
    return to_draining(scene).show()


def to_saving(scene: Any) -> Any:
    return to_evaluating(scene).evaluated(scene.orders[0])


def to_over(scene: Any) -> Any:
    return to_saving(scene).end()


WAYS = {
    Phase.RUNNING: to_running,
    Phase.DRAINING: to_draining,
    Phase.EVALUATING: to_evaluating,
    Phase.SAVING: to_saving,
    Phase.OVER: to_over,
}


@pytest.fixture
def brought_to(open_scene: Callable[..., Any]) -> Callable[..., Any]:
    """Bring a run, by default one that stops after one update, into a phase."""

    def bring(wanted: Phase, scene: Any = None) -> Any:
        scene = WAYS[wanted](scene or open_scene(stop=Stop(updates=1), evaluates=True))
        assert scene.coordinator.ending.phase is wanted
        return scene

    return bring

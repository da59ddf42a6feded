"""Claims of an in-memory run: as on the scheduler of a real one, each number is granted once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from psplatform.core.protocol.events import Claimed
from psplatform.memory.engine import make_engine
from psplatform.memory.roles.leading import VirtualElection
from psplatform.memory.world import Ideal

# Nothing is computed or sent here.
TAKES = (lambda slot, sequence: 0.0, lambda *_: 0.0)


@dataclass(frozen=True, slots=True)
class Deaf(Ideal):
    """A world in which claims are heard after a second, and answered a second later."""

    def claim_s(self, process: str, now: float) -> tuple[float, float]:
        return (1.0, 0.0) if now < 1.0 else (0.0, 1.0)


class Scene:
    """Two roles that claim, and what they are told."""

    def __init__(self, world: Any) -> None:
        engine = make_engine(world, lambda copy: None)
        self.agenda, self.processes = engine.agenda, engine.processes
        self.election = VirtualElection(engine)
        self.told: list[tuple[str, Claimed]] = []

    def claim(self, name: str, number: int) -> None:
        self.election.claim(name, (1, number), name, lambda event: self.told.append((name, event)))

    def until_the_end(self) -> list[tuple[str, bool]]:
        while self.agenda.do_next():
            pass
        return [(name, event.granted) for name, event in self.told]


@pytest.mark.parametrize("world", [Ideal(*TAKES), Deaf(*TAKES)], ids=["ideal", "deaf"])
def test_of_two_claimants_the_first_gets_a_number_and_hears_so_again(world: Any) -> None:
    scene = Scene(world)
    for name in ("standby-2", "coordinator", "standby-2"):
        scene.claim(name, 2)
    assert scene.until_the_end() == [("standby-2", True), ("coordinator", False), ("standby-2", True)]
    assert scene.election.granted == {(1, 2): "standby-2"}


def test_another_number_is_free() -> None:
    scene = Scene(Ideal(*TAKES))
    scene.claim("standby-2", 2)
    scene.claim("coordinator", 3)
    assert scene.until_the_end() == [("standby-2", True), ("coordinator", True)]


def test_who_is_dead_before_it_is_heard_has_claimed_nothing() -> None:
    scene = Scene(Deaf(*TAKES))
    scene.claim("standby-2", 2)
    scene.processes.kill("standby-2")
    assert scene.until_the_end() == []
    assert scene.election.granted == {}

"""In which order processes are asked for gradient workers is looked at, and how often they are tried."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from psplatform.core.protocol.messages import JOIN_AGAIN, PROCESS_ENDS
from psplatform.errors import InvariantViolation
from psplatform.memory.processes.losses import Supervision
from psplatform.simulation.faults.checks.placing import MOST_TRIES, Placing
from psplatform.simulation.faults.schedules.hosts import Refusals


class Scene:
    """Four processes, of which one has a copy of a shard and another a gradient worker."""

    def __init__(self) -> None:
        self.pool: Any = SimpleNamespace(
            lead="lead",
            sighted=["copy", "a", "b", "worker"],
            copies={"copy"},
            addresses={"worker"},
            unavailable=SimpleNamespace(addresses=set()),
        )
        self.agenda = SimpleNamespace(now=0.0)
        lead = SimpleNamespace(name="lead", workers=self.pool)
        run: Any = SimpleNamespace(leads=[lead], agenda=self.agenda, supervision=Supervision())
        self.check = Placing(run)
        self.check._copies = {"lead": frozenset({"copy"})}

    def ask(self, *addresses: str) -> None:
        for one in addresses:
            self.check.on_asked(self.pool, one)

    def fail(self, address: str, times: int) -> None:
        for _ in range(times):
            self.check.on_not_started(self.pool, address)


def broken(found: str) -> Any:
    return pytest.raises(InvariantViolation, match=f"S13 is violated: .*{found}")


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_process_with_a_copy_is_asked_last(scene: Scene) -> None:
    scene.ask("a", "b", "copy")
    with broken("asks copy before a"):
        Scene().ask("copy")


def test_a_process_whose_copy_is_given_up_just_now_is_as_good_as_any(scene: Scene) -> None:
    scene.pool.copies.clear()
    scene.ask("copy")


def test_a_coordinator_that_takes_over_just_now_may_know_of_other_copies(scene: Scene) -> None:
    scene.check._copies = {"before": frozenset()}
    scene.ask("copy")


def test_a_process_that_cannot_be_asked_is_not_asked_first(scene: Scene) -> None:
    scene.pool.unavailable.addresses.add("a")
    scene.check.on_asked(scene.pool, "b")
    scene.check.on_answered(scene.pool, "b", fits=False)
    scene.ask("copy")
    scene.agenda.now = 100.0
    with broken("asks copy before b"):
        scene.ask("copy")


def test_a_process_that_comes_is_asked_whoever_else_is_free(scene: Scene) -> None:
    scene.ask("a")
    scene.pool.sighted.append("new")
    scene.check._copies["lead"] |= {"new"}
    scene.pool.copies.add("new")
    scene.ask("new")
    scene.check.on_answered(scene.pool, "new", fits=True)
    with broken("asks new before b"):
        scene.ask("new")


def test_where_fewer_could_not_be_started_another_is_tried_first(scene: Scene) -> None:
    scene.fail("a", 1)
    with broken("asks a before b; failures {'a': 1, 'b': 0}"):
        scene.ask("a")
    scene = Scene()
    scene.fail("a", 1)
    scene.fail("b", 1)
    scene.ask("a")


def test_where_too_many_could_not_be_started_none_is_tried(scene: Scene) -> None:
    scene.fail("a", MOST_TRIES)
    assert not scene.check.is_worth_trying("a")
    assert scene.check.is_worth_trying("b")
    scene.ask("b", "copy")
    with broken("at a for the 4th time"):
        scene.fail("a", 1)


def test_nothing_is_started_where_a_role_was_lost(scene: Scene) -> None:
    scene.check.on_starting(scene.pool, "a")
    scene.pool.unavailable.addresses.add("a")
    with broken("at a, where a role was lost"):
        scene.check.on_starting(scene.pool, "a")


def test_a_process_whose_worker_leaves_is_not_given_up_unless_it_ends(scene: Scene) -> None:
    scene.pool.unavailable.addresses.add("a")
    scene.check._unavailable = {"lead": frozenset({"a"})}
    scene.check.on_left(scene.pool, "a", JOIN_AGAIN)
    scene.check.on_left(scene.pool, "worker", JOIN_AGAIN)
    scene.pool.unavailable.addresses.add("worker")
    scene.check.on_left(scene.pool, "worker", PROCESS_ENDS)
    with broken("gives worker up"):
        scene.check.on_left(scene.pool, "worker", JOIN_AGAIN)


def test_a_share_of_the_processes_refuses_for_a_while_or_for_ever() -> None:
    assert not any(Refusals(1, 0.0)("w", f"process-{number}") for number in range(20))
    refusals = Refusals(1, 1.0)
    times = [sum(refusals("w", f"process-{number}") for _ in range(9)) for number in range(40)]
    assert set(times) == {1, 2, 9}

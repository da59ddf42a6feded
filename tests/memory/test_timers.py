"""Timers on a clock that jumps."""

from __future__ import annotations

import pytest

from psplatform.memory.engine import Agenda, Processes, VirtualTimers


class Node:
    """A role with timers, and what fired when."""

    def __init__(self) -> None:
        self.agenda = Agenda()
        self.processes = Processes(self.agenda)
        self.fired: list[tuple[str, float]] = []
        self.timers = VirtualTimers(
            self.agenda, self.processes, "node", lambda tag: self.fired.append((tag, self.agenda.now))
        )

    def run(self) -> list[tuple[str, float]]:
        while self.agenda.do_next():
            pass
        return self.fired


@pytest.fixture
def node() -> Node:
    return Node()


def test_timers_fire_when_they_are_due_and_are_set_no_more(node: Node) -> None:
    node.timers.set("late", 3.0)
    node.timers.set("soon", 1.0)
    assert node.timers.due == {"late": 3.0, "soon": 1.0}
    assert node.run() == [("soon", 1.0), ("late", 3.0)]
    assert node.timers.due == {}


def test_a_timer_of_the_same_tag_replaces_the_one_before(node: Node) -> None:
    for at in (1.0, 3.0, 2.0):
        node.timers.set("tag", at)
    assert node.run() == [("tag", 2.0)]


def test_what_is_cancelled_or_closed_does_not_fire(node: Node) -> None:
    for tag in "abc":
        node.timers.set(tag, 1.0)
    node.timers.cancel("a")
    node.timers.cancel("never set")
    assert sorted(node.timers.due) == ["b", "c"]
    node.timers.close()
    assert node.run() == []


def test_in_a_process_that_is_stopped_they_fire_when_it_goes_on_and_in_a_dead_one_never(node: Node) -> None:
    node.processes.stop("node", 5.0)
    node.timers.set("tag", 1.0)
    assert node.run() == [("tag", 5.0)]
    node.timers.set("tag", 6.0)
    node.processes.kill("node")
    assert node.run() == [("tag", 5.0)]


def test_a_timer_that_is_cancelled_or_moved_while_its_process_is_stopped_does_not_fire_at_its_old_time() -> None:
    """It was due meanwhile, and waits behind what cancels it."""
    agenda = Agenda()
    processes, fired = Processes(agenda), list[tuple[str, float]]()
    timers = VirtualTimers(agenda, processes, "a", lambda tag: fired.append((tag, agenda.now)))
    timers.set("cancelled", 2.0)
    timers.set("moved", 2.0)
    processes.stop("a", 5.0)
    processes.do("a", timers.cancel, "cancelled")
    processes.do("a", timers.set, "moved", 9.0)
    while agenda.do_next():
        pass
    assert fired == [("moved", 9.0)]

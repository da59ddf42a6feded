"""What the interface of a host carries is said twice a second, as long as it carries anything."""

from __future__ import annotations

import pytest

from psplatform.core.protocol.messages import Carried
from psplatform.core.workers.counting import Counted, Counting


class Interface:
    """Counts what a test says; looked at when it is due."""

    def __init__(self) -> None:
        self.now, self.out, self.into = 0.0, 0, 0
        self.waiting: int | None = None
        self.looked = 0
        self.due: float | None = None
        self.said: list[Carried] = []
        self.counting = Counting("m", "h", self.read)

    def read(self) -> Counted:
        self.looked += 1
        return Counted(self.out, self.into, self.waiting)

    def wake(self) -> None:
        self.due = self.counting.wake(self.now) or self.due

    def run(self, seconds: float, out: float = 0, into: float = 0) -> list[Carried]:
        """Carry so many bytes per second for a while; return what was said."""
        self.said, end = [], self.now + seconds
        while self.due is not None and self.due <= end:
            self.out += round(out * (self.due - self.now))
            self.into += round(into * (self.due - self.now))
            self.now = self.due
            self.due, said = self.counting.go_on(self.now)
            self.said += [said] if said is not None else []
        self.out, self.into = self.out + round(out * (end - self.now)), self.into + round(into * (end - self.now))
        self.now = end
        return self.said


@pytest.fixture
def interface() -> Interface:
    return Interface()


def test_nothing_is_looked_at_before_something_happens(interface: Interface) -> None:
    assert interface.run(10.0, out=1e6) == []
    assert interface.looked == 0


def test_it_is_said_twice_a_second_what_is_carried(interface: Interface) -> None:
    interface.wake()
    said = interface.run(1.0, out=8e6, into=4e6)
    assert said == [Carried("m", "h", (0.125,) * 4, (1_000_000,) * 4, (500_000,) * 4)] * 2


def test_what_waits_to_go_out_is_said_with_it_where_that_is_known(interface: Interface) -> None:
    interface.wake()
    interface.waiting = 3000
    (said,) = interface.run(0.5, out=8e6)
    assert said == Carried("m", "h", (0.125,) * 4, (1_000_000,) * 4, (0,) * 4, (3000,) * 4)
    interface.run(0.25, out=8e6)
    interface.waiting = None
    (said,) = interface.run(0.25, out=8e6)
    assert said.waiting == (), "it is known of all samples or of none"


def test_it_is_looked_at_no_more_once_it_has_carried_nothing_for_ten_seconds(interface: Interface) -> None:
    interface.wake()
    interface.run(1.0, out=8e6)
    said = interface.run(60.0, out=1e3)
    assert sum(sum(one.seconds) for one in said) == 1.0, "after a second of nothing, nothing is said"
    assert (interface.due, interface.looked) == (None, 1 + 8 + 80)


@pytest.mark.parametrize("seconds", [5.0, 60.0])
def test_what_was_carried_meanwhile_is_said_when_there_is_more(interface: Interface, seconds: float) -> None:
    """So that no byte is left out: whether it was looked at all the time, or is woken again."""
    interface.wake()
    interface.run(1.0, out=8e6)
    interface.run(1.0 + seconds, out=80)
    interface.wake()
    (said,) = interface.run(0.375, out=8e6)
    assert said == Carried("m", "h", (seconds, *(0.125,) * 3), (round(80 * seconds), *(1_000_000,) * 3), (0,) * 4)


def test_to_be_woken_twice_changes_nothing(interface: Interface) -> None:
    interface.wake()
    assert interface.counting.wake(0.1) is None
    assert interface.looked == 1


def test_a_counter_that_begins_anew_is_taken_for_nothing(interface: Interface) -> None:
    """An interface that was taken away and came back for instance."""
    interface.wake()
    interface.run(0.5, out=8e6)
    interface.out = 0
    (said,) = interface.run(0.5)
    assert said.out == (0, 0, 0, 0)

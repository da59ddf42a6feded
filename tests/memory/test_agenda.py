"""The clock that jumps."""

from __future__ import annotations

from psplatform.memory.engine import Agenda


def test_entries_are_done_in_the_order_of_their_time_and_at_the_same_time_in_the_order_entered() -> None:
    agenda, done = Agenda(), list[str]()
    agenda.enter(2.0, lambda: done.append("late"))
    agenda.enter(1.0, lambda: done.append("first"))
    agenda.enter(1.0, lambda: done.append("second"))
    while agenda.do_next():
        pass
    assert done == ["first", "second", "late"]
    assert agenda.now == 2.0


def test_what_should_have_been_done_is_done_now() -> None:
    agenda, seen = Agenda(now=5.0), list[float]()
    agenda.enter_at(1.0, lambda: seen.append(agenda.now))
    agenda.do_next()
    assert seen == [5.0]

"""The clock that jumps."""

from __future__ import annotations

from psplatform.memory.engine import Agenda, Appointments


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


def test_an_appointment_made_again_replaces_the_first() -> None:
    agenda, kept = Agenda(), list[str]()
    appointments = Appointments(agenda)
    appointments.make("a", 1.0, lambda: kept.append("first"))
    appointments.make("a", 2.0, lambda: kept.append("second"))
    assert appointments.names == ["a"]
    while agenda.do_next():
        pass
    assert kept == ["second"]
    assert appointments.names == []


def test_a_cancelled_appointment_is_not_kept() -> None:
    agenda, kept = Agenda(), list[str]()
    appointments = Appointments(agenda)
    appointments.make("a", 1.0, lambda: kept.append("a"))
    assert appointments.cancel("a")
    assert not appointments.cancel("a")
    agenda.do_next()
    assert kept == []

"""The clock that jumps."""

from __future__ import annotations

from functools import partial

from psplatform.memory.engine import Agenda, Appointments, Processes


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


def test_one_that_waits_where_it_is_done_can_still_be_cancelled_and_replaced() -> None:
    """A process that is stopped has it in hand, and has not done it."""
    agenda, done = Agenda(), list[str]()
    processes = Processes(agenda)
    appointments = Appointments(agenda, partial(processes.do, "a"))
    appointments.make("cancelled", 2.0, done.append, "cancelled")
    appointments.make("replaced", 2.0, done.append, "before")
    processes.stop("a", 5.0)
    agenda.enter_at(3.0, appointments.cancel, "cancelled")
    agenda.enter_at(3.0, appointments.make, "replaced", 9.0, done.append, "after")
    while agenda.do_next():
        pass
    assert (done, agenda.now) == (["after"], 9.0)

"""Where no role is placed: processes in which one was lost, until one of them is heard again."""

from __future__ import annotations

from psplatform.core.supervision.unavailable import UnavailableProcesses


def test_the_process_of_a_lost_actor_is_avoided_until_it_is_heard() -> None:
    unavailable = UnavailableProcesses()
    unavailable.lose("server-1", "a")
    unavailable.lose("replica-0", "a")
    unavailable.lose("worker-3", "b")
    assert unavailable.addresses == {"a", "b"}
    assert unavailable.heard("replica-0")
    assert unavailable.addresses == {"b"}
    assert not unavailable.heard("server-1"), "once is enough"


def test_who_was_not_lost_changes_nothing() -> None:
    assert not UnavailableProcesses().heard("worker-1")


def test_a_process_that_ends_is_avoided_although_its_actors_are_heard() -> None:
    unavailable = UnavailableProcesses()
    unavailable.leave("a")
    unavailable.lose("server-1", "a")
    assert not unavailable.heard("server-1")
    assert unavailable.addresses == {"a"}

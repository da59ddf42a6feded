"""Where nobody is hired: processes in which somebody was lost, until one of them is heard again."""

from __future__ import annotations

from psplatform.runtime.pools.absent import Absent


def test_the_process_of_a_lost_actor_is_avoided_until_it_is_heard() -> None:
    absent = Absent()
    absent.lose("server-1", "a")
    absent.lose("replica-0", "a")
    absent.lose("worker-3", "b")
    assert absent.addresses == {"a", "b"}
    assert absent.heard("replica-0")
    assert absent.addresses == {"b"}
    assert not absent.heard("server-1"), "once is enough"


def test_who_was_not_lost_changes_nothing() -> None:
    assert not Absent().heard("worker-1")


def test_a_process_that_ends_is_avoided_although_its_actors_are_heard() -> None:
    absent = Absent()
    absent.leave("a")
    absent.lose("server-1", "a")
    assert not absent.heard("server-1")
    assert absent.addresses == {"a"}

"""The links of a server to its replicas: joining, in sync, and one transfer at a time."""

from __future__ import annotations

from functools import partial

from psplatform.core.shards.links import Links
from psplatform.replication.accounts import Account


def links(*replicas: str, most_updates: int = 2) -> Links:
    made = Links(partial(Account, most_updates=most_updates))
    for one in replicas:
        made.begin(one, 0)
    return made


def test_who_begins_with_the_server_is_in_sync() -> None:
    assert links("a", "b").in_sync == ("a", "b")


def test_who_is_included_joins_first_and_is_not_waited_for() -> None:
    made = links()
    made.include("a")
    for position in (1, 2, 3):
        made.add(position, 1.0)
    assert made.in_sync == ()
    assert (made.within, made.distance, made.lag) == (True, 0.0, 0)


def test_who_is_missing_is_waited_for_and_sent_nothing() -> None:
    """It keeps the server within the bound until it is excluded, and is no replica: nothing is written by it either."""
    made = links()
    made.miss("lost")
    for position in (1, 2):
        made.add(position, 1.0)
    assert made.within
    made.add(3, 1.0)
    assert not made.within
    assert (made.in_sync, made.wanting(3), made.archiving(), made.level_with(3)) == ((), None, None, None)
    assert not made.flying
    made.exclude("lost")
    assert made.within


def test_including_one_that_is_there_changes_nothing() -> None:
    made = links("a")
    made.include("a")
    assert made.in_sync == ("a",)


def test_one_that_was_excluded_is_not_included_by_what_comes_late() -> None:
    """It would be waited for, and nobody would exclude it again."""
    made = links("a", "b")
    made.exclude("a")
    assert made.include("a") is None
    assert made.replicas == ("b",)


def test_distance_and_lag_are_those_of_the_worst_in_sync() -> None:
    made = links("a", "b")
    made.add(1, 1.0)
    made.add(2, 2.0)
    link = made.get("a")
    assert link is not None
    link.flying = 1
    made.arrived("a", 1, 2)
    assert made.lag == 2
    assert made.distance >= 3.0
    made.exclude("b")
    assert (made.lag, made.distance) == (0, 0.0)


def test_who_wants_the_newest_state_is_behind_and_has_nothing_under_way() -> None:
    made = links("a")
    assert made.wanting(0) is None
    made.add(1, 1.0)
    link = made.wanting(1)
    assert link is not None
    assert link.replica == "a"
    link.flying = 1
    assert made.wanting(1) is None


def test_one_that_joins_wants_the_state_even_where_nothing_was_ever_staged() -> None:
    made = links()
    made.include("a")
    link = made.wanting(0)
    assert link is not None
    link.flying = 1
    assert made.arrived("a", 1, 0) is link
    assert made.in_sync == ("a",)


def test_one_is_in_sync_when_it_is_near_enough_to_the_newest_state() -> None:
    made = links(most_updates=1)
    made.include("a")
    link = made.get("a")
    assert link is not None
    link.flying = 1
    for position in (1, 2, 3):
        made.add(position, 1.0)
    assert made.arrived("a", 1, 1) is None
    link.flying = 2
    assert made.arrived("a", 2, 2) is link


def test_a_confirmation_of_another_transfer_is_no_confirmation() -> None:
    made = links("a")
    made.add(1, 1.0)
    assert made.arrived("a", 7, 1) is None
    assert made.arrived("stranger", 1, 1) is None
    assert made.lag == 1


def test_a_transfer_that_could_not_be_read_has_not_arrived() -> None:
    made = links("a")
    made.add(1, 1.0)
    link = made.wanting(1)
    assert link is not None
    link.flying = 1
    assert made.arrived("a", 1, -1) is None
    assert made.wanting(1) is link


def test_a_part_of_a_checkpoint_is_written_by_one_in_sync_that_is_not_busy() -> None:
    made = links("a", "b")
    made.include("c")
    first = made.get("a")
    assert first is not None
    first.flying = 1
    link = made.archiving()
    assert link is not None
    assert link.replica == "b"
    link.flying = 2
    assert made.archiving() is None


def test_one_is_level_that_lacks_nothing_of_a_state_and_no_other() -> None:
    made = links("a", "b")
    behind, level = made.get("a"), made.get("b")
    assert behind is not None
    assert level is not None
    behind.position, level.position = 1, 2
    assert made.level_with(2) is level
    assert made.level_with(3) is None

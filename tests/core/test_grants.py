"""Leases that tune themselves: several times the longest pause between beats lately."""

from __future__ import annotations

import pytest

from psplatform.core.supervision.leases import Grants


def beat(grants: Grants, name: str, *times: float) -> float:
    seconds = 0.0
    for at in times:
        given = grants.renew(name, at)
        assert given is not None
        seconds = given
    return seconds


@pytest.mark.parametrize(("longest_s", "first_s"), [(9.0, 3.0), (2.0, 2.0)])
def test_while_nothing_is_known_a_lease_is_a_multiple_of_the_shortest(longest_s: float, first_s: float) -> None:
    grants = Grants(1.0, longest_s)
    grants.watch("a", 0.0)
    assert beat(grants, "a", 0.1) == first_s


def test_a_lease_lasts_several_times_the_longest_recent_pause() -> None:
    grants = Grants(0.5, 9.0)
    grants.watch("a", 0.0)
    assert beat(grants, "a", 0.1, 0.2, 0.5, 0.6) == pytest.approx(1.5)


def test_a_lease_is_never_shorter_or_longer_than_the_limits() -> None:
    grants = Grants(0.5, 2.0)
    grants.watch("a", 0.0)
    assert beat(grants, "a", *(0.01 * number for number in range(1, 9))) == 0.5
    assert beat(grants, "a", 5.0) == 2.0


def test_a_pause_is_forgotten_in_time() -> None:
    grants = Grants(0.1, 9.0)
    grants.watch("a", 0.0)
    beat(grants, "a", 1.0)
    assert beat(grants, "a", *(1.0 + 0.01 * number for number in range(1, 300))) == 0.1


def test_what_passes_before_the_first_beat_is_no_pause() -> None:
    """A standby that is made on a busy machine opens a client first: seconds that say nothing of beats."""
    grants = Grants(1.0, 30.0)
    grants.watch("a", 0.0)
    assert beat(grants, "a", 4.0, 4.2, 4.4) == pytest.approx(1.0)
    grants.forget("a")
    grants.watch("a", 10.0)
    assert beat(grants, "a", 15.0, 15.3) == pytest.approx(1.5)


def test_a_pause_is_forgotten_after_some_seconds_however_seldom_there_are_beats() -> None:
    """One coordinator beats four times a second: a number of beats would remember its longest pause for a minute."""
    grants = Grants(1.0, 30.0)
    grants.watch("a", 0.0)
    assert beat(grants, "a", 1.0, 5.0) == pytest.approx(20.0)
    assert beat(grants, "a", *(5.0 + 0.25 * number for number in range(1, 79))) == pytest.approx(20.0)
    assert beat(grants, "a", *(24.5 + 0.25 * number for number in range(1, 5))) == pytest.approx(1.25)


def test_who_is_not_expected_gets_nothing() -> None:
    grants = Grants(1.0, 2.0)
    assert grants.renew("stranger", 0.0) is None
    grants.watch("a", 0.0)
    grants.forget("a")
    assert grants.renew("a", 0.1) is None


def test_silence_until_the_end_of_the_lease_is_noticed_once() -> None:
    grants = Grants(1.0, 2.0)
    for name in ("a", "b"):
        grants.watch(name, 0.0)
    beat(grants, "b", 1.5)
    assert grants.expire(1.9) == []
    assert grants.expire(2.0) == [("a", 2.0)]
    assert grants.expire(2.1) == []
    assert grants.expire(3.5) == [("b", 2.0)]


def test_a_lease_is_never_cut_short_by_a_later_one() -> None:
    """Its holder may act until the end of the first."""
    grants = Grants(1.0, 10.0)
    grants.watch("a", 0.0)
    assert beat(grants, "a", 0.1) == 3.0
    assert beat(grants, "a", 0.2) == 1.0
    assert grants.expire(3.0) == []
    assert [name for name, _ in grants.expire(3.2)] == ["a"]


def test_whoever_is_spared_has_as_long_as_the_longest_lease() -> None:
    grants = Grants(1.0, 10.0)
    for name in ("a", "b"):
        grants.watch(name, 0.0)
        beat(grants, name, 1.0)
    assert grants.expire(9.0, spared={"a"}) == [("b", 8.0)]
    assert grants.expire(10.9, spared={"a"}) == []
    assert grants.expire(11.0, spared={"a"}) == [("a", 10.0)]


def test_whoever_is_no_longer_spared_has_only_the_lease_it_was_given() -> None:
    grants = Grants(1.0, 10.0)
    grants.watch("a", 0.0)
    beat(grants, "a", 1.0)
    assert grants.expire(9.0, spared={"a"}) == []
    assert grants.expire(9.0) == [("a", 8.0)]


def test_watching_somebody_again_gives_no_further_time() -> None:
    grants = Grants(1.0, 2.0)
    grants.watch("a", 0.0)
    grants.watch("a", 1.5)
    assert grants.expire(2.0) == [("a", 2.0)]


# --- what whoever takes over must know ---


def test_no_lease_is_longer_than_the_ceiling() -> None:
    grants = Grants(1.0, 9.0, ceiling_s=2.0)
    grants.watch("a", 0.0)
    assert beat(grants, "a", 0.1) == 2.0


def test_the_longest_left_is_that_of_a_lease_held_or_of_the_next() -> None:
    grants = Grants(1.0, 9.0)
    assert grants.longest_left(5.0) == 3.0
    grants.watch("a", 0.0)
    beat(grants, "a", 0.1, 1.9)
    assert grants.longest_left(2.0) == pytest.approx(9.0)
    grants.ceiling_s = 1.0
    assert grants.longest_left(2.0) == pytest.approx(9.0), "what it would give if it might"


def test_a_successor_waits_for_the_longest_lease_that_the_one_before_may_have_given() -> None:
    grants = Grants(1.0, 9.0)
    grants.succeed(1.5)
    grants.watch("a", 0.0)
    assert grants.expire(1.4) == []
    assert grants.expire(1.5) == [("a", 1.5)]


def test_a_successor_that_has_heard_nothing_waits_for_the_longest_that_there_is() -> None:
    grants = Grants(1.0, 9.0)
    grants.succeed()
    grants.watch("a", 0.0)
    assert grants.expire(8.9) == []
    assert grants.expire(9.0) == [("a", 9.0)]


def test_what_is_inherited_does_not_lengthen_what_another_entitles_itself_to() -> None:
    grants = Grants(1.0, 9.0)
    grants.succeed(8.0)
    assert grants.first_s == 3.0

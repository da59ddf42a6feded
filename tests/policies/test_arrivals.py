"""From arrivals to samples of T(h, k)."""

from __future__ import annotations

import pytest

from psplatform.core.policy import Gradient
from psplatform.core.protocol.messages import Label
from psplatform.policies.estimates.arrivals import Arrivals


def at(*moments: float, compute_s: float = 1.0) -> list[Gradient]:
    """Return gradients that arrived at those times."""
    return [Gradient("w", 0, 1, Label((0,), (1,)), 1, 1.0, 1.0, compute_s, moment) for moment in moments]


def test_the_gradients_of_a_round_are_ranked_by_their_arrival_since_its_start() -> None:
    arrivals = Arrivals(late=False)
    arrivals.note(3, started_at=10.0, workers=4)
    samples = arrivals.close(3, 2, at(12.0, 11.0, 13.5))
    assert [tuple(one) for one in samples] == [(4, 2, 1, 1.0), (4, 2, 2, 2.0), (4, 2, 3, 3.5)]


def test_in_the_first_round_all_count_as_started_together_whenever_they_joined() -> None:
    """The second joined 7 s later; both took half a second beside computing."""
    arrivals = Arrivals(late=False)
    arrivals.note(0, started_at=0.0, workers=2)
    samples = arrivals.close(0, None, at(3.5, compute_s=3.0) + at(8.5, compute_s=1.0))
    assert [tuple(one) for one in samples] == [(2, 2, 1, 1.5), (2, 2, 2, 3.5)]


def test_after_a_round_of_more_than_now_live_everybody_is_ready() -> None:
    """A gradient whose worker has died since gives no rank above the number of the living."""
    arrivals = Arrivals(late=False)
    arrivals.note(1, started_at=0.0, workers=2)
    samples = arrivals.close(1, 4, at(1.0, 2.0, 3.0))
    assert [(one.before, one.rank) for one in samples] == [(2, 1), (2, 2)]


@pytest.mark.parametrize("then", [2, 4])
def test_nothing_is_learned_from_a_round_in_which_workers_joined_or_left(then: int) -> None:
    arrivals = Arrivals(late=True)
    arrivals.note(1, started_at=0.0, workers=3)
    arrivals.note(1, started_at=0.0, workers=then)
    arrivals.note_late(1, 2.5)
    assert arrivals.close(1, 3, at(1.0, 2.0)) == []


def test_a_round_that_began_before_a_restoration_gives_no_samples() -> None:
    assert Arrivals(late=False).close(5, 2, at(1.0)) == []


@pytest.mark.parametrize("late", [False, True])
def test_late_gradients_are_ranked_behind_those_in_time_only_if_asked(late: bool) -> None:
    arrivals = Arrivals(late=late)
    arrivals.note(0, started_at=0.0, workers=3)
    arrivals.close(0, 3, at(1.0))
    arrivals.note_late(0, 1.5)
    arrivals.note(1, started_at=1.0, workers=3)
    samples = arrivals.close(1, 1, at(2.0))
    assert [tuple(one) for one in samples] == [(3, 1, 1, 1.0)] + [(3, 3, 2, 1.5)] * late


def test_a_late_gradient_waits_until_its_round_is_closed() -> None:
    """Rounds are closed here only when all shards show them."""
    arrivals = Arrivals(late=True)
    for version in (0, 1, 2):
        arrivals.note(version, started_at=float(version), workers=3)
    arrivals.note_late(1, 2.5)
    assert len(arrivals.close(0, 3, at(1.0))) == 1
    assert [one.rank for one in arrivals.close(1, 1, at(1.2))] == [1, 2]

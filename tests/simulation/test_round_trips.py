"""A trace of whole round trips: the recorded pulls and pushes count, and one without them is refused."""

from __future__ import annotations

import pytest

from psplatform.errors import ConfigurationError
from psplatform.simulation.conditions import Conditions
from psplatform.simulation.round_trips import with_transfers

TRACE = "slot,sequence,seconds,pull_s,push_s,wait_s\n0,0,0.5,0.125,0.25,9\n1,0,0.25,,,\n"


def test_pulls_and_pushes_are_added_and_waiting_is_not() -> None:
    assert with_transfers(TRACE, "t").split() == ["slot,sequence,seconds", "0,0,0.875", "1,0,0.25"]


def test_a_round_trip_takes_longer_than_its_gradient() -> None:
    def seconds(**words: str) -> float:
        times = Conditions(**words).run_times(seed=0, workers=2, stragglers=None, read=lambda path: TRACE)
        return times.seconds(0, 0)

    assert seconds(compute="trace:t.csv") == 0.5
    assert seconds(round_trip="trace:t.csv") == 0.875


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("slot,sequence,seconds\n0,0,1\n", "trace t has no column pull_s or push_s, so it is of gradients only"),
        ("slot,sequence,seconds,pull_s,push_s\n0,0,1,x,0\n", "trace t, line 2: a time is no number"),
    ],
)
def test_a_trace_without_its_transfers_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        with_transfers(text, "t")

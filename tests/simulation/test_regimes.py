"""Slots that are slower for a while."""

from __future__ import annotations

import pytest

from psplatform.errors import ConfigurationError
from psplatform.jobs.distributions import Constant
from psplatform.simulation.regimes import Regime, Switching
from psplatform.simulation.run_times import Independent

OWN = Independent(Constant(1.0), seed=0)


def test_a_regime_holds_for_its_slots_from_its_first_iteration_to_before_its_end() -> None:
    times = Switching(OWN, (Regime(1, 2, 3.0, begin=4, end=6),))
    found = [[times.seconds(slot, number) for number in range(3, 7)] for slot in range(4)]
    assert found == [[1, 1, 1, 1], [1, 3, 3, 1], [1, 3, 3, 1], [1, 1, 1, 1]]


def test_regimes_that_hold_at_a_time_multiply() -> None:
    times = Switching(OWN, (Regime(0, 0, 3.0, 0, 2), Regime(0, 1, 0.5, 1, 3)))
    assert [times.seconds(0, number) for number in range(4)] == [3, 1.5, 0.5, 1]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ((2, 1, 3.0, 0, 1), "first=2 and last=1 are no range of slots"),
        ((-1, 1, 3.0, 0, 1), "no range of slots"),
        ((0, 1, 3.0, 5, 5), "from=5 and until=5 are no range of iterations"),
        ((0, 1, 0.0, 0, 1), "factor must be a finite number above 0, not 0.0"),
        ((0, 1, float("nan"), 0, 1), "factor must be a finite number above 0, not nan"),
    ],
)
def test_a_regime_that_never_holds_is_refused(fields: tuple[float, ...], sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Regime(*fields)  # type: ignore[arg-type]
    assert sentence in str(caught.value)

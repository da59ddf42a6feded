"""Several trainings in one picture."""

from __future__ import annotations

import math

import pytest

from psplatform.dashboard.comparison import Curve, draw, figure

SLOW = Curve("slow", ((1.0, 2.0), (9.0, 0.5)))
FAST = Curve("fast", ((0.5, 2.0), (1.0, None), (1.5, math.nan), (2.0, math.inf), (4.0, 0.25)))
NEVER = Curve("never", ())


def test_every_curve_is_a_line_of_what_was_measured_the_fastest_first() -> None:
    drawn = figure([SLOW, NEVER, FAST])
    assert [(one.name, list(one.x), list(one.y)) for one in drawn.data] == [
        ("fast", [0.5, 4.0], [2.0, 0.25]),
        ("slow", [1.0, 9.0], [2.0, 0.5]),
        ("never", [], []),
    ]


@pytest.mark.parametrize(("loss", "axis"), [(0.1, "log"), (0.0, "linear"), (-3.0, "linear")])
def test_losses_that_have_no_logarithm_are_drawn_as_they_are(loss: float, axis: str) -> None:
    assert figure([SLOW, Curve("other", ((1.0, loss),))]).layout.yaxis.type == axis


def test_the_page_needs_nothing_else() -> None:
    content = draw([SLOW, FAST])
    assert "<html>" in content
    assert '"name":"slow"' in content
    assert 'src="http' not in content

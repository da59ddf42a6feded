"""The best version and patience follow from the values of one metric, and never from a NaN."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psplatform.core.protocol.events import Evaluated
from psplatform.core.quality import Progress, Watch

VALUES = st.lists(st.one_of(st.floats(allow_infinity=False, width=32), st.just(math.nan)), max_size=30)


def fold(values: list[float], watch: Watch, margin: float = 0.0) -> Progress:
    progress = Progress()
    for version, value in enumerate(values):
        progress.note(Evaluated(version, None, None, {"m": value}), watch, margin)
    return progress


@given(VALUES, st.booleans())
def test_the_best_is_the_first_of_the_best_values(values: list[float], lower: bool) -> None:
    progress = fold(values, Watch("m", frozenset({"m"} if lower else ())))
    numbers = [value for value in values if not math.isnan(value)]
    best = (min(numbers) if lower else max(numbers)) if numbers else None
    assert progress.best == best
    assert progress.version == (values.index(best) if best is not None else -1)


@given(VALUES)
def test_without_a_margin_patience_counts_since_the_best(values: list[float]) -> None:
    progress = fold(values, Watch("m"))
    assert progress.waited == len(values) - 1 - progress.version


def test_small_steps_are_the_best_but_no_improvement() -> None:
    """A margin is what patience asks for; which version is the best does not depend on it."""
    progress = fold([1.0, 1.05, 1.1, 1.15], Watch("m"), margin=0.2)
    assert (progress.best, progress.version, progress.goal, progress.waited) == (1.15, 3, 1.0, 3)


@pytest.mark.parametrize("metric", ["loss", "accuracy", "m"])
def test_what_has_no_value_is_never_better(metric: str) -> None:
    watch = Watch(metric, keep=True)
    assert watch.value_of(Evaluated(1, None, None)) is None
    assert not watch.keeps(Evaluated(1, None, None), None)


def test_the_best_is_kept_only_where_that_is_asked_for() -> None:
    found = Evaluated(1, 0.5, None)
    assert Watch(keep=True).keeps(found, None)
    assert Watch(keep=True).keeps(found, 0.6)
    assert not Watch(keep=True).keeps(found, 0.5)
    assert not Watch().keeps(found, None)

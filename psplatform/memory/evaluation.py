"""Measuring and saving versions where time is virtual."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from psplatform.core.protocol.events import Evaluated, ModelSaved
from psplatform.memory.arithmetic import Arithmetic
from psplatform.memory.engine import Engine

EVALUATOR: Final = "evaluator"
"""The name that servers answer to; no gradient worker may join under it."""


class VirtualEvaluation:
    """Measures what the run's arithmetic holds for the evaluator, as long as the world says.

    Parameters
    ----------
    feed
        Takes the answers.
    """

    def __init__(self, engine: Engine, arithmetic: Arithmetic, feed: Callable[[Any], None]) -> None:
        self._agenda, self._arithmetic, self._world = engine.agenda, arithmetic, engine.world
        self._feed = feed

    def measure(self, version: int) -> None:
        """Answer with what it was found to be, when the time of an evaluation is over."""
        self._agenda.enter(self._world.evaluation_s(), self._feed, self._arithmetic.evaluate(version))

    def keep(self, found: Evaluated) -> None:
        """Keep it as the best so far."""
        self._arithmetic.keep(found.version)
        self._feed(replace(found, kept=True))

    def save(self, version: int) -> None:
        """Keep it as the result of the run."""
        self._arithmetic.save(version)
        self._feed(ModelSaved(version))

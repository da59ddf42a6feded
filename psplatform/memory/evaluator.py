"""Measures and saves versions of an in-memory run, pulling them as any worker does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from psplatform.core.effects import Evaluate
from psplatform.core.events import Evaluated, EvaluationFailed
from psplatform.core.messages import Pull, Pulled
from psplatform.core.pulling import Pulling
from psplatform.core.quality import Watch
from psplatform.memory.arithmetic import Arithmetic

EVALUATOR: Final = "evaluator"
"""The name that servers answer to; no gradient worker may join under it."""


class Evaluator:
    """Gathers one version from all shards, the same from each, and measures it.

    Parameters
    ----------
    shards
        Number of shards.
    arithmetic
        Holds what was pulled, and measures it.
    exact
        Whether the shards have versions in common; else each one's newest is measured.
    watch
        What versions are compared by, and whether the best is kept.
    """

    def __init__(self, shards: int, arithmetic: Arithmetic, *, exact: bool = True, watch: Watch | None = None) -> None:
        self._pulling = Pulling(EVALUATOR, shards, exact)
        self._arithmetic = arithmetic
        self._watch = watch or Watch()
        self._order: Evaluate | None = None

    def begin(self, order: Evaluate) -> list[Pull]:
        """Return the requests that fetch what `order` asks for; an order before it is given up."""
        self._order = order
        return self._pulling.begin(order.version)

    def on_pulled(self, answer: Pulled, content: Any) -> list[Pull]:
        """Take an answer with its content; return the requests it makes necessary."""
        if self._pulling.expects(answer):
            self._arithmetic.load(EVALUATOR, answer.shard, content)
        return self._pulling.on_pulled(answer)

    def moved(self, shard: int, epoch: int) -> list[Pull]:
        """Note that a shard has another server; return what must be asked of it."""
        return self._pulling.moved(shard, epoch, pulling=self._order is not None)

    def take_result(self) -> Evaluated | EvaluationFailed | None:
        """Return the result once, when the version is complete; else ``None``."""
        order, label = self._order, self._pulling.label
        if order is None or label is None:
            return None
        self._order = None
        if not order.measure:
            return Evaluated(label.version, None, None)
        found = self._arithmetic.evaluate(label.version)
        if isinstance(found, Evaluated) and self._watch.keeps(found, order.best):
            self._arithmetic.keep(label.version)
            return replace(found, kept=True)
        return found

"""Which evaluated version is the best, and for how long none has been better: pure bookkeeping of evaluations."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psplatform.core.protocol.events import Evaluated


@dataclass(frozen=True, slots=True)
class Watch:
    """What versions are compared by.

    Attributes
    ----------
    metric
        ``loss``, ``accuracy`` or the name of a metric.
    lower
        The names of what is better when it is lower.
    keep
        Whether the model of the best version is saved beside the last.
    """

    metric: str = "loss"
    lower: frozenset[str] = frozenset({"loss"})
    keep: bool = False

    def value_of(self, found: Evaluated) -> float | None:
        """Return the value of the metric, ``None`` where it has none."""
        return found.values.get(self.metric)

    def keeps(self, found: Evaluated, best: float | None) -> bool:
        """Return whether the model of this version is to be saved, where `best` is the best value before."""
        return self.keep and self.is_better(self.value_of(found), best)

    def is_better(self, value: float | None, than: float | None, margin: float = 0.0) -> bool:
        """Return whether `value` is better by more than `margin`; anything is better than nothing, NaN never is."""
        if value is None or math.isnan(value):
            return False
        if than is None:
            return True
        return value < than - margin if self.metric in self.lower else value > than + margin


@dataclass(slots=True)
class Progress:
    """What evaluations have shown so far.

    Attributes
    ----------
    best, version
        The best value, and the version that has it; ``None`` and -1 before there is one.
    goal
        The value that the next one must be better than, by the margin, for patience to begin anew.
    waited
        Evaluations in a row that were not.
    """

    best: float | None = None
    version: int = -1
    goal: float | None = None
    waited: int = 0

    def note(self, found: Evaluated, watch: Watch, margin: float) -> None:
        """Take the next evaluation."""
        value = watch.value_of(found)
        if watch.is_better(value, self.best):
            self.best, self.version = value, found.version
        if watch.is_better(value, self.goal, margin):
            self.goal, self.waited = value, 0
        else:
            self.waited += 1

    def to_plain(self, watch: Watch) -> dict[str, Any]:
        """Return the fields, and what `watch` compares by."""
        return {"metric": watch.metric, "lower": watch.metric in watch.lower, "values": dataclasses.astuple(self)}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any] | None, watch: Watch) -> Progress:
        """Return what `to_plain` described, or a new one where versions were compared by something else."""
        same = plain and (plain["metric"], plain["lower"]) == (watch.metric, watch.metric in watch.lower)
        return cls(*plain["values"]) if plain and same else cls()

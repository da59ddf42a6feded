"""Staleness of what was applied: the version before the commit minus the one that the gradient was computed on."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from psplatform.dashboard.read_models.batches import Batch
from psplatform.dashboard.read_models.envelopes import Curve, Envelope


@dataclass(frozen=True, slots=True)
class DelayRows:
    """Staleness over time, one value for each applied gradient, in versions."""

    staleness: Curve


class StalenessOverTime:
    """Folds commits.  The histogram over the whole run is part of the run's summary (`telemetry.measures.Delays`)."""

    def __init__(self) -> None:
        self._staleness = Envelope()

    def take(self, batch: Batch) -> None:
        """Fold the next records."""
        delays = batch.column("commit", "staleness")
        counts = [len(one) for one in delays]
        self._staleness.extend(
            _repeated(batch.times("commit"), counts),
            _repeated(batch.column("commit", "version"), counts),
            list(chain.from_iterable(delays)),
        )

    @property
    def rows(self) -> DelayRows:
        """What is known so far."""
        return DelayRows(self._staleness.curve)


def _repeated(values: list[float], counts: list[int]) -> list[float]:
    return [value for value, count in zip(values, counts, strict=True) for _ in range(count)]

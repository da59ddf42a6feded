"""How training goes: losses and accuracies against updates and seconds, and updates per second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from psplatform.dashboard.read_models.batches import Batch
from psplatform.dashboard.read_models.counts import Counts, CountsOverTime
from psplatform.dashboard.read_models.envelopes import Curve, Envelope

MOST_METRICS: Final = 8
"""Curves of named metrics: more cannot be told apart in one figure."""


@dataclass(frozen=True, slots=True)
class ConvergenceRows:
    """What is known of a run's progress.

    Attributes
    ----------
    training
        Mean loss of each commit's gradients.
    held_out, accuracy
        Loss and accuracy (a share) of the evaluated versions.
    metrics
        What else they were measured by, by name, the first `MOST_METRICS` of them.
    commits
        Commits per stretch of time, under the key ``commits``.
    """

    training: Curve
    held_out: Curve
    accuracy: Curve
    metrics: Mapping[str, Curve]
    commits: Counts


class Convergence:
    """Folds commits and evaluations."""

    def __init__(self) -> None:
        self._training, self._held_out, self._accuracy = Envelope(), Envelope(), Envelope()
        self._metrics: dict[str, Envelope] = {}
        self._commits = CountsOverTime()

    def take(self, batch: Batch) -> None:
        """Fold the next records."""
        at = batch.times("commit")
        self._commits.reach(batch.clock.newest_s)
        self._commits.add("commits", at)
        self._training.extend(at, batch.column("commit", "version"), batch.column("commit", "loss"))
        at, version = batch.times("evaluated"), batch.column("evaluated", "version")
        self._held_out.extend(at, version, batch.column("evaluated", "loss"))
        self._accuracy.extend(at, version, batch.column("evaluated", "accuracy"))
        self._take_metrics(at, version, [record.get("metrics") or {} for record in batch.of("evaluated")])

    def _take_metrics(
        self, at: Sequence[float], version: Sequence[float], found: Sequence[Mapping[str, float]]
    ) -> None:
        # What is no mapping of names to numbers is refused by the view, which takes each batch first.
        for name in dict.fromkeys(name for one in found for name in one):
            if name not in self._metrics and len(self._metrics) < MOST_METRICS:
                self._metrics[name] = Envelope()
        for name, curve in self._metrics.items():
            known = [place for place, one in enumerate(found) if name in one]
            curve.extend(
                [at[one] for one in known], [version[one] for one in known], [found[one][name] for one in known]
            )

    @property
    def rows(self) -> ConvergenceRows:
        """What is known so far."""
        metrics = {name: curve.curve for name, curve in self._metrics.items()}
        return ConvergenceRows(
            self._training.curve, self._held_out.curve, self._accuracy.curve, metrics, self._commits.rows
        )

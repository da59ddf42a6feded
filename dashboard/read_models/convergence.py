"""How training goes: losses and accuracies against updates and seconds, and updates per second."""

from __future__ import annotations

from dataclasses import dataclass

from psplatform.dashboard.read_models.batches import Batch
from psplatform.dashboard.read_models.counts import Counts, CountsOverTime
from psplatform.dashboard.read_models.envelopes import Curve, Envelope


@dataclass(frozen=True, slots=True)
class ConvergenceRows:
    """What is known of a run's progress.

    Attributes
    ----------
    training
        Mean loss of each commit's gradients.
    held_out, accuracy
        Loss and accuracy (a share) of the evaluated versions.
    commits
        Commits per stretch of time, under the key ``commits``.
    """

    training: Curve
    held_out: Curve
    accuracy: Curve
    commits: Counts


class Convergence:
    """Folds commits and evaluations."""

    def __init__(self) -> None:
        self._training, self._held_out, self._accuracy = Envelope(), Envelope(), Envelope()
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

    @property
    def rows(self) -> ConvergenceRows:
        """What is known so far."""
        return ConvergenceRows(self._training.curve, self._held_out.curve, self._accuracy.curve, self._commits.rows)

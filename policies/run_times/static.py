"""No prediction: always the same cutoff."""

from __future__ import annotations

from psplatform.policies.run_times.predictor import Choice, Observation, Predictor, Slots


class Static(Predictor):
    """Wait for the c fastest workers, or for all where fewer are alive."""

    def __init__(self, cutoff: int) -> None:
        self._cutoff = cutoff

    def choose(self, slots: Slots) -> Choice:
        """Return the given cutoff."""
        return Choice(min(self._cutoff, len(slots)), "fixed")

    def observe(self, seen: Observation) -> None:
        """Learn nothing."""

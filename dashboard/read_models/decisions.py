"""What the policy decided at each commit, and the reasons that it gave."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from psplatform.dashboard.read_models.batches import Batch
from psplatform.dashboard.read_models.envelopes import Curve, Envelope
from psplatform.telemetry.words import shortened

NEWEST: Final = 100
MOST_FIGURES: Final = 16


@dataclass(frozen=True, slots=True)
class Decision:
    """One commit: how many gradients it took, the factor on the learning rate, what was decided and why."""

    at: float
    version: int
    gradients: int
    rate: float
    figures: str
    reason: str


@dataclass(frozen=True, slots=True)
class DecisionRows:
    """The decisions of a run.

    Attributes
    ----------
    rate
        Factor on the learning rate, the schedule included.
    gradients
        Gradients that each commit took.
    figures
        By name, the figures that the policy gives with its decisions: k, c, bound and so on; of more than
        `MOST_FIGURES` names, the first.
    newest
        The last commits, newest first.
    """

    rate: Curve
    gradients: Curve
    figures: dict[str, Curve]
    newest: tuple[Decision, ...]


class Decisions:
    """Folds commits."""

    def __init__(self) -> None:
        self._rate, self._gradients = Envelope(), Envelope()
        self._figures: dict[str, Envelope] = {}
        self._newest: deque[Decision] = deque(maxlen=NEWEST)

    def take(self, batch: Batch) -> None:
        """Fold the next records."""
        at, version, rate = batch.times("commit"), batch.column("commit", "version"), batch.column("commit", "rate")
        counts = [len(slots) for slots in batch.column("commit", "slots")]
        self._rate.extend(at, version, rate)
        self._gradients.extend(at, version, counts)
        records = batch.of("commit")
        self._take_figures(at, version, [record.get("decision") or {} for record in records])
        for place in range(max(0, len(records) - NEWEST), len(records)):
            decided = records[place].get("decision") or {}
            words = shortened(", ".join(f"{name} = {value:g}" for name, value in decided.items()))
            reason = shortened(records[place].get("reason", ""))
            self._newest.appendleft(Decision(at[place], version[place], counts[place], rate[place], words, reason))

    def _take_figures(self, at: list[float], version: list[int], decided: list[dict[str, float]]) -> None:
        # In the order in which names first appear: which ones there is room for must not depend on the batches.
        for name in dict.fromkeys(name for one in decided for name in one):
            if name not in self._figures and len(self._figures) >= MOST_FIGURES:
                continue
            places = [place for place, one in enumerate(decided) if name in one]
            self._figures.setdefault(name, Envelope()).extend(
                [at[place] for place in places],
                [version[place] for place in places],
                [decided[place][name] for place in places],
            )

    @property
    def rows(self) -> DecisionRows:
        """What is known so far."""
        figures = {shortened(name): one.curve for name, one in sorted(self._figures.items())}
        return DecisionRows(self._rate.curve, self._gradients.curve, figures, tuple(self._newest))

"""How gradients went to the servers and parameters to workers, where transfers are planned.

What crossed which interface is part of the run's summary (`telemetry.transfers.Interfaces`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from psplatform.dashboard.read_models.batches import Batch
from psplatform.dashboard.read_models.envelopes import Curve, Envelope

EXACT: Final = 64
"""Gradients in a vector up to which vectors are counted by their number; above, by the power of two below it."""

POINTS: Final = 128
"""Of each curve: two are drawn over each other, with what lies between their extremes."""


@dataclass(frozen=True, slots=True)
class Seconds:
    """How long transfers took and were to take, over the time at which they had ended, each value for one transfer."""

    took: Curve
    planned: Curve


@dataclass(frozen=True, slots=True)
class NetworkRows:
    """What is known of transfers.

    Attributes
    ----------
    gradients
        Of vectors that came to the servers, those that the planner had a time for.
    parameters
        Of pulls: all of them, and what the planner expected of those that it had a time for.
    sizes
        Vectors by the number of gradients that they are made of.
    """

    gradients: Seconds
    parameters: Seconds
    sizes: Mapping[int, int]


class Network:
    """Folds ``transfer`` and ``pull`` records."""

    def __init__(self) -> None:
        self._gradients, self._parameters = ((Envelope(POINTS), Envelope(POINTS)) for _ in range(2))
        self._sizes: Counter[int] = Counter()

    def take(self, batch: Batch) -> None:
        """Fold the next records."""
        for size, count in Counter(map(len, batch.column("transfer", "slots"))).items():
            self._sizes[size if size < EXACT else 1 << size.bit_length() - 1] += count
        at, took_s, planned_s = _columns(batch, "transfer")
        known = [place for place, one in enumerate(planned_s) if one is not None]
        _extend(self._gradients[0], at, took_s, known)
        _extend(self._gradients[1], at, planned_s, known)
        at, took_s, planned_s = _columns(batch, "pull")
        _extend(self._parameters[0], at, took_s, range(len(at)))
        _extend(self._parameters[1], at, planned_s, [place for place, one in enumerate(planned_s) if one is not None])

    @property
    def rows(self) -> NetworkRows:
        """What is known so far."""
        gradients, parameters = (
            Seconds(took.curve, planned.curve) for took, planned in (self._gradients, self._parameters)
        )
        return NetworkRows(gradients, parameters, dict(sorted(self._sizes.items())))


def _columns(batch: Batch, kind: str) -> tuple[list[float], list[float], list[float | None]]:
    return batch.times(kind), batch.column(kind, "took_s"), batch.column(kind, "planned_s")


def _extend(curve: Envelope, at: Sequence[float], values: Sequence[float | None], places: Sequence[int]) -> None:
    """Add the values in these places; no version goes with them."""
    curve.extend([at[place] for place in places], [0] * len(places), [values[place] for place in places])

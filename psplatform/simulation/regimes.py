"""Slots that are slower for a while, and then no longer: what a policy that learns must unlearn."""

from __future__ import annotations

from dataclasses import dataclass

from psplatform.errors import ConfigurationError
from psplatform.jobs.clauses import require_positive
from psplatform.simulation.run_times import RunTimes


@dataclass(frozen=True, slots=True)
class Regime:
    """The slots `first` to `last` take `factor` times as long in the iterations from `begin` to before `end`."""

    first: int
    last: int
    factor: float
    begin: int
    end: int

    def __post_init__(self) -> None:
        require_positive("regime", "factor", self.factor)
        if not 0 <= self.first <= self.last:
            raise ConfigurationError(f"regime: first={self.first} and last={self.last} are no range of slots")
        if not 0 <= self.begin < self.end:
            raise ConfigurationError(f"regime: from={self.begin} and until={self.end} are no range of iterations")

    def holds(self, slot: int, iteration: int) -> bool:
        """Whether that iteration of the slot is slow."""
        return self.first <= slot <= self.last and self.begin <= iteration < self.end


@dataclass(frozen=True, slots=True)
class Switching:
    """Times of `base` under regimes; several at a time multiply."""

    base: RunTimes
    regimes: tuple[Regime, ...]

    def seconds(self, slot: int, iteration: int) -> float:
        """Return the time of that slot and iteration."""
        seconds = self.base.seconds(slot, iteration)
        for regime in self.regimes:
            if regime.holds(slot, iteration):
                seconds *= regime.factor
        return seconds

"""Gradients that wait for the commit of their round."""

from __future__ import annotations

from dataclasses import dataclass, field

from psplatform.core.policy import Gradient


@dataclass
class Pool:
    """The gradients of the current round, at most one per (slot, sequence)."""

    _gradients: dict[tuple[int, int], Gradient] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._gradients)

    def holds(self, slot: int, sequence: int) -> bool:
        """Whether that gradient is in."""
        return (slot, sequence) in self._gradients

    def holds_any_of(self, slot: int) -> bool:
        """Whether a gradient of that slot is in."""
        return any(key[0] == slot for key in self._gradients)

    def add(self, gradient: Gradient) -> None:
        """Put a gradient in; the same one twice is one."""
        self._gradients[gradient.slot, gradient.sequence] = gradient

    def take(self, slot: int, sequence: int) -> Gradient | None:
        """Take that gradient out."""
        return self._gradients.pop((slot, sequence), None)

    def drain(self) -> tuple[Gradient, ...]:
        """Take all gradients out, in the order of their slots: sums never depend on the order of arrival."""
        gradients = tuple(self._gradients[key] for key in sorted(self._gradients))
        self._gradients.clear()
        return gradients

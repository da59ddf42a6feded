"""What servers and workers of an in-memory run compute; here nothing at all, in `training` with real tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from psplatform.core.effects import Compute
from psplatform.core.events import Computed, ComputeFailed, Evaluated, EvaluationFailed
from psplatform.core.messages import Contribution


class Arithmetic(Protocol):
    """The computing half of all servers and workers of one run."""

    def compute(self, member: str, effect: Compute, seconds: float) -> Computed | ComputeFailed:
        """Compute a gradient on what `member` loaded last."""

    def expose(self, member: str, slot: int, sequence: int) -> None:
        """Let every shard reach the gradient just computed."""

    def gather(self, shard: int, contributions: tuple[Contribution, ...], *, norms: bool) -> tuple[float, ...]:
        """Average gradients; return squared norms per block if asked."""

    def stage(self, shard: int, factor: float, rate: float) -> None:
        """Compute the next state beside the visible one."""

    def publish(self, shard: int, version: int) -> None:
        """Make the staged state visible."""

    def snapshot(self, shard: int) -> Any:
        """Return the visible content of a shard as it is now."""

    def load(self, member: str, shard: int, content: Any) -> None:
        """Put a shard's content into the member's parameters."""

    def evaluate(self, version: int) -> Evaluated | EvaluationFailed:
        """Measure what the evaluator loaded last, which is `version`."""

    def save(self, version: int) -> None:
        """Keep what the evaluator loaded last, which is `version`, as the result of the run."""

    def forget(self, member: str) -> None:
        """Note that the member is gone; its exposed gradients stay."""


class Metadata:
    """No arrays at all: losses and norms come from functions.

    Parameters
    ----------
    outcome
        Loss and squared norm of a gradient.
    samples
        Samples in a batch.
    measure
        Held-out loss and accuracy of a version.
    """

    def __init__(
        self,
        outcome: Callable[[int, int], tuple[float, float]] = lambda slot, sequence: (1.0, 1.0),
        samples: int = 1,
        measure: Callable[[int], tuple[float | None, float | None]] = lambda version: (None, None),
    ) -> None:
        self._outcome = outcome
        self._samples = samples
        self._measure = measure

    def compute(self, member: str, effect: Compute, seconds: float) -> Computed | ComputeFailed:
        """Invent a gradient's figures."""
        loss, squared_norm = self._outcome(effect.slot, effect.sequence)
        return Computed(effect.sequence, self._samples, loss, squared_norm, seconds)

    def expose(self, member: str, slot: int, sequence: int) -> None:
        """There is nothing to expose."""

    def gather(self, shard: int, contributions: tuple[Contribution, ...], *, norms: bool) -> tuple[float, ...]:
        """Pretend that every mean gradient has norm 1 on every shard."""
        return (1.0,) if norms else ()

    def stage(self, shard: int, factor: float, rate: float) -> None:
        """There is no state."""

    def publish(self, shard: int, version: int) -> None:
        """There is no state."""

    def snapshot(self, shard: int) -> Any:
        """Return an empty content."""
        return ()

    def load(self, member: str, shard: int, content: Any) -> None:
        """There are no parameters."""

    def evaluate(self, version: int) -> Evaluated | EvaluationFailed:
        """Invent a measurement."""
        return Evaluated(version, *self._measure(version))

    def save(self, version: int) -> None:
        """There is no model."""

    def forget(self, member: str) -> None:
        """Nothing was kept."""

"""What servers and workers of an in-memory run compute; here nothing at all, in `training` with real tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from psplatform.core.protocol.effects import Archive, Compute, Seal
from psplatform.core.protocol.events import Computed, ComputeFailed, Evaluated, EvaluationFailed
from psplatform.core.protocol.messages import Bundle, Contribution, Transfer


class Arithmetic(Protocol):
    """The computing half of all copies of shards and of all workers of one run."""

    def open_copy(self, copy: str, shard: int) -> None:
        """Make a copy of a shard, in the state in which the run begins."""

    def compute(self, member: str, effect: Compute, seconds: float) -> Computed | ComputeFailed:
        """Compute a gradient on what `member` loaded last."""

    def expose(self, member: str, slot: int, sequence: int) -> None:
        """Let every shard reach the gradient just computed."""

    def send_part(self, member: str, sequence: int, bundle: Bundle) -> bool:
        """Let the aggregator of a bundle have what `member` computed last, which is to be gradient `sequence`.

        Return whether it was there.
        """

    def sum_up(self, bundle: Bundle, gradients: tuple[Contribution, ...]) -> None:
        """Sum what an aggregator has of a bundle, in this order, and let every shard reach that."""

    def forget_parts(self, bundle: Bundle) -> None:
        """Forget what an aggregator has of a bundle; a sum that shards can reach stays."""

    def forget_sum(self, bundle: Bundle) -> None:
        """Forget the sum of a bundle, which no shard needs any more."""

    def gather(
        self, copy: str, contributions: tuple[Contribution, ...], *, norms: bool, updates: int = 1
    ) -> tuple[float, ...] | None:
        """Average gradients; return the mean's squared norms per block if asked, or ``None`` if one of them is gone.

        With several `updates`, add them up instead.
        """

    def stage(self, copy: str, factor: float, rate: float) -> float:
        """Compute the next state beside the visible one; return the norm of the step."""

    def publish(self, copy: str, version: int) -> None:
        """Make the staged state visible."""

    def skip(self, copy: str, version: int) -> None:
        """Let what is visible be `version`."""

    def snapshot(self, copy: str) -> Any:
        """Return the visible content of a shard as it is now."""

    def capture(self, copy: str, transfer: Transfer) -> tuple[Any, int]:
        """Return what a transfer carries now, and how many bytes a replica gets by it."""

    def absorb(self, copy: str, transfer: Transfer, content: Any) -> bool:
        """Make what a transfer carried the state of a copy; return whether it could be read."""

    def archive(self, copy: str, effect: Archive) -> dict[str, Any]:
        """Put the newest state into the store; return what the manifest must say of it."""

    def seal(self, effect: Seal) -> int:
        """Write the manifest of a checkpoint; return the bytes of the whole, or raise `StoreError`."""

    def discard(self, number: int) -> None:
        """Remove from the store what was put there of a checkpoint that was given up, unless it was sealed."""

    def load(self, member: str, shard: int, content: Any) -> None:
        """Put a shard's content into the member's parameters."""

    def evaluate(self, version: int) -> Evaluated | EvaluationFailed:
        """Measure what the evaluator loaded last, which is `version`."""

    def save(self, version: int) -> None:
        """Keep what the evaluator loaded last, which is `version`, as the result of the run."""

    def keep(self, version: int) -> None:
        """Keep what the evaluator loaded last, which is `version`, as the best so far."""

    def forget(self, member: str) -> None:
        """Let a member go; its exposed gradients stay."""


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

    def open_copy(self, copy: str, shard: int) -> None:
        """There is nothing to make."""

    def compute(self, member: str, effect: Compute, seconds: float) -> Computed | ComputeFailed:
        """Invent a gradient's figures."""
        loss, squared_norm = self._outcome(effect.slot, effect.sequence)
        return Computed(effect.sequence, self._samples, loss, squared_norm, seconds)

    def expose(self, member: str, slot: int, sequence: int) -> None:
        """There is nothing to expose."""

    def send_part(self, member: str, sequence: int, bundle: Bundle) -> bool:
        """There is nothing to send."""
        return True

    def sum_up(self, bundle: Bundle, gradients: tuple[Contribution, ...]) -> None:
        """There is nothing to sum."""

    def forget_parts(self, bundle: Bundle) -> None:
        """There is nothing to forget."""

    def forget_sum(self, bundle: Bundle) -> None:
        """There is nothing to forget."""

    def gather(
        self, copy: str, contributions: tuple[Contribution, ...], *, norms: bool, updates: int = 1
    ) -> tuple[float, ...] | None:
        """Pretend that every mean gradient has norm 1 on every shard."""
        return (1.0,) if norms else ()

    def stage(self, copy: str, factor: float, rate: float) -> float:
        """There is no state; every step is as long as another."""
        return 1.0

    def publish(self, copy: str, version: int) -> None:
        """There is no state."""

    def skip(self, copy: str, version: int) -> None:
        """There is no state."""

    def snapshot(self, copy: str) -> Any:
        """Return an empty content."""
        return ()

    def capture(self, copy: str, transfer: Transfer) -> tuple[Any, int]:
        """Return an empty content."""
        return (), 0

    def absorb(self, copy: str, transfer: Transfer, content: Any) -> bool:
        """There is no state."""
        return True

    def archive(self, copy: str, effect: Archive) -> dict[str, Any]:
        """There is nothing to keep but the position."""
        return {"position": effect.position}

    def seal(self, effect: Seal) -> int:
        """There is nothing to seal."""
        return 0

    def discard(self, number: int) -> None:
        """There is nothing to remove."""

    def load(self, member: str, shard: int, content: Any) -> None:
        """There are no parameters."""

    def evaluate(self, version: int) -> Evaluated | EvaluationFailed:
        """Invent a measurement."""
        return Evaluated(version, *self._measure(version))

    def save(self, version: int) -> None:
        """There is no model."""

    def keep(self, version: int) -> None:
        """There is no model."""

    def forget(self, member: str) -> None:
        """Nothing was kept."""

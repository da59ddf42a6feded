"""What nodes need of the world that they live in."""

from __future__ import annotations

from typing import Protocol

from psplatform.core.effects import Compute, Expose
from psplatform.core.events import Evaluated


class Timers(Protocol):
    """Wakes a node up: whoever makes the timers says what happens when one is due."""

    def set(self, tag: str, at: float) -> None:
        """Wake the node under `tag` at that time of its own clock, and not at the one set before under it."""

    def cancel(self, tag: str) -> None:
        """Forget the time set under `tag`, if there is one."""

    def close(self) -> None:
        """Wake nobody any more."""


class Gradients(Protocol):
    """Computes a worker's gradients, and lets servers reach them."""

    def compute(self, effect: Compute) -> None:
        """Begin a gradient; `Computed`, `ComputeAborted` or `ComputeFailed` answers."""

    def cancel(self, sequence: int) -> None:
        """Interrupt that gradient, if it is still being computed: `ComputeAborted` answers then."""

    def expose(self, effect: Expose, counter: int) -> None:
        """Let servers reach the gradient that contributes to the version after `counter`; `Reachable` answers.

        Once for all shards; or, where blocks are merged one by one, as soon as it is so for some of them.
        """

    def close(self) -> None:
        """Compute nothing more, and give up what is on its way."""


class Evaluation(Protocol):
    """Measures and saves the version that was fetched last; it does one of these at a time."""

    def measure(self, version: int) -> None:
        """Measure it on held-out data; `Evaluated` or `EvaluationFailed` answers."""

    def keep(self, found: Evaluated) -> None:
        """Save it as the best so far; `found` answers, with whether it was saved, or why not."""

    def save(self, version: int) -> None:
        """Save it as the result of the run; `ModelSaved` or `SaveFailed` answers."""

"""What simulations say to expect of jobs: rows of what ``psplatform simulate --json`` prints, not of a log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Expected:
    """What a simulation says to expect of a job.

    Attributes
    ----------
    seconds
        Virtual seconds to the end.
    reached
        Whether that is the target; ``None`` where the job has none.
    staleness_mean, staleness_max
        In versions.
    dropped
        Share of the computed gradients.
    curve
        Virtual seconds, updates and loss.
    """

    name: str
    seconds: float
    reached: bool | None
    updates: int
    staleness_mean: float
    staleness_max: int
    dropped: float
    waiting: float
    loss: float | None
    accuracy: float | None
    curve: tuple[tuple[float, int, float | None], ...]


def expected_of(name: str, summary: Mapping[str, Any]) -> Expected:
    """Return what a summary of a simulation says to expect."""
    computed = summary["gradients"] * summary.get("blocks", 1)
    curve = tuple((float(at), int(updates), loss) for at, updates, loss in summary.get("curve", ()))
    return Expected(
        name=name,
        seconds=summary["virtual_seconds"],
        reached=summary["reached_target"],
        updates=summary["updates"],
        staleness_mean=summary["staleness"]["mean"],
        staleness_max=summary["staleness"]["max"],
        dropped=summary["dropped"]["total"] / computed if computed else 0.0,
        waiting=summary["waiting_fraction"],
        loss=summary["evaluation_loss"],
        accuracy=summary["accuracy"],
        curve=curve,
    )

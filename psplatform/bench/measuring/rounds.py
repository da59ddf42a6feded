"""Systems that are measured one after the other, in rounds whose order alternates.

What the machine does besides, it does to all of them.  A ratio is one of the same round.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

Row = dict[str, Any]
Report = Callable[[Row], None]


@dataclass(frozen=True, slots=True)
class Measured:
    """One measurement.

    Attributes
    ----------
    ms
        Of one iteration: of a gradient of each worker.
    cpu_ms
        What all cores compute in it.
    by_role
        The same by role of the process, if known.
    """

    ms: float
    cpu_ms: float
    by_role: Mapping[str, float] = field(default_factory=dict)


def in_rounds(
    systems: Mapping[str, Callable[[], Measured]], rounds: int, report: Report | None = None
) -> dict[str, list[Measured]]:
    """Measure each system once in each round; return what was measured of each, in the order of the rounds."""
    found = defaultdict[str, list[Measured]](list)
    for number in range(rounds):
        for name, measure_one in reversed(list(systems.items())) if number % 2 else systems.items():
            found[name].append(measure_one())
            if report is not None:
                report({"round": number + 1, "system": name, "ms": found[name][-1].ms})
    return {name: found[name] for name in systems}


def spread(ratios: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    """Return the median of ratios, the lowest and the highest; nothing of none."""
    return (median(ratios), min(ratios), max(ratios)) if ratios else (None, None, None)

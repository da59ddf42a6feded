"""What the log of a run tells of its speed: as a whole, and around checkpoints."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any, Final

from psplatform.errors import ClusterError

Row = dict[str, Any]

WARM_UP: Final = 1 / 3
"""Part of a run that is not counted: a standby is made then, and the first transfers touch fresh memory."""

_CONFIDENCE: Final = 0.95


@dataclass(frozen=True, slots=True)
class Rates:
    """What is counted of one run: updates per second, bytes, and the mean norm of an update if that is known."""

    updates_per_second: float
    bytes_per_update: float
    step: float | None


def rates_of(records: list[Row], warm_up: float = WARM_UP) -> Rates:
    """Return what a run's log tells, that part at the run's beginning left out."""
    counted = _counted(records, warm_up)
    first, last = counted[0], counted[-1]
    updates = last["version"] - first["version"]
    steps = [record["divergence"] / record["lag"] for record in counted if record.get("lag")]
    seconds = last["at"] - first["at"]
    return Rates(
        updates_per_second=updates / seconds if seconds else math.nan,
        bytes_per_update=_bytes_per_update(counted),
        step=fmean(steps) if steps else None,
    )


def cost_of_checkpoints(records: list[Row], warm_up: float = WARM_UP) -> tuple[float, int]:
    """Return how many seconds longer a run of one shard takes for each checkpoint, and for how many that was measured.

    A checkpoint holds updates up, and brings the next transfer to the replica forward.  So what counts as disturbed
    begins with the last transfer before its cut was decided, and ends with the first one after it was complete.  How
    long that took is compared with what as many updates took between other transfers of the same run.  So what sets
    whole runs apart does not count, and a transfer counts only for coming early.

    A checkpoint that failed, or has no transfer before or behind it, is not measured, nor compared with; of one that
    was being written when the log ends, nothing is known.  With none measured, the seconds are NaN.
    """
    rows = _counted(records, warm_up)
    seconds = [0.0, *(now["at"] - before["at"] for before, now in pairwise(rows))]
    transfers = _transfers(rows) or list(range(len(rows)))
    near, measured, found = set[int](), set[int](), 0
    for one in records:
        if one["kind"] == "checkpoint":
            before = [row for row in transfers if rows[row]["at"] <= one["at"] - one["seconds"]]
            behind = [row for row in transfers if rows[row]["at"] >= one["at"]]
            window = range(max(before, default=transfers[0]) + 1, min(behind, default=transfers[-1]) + 1)
            near.update(window)
            if before and behind and one["event"] == "complete":
                measured.update(window)
                found += 1
    usual = [seconds[row] for row in range(transfers[0] + 1, transfers[-1] + 1) if row not in near]
    if not found or not usual:
        return math.nan, 0
    usual_s = fmean(usual)
    return sum(seconds[row] - usual_s for row in measured) / found, found


def _counted(records: list[Row], warm_up: float) -> list[Row]:
    """Return the commits after that part of the run."""
    applied = [record for record in records if record["kind"] == "applied"]
    if not applied:
        raise ClusterError("a run made no update in its time: give each run more seconds")
    begins_at = applied[0]["at"] + warm_up * (applied[-1]["at"] - applied[0]["at"])
    return [record for record in applied if record["at"] >= begins_at]


def _transfers(applied: list[Row]) -> list[int]:
    """Return the places of the commits behind which a transfer began."""
    sent = [record.get("to_replica_bytes", 0) for record in applied]
    return [place for place, (before, now) in enumerate(pairwise(sent)) if now > before]


def _bytes_per_update(applied: list[Row]) -> float:
    """Return it from one transfer to another, if there are two: from anywhere else it would depend on how many fit."""
    begun = _transfers(applied)
    first, last = applied[begun[0] if len(begun) > 1 else 0], applied[begun[-1] if len(begun) > 1 else -1]
    updates = last["version"] - first["version"]
    return (last.get("to_replica_bytes", 0) - first.get("to_replica_bytes", 0)) / updates if updates else math.nan


def interval(values: list[float]) -> tuple[float, float, float]:
    """Return an interval that holds the median of what `values` are drawn from, and how sure that is.

    Its ends are order statistics: the narrowest symmetric pair that is sure enough, or the extremes if none is.
    Source: W. Conover, "Practical nonparametric statistics", 1999, section 3.2.
    """
    ordered, count = sorted(values), len(values)

    def confidence(rank: int) -> float:
        return 1 - sum(math.comb(count, below) for below in range(rank + 1)) * 2.0 ** (1 - count)

    rank = 0
    while rank + 1 < count // 2 and confidence(rank + 1) >= _CONFIDENCE:
        rank += 1
    return ordered[rank], ordered[count - 1 - rank], max(0.0, confidence(rank))

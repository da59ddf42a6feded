"""Gradients that were not applied: when, why and whose."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import Final

from psplatform.dashboard.read_models.batches import Batch
from psplatform.dashboard.read_models.counts import MOST_KEYS, OTHER, Counts, CountsOverTime
from psplatform.telemetry.words import LONGEST_TEXT, shortened

NEWEST: Final = 100


@dataclass(frozen=True, slots=True)
class Dropped:
    """One gradient that was not applied: `reason` is its kind and `detail` what was said of this one."""

    at: float
    slot: int
    version: int
    label: int
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class DropRows:
    """What was dropped.

    Attributes
    ----------
    over_time
        Drops per stretch of time by reason.
    by_worker
        Counts by slot and reason.
    newest
        The last ones, newest first.
    """

    over_time: Counts
    by_worker: dict[int, dict[str, int]]
    newest: tuple[Dropped, ...]


class Drops:
    """Folds ``dropped`` records."""

    def __init__(self) -> None:
        self._over_time = CountsOverTime()
        self._by_worker: dict[int, Counter[str]] = {}
        self._reasons: set[str] = set()
        self._newest: deque[Dropped] = deque(maxlen=NEWEST)

    def take(self, batch: Batch) -> None:
        """Fold the next records."""
        self._over_time.reach(batch.clock.newest_s)
        at, slots, reasons = batch.times("dropped"), batch.column("dropped", "slot"), batch.column("dropped", "reason")
        reasons = [shortened(reason) if len(reason) > LONGEST_TEXT else reason for reason in reasons]
        known = [self._known(reason) for reason in reasons]
        for reason in sorted(set(known)):
            self._over_time.add(reason, [time for time, one in zip(at, known, strict=True) if one == reason])
        for slot, reason in zip(slots, known, strict=True):
            self._by_worker.setdefault(slot, Counter())[reason] += 1
        versions, labels = batch.column("dropped", "version"), batch.column("dropped", "label")
        details = [shortened(record.get("detail") or "") for record in batch.of("dropped")[-NEWEST:]]
        columns = [column[-NEWEST:] for column in (at, slots, versions, labels, reasons, details)]
        self._newest.extendleft(Dropped(*figures) for figures in zip(*columns, strict=True))

    def _known(self, reason: str) -> str:
        if reason not in self._reasons and len(self._reasons) >= MOST_KEYS - 1:
            return OTHER
        self._reasons.add(reason)
        return reason

    @property
    def rows(self) -> DropRows:
        """What is known so far."""
        by_worker = {slot: dict(sorted(counts.items())) for slot, counts in sorted(self._by_worker.items())}
        return DropRows(self._over_time.rows, by_worker, tuple(self._newest))

"""Consecutive records of a log by kind, on one clock over all lives of a run.

In the log each life of a run (from its start or a recovery on) counts its seconds from 0.  Here a life begins where the
one before ended, so that time never goes back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from psplatform.errors import ProtocolError
from psplatform.telemetry.segments import Record


@dataclass(frozen=True, slots=True)
class Clock:
    """Where a life of the run stands on the run's own time.

    Attributes
    ----------
    offset_s
        Seconds that the lives before took.
    newest_s
        Time of the newest record.
    """

    offset_s: float = 0.0
    newest_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive records of one life of a run.

    Attributes
    ----------
    clock
        As of the end of the batch.
    """

    clock: Clock
    _by_kind: dict[str, list[Record]] = field(default_factory=dict)
    _records: list[Record] = field(default_factory=list)

    def of(self, kind: str) -> list[Record]:
        """Return the records of a kind, in order."""
        return self._by_kind.get(kind, [])

    def among(self, kinds: Collection[str]) -> list[Record]:
        """Return the records of several kinds, in order."""
        if self._by_kind.keys().isdisjoint(kinds):
            return []
        return [record for record in self._records if record.get("kind", "") in kinds]

    def column(self, kind: str, name: str) -> list[Any]:
        """Return a field of every record of a kind.

        Raises
        ------
        ProtocolError
            If a record lacks it.
        """
        try:
            return [record[name] for record in self._by_kind.get(kind, [])]
        except KeyError:
            message = f"a log record of kind {kind!r} has no field {name!r}; read the log with the psplatform it is of"
            raise ProtocolError(message) from None

    def times(self, kind: str) -> list[float]:
        """Return when the records of a kind were written, in seconds of the run."""
        offset = self.clock.offset_s
        return [offset + at for at in self.column(kind, "at")]


def batches(records: Iterable[Record], clock: Clock) -> Iterator[Batch]:
    """Yield records as batches; the first continues at `clock`, and each ``run`` record begins another life."""
    by_kind: dict[str, list[Record]] = {}
    taken: list[Record] = []
    offset, newest = clock.offset_s, clock.newest_s
    for record in records:
        kind = record.get("kind", "")
        if kind == "run":
            if taken:
                yield Batch(Clock(offset, newest), by_kind, taken)
                by_kind, taken = {}, []
            offset = newest
        newest = max(newest, offset + record.get("at", 0.0))
        taken.append(record)
        same = by_kind.get(kind)
        if same is None:
            by_kind[kind] = [record]
        else:
            same.append(record)
    if taken:
        yield Batch(Clock(offset, newest), by_kind, taken)

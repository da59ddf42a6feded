"""Consecutive records of a log by kind, on one clock over all lives of a run.

In the log each life of a run (from its start or a recovery on) counts its seconds from 0.  Here a life begins where the
one before ended, so that time never goes back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, Final

from psplatform.errors import ProtocolError
from psplatform.telemetry.log.grouped import Grouped
from psplatform.telemetry.log.kinds import MOST_SLOTS, refused, require_kinds
from psplatform.telemetry.log.segments import Record

LONGEST_S: Final = 1e9
"""Time up to which a life of a run may last, thirty years: what counts over time has a loop over its doublings."""

_MOST: Final = 2**63
"""Below which numbers of terms and bounds are."""

_WITH_SLOT: Final = frozenset({"gradient", "dropped", "start", "aborted", "joined", "left", "lost"})


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


class Batch(Grouped):
    """Consecutive records of one life of a run.

    Parameters
    ----------
    before
        As of the end of the batch before; a ``run`` record, which only comes first, begins another life.

    Attributes
    ----------
    clock
        As of the end of this batch.

    Raises
    ------
    ProtocolError
        If the kind, the time, the slot, the term, the bound or a shard of a record is none; others are not looked at.
    """

    __slots__ = ("clock",)

    def __init__(self, records: Sequence[Record], before: Clock) -> None:
        super().__init__(records)
        _check(self)
        offset = before.newest_s if "run" in self.kinds else before.offset_s
        newest = (offset + max(_known(self, kind, "at"), default=0.0) for kind in self.kinds)
        self.clock = Clock(offset, max(before.newest_s, *newest))

    def times(self, kind: str) -> list[float]:
        """Return when the records of a kind were written, in seconds of the run."""
        at, offset = self.column(kind, "at"), self.clock.offset_s
        return [offset + one for one in at] if offset else at


def batches(records: Sequence[Record], clock: Clock) -> Iterator[Batch]:
    """Yield records as batches; the first continues at `clock`, and each ``run`` record begins another one."""
    whole = Batch(records, clock)
    if "run" not in whole.kinds:
        yield whole
        return
    lives = [place for place, record in enumerate(records) if record.get("kind", "") == "run"]
    for begin, end in pairwise(sorted({0, *lives, len(records)})):
        batch = Batch(records[begin:end], clock)
        clock = batch.clock
        yield batch


def _check(grouped: Grouped) -> None:
    """Refuse times, slots and counts that models break on; a field that lacks is noticed by the model that needs it."""
    for kind in grouped.kinds:
        if not isinstance(kind, str):
            raise refused(kind, "kind", kind)
        at = _known(grouped, kind, "at")
        # The sum tells where one is NaN, which compares as nothing.
        known = set(map(type, at)) <= {float, int}
        if at and not (known and min(at) >= 0 and max(at) < LONGEST_S and sum(at) >= 0):
            raise refused(kind, "at", _odd(at, LONGEST_S, float, int))
    for kind in _WITH_SLOT & grouped.kinds:
        _check_slots(kind, "slot", _known(grouped, kind, "slot"))
    _check_each("commit", "slots", _known(grouped, "commit", "slots"))
    _check_each("protection", "shards", _known(grouped, "protection", "shards"))
    _check_slots("run", "shards", _known(grouped, "run", "shards"))
    _check_slots("run", "term", _known(grouped, "run", "term"), _MOST)
    bounds = [one for one in _known(grouped, "run", "staleness_bound") if one is not None]
    _check_slots("run", "staleness_bound", bounds, _MOST)
    require_kinds(grouped)


def _known(grouped: Grouped, kind: str, name: str) -> list[Any]:
    try:
        return grouped.column(kind, name)
    except ProtocolError:
        return [record[name] for record in grouped.of(kind) if name in record]


def _check_each(kind: str, name: str, each: list[Any]) -> None:
    if not set(map(type, each)) <= {list, tuple}:
        raise refused(kind, name, each)
    _check_slots(kind, name, list(chain.from_iterable(each)))


def _check_slots(kind: str, name: str, slots: list[Any], most: int = MOST_SLOTS) -> None:
    if slots and not (set(map(type, slots)) == {int} and min(slots) >= 0 and max(slots) < most):
        raise refused(kind, name, _odd(slots, most, int))


def _odd(values: list[Any], most: float, *types: type) -> Any:
    """Return the first value that is none of these types, or not in [0, most)."""
    return next((one for one in values if type(one) not in types or not 0 <= one < most), None)

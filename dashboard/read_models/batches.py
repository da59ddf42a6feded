"""Consecutive records of a log by kind, on one clock over all lives of a run.

In the log each life of a run (from its start or a recovery on) counts its seconds from 0.  Here a life begins where the
one before ended, so that time never goes back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

from psplatform.errors import ProtocolError
from psplatform.telemetry.segments import Record

LONGEST_S: Final = 1e9
"""Time up to which a life of a run may last, thirty years: what counts over time has a loop over its doublings."""

MOST_SLOTS: Final = 1_000_000
"""Slots that a run may have: what counts by slot has a row for each up to the largest."""

_WITH_SLOT: Final = ("gradient", "dropped", "start", "aborted", "joined", "left", "lost")


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
    """Yield records as batches; the first continues at `clock`, and each ``run`` record begins another life.

    Raises
    ------
    ProtocolError
        If the time or the slot of a record is none; other fields are not looked at.
    """
    by_kind: dict[str, list[Record]] = {}
    taken: list[Record] = []
    offset, newest = clock.offset_s, clock.newest_s
    for record in records:
        kind = record.get("kind", "")
        if kind == "run":
            if taken:
                _check(by_kind)
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
        _check(by_kind)
        yield Batch(Clock(offset, newest), by_kind, taken)


def _check(by_kind: Mapping[Any, list[Record]]) -> None:
    """Refuse times and slots that models break on; a field that lacks is noticed by the model that needs it."""
    for kind, records in by_kind.items():
        if not isinstance(kind, str):
            raise _refused(kind, "kind", kind)
        at = _known(records, "at")
        # The sum tells where one is NaN, which compares as nothing.
        known = set(map(type, at)) <= {float, int}
        if at and not (known and min(at) >= 0 and max(at) < LONGEST_S and sum(at) >= 0):
            raise _refused(kind, "at", _odd(at, LONGEST_S, float, int))
    for kind in _WITH_SLOT:
        if kind in by_kind:
            _check_slots(kind, "slot", _known(by_kind[kind], "slot"))
    each = _known(by_kind.get("commit", []), "slots")
    if not set(map(type, each)) <= {list, tuple}:
        raise _refused("commit", "slots", each)
    _check_slots("commit", "slots", list(chain.from_iterable(each)))


def _known(records: list[Record], name: str) -> list[Any]:
    try:
        return [record[name] for record in records]
    except KeyError:
        return [record[name] for record in records if name in record]


def _check_slots(kind: str, name: str, slots: list[Any]) -> None:
    if slots and not (set(map(type, slots)) == {int} and min(slots) >= 0 and max(slots) < MOST_SLOTS):
        raise _refused(kind, name, _odd(slots, MOST_SLOTS, int))


def _odd(values: list[Any], most: float, *types: type) -> Any:
    """Return the first value that is none of these types, or not in [0, most)."""
    return next((one for one in values if type(one) not in types or not 0 <= one < most), None)


def _refused(kind: object, name: str, value: object) -> ProtocolError:
    shown = value if isinstance(value, float) or (isinstance(value, int) and abs(value) <= 10**18) else type(value)
    said = shown.__name__ if isinstance(shown, type) else repr(shown)
    message = f"a log record of kind {str(kind)[:40]!r} has a field {name!r} that is none ({said})"
    return ProtocolError(f"{message}; read the log with the psplatform it is of")

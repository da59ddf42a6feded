"""Recorded run times as what a model is fitted to: the rounds of a trace in which every worker's time is known."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from psplatform.errors import ConfigurationError
from psplatform.jobs.clauses import parse_count, parse_number, require_positive
from psplatform.policies.run_times.predictor import Times

_VERSION: Final = "version"
_SEQUENCE: Final = "sequence"


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """Whole rounds of a trace.

    Attributes
    ----------
    times
        ``float64[rounds, n]``, seconds; column w is slot w.
    left_out
        Rounds in which the time of some worker is missing, only known to be above a bound, or there twice.
    """

    times: Times
    left_out: int

    def require(self, rounds: int, name: str) -> None:
        """Raise `ConfigurationError`, naming the trace, unless there are as many whole rounds."""
        found, workers = self.times.shape
        if found < rounds:
            raise ConfigurationError(
                f"trace {name} has {found} rounds in which the times of all {workers} workers are known "
                f"({self.left_out} others were left out), and a fit needs {rounds}; record more rounds, of a policy "
                "that waits for all workers, such as bsp",
                field="trace",
            )


@dataclass(frozen=True, slots=True)
class _Row:
    slot: int
    round: int
    seconds: float
    censored: bool


def read_rounds(text: str, name: str) -> Recorded:
    """Return the whole rounds in a CSV text with the columns slot, seconds, and version or sequence.

    Rows of one version are a round; without a column of versions, rows of one sequence, and every slot must have as
    many: where one is missing, nobody knows which.  A column censored marks times that are not known, with 1.

    Parameters
    ----------
    name
        What errors call the text.

    Raises
    ------
    ConfigurationError
        Naming the line that is wrong, or what does not fit together.
    """
    table = csv.DictReader(text.removeprefix("\ufeff").splitlines())  # spreadsheets begin with a byte-order mark
    try:
        by = _column_of_rounds(table.fieldnames or ())
        rows = [_row(one, by) for one in table]
    except (ConfigurationError, csv.Error) as error:
        raise ConfigurationError(f"trace {name}, line {max(table.line_num, 1)}: {error}", field="trace") from None
    slots = Counter(one.slot for one in rows)
    _require_slots(slots, name)
    if by == _SEQUENCE:
        _require_as_many(slots, name)
    return _whole_rounds(rows, len(slots))


def _column_of_rounds(columns: Sequence[str]) -> str:
    missing = [column for column in ("slot", "seconds") if column not in columns]
    by = _VERSION if _VERSION in columns else _SEQUENCE
    if missing or by not in columns:
        missing += [] if by in columns else [by]
        raise ConfigurationError(f"no column {' or '.join(missing)}; begin with slot,sequence,seconds")
    return by


def _row(row: Mapping[str, str | None], by: str) -> _Row:
    slot, number, seconds = ((row[column] or "").strip() for column in ("slot", by, "seconds"))
    time = parse_number(seconds, "row", "seconds")
    require_positive("row", "seconds", time)
    censored = (row.get("censored") or "0").strip()
    if censored not in ("0", "1"):
        raise ConfigurationError(f'row: censored="{censored}" is neither 0 nor 1; write 1 where the time is not known')
    return _Row(parse_count(slot, "row", "slot"), parse_count(number, "row", by), time, censored == "1")


def _require_slots(slots: Counter[int], name: str) -> None:
    if not slots:
        raise ConfigurationError(f"trace {name} has no rows; record a run first", field="trace")
    gap = next((slot for slot in range(len(slots)) if slot not in slots), None)
    if gap is not None:
        raise ConfigurationError(f"trace {name} has no slot {gap}; count from 0 without gaps", field="trace")


def _require_as_many(slots: Counter[int], name: str) -> None:
    fewest, most = min(slots, key=lambda slot: slots[slot]), max(slots, key=lambda slot: slots[slot])
    if slots[fewest] != slots[most]:
        raise ConfigurationError(
            f"trace {name} has {slots[fewest]} rows of slot {fewest} and {slots[most]} of slot {most}, so that rounds "
            "cannot be told apart; give each slot as many, or add a column version with the number of the round",
            field="trace",
        )


def _whole_rounds(rows: Sequence[_Row], workers: int) -> Recorded:
    known: dict[int, dict[int, float]] = {}
    twice: set[int] = set()
    for row in rows:
        times = known.setdefault(row.round, {})
        if row.slot in times:
            twice.add(row.round)
        times[row.slot] = np.nan if row.censored else row.seconds
    # A round becomes a row of an array only where it is whole: there may be as many rounds as slots.
    whole = [
        [times[slot] for slot in range(workers)]
        for _, times in sorted((one, times) for one, times in known.items() if one not in twice)
        if len(times) == workers and not any(map(math.isnan, times.values()))
    ]
    return Recorded(np.array(whole, dtype=np.float64).reshape(len(whole), workers), len(known) - len(whole))

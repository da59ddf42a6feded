"""Slowness that is added to real runs, so that policies can be compared under stragglers on any machine.

Everything is a pure function of (seed, slot, sequence) or (seed, shard, request): the same iteration is equally slow
wherever and whenever it runs, and whatever the policy.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from numpy.random import Generator, Philox, SeedSequence

from psplatform.core.limits import nearest
from psplatform.core.parameters import built, declared, parameter, settle
from psplatform.errors import ConfigurationError
from psplatform.jobs.clauses import (
    naming,
    parse_count,
    parse_number,
    parse_numbers,
    parse_pairs,
    require_not_negative,
)
from psplatform.jobs.distributions import DISTRIBUTIONS, Distribution, parse

# Independent streams of random numbers for one and the same key.
_TIMES: Final = 1
_SLOW: Final = 2
_SERVERS: Final = 3

_DISTRIBUTION: Final = "distribution"
_CLAUSES: Final = ("slow", "factors", "trace")
_COLUMNS: Final = ("slot", "sequence", "seconds")

Trace = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Stragglers:
    """How slow the workers are made.

    An iteration whose target is `iteration_seconds` lasts ``iteration_seconds * slow_down``; one without a target
    lasts ``slow_down`` times what it took to compute.
    A run longer than the trace begins it again; slots that it does not have get no target.
    """

    distribution: Distribution | None = parameter(
        None, read=partial(parse, field="distribution"), help="distribution of the target run time; none: no target"
    )
    factors: tuple[float, ...] = parameter(
        (), above=0, finite=True, help="how many times slower each slot always is; 1 for slots beyond the list"
    )
    slow_chance: float = parameter(
        0.0, minimum=0, maximum=1, help="chance of each iteration, independently, to be slower still"
    )
    slow_factor: float = parameter(1.0, above=0, finite=True, help="how many times slower such an iteration is")
    trace: Trace | None = parameter(
        None, minimum=0, finite=True, help="target run times by slot and sequence, instead of a distribution"
    )

    def __post_init__(self) -> None:
        settle(self)
        if self.trace is not None and self.distribution is not None:
            raise ConfigurationError("a trace and a distribution both set the run time; give only one of them")

    def iteration_seconds(self, seed: int, slot: int, sequence: int) -> float | None:
        """Return the target run time of an iteration before any slow-down, ``None`` where there is none."""
        if self.trace is not None:
            row = self.trace[slot] if slot < len(self.trace) else ()
            return row[sequence % len(row)] if row else None
        if self.distribution is None:
            return None
        return self.distribution.sample(_random(_TIMES, seed, slot, sequence))

    def slow_down(self, seed: int, slot: int, sequence: int) -> float:
        """Return how many times longer than usual the iteration takes: the slot's factor, and the chance one's."""
        steady = self.factors[slot] if slot < len(self.factors) else 1.0
        if self.slow_chance and _random(_SLOW, seed, slot, sequence).random() < self.slow_chance:
            return steady * self.slow_factor
        return steady

    def to_plain(self) -> dict[str, Any] | None:
        """Return the fields as numbers, lists and text, or ``None`` where the distribution is one's own."""
        if self.distribution is not None and type(self.distribution) not in DISTRIBUTIONS.values():
            return None
        return {
            "distribution": None if self.distribution is None else str(self.distribution),
            "factors": list(self.factors),
            "slow_chance": self.slow_chance,
            "slow_factor": self.slow_factor,
            "trace": None if self.trace is None else [list(row) for row in self.trace],
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any], *, field: str = "stragglers") -> Stragglers:
        """Return what `to_plain`, or a mapping of some of the fields, describes."""
        with naming(field):
            return built(cls, plain, "stragglers have no", field=field)

    @classmethod
    def parse(cls, text: str, *, field: str = "stragglers", read: Callable[[str], str] | None = None) -> Stragglers:
        """Return what `text` describes: clauses between semicolons, each at most once, in any order.

        ``uniform:low=0.1,high=0.2`` or any other distribution, ``trace:FILE``,
        ``slow:chance=0.1,factor=4``, ``factors:1,1,2``.

        Parameters
        ----------
        field
            The option the text comes from; errors name it.
        read
            Returns the text of a trace's file.  Without it traces are refused.

        Raises
        ------
        ConfigurationError
            Saying which clause is wrong and what to write instead.
        """
        with naming(field):
            clauses = _clauses(text)
            slow = parse_numbers(clauses.get("slow", "chance=0,factor=1"), "slow", ("chance", "factor"))
            return cls(
                distribution=parse(clauses[_DISTRIBUTION], field=field) if _DISTRIBUTION in clauses else None,
                factors=_factors(clauses["factors"]) if "factors" in clauses else (),
                slow_chance=slow["chance"],
                slow_factor=slow["factor"],
                trace=_read_with(read, clauses["trace"]) if "trace" in clauses else None,
            )


@dataclass(frozen=True, slots=True)
class SlowServers:
    """Which shards' servers are slow to answer, by how many seconds, and with what chance at each request."""

    shards: tuple[int, ...] = parameter(minimum=0, help="which shards' servers are slow")
    seconds: float = parameter(minimum=0, finite=True, help="seconds by which they answer later")
    chance: float = parameter(minimum=0, maximum=1, help="chance of each request to be answered later")

    def __post_init__(self) -> None:
        settle(self, "slow servers: ")

    def delay(self, seed: int, shard: int, request: int) -> float:
        """Return by how many seconds the answer to the `request`-th request of `shard` is delayed, mostly 0."""
        if shard not in self.shards or _random(_SERVERS, seed, shard, request).random() >= self.chance:
            return 0.0
        return self.seconds

    def to_plain(self) -> dict[str, Any]:
        """Return the fields as numbers and lists."""
        return {"shards": list(self.shards), "seconds": self.seconds, "chance": self.chance}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any], *, field: str = "slow_servers") -> SlowServers:
        """Return what `to_plain` describes."""
        with naming(field):
            return built(cls, plain, "slow servers have no", field=field)

    @classmethod
    def parse(cls, text: str, *, field: str = "slow_servers") -> SlowServers:
        """Return what `text` describes: ``shards=0,seconds=1,chance=0.05``; several shards as ``0+2``.

        Raises
        ------
        ConfigurationError
            Saying which part is wrong and what to write instead.
        """
        subject = "slow servers"
        with naming(field):
            pairs = parse_pairs(text, subject, list(declared(cls)))
            return cls(
                shards=tuple(parse_count(shard.strip(), subject, "shards") for shard in pairs["shards"].split("+")),
                seconds=parse_number(pairs["seconds"], subject, "seconds"),
                chance=parse_number(pairs["chance"], subject, "chance"),
            )


def read_trace(text: str, name: str) -> Trace:
    """Return the run times in a CSV text with the columns slot, sequence and seconds, by slot and sequence.

    Slots, and the sequences of each slot, count from 0 without gaps; rows may come in any order.

    Parameters
    ----------
    name
        What errors call the text.

    Raises
    ------
    ConfigurationError
        Naming the line, or the row that is missing.
    """
    rows = csv.DictReader(text.removeprefix("\ufeff").splitlines())  # spreadsheets begin with a byte-order mark
    times: dict[int, dict[int, float]] = {}
    try:
        _require_columns(rows.fieldnames or ())
        for row in rows:
            slot, sequence, seconds = _trace_row(row)
            if sequence in times.setdefault(slot, {}):
                raise ConfigurationError(f"slot {slot} has sequence {sequence} twice; keep one of the rows")
            times[slot][sequence] = seconds
    except (ConfigurationError, csv.Error) as error:
        raise ConfigurationError(f"trace {name}, line {max(rows.line_num, 1)}: {error}") from None
    return _without_gaps(times, name)


def _require_columns(found: Collection[str]) -> None:
    missing = [column for column in _COLUMNS if column not in found]
    if missing:
        raise ConfigurationError(f"no column {' or '.join(missing)}; begin with {','.join(_COLUMNS)}")


def _trace_row(row: dict[str, str | None]) -> tuple[int, int, float]:
    slot, sequence, seconds = ((row[column] or "").strip() for column in _COLUMNS)
    time = parse_number(seconds, "row", "seconds")
    require_not_negative("row", "seconds", time)
    return parse_count(slot, "row", "slot"), parse_count(sequence, "row", "sequence"), time


def _without_gaps(times: dict[int, dict[int, float]], name: str) -> Trace:
    if not times:
        raise ConfigurationError(f"trace {name} has no rows; give at least one run time")
    _require_no_gap(times, f"trace {name} has no slot")
    for slot, row in sorted(times.items()):
        _require_no_gap(row, f"trace {name}, slot {slot} has no sequence")
    return tuple(tuple(times[slot][sequence] for sequence in sorted(times[slot])) for slot in sorted(times))


def _require_no_gap(numbers: Collection[int], subject: str) -> None:
    gap = next((number for number in range(len(numbers)) if number not in numbers), None)
    if gap is not None:
        raise ConfigurationError(f"{subject} {gap}; count from 0 without gaps")


def _clauses(text: str) -> dict[str, str]:
    """Return what follows the name of each clause; a distribution keeps its name."""
    clauses: dict[str, str] = {}
    for clause in filter(None, (clause.strip() for clause in text.split(";"))):
        name, _, rest = clause.partition(":")
        if name not in DISTRIBUTIONS and name not in _CLAUSES:
            raise ConfigurationError(f'"{name}" is no kind of slowness; {nearest(name, (*DISTRIBUTIONS, *_CLAUSES))}')
        key, value = (_DISTRIBUTION, clause) if name in DISTRIBUTIONS else (name, rest.strip())
        if key in clauses:
            raise ConfigurationError(f'"{clause}" is a second {key}; keep one of them')
        clauses[key] = value
    return clauses


def _factors(text: str) -> tuple[float, ...]:
    return tuple(parse_number(factor.strip(), "factors", f"slot {slot}") for slot, factor in enumerate(text.split(",")))


def _read_with(read: Callable[[str], str] | None, file: str) -> Trace:
    if read is None:
        raise ConfigurationError(f"trace {file} cannot be read here; give a distribution")
    try:
        text = read(file)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"trace {file} cannot be read ({error}); name a CSV file") from None
    return read_trace(text, file)


def _random(stream: int, seed: int, place: int, number: int) -> Generator:
    return Generator(Philox(SeedSequence(seed, spawn_key=(stream, place, number))))

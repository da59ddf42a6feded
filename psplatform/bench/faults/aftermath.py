"""What the event log of a run says of a fault: how long nothing was committed, what was lost, how long it was bare.

Pure functions of records, in the order of the log; times are the run's own.  Only policies that decide about the whole
model are meant: where each block has versions of its own, commits of different blocks may be in any order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import quantiles
from typing import Any, Final

from psplatform.telemetry.log.folder import SegmentFolder
from psplatform.telemetry.log.reader import LogReader
from psplatform.telemetry.log.segments import START, Position, Record, decode

Row = dict[str, Any]

_P50, _P95 = 9, 18  # places among the nineteen cuts between twentieths


def read_log(store: str) -> list[Record]:
    """Return the records of a run's log."""
    return [record for records, _ in LogReader(store).iter_from() for record in records]


def next_commit_s(records: Iterable[Record], at: float) -> float | None:
    """Return the seconds from `at` to the next commit; ``None`` if there is none."""
    later: list[float] = [one["at"] - at for one in records if one["kind"] == "commit" and one["at"] > at]
    return min(later, default=None)


def longest_pause_s(records: Iterable[Record], begin: float, end: float) -> float:
    """Return the longest time without a commit between `begin` and `end`."""
    within: list[float] = sorted(one["at"] for one in records if one["kind"] == "commit" and begin < one["at"] < end)
    moments = [begin, *within, max(begin, end)]
    return max(after - before for before, after in pairwise(moments))


def failovers(records: Sequence[Record], begin: float, end: float) -> list[Row]:
    """Return who took over between `begin` and `end`, what was lost, and the seconds from `begin` to its first commit.

    The seconds are ``None`` where it has made none yet.
    """
    resumed = {_name(one): one["first_commit_seconds"] for one in records if one["kind"] == "resumed"}
    found = []
    for one in records:
        if one["kind"] != "promoted" or not begin < one["at"] <= end:
            continue
        lost_at, first = one["at"] - one["promoted_seconds"], resumed.get(_name(one))
        names = ("role", "shard", "epoch", "signal", "updates_lost", "distance_lost", "bound", "unit")
        seconds = None if first is None else lost_at + first - begin
        found.append({**{name: one[name] for name in names}, "seconds": seconds})
    return found


def _name(record: Record) -> tuple[str, int, int]:
    return record["role"], record["shard"], record["epoch"]


def beyond_bound(found: Iterable[Row]) -> list[str]:
    """Return in words what failovers lost beyond the bound."""
    told = []
    for one in found:
        what = {"updates": "updates_lost", "norm": "distance_lost"}.get(one["unit"] or "")
        if what is not None and (one[what] or 0) > one["bound"]:
            told.append(f"{one[what]:g} {one['unit']} of shard {one['shard']} were lost, more than {one['bound']:g}")
    return told


def bare_spans(records: Iterable[Record], end: float) -> list[tuple[float, float]]:
    """Return from when to when some shard had no replica in sync, up to `end`."""
    spans: list[tuple[float, float]] = []
    since: float | None = None
    for one in records:
        if one["kind"] != "protection":
            continue
        if one["shards"] and since is None:
            since = one["at"]
        elif not one["shards"] and since is not None:
            spans.append((since, one["at"]))
            since = None
    return spans if since is None else [*spans, (since, max(since, end))]


def covered_s(spans: Iterable[tuple[float, float]], begin: float, end: float) -> float:
    """Return the seconds between `begin` and `end` that lie in `spans`, which do not overlap."""
    return sum(max(0.0, min(stop, end) - max(start, begin)) for start, stop in spans)


def turned_back(records: Iterable[Record]) -> list[str]:
    """Return in words where versions of the log do not grow from commit to commit."""
    told, before = [], -1
    for one in records:
        if one["kind"] == "commit":
            if one["version"] <= before:
                told.append(f"{one['at']:.1f} s: version {one['version']} was committed after version {before}")
            before = one["version"]
    return told


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What a coordinator that was replaced showed beyond the place in the log where its successor goes on.

    Attributes
    ----------
    first, last, versions
        The lowest and the highest such version, and how many there are: they are no part of the run.
    """

    term: int
    first: int
    last: int
    versions: int


def forgotten(store: str) -> list[Forgotten]:
    """Return for each replaced coordinator which versions it showed in vain, if any.

    A version is told by the gradients in it: the successor's version of the same number is another one.
    """
    folder, ends = SegmentFolder(store), {one.term: one for one in LogReader(store).history().ends}
    kept = {_content(one) for one in read_log(store) if one["kind"] == "commit"}
    found = []
    for newest in folder.newest():
        places = [Position(newest.term, number) for number in range(1, newest.number + 1)]
        segments = [decode(folder.read(place), place, store).records for place in places]
        decided = {one["position"]: one for segment in segments for one in segment if one["kind"] == "commit"}
        beyond = [one for segment in segments[ends.get(newest.term, START).number :] for one in segment]
        # What is not among its own commits was committed by a coordinator before it.
        places_shown = {one["position"] for one in beyond if one["kind"] == "applied"} & decided.keys()
        shown = [decided[place] for place in sorted(places_shown)]
        versions = {one["version"] for one in shown if _content(one) not in kept}
        if versions:
            found.append(Forgotten(newest.term, min(versions), max(versions), len(versions)))
    return found


def shown_in_vain(found: Iterable[Mapping[str, int]], faults: Sequence[Sequence[Row]], shards: int) -> list[str]:
    """Return in words what replaced coordinators showed in vain beyond what the bounds of their servers allow.

    A server that is lost with its coordinator takes with it what it has shown since anybody else heard of it, which no
    record of its successor counts: together with what that one counts, as many updates as its replica may lack.  A
    server that lives knows whatever it has shown, and where the bound is a distance, versions do not tell of it.

    Parameters
    ----------
    found
        What `forgotten` has found, as plain values.
    faults
        The failovers of each fault.
    shards
        How many the run has.
    """
    told = []
    for one in found:
        lost_at = [group for group in faults if any(_is_lead(row) and row["epoch"] > one["term"] for row in group)]
        allowed = _allowed_in_vain(lost_at[0], shards) if lost_at else 0
        if one["versions"] > allowed:
            place = f"{one['versions']} versions from {one['first']} on"
            told.append(f"{place} were shown in vain, of which servers may have taken {allowed:g} with them")
    return told


def _is_lead(failover: Row) -> bool:
    return bool(failover["role"] == "coordinator")


def _allowed_in_vain(failovers: Sequence[Row], shards: int) -> float:
    servers = [one for one in failovers if not _is_lead(one)]
    if len({one["shard"] for one in servers}) < shards:
        return 0
    if any(one["unit"] != "updates" for one in servers):
        return math.inf
    return min(float(one["bound"]) - (one["updates_lost"] or 0) for one in servers)


def _content(commit: Record) -> tuple[Any, ...]:
    return commit["version"], tuple(commit.get("slots", ())), tuple(commit.get("sequences", ()))


SPREAD: Final = ("p50", "p95", "max")


def spread(seconds: Sequence[float]) -> dict[str, float | None]:
    """Return median, 95th percentile and maximum."""
    if not seconds:
        return dict.fromkeys(SPREAD)
    cuts = quantiles(seconds, n=20, method="inclusive") if len(seconds) > 1 else [seconds[0]] * 19
    return dict(zip(SPREAD, (cuts[_P50], cuts[_P95], max(seconds)), strict=True))

"""What is promised of whole runs: one coordinator per term, checkpoints of one cut, recovery from the newest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from psplatform.bench.history.guarantees import CHECKPOINT, ONE_COORDINATOR, RECOVERY
from psplatform.bench.history.reading import Life, Record


def violations(life: Life) -> Iterator[str]:
    """Yield what of it did not hold in one life of a run."""
    yield from _one_coordinator(life)
    for number, version in _complete(life).items():
        yield from _one_cut(life, number, version)


def recoveries(lives: list[Life]) -> Iterator[str]:
    """Yield what of it did not hold between the lives of each run."""
    for before, after in pairwise(lives):
        if before.run == after.run:
            yield from _recovery(before, after)


def _one_coordinator(life: Life) -> Iterator[str]:
    of_term: dict[int, set[tuple[str, int]]] = defaultdict(set)
    for one in life.coordinators:
        of_term[int(one.began["term"])].add((one.clock, int(one.began["pid"])))
    for term, processes in sorted(of_term.items()):
        if len(processes) > 1:
            pids = sorted(pid for _, pid in processes)
            yield f"{ONE_COORDINATOR}: processes {pids} both decided in term {term} of {life.run}"


def _complete(life: Life) -> dict[int, int]:
    """Return the version of each checkpoint that is said to be complete, by number."""
    said = life.of_kind("checkpoint")
    return {int(one["number"]): int(one["version"]) for one in said if one["event"] == "complete"}


def _parts(life: Life, number: int) -> dict[int, list[Record]]:
    """Return by shard what was copied for a checkpoint."""
    found: dict[int, list[Record]] = {shard: [] for shard in range(life.shards)}
    for copy in life.copies:
        found[int(copy.began["shard"])] += [one for one in copy.of("archived") if one["number"] == number]
    return found


def _one_cut(life: Life, number: int, version: int) -> Iterator[str]:
    what = f"{CHECKPOINT}: checkpoint {number}"
    parts = _parts(life, number)
    for shard, records in parts.items():
        if not records:
            yield f"{what} has no part of shard {shard}"
        for one in records:
            states = [state for epoch in life.epochs[shard] if (state := epoch.state_at(int(one["position"])))]
            if states and not any(one["state"] in (None, state["state"]) or not state["state"] for state in states):
                yield f"{what} has a state of shard {shard} that no server had at position {one['position']}"
    places = {(int(one["position"]), int(one["version"])) for records in parts.values() for one in records}
    if not life.per_block and (len(places) > 1 or any(of != version for _, of in places)):
        yield f"{what} of version {version} has parts at positions and versions {sorted(places)}"


def _recovery(before: Life, after: Life) -> Iterator[str]:
    complete = _complete(before)
    began = {int(one["version"]) for copy in after.copies if copy.began["serving"] for one in copy.of("stands")}
    newest = max(complete.values(), default=0)
    written = {int(one["version"]) for copy in before.copies for one in copy.of("archived")} | {0}
    if not after.per_block and began and (len(began) > 1 or min(began) < newest or not began <= written):
        yield f"{RECOVERY}: {after.run} goes on from versions {sorted(began)}; the newest checkpoint was of {newest}"

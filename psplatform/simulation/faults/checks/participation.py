"""Promises about how many of those who live take part, read from a log that says who lived when (S6).

What a lost coordinator has decided, its successor adopts: it is judged by nobody here, because it rests on what only
the lost one knew.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from psplatform.core import reasons
from psplatform.core.plan import Plan
from psplatform.simulation.faults.checks.histories import Record, Records, violated

ADOPTED: Final = "decided by the coordinator before"
"""Reason of commits that a lost coordinator has decided: its successor may take their labels for older."""

_MONITORED: Final = 2
"""Pushes of each worker before elastic BSP predicts any."""


@dataclass(frozen=True, slots=True)
class Case:
    """What a promise is judged by: the policy that made it, what the run was to be, and its log."""

    policy: Any
    plan: Plan
    records: Records


class LiveWorkers:
    """Who lives, as far as a log has been read.

    Attributes
    ----------
    live
        The slots of live workers.
    refused
        Whether a gradient was refused since the last commit because it was not finite.
    """

    def __init__(self) -> None:
        self.live: set[int] = set()
        self.refused = False

    def note(self, one: Record) -> None:
        """Read a record."""
        kind = one["kind"]
        if kind == "joined":
            self.live.add(one["slot"])
        elif kind in ("lost", "left"):
            self.live.discard(one["slot"])
        elif kind == "dropped" and one["reason"] == reasons.NON_FINITE:
            self.refused = True
        elif kind == "commit":
            self.refused = False


def _followed(records: Records) -> Iterator[tuple[Record, LiveWorkers]]:
    """Yield each record with who lived when it was made."""
    workers = LiveWorkers()
    for one in records:
        if one["kind"] != "commit":
            workers.note(one)
        yield one, workers
        if one["kind"] == "commit":
            workers.note(one)


def check_everybody(records: Records, *, enough: float = math.inf, where: str = "") -> None:
    """Raise unless each round, of whose reason `where` is a part, took `enough` gradients or one of everybody alive."""
    for one, workers in _followed(records):
        if one["kind"] != "commit" or one["reason"] == ADOPTED or where not in one["reason"] or workers.refused:
            continue
        missing = workers.live - set(one["slots"])
        if missing and len(one["slots"]) < enough:
            raise violated("S6", f"commit {one['position']} of {one['slots']} lacks a gradient of {sorted(missing)}")


def check_blocks(case: Case) -> None:
    """Raise unless PSP merged and refreshed as much as it promises."""
    policy, shards = case.policy, case.plan.shards
    _check_merges(policy.push or math.ceil(7 / 8 * case.plan.workers), case.records)
    # A promotion makes labels older than what they were pulled as.
    if not any(one["kind"] == "promoted" for one in case.records):
        _check_pulls(policy.traits.pull.count(shards), case.records, shards)


def _check_pulls(least: int, records: Records, shards: int) -> None:
    """Raise unless each pull refreshed so many blocks, and the first one of a process all."""
    first: set[int] = set()
    for one in records:
        if one["kind"] == "joined":
            first.add(one["slot"])
        elif one["kind"] == "gradient":
            wanted = shards if one["slot"] in first else least
            first.discard(one["slot"])
            if one["fresh_blocks"] < wanted:
                found = f"{one['fresh_blocks']} of {shards} blocks, not {wanted}"
                raise violated("S6", f"the pull for gradient {one['slot'], one['sequence']} refreshed {found}")


def _check_merges(least: int, records: Records) -> None:
    """Raise unless each merge took gradients of its block's count, so many at least and one of each worker.

    A worker that was lost, whose gradient stays where it was merged, and the one in its slot now are two.
    """
    counts = {(one["slot"], one["sequence"]): one["version"] for one in records if one["kind"] == "start"}
    processes = _processes(records)
    for one, workers in _followed(records):
        if one["kind"] != "commit":
            continue
        slots, gradients = one["slots"], list(zip(one["slots"], one["sequences"], strict=True))
        of = {counts.get(each, one["version"] - 1) for each in gradients}
        distinct = {(each[0], processes.get(each, 0)) for each in gradients}
        if of != {one["version"] - 1} or len(distinct) < len(slots):
            raise violated("S6", f"block {one['block']} merges {slots} of counts {of} into version {one['version']}")
        if len(slots) < min(least, len(workers.live)) and one["reason"] != ADOPTED and not workers.refused:
            found = f"{len(slots)} gradients, {least} are the least and {len(workers.live)} workers live"
            raise violated("S6", f"block {one['block']} makes version {one['version']} of {found}")


def _processes(records: Records) -> dict[tuple[int, int], int]:
    """Return for each gradient that was started how many processes its slot had had by then."""
    joins: Counter[int] = Counter()
    found = {}
    for one in records:
        if one["kind"] == "joined":
            joins[one["slot"]] += 1
        elif one["kind"] == "start":
            found[one["slot"], one["sequence"]] = joins[one["slot"]]
    return found


def check_supersteps(case: Case) -> None:
    """Raise if a worker of elastic BSP made more than `lookahead` pushes between a decision and its barrier.

    Where the barrier is a time, more are allowed; where the last pushes are not merged in one step, or are those of a
    coordinator that is gone, the log does not say where it was.
    """
    policy = case.policy
    if policy.barrier != "count" or policy.merge != "average" or not policy.monitoring:
        return
    pushes: Counter[int] = Counter()
    bound: set[int] | None = None
    for one, workers in _followed(case.records):
        if one["kind"] in ("joined", "lost", "left"):
            pushes.pop(one["slot"], None)
            bound = bound and bound - {one["slot"]}
        elif one["kind"] == "dropped" and one["reason"] == reasons.NON_FINITE:
            pushes[one["slot"]] -= 1  # it is tried again
        elif one["kind"] == "commit" and one["reason"] == ADOPTED:
            return
        elif one["kind"] == "commit":
            pushes.update(one["slots"])
            many = [slot for slot in bound or () if pushes[slot] > policy.lookahead]
            if many:
                raise violated("S6", f"workers {many} pushed more than {policy.lookahead} times before the barrier")
            if one["reason"] != "applied at once":
                pushes.clear()
                bound = None
            elif bound is None and all(pushes[slot] >= _MONITORED for slot in workers.live):
                pushes.clear()
                bound = set(workers.live)

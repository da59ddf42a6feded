"""What a run's log must show when it is over: one order (S1, S9), and what each policy promises by itself (S6)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from psplatform.core.policy import Policy
from psplatform.memory import MemoryRun
from psplatform.simulation.faults.truth import Truth, by_position, violated

Record = Mapping[str, Any]
Records = Sequence[Record]

_ADOPTED: Final = "decided by the coordinator before"
"""Reason of commits that a lost coordinator has decided: its successor may take their labels for older."""


def check_order(records: Records) -> None:
    """Raise unless positions and versions grow by one, and each gradient is in one commit of each order."""
    last: dict[int, int] = defaultdict(int)
    seen: dict[tuple[int, int, int], int] = {}
    for one in records:
        if one["kind"] != "commit":
            continue
        block = one.get("block", 0)
        if one["position"] != last[block] + 1 or one["version"] != one["position"]:
            raise violated("order", f"commit {one['position']} makes version {one['version']} after {last[block]}")
        if min(one["staleness"]) < 0:
            raise violated("order", f"commit {one['position']} has staleness {one['staleness']}")
        last[block] = one["position"]
        for slot, sequence in zip(one["slots"], one["sequences"], strict=True):
            before = seen.setdefault((block, slot, sequence), one["position"])
            if before != one["position"]:
                raise violated("S1", f"gradient {slot, sequence} is in commits {before} and {one['position']}")


def check_same_on_all_shards(run: MemoryRun, truth: Truth) -> None:
    """Raise unless every position applied what its commit says on each shard, or is recorded as lost there."""
    lost = {
        (one["shard"], position)
        for one in run.records
        if one["kind"] == "lost positions"
        for position in range(one["first"], one["last"] + 1)
    }
    decided = {
        (one.get("block", 0), one["position"]): frozenset(zip(one["slots"], one["sequences"], strict=True))
        for one in run.records
        if one["kind"] == "commit"
    }
    # A coordinator that is lost, or that gives the run up, before its takeover was done has not heard of everything.
    unheard = run.finish is None or run.finish.outcome == "failed"
    for one in run.coordinator.state.shards:
        history = truth.histories[one.server]
        if one.promoting or history.epoch != one.epoch or run.processes.is_dead(one.server):
            continue  # what a dead server applied last, perhaps nobody else has heard of
        block = run.coordinator.state.lane_of(one.shard).block
        applied = by_position(history.lineage)
        for position in range(1, history.visible + 1):
            if unheard and (block, position) not in decided:
                continue
            here = applied.get(position, frozenset())
            if here != decided.get((block, position)) and (here or (one.shard, position) not in lost):
                found = f"shard {one.shard} applied {sorted(here)} at {position}"
                raise violated("S9", f"{found}, decided was {sorted(decided.get((block, position), ()))}")


def check_promises(name: str, made: Policy, records: Records) -> None:
    """Raise unless the policy kept its own promise."""
    check = _PROMISES.get(name)
    if check is not None:
        check(made, records)


def _commits(records: Records) -> list[Record]:
    return [one for one in records if one["kind"] == "commit"]


def _fresh(_: Any, records: Records) -> None:
    for one in _commits(records):
        if set(one["staleness"]) != {0} and one["reason"] != _ADOPTED:
            raise violated("S6", f"commit {one['position']} of a synchronous policy has staleness {one['staleness']}")


def _at_most_k(policy: Any, records: Records) -> None:
    _fresh(policy, records)
    for one in _commits(records):
        if policy.k is not None and len(one["slots"]) > policy.k:
            raise violated("S6", f"commit {one['position']} averages {len(one['slots'])} gradients, k is {policy.k}")


def _gap_within(most: Callable[[Any], int]) -> Callable[[Any, Records], None]:
    def check(policy: Any, records: Records) -> None:
        for one in records:
            if one["kind"] == "start" and one["clock"] - one["min_clock"] > most(policy):
                raise violated("S6", f"an iteration started with clock {one['clock']} over {one['min_clock']}")

    return check


def _delay_bounded(policy: Any, records: Records) -> None:
    for one in _commits(records):
        adopted = one["reason"] == _ADOPTED
        if policy.max_delay is not None and one["staleness"][0] >= policy.max_delay and not adopted:
            raise violated("S6", f"commit {one['position']} has delay {one['staleness'][0]} of {policy.max_delay}")


_PROMISES: dict[str, Callable[[Any, Records], None]] = {
    "bsp": _fresh,
    "dbw": _fresh,
    "b-dbw": _fresh,
    "cutoff": _fresh,
    "backup": _at_most_k,
    "ssp": _gap_within(lambda policy: int(policy.bound)),
    "dssp": _gap_within(lambda policy: int(policy.lower + policy.credit)),
    "delay-bounded": _delay_bounded,
}

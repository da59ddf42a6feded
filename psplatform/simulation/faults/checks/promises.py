"""What a run's log must show when it is over: one order (S1, S9), and what each policy promises by itself (S6)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final

from psplatform.core.protocol.messages import Label
from psplatform.memory import MemoryRun
from psplatform.simulation.faults.checks.histories import History, Record, Records, by_position, violated
from psplatform.simulation.faults.checks.participation import (
    ADOPTED,
    Case,
    check_blocks,
    check_everybody,
    check_supersteps,
)
from psplatform.simulation.faults.checks.reference_model import ReferenceModel

_ROUNDING: Final = 1e-9
"""Norms are added up here in another order than where the bound is kept."""


def check_order(records: Records) -> None:
    """Raise unless positions grow by one, versions by the updates, and each gradient is in one commit of each order."""
    last: dict[int, int] = defaultdict(int)
    versions: dict[int, int] = defaultdict(int)
    seen: dict[tuple[int, int, int], int] = {}
    for one in records:
        if one["kind"] != "commit":
            continue
        block = one.get("block", 0)
        updates = len(one["slots"]) or one["versions"] if _is_sum(one) else 1
        if one["position"] != last[block] + 1 or one["version"] != versions[block] + updates:
            raise violated("order", f"commit {one['position']} makes version {one['version']} after {last[block]}")
        if any(each < (ahead if _is_sum(one) else 0) for ahead, each in enumerate(one["staleness"])):
            raise violated("order", f"commit {one['position']} has staleness {one['staleness']}")
        last[block], versions[block] = one["position"], one["version"]
        names = list(zip(one["slots"], one["sequences"], strict=True))
        if len(set(names)) < len(names):
            raise violated("S1", f"commit {one['position']} has a gradient twice: {names}")
        for slot, sequence in names:
            before = seen.setdefault((block, slot, sequence), one["position"])
            if before != one["position"]:
                raise violated("S1", f"gradient {slot, sequence} is in commits {before} and {one['position']}")


def _is_sum(commit: Record) -> bool:
    """Whether the gradients of a commit are updates by themselves, summed on the way."""
    versions: int = commit["versions"]
    return versions > 1


def check_names(records: Records) -> None:
    """Raise if a process is released for a gradient that a commit has named before, of another process of its slot."""
    incarnations: dict[int, int] = {}
    committed: dict[tuple[int, int], int] = {}
    for one in records:
        if one["kind"] == "joined":
            incarnations[one["slot"]] = one["incarnation"]
        elif one["kind"] == "commit":
            for name in zip(one["slots"], one["sequences"], strict=True):
                committed.setdefault(name, incarnations.get(name[0], 0))
        elif one["kind"] == "start":
            name = one["slot"], one["sequence"]
            if committed.get(name, incarnation := incarnations.get(name[0], 0)) != incarnation:
                raise violated("S1", f"gradient {name} was committed, and another process is released for it")


def check_batches(run: MemoryRun, reference: ReferenceModel) -> None:
    """Raise unless every batch that was dealt was applied, can be dealt again, or is said to be missing (S9).

    What was decided and then lost with a server counts as applied: its epoch lacks it, as the log says.
    """
    state = run.coordinator.state
    scheduler = state.batch_scheduler
    if scheduler is None or state.bad_batches:
        return
    plain = scheduler.to_plain()
    gone = {
        name
        for one in run.records
        if one["kind"] == "commit"
        for name in zip(one["slots"], one["sequences"], strict=True)
    }
    used = {(one.epoch, one.number) for name in gone for one in reference.dealt.get(name, ())}
    returned = {tuple(place) for place in plain["returned"]}
    until = plain["epoch"], plain["number"]
    for epoch in range(plain["epoch"] + 1):
        for number in range(plain["batches"]):
            place = epoch, number
            if place < until and place not in used and place not in returned:
                raise violated("S9", f"batch {place} was dealt, and is neither applied nor to be dealt again")


def check_batches_once(records: Records, batches: Mapping[tuple[int, int], Any]) -> None:
    """Raise if two gradients that were committed were computed on the same batch of the same epoch (S9).

    Not block by block: there, one that was dealt twice around a takeover may count twice.
    """
    used: dict[Any, tuple[int, int]] = {}
    for one in records:
        if one["kind"] != "commit" or "block" in one:
            continue
        for name in zip(one["slots"], one["sequences"], strict=True):
            batch = batches.get(name)
            if batch is not None and used.setdefault(batch, name) != name:
                raise violated("S9", f"{batch} is applied as gradient {used[batch]} and as {name}")


def check_lost_versions(records: Records, labels: Mapping[tuple[int, int], Label]) -> None:
    """Raise if a gradient that was computed on a lost version counts as newer than what was left of it (S6).

    Not block by block, where commits speak of one shard each, and not of what a lost coordinator had decided.
    """
    version_at, kept = {0: 0}, list[tuple[int, int, int]]()
    for one in records:
        if one["kind"] == "lost positions" and one["first"] - 1 in version_at:
            kept.append((one["shard"], one["epoch"], version_at[one["first"] - 1]))
        elif one["kind"] == "commit" and "block" not in one:
            before = version_at.get(one["position"] - 1, 0)
            version_at[one["position"]] = one["version"]
            names = zip(one["slots"], one["sequences"], strict=True)
            for name, staleness in zip(names, one["staleness"], strict=True):
                if one["reason"] != ADOPTED and name in labels and staleness < before - _left(labels[name], kept):
                    raise violated("S6", f"gradient {name} of a lost version has staleness {staleness}")


def _left(label: Label, kept: Iterable[tuple[int, int, int]]) -> int:
    """Return which version a gradient was computed on at most, of what is left of it."""
    lost = [version for shard, epoch, version in kept if label.epochs[shard] < epoch]
    return min([*label.versions, *lost])


def check_same_on_all_shards(run: MemoryRun, reference: ReferenceModel) -> None:
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
        history = reference.histories[one.server]
        if one.promoting or history.epoch != one.epoch or run.processes.is_dead(one.server):
            continue  # what a dead server applied last, perhaps nobody else has heard of
        block = run.coordinator.state.commit_log_of(one.shard).block
        applied = by_position(history.lineage)
        for position in range(1, history.visible + 1):
            if unheard and (block, position) not in decided:
                continue
            here = applied.get(position, frozenset())
            if here != decided.get((block, position)) and (here or (one.shard, position) not in lost):
                found = f"shard {one.shard} applied {sorted(here)} at {position}"
                raise violated("S9", f"{found}, decided was {sorted(decided.get((block, position), ()))}")


def check_handed_over(
    records: Records, handed_over: AbstractSet[tuple[int, int]], histories: Iterable[History]
) -> None:
    """Raise if anything was lost with a server that has handed over.

    Shard and epoch of its successor are given, and the history of every copy.  What was lost with an earlier server is
    none of its: the workers that had pulled that have gone on, and the gradients that it was made of are gone.
    """
    known, lost = list(histories), set[tuple[int, int]]()
    commits = {
        (one.get("block"), one["position"]): frozenset(zip(one["slots"], one["sequences"], strict=True))
        for one in records
        if one["kind"] == "commit"
    }
    for one in records:
        if one["kind"] != "lost positions":
            continue
        shard, epoch = one["shard"], one["epoch"]
        # What was lost with an earlier server, and had not been skipped yet, is said again.
        now = {(shard, position) for position in range(one["first"], one["last"] + 1)} - lost
        if (shard, epoch) in handed_over:
            before = _applied_by(known, shard, range(epoch - 1)) - _applied_by(known, shard, range(epoch - 1, epoch))
            made_of = {at: commits.get((None, at)) or commits.get((shard, at), frozenset()) for _, at in now}
            positions = sorted(at for at, gradients in made_of.items() if not gradients & before)
            if positions:
                raise violated("S5", f"positions {positions} of shard {shard} are lost, its server handed over")
        lost |= now


def check_told_losses(records: Records) -> None:
    """Raise if the run tells its user that more was lost with a server than the bound allows (S5)."""
    for one in records:
        if one["kind"] != "promoted" or one["bound"] is None:
            continue
        told = one["updates_lost"] if one["unit"] == "updates" else one["distance_lost"] or 0.0
        if told > one["bound"] * (1 + _ROUNDING):
            found = f"{told:g} {one['unit']} were lost with the server of shard {one['shard']}"
            raise violated("S5", f"epoch {one['epoch']} tells that {found}; the bound is {one['bound']:g}")


def _applied_by(histories: Iterable[History], shard: int, epochs: range) -> set[tuple[int, int]]:
    """Return slot and sequence of all gradients that copies of a shard had applied when they were last of an epoch."""
    return {key for one in histories if one.shard == shard and one.epoch in epochs for key in one.lineage}


def check_promises(name: str, case: Case) -> None:
    """Raise unless the policy of that name kept its own promise."""
    check = _PROMISES.get(name)
    if check is not None:
        check(case)


def _commits(records: Records) -> list[Record]:
    # One without gradients was made by no policy: a lost coordinator had given up what it was made of.
    return [one for one in records if one["kind"] == "commit" and one["slots"]]


def _fresh(records: Records) -> None:
    for one in _commits(records):
        if set(one["staleness"]) != {0} and one["reason"] != ADOPTED:
            raise violated("S6", f"commit {one['position']} of a synchronous policy has staleness {one['staleness']}")


def _all_fresh(case: Case) -> None:
    _fresh(case.records)
    check_everybody(case.records)


def _some_fresh(case: Case) -> None:
    _fresh(case.records)
    # How many it chose, it says itself; where it says that nobody else can contribute, everybody must be in.
    check_everybody(case.records, where="no other live worker")


def _at_most_k(case: Case) -> None:
    _fresh(case.records)
    wanted = case.policy.k or max(1, case.plan.workers - 1)
    check_everybody(case.records, enough=wanted)
    for one in _commits(case.records):
        if len(one["slots"]) > wanted:
            raise violated("S6", f"commit {one['position']} averages {len(one['slots'])} gradients, k is {wanted}")


def _gap_within(most: Callable[[Any], int]) -> Callable[[Case], None]:
    def check(case: Case) -> None:
        for one in case.records:
            if one["kind"] == "start" and one["clock"] - one["min_clock"] > most(case.policy):
                raise violated("S6", f"an iteration started with clock {one['clock']} over {one['min_clock']}")

    return check


def _delay_bounded(case: Case) -> None:
    _one_by_one(case)
    most = case.policy.max_delay
    for one in _commits(case.records):
        if most is not None and max(one["staleness"]) >= most and one["reason"] != ADOPTED:
            raise violated("S6", f"commit {one['position']} has delays {one['staleness']} of {most}")


def _one_by_one(case: Case) -> None:
    for one in _commits(case.records):
        if one["versions"] != len(one["slots"]):
            raise violated("S6", f"commit {one['position']} of {one['slots']} makes {one['versions']} versions")


_PROMISES: dict[str, Callable[[Case], None]] = {
    "bsp": _all_fresh,
    "dbw": _some_fresh,
    "b-dbw": _some_fresh,
    "cutoff": _some_fresh,
    "backup": _at_most_k,
    "asp": _one_by_one,
    "ssp": _gap_within(lambda policy: int(policy.bound)),
    "dssp": _gap_within(lambda policy: int(policy.lower + policy.credit)),
    "delay-bounded": _delay_bounded,
    "psp": check_blocks,
    "elastic-bsp": check_supersteps,
}
"""By policy."""

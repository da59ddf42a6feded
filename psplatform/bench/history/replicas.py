"""What is promised of replicas: they are prefixes of their server, near enough, and what is promoted is one of them."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from psplatform.bench.history.guarantees import BOUND, LOSS, PREFIX, PROMOTION
from psplatform.bench.history.reading import Actor, Epoch, Life, Record


@dataclass(frozen=True)
class Bound:
    """What a replica of one shard may lack; infinity where nothing is promised."""

    most: float
    unit: str

    @classmethod
    def of(cls, life: Life, bound: float | None, unit: str) -> Bound:
        """Return the bound that is given for the whole model, or else the one that the run was asked for."""
        asked = life.description.get("replication") or {}
        if bound is None:
            usual = 0.0 if asked.get("mode") == "chain" else math.inf
            bound, unit = asked.get("max_divergence"), asked.get("unit") or "updates"
            bound = usual if bound is None else float(bound)
        # Distances of shards add up as squares; an update is one of every shard.
        return cls(bound / math.sqrt(max(1, life.shards)) if unit == "norm" else bound, unit)


def violations(life: Life, bound: Bound) -> Iterator[str]:
    """Yield what of it did not hold."""
    for shard, epochs in life.epochs.items():
        copies = [one for one in life.copies if one.began["shard"] == shard]
        for copy in copies:
            yield from _prefix(shard, epochs, copy)
        for epoch in epochs:
            yield from _promotion(shard, epochs, epoch)
            yield from _within(shard, epoch, copies, bound)
        yield from _losses(shard, epochs, bound)


def _same(one: Record, other: Record) -> bool:
    """Whether two states may be the same; what was not digested is taken to be."""
    return all(one[of] == other[of] for of in ("digest", "state") if one[of] is not None and other[of] is not None)


def _prefix(shard: int, epochs: list[Epoch], copy: Actor) -> Iterator[str]:
    servers = {epoch.number: epoch for epoch in epochs}
    for one in copy.of("loaded"):
        server = servers.get(int(one["epoch"]))
        position = int(one["position"])
        state = server.state_at(position) if server is not None else None
        where = f"{copy.name} at position {position} of epoch {one['epoch']} of shard {shard}"
        if state is None:
            yield f"{PREFIX}: {where} stands where no server has been"
        elif not _same(state, one):
            yield f"{PREFIX}: {where} has another state than its server had"


def _promotion(shard: int, epochs: list[Epoch], epoch: Epoch) -> Iterator[str]:
    began = epoch.began
    if began["kind"] != "serves":
        return
    where = (
        f"{PROMOTION}: {epoch.copy.name} began epoch {epoch.number} of shard {shard} at position {began['position']}"
    )
    before = [one for one in epoch.copy.stands if one["at"] <= began["at"]]
    if not before or before[-1]["position"] != began["position"] or not _same(before[-1], began):
        yield f"{where}, which is not what it had"
    states = [one.state_at(int(began["position"])) for one in epochs if one.number < epoch.number]
    if not any(state is not None and _same(state, began) for state in states):
        yield f"{where}, with a state that no server before it had there"


def _within(shard: int, epoch: Epoch, copies: list[Actor], bound: Bound) -> Iterator[str]:
    of_name, staged = {copy.name: copy for copy in copies}, sorted(epoch.staged)
    for one in [one for one in epoch.shown if one["kind"] == "publish" and one["in_sync"]]:
        where = f"{BOUND}: version {one['version']} of shard {shard}, epoch {epoch.number},"
        lacks = float(one["lag" if bound.unit == "updates" else "distance"])
        if lacks > bound.most:
            yield f"{where} was shown while a replica lacked {lacks:g} {bound.unit} of at most {bound.most:g}"
        for name, claimed in sorted(one["in_sync"].items()):
            replica = of_name.get(name)
            if replica is None or replica.clock != epoch.copy.clock:
                continue  # one in the store, or on another host
            stood = _stood(replica, epoch, float(one["at"]))
            lag = bisect_right(staged, int(one["position"])) - bisect_right(staged, stood)
            if stood < claimed:
                yield f"{where} was shown counting on {name} at position {claimed}, which stood at {stood}"
            elif bound.unit == "updates" and lag > bound.most:
                yield f"{where} was shown while {name} really lacked {lag} of at most {bound.most:g}"


def _stood(replica: Actor, epoch: Epoch, at: float) -> int:
    """Return where a replica stood at a moment, in the order of that epoch's server."""
    reached = bisect_right(replica.stands, at, key=lambda one: float(one["at"]))
    while reached and int(replica.stands[reached - 1]["epoch"]) > epoch.number:
        reached -= 1
    return int(replica.stands[reached - 1]["position"]) if reached else -1


def _losses(shard: int, epochs: list[Epoch], bound: Bound) -> Iterator[str]:
    gone: set[tuple[int, int]] = set()
    for number, epoch in enumerate(epochs):
        began = int(epoch.began["position"])
        lost = {
            (before.number, int(one["position"]))
            for before in epochs[:number]
            for one in before.shown
            if one["kind"] == "publish" and int(one["position"]) > began
        } - gone
        gone |= lost
        if bound.unit == "updates" and len(lost) > bound.most:
            positions = sorted(position for _, position in lost)
            yield (
                f"{LOSS}: with the server before epoch {epoch.number} of shard {shard}, {len(lost)} visible updates of "
                f"at most {bound.most:g} were lost, positions {positions[0]} to {positions[-1]}"
            )

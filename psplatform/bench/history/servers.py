"""What is promised of servers: one per epoch, one order, every gradient once, the same on all shards."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from psplatform.bench.history.guarantees import COMPUTED, EVERYWHERE, ONCE, ONE_ORDER, ONE_SERVER
from psplatform.bench.history.reading import Epoch, Life, Record, applied


def violations(life: Life) -> Iterator[str]:
    """Yield what of it did not hold."""
    for shard, epochs in life.epochs.items():
        yield from _one_server(shard, epochs)
        for epoch in epochs:
            yield from _one_order(shard, epoch)
        yield from _once(life, shard)
        yield from _computed(life, shard, epochs)
    if not life.per_block:
        yield from _everywhere(life)


def _one_server(shard: int, epochs: list[Epoch]) -> Iterator[str]:
    for one, other in pairwise(epochs):
        if one.number == other.number:
            names = f"{one.copy.name} and {other.copy.name}"
            yield f"{ONE_SERVER}: {names} both serve shard {shard} in epoch {one.number}"


def _one_order(shard: int, epoch: Epoch) -> Iterator[str]:
    where = f"{ONE_ORDER}: shard {shard}, epoch {epoch.number}:"
    position, version = int(epoch.began["position"]), int(epoch.began["version"])
    staged = list(epoch.staged)
    if staged != sorted(staged):
        yield f"{where} positions were staged in the order {staged}"
    for one in epoch.shown:
        at = int(one["position"])
        if one["kind"] == "staged twice":
            yield f"{where} position {at} was staged twice"
            continue
        step = epoch.staged.get(at)
        if at <= position or (one["kind"] == "publish" and at != position + 1):
            yield f"{where} position {at} was shown after {position}"
        if int(one["version"]) <= version:
            yield f"{where} version {one['version']} was shown after {version}"
        if one["kind"] == "publish" and (step is None or _differ(step, one)):
            yield f"{where} what was shown at position {at} is not what was staged"
        position, version = at, int(one["version"])


def _differ(one: Record, other: Record) -> bool:
    return any(one[of] is not None and other[of] is not None and one[of] != other[of] for of in ("digest", "state"))


def _once(life: Life, shard: int) -> Iterator[str]:
    at: dict[tuple[int, int], int] = {}
    for position, step in life.line(shard).items():
        for slot, sequence, _ in applied(step):
            if (slot, sequence) in at:
                where = f"at positions {at[slot, sequence]} and {position} of shard {shard}"
                yield f"{ONCE}: gradient {sequence} of slot {slot} was applied {where}"
            at[slot, sequence] = position


def _computed(life: Life, shard: int, epochs: list[Epoch]) -> Iterator[str]:
    for epoch in epochs:
        for position, step in epoch.staged.items():
            for slot, sequence, member in applied(step):
                if (slot, sequence, member) not in life.computed:
                    what = f"position {position} of shard {shard} applied gradient {sequence} of slot {slot}"
                    yield f"{COMPUTED}: {what}, which {member} has not computed"


def _everywhere(life: Life) -> Iterator[str]:
    lines = {shard: life.line(shard) for shard in life.epochs}
    if len(lines) < 2:
        return
    end = min(life.kept(shard)[-1][1] if life.epochs[shard] else 0 for shard in lines)
    first = max(int(life.epochs[shard][0].began["position"]) if life.epochs[shard] else 0 for shard in lines) + 1
    for position in range(first, end + 1):
        sets = {
            shard: frozenset(applied(line[position])) if position in line else None for shard, line in lines.items()
        }
        wanted = max(sets.values(), key=lambda one: len(one or ()))
        for shard in [shard for shard, found in sets.items() if found != wanted and not _lost(life, shard, position)]:
            found = sorted(sets[shard] or ())
            yield (
                f"{EVERYWHERE}: position {position} applied {found} on shard {shard} and {sorted(wanted or ())} on "
                "another, and is not recorded as lost"
            )


def _lost(life: Life, shard: int, position: int) -> bool:
    return any(
        one["shard"] == shard and one["first"] <= position <= one["last"] for one in life.of_kind("lost positions")
    )

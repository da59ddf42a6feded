"""The coordinator's part of a checkpoint: what a later run must know to go on, as plain values.

Nobody computes in it and nothing is pooled: gradients under way at the cut are lost with those who computed them, and
their batches are dealt again.
"""

from __future__ import annotations

from typing import Any

from psplatform.core.coordination.state import State


def capture(state: State) -> dict[str, Any]:
    """Return what the coordinator knows after the commit at hand."""
    return {
        "version": state.version,
        "positions": [state.lane_of(shard).position for shard in range(state.plan.shards)],
        "versions": [state.lane_of(shard).version for shard in range(state.plan.shards)],
        "seconds": state.seconds,
        "samples_applied": state.samples_applied,
        "roster": state.roster.to_plain(),
        "deck": state.deck.to_plain() if state.deck is not None else None,
        "newest": [sorted(lane.newest.items()) for lane in state.lanes],
        "policy": state.policy.state(),
    }


def place_after(plain: dict[str, Any], shard: int, shards: int) -> tuple[int, int]:
    """Return position and version at which a shard, of so many, goes on from what `capture` returned."""
    if len(plain["versions"]) == shards:
        return plain["positions"][shard], plain["versions"][shard]
    return max(plain["positions"]), plain["version"]


def restore(state: State, plain: dict[str, Any]) -> None:
    """Let a coordinator that has not begun go on from what `capture` returned; shards may be divided otherwise.

    With another number of shards, a policy that decides block by block goes on from the oldest block's version.
    """
    for lane in state.lanes:
        lane.position, lane.version = place_after(plain, lane.shards[0], state.plan.shards)
        lane.newest = dict(plain["newest"][lane.block]) if len(plain["newest"]) == len(state.lanes) else {}
    state.seconds_before = plain["seconds"]
    state.samples_applied = plain["samples_applied"]
    state.roster.restore(plain["roster"])
    if state.deck is not None and plain["deck"] is not None:
        state.deck.restore(plain["deck"])
    state.policy.restore(plain["policy"])
    for one in state.shards:
        one.visible = state.lane_of(one.shard).position

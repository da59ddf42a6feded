"""The coordinator's part of a checkpoint: what a later run must know to go on, as plain values.

Nobody computes in it and nothing is pooled: gradients under way at the cut are lost with those who computed them, and
their batches are dealt again.
"""

from __future__ import annotations

from typing import Any

from psplatform.core.coordination.state import State
from psplatform.core.parameters import parameters_of
from psplatform.core.policy import Policy
from psplatform.core.quality import Progress


def capture(state: State) -> dict[str, Any]:
    """Return what the coordinator knows after the commit at hand."""
    return {
        "version": state.version,
        "positions": [state.lane_of(shard).position for shard in range(state.plan.shards)],
        "versions": [state.lane_of(shard).version for shard in range(state.plan.shards)],
        "seconds": state.seconds,
        "samples_applied": state.samples_applied,
        "bad_batches": [state.bad_batches, state.samples_given_up],
        "progress": state.progress.to_plain(state.plan.watch),
        "roster": state.roster.to_plain(),
        "deck": state.deck.to_plain() if state.deck is not None else None,
        "newest": [sorted(lane.newest.items()) for lane in state.lanes],
        "learner": _learner(state.policy),
        "policy": state.policy.state(),
    }


def place_after(plain: dict[str, Any], shard: int, lanes: int) -> tuple[int, int]:
    """Return position and version at which a shard goes on from what `capture` returned.

    Parameters
    ----------
    lanes
        In how many orders commits are decided from now on: one, or one for each shard.
    """
    if 1 < lanes == len(plain["newest"]):
        return plain["positions"][shard], plain["versions"][shard]
    return max(plain["positions"]), plain["version"]


def restore(state: State, plain: dict[str, Any]) -> None:
    """Let a coordinator that has not begun go on from what `capture` returned; shards may be divided otherwise.

    Unless there are as many orders of commits as before, all shards go on from the oldest one's version.  What was
    learned by another policy, or by the same one with other parameters, is forgotten.
    """
    for lane in state.lanes:
        lane.position, lane.version = place_after(plain, lane.shards[0], len(state.lanes))
        lane.newest = dict(plain["newest"][lane.block]) if len(plain["newest"]) == len(state.lanes) else {}
    state.seconds_before = plain["seconds"]
    state.samples_applied = plain["samples_applied"]
    state.bad_batches, state.samples_given_up = plain.get("bad_batches", (0, 0))  # older checkpoints have none
    state.progress = Progress.from_plain(plain.get("progress"), state.plan.watch)  # nor of evaluations
    state.roster.restore(plain["roster"])
    if state.deck is not None and plain["deck"] is not None:
        state.deck.restore(plain["deck"])
    if plain.get("learner") == _learner(state.policy):
        state.policy.restore(plain["policy"])
    for one in state.shards:
        one.visible = state.lane_of(one.shard).position


def _learner(policy: Policy) -> str:
    given = (f"{one.name}={getattr(policy, one.name)!r}" for one in parameters_of(type(policy)))
    return f"{type(policy).__qualname__}({', '.join(given)})"

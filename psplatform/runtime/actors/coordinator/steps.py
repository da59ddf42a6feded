"""What a run is doing before its first commit and after its last one, in words."""

from __future__ import annotations

from typing import Any, Final

from psplatform.core.coordination.ending import Phase
from psplatform.core.supervision.replicated_coordinator import ReplicatedCoordinator

PLACING: Final = "placing servers and replicas"
LOADING: Final = "loading the model into servers and replicas"

_ENDING: Final = {
    Phase.DRAINING: "making the last commits visible",
    Phase.EVALUATING: "evaluating the last version",
    Phase.SAVING: "saving the model",
    Phase.OVER: "closing the log",
}


def assembling(ready: int, wanted: int) -> str:
    """Return what a run waits for whose servers are ready."""
    return f"waiting for workers to load the model and their data: {ready} of {wanted} are ready"


def serving(lead: ReplicatedCoordinator) -> list[dict[str, Any]]:
    """Return what the coordinator holds of each shard: its server, that one's epoch, and the replicas in sync."""
    return [
        {"server": one.server, "epoch": one.epoch, "in_sync": tuple(one.in_sync), "promoting": one.promoting}
        for one in lead.coordinator.state.shards
    ]


def in_words(lead: ReplicatedCoordinator | None, step: str) -> str:
    """Return what a run is doing: `step` before it has begun, nothing while it trains, and what ends it then."""
    return step if lead is None else _ENDING.get(lead.coordinator.ending.phase, "")

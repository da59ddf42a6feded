"""Whether each checkpoint is whole and one cut."""

from __future__ import annotations

from typing import Any

from psplatform.core.protocol.effects import Archive, Seal
from psplatform.simulation.faults.checks.histories import History, Lineage, by_position, violated
from psplatform.simulation.faults.storage import Storage


class CheckpointCuts:
    """The checkpoints of a run in `storage`, with the gradients that each part is made of."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._lineages: dict[tuple[int, int], Lineage] = {}

    def write_part(self, effect: Archive, history: History) -> dict[str, Any]:
        """Write the part of one shard; return what a manifest says of it."""
        self._storage.write_part(effect.number, history.shard, history.digest)
        self._lineages[effect.number, history.shard] = history.lineage
        return {"position": effect.position, "shard": history.shard, "digest": history.digest}

    def seal(self, effect: Seal, *, shards: int) -> None:
        """Write the manifest, and see that the checkpoint has a part of every shard, and is one cut."""
        self._storage.seal(effect.number, {part["shard"]: part["digest"] for part in effect.parts})
        positions = [part["position"] for part in effect.parts]
        there = [part["shard"] for part in effect.parts]
        if positions != list(effect.state["positions"]) or there != list(range(shards)):
            raise violated(
                "S7", f"checkpoint {effect.number} has parts of {positions}, cut at {effect.state['positions']}"
            )
        if not self._storage.is_whole(effect.number):
            raise violated("S7", f"checkpoint {effect.number} counts as complete and is not whole")
        if len(effect.state["newest"]) == 1:
            self._check_same_cut(effect)

    def discard(self, number: int) -> None:
        """Remove what is there of a checkpoint that was given up."""
        self._storage.discard(number)

    def _check_same_cut(self, effect: Seal) -> None:
        first, *others = (by_position(self._lineages[effect.number, part["shard"]]) for part in effect.parts)
        for other in others:
            for position in first.keys() & other.keys():
                if first[position] != other[position]:
                    raise violated("S7", f"checkpoint {effect.number} is made of different gradients at {position}")

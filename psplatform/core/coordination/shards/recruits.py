"""The replicas that are being made: how many for each shard, and in whose place."""

from __future__ import annotations

from psplatform.core.coordination.shards.state import ShardState
from psplatform.core.coordination.state import State
from psplatform.core.protocol.effects import Recruit
from psplatform.core.protocol.events import CopyMisplaced, NoCopy, ProcessesChanged


class Recruits:
    """Has replicas made: those that are missing, and those that are to stand where they are better placed."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._asked: dict[int, int] = {}
        """By shard, how many are being made."""
        self._moving: dict[int, CopyMisplaced] = {}
        """By shard, in whose place."""

    def fill(self, one: ShardState) -> None:
        """See that as many replicas are made as are missing."""
        protection = self._state.plan.protection
        if protection is None or (self._state.stopping and not one.replaced):
            return  # one that waits for a replica could not end without it
        asked = self._asked.get(one.shard, 0)
        for _ in range(protection.replicas - len(one.in_sync) - len(one.joining) - asked):
            self._order(one)

    def replace(self, one: ShardState, event: CopyMisplaced) -> None:
        """Have one made in the place of another, unless any is being made or the run ends."""
        if not one.joining and not self._asked.get(one.shard, 0) and not self._state.stopping:
            self._moving[one.shard] = event
            self._order(one)

    def _order(self, one: ShardState) -> None:
        self._asked[one.shard] = self._asked.get(one.shard, 0) + 1
        self._state.effects.append(Recruit(one.shard))

    def take_replaced(self, shard: int) -> CopyMisplaced | None:
        """Return in whose place one was made, if that is known, and forget it."""
        return self._moving.pop(shard, None)

    def note_ready(self, shard: int) -> None:
        """Count one as made."""
        self._asked[shard] = max(0, self._asked.get(shard, 0) - 1)

    def on_none(self, event: NoCopy) -> None:
        """Let a shard stay with fewer replicas than asked for."""
        self._asked[event.shard] = 0
        self._moving.pop(event.shard, None)
        self._state.log("note", text=f"no new replica of shard {event.shard}: {event.reason}")

    def on_processes_changed(self, event: ProcessesChanged) -> None:
        """Try again to make the replicas that are missing."""
        for one in self._state.shards:
            self.fill(one)

    def forget(self) -> None:
        """Forget the replicas that a coordinator was to make which is gone."""
        self._asked.clear()
        self._moving.clear()

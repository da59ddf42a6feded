"""On which hosts the servers are that gradients are sent to."""

from __future__ import annotations

from psplatform.core.addresses import host_of
from psplatform.core.coordination.state import State
from psplatform.core.transfers import TransferPlanner


class Servers:
    """Tells the planner where shards are served, and logs it; nothing where there is none."""

    def __init__(self, state: State, planner: TransferPlanner | None) -> None:
        self._state, self._planner = state, planner
        self._servers = [one.server for one in state.shards]
        """By shard, the server that the planner knows."""

    def begin(self) -> None:
        """Log on which hosts the servers are."""
        if self._planner is not None:
            self._log(self._planner)

    def follow(self) -> None:
        """Tell the planner where a shard is served now that has another server than before, as far as that is known."""
        moved = False
        for one in self._state.shards:
            if one.server == self._servers[one.shard]:
                continue
            process = self._state.processes.get(one.server)
            if process is None:
                continue
            self._servers[one.shard] = one.server
            if self._planner is not None:
                self._planner.serve(one.shard, host_of(process), self._state.now)
                moved = True
        if moved and self._planner is not None:
            self._log(self._planner)

    def _log(self, planner: TransferPlanner) -> None:
        """Log the hosts that serve, each with the bytes of a gradient for it."""
        size_bytes: dict[str, float] = {}
        for host, part_bytes in planner.servers:
            size_bytes[host] = size_bytes.get(host, 0.0) + part_bytes
        if size_bytes:
            self._state.log("servers", hosts=list(size_bytes), bytes=list(size_bytes.values()))

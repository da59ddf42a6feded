"""The copies of shards that an in-memory run has had, and which of them serve."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from psplatform.core.coordination import Coordinator
from psplatform.core.plan import Plan
from psplatform.core.protocol.names import Role, first_server
from psplatform.core.shards.links import MakeAccount, no_account
from psplatform.core.shards.replica import Replica, ShardCopy
from psplatform.core.shards.server import Server
from psplatform.memory.arithmetic import Arithmetic
from psplatform.memory.engine import Engine
from psplatform.memory.roles.gradients import Backpressure
from psplatform.memory.roles.shard_state import VirtualShardState
from psplatform.nodes.shard import ShardNode


class VirtualShards:
    """Every copy of a shard: servers, replicas and what they were.

    Parameters
    ----------
    make_account
        Makes the accounts of what replicas lack, where the plan has any.
    seat
        Gives another copy of a shard a process; says whether there is one for it.
    beat
        Lets a role look at its leases now and then, from now on.

    Attributes
    ----------
    nodes
        By name.
    serving
        By shard, the name and the epoch of the copy that serves, or served last.
    backpressure
        Holds pushes back for which the servers have no room.
    """

    def __init__(
        self,
        plan: Plan,
        engine: Engine,
        arithmetic: Arithmetic,
        make_account: MakeAccount | None,
        seat: Callable[[int, str], bool],
        beat: Callable[[str, Callable[[Any], None]], None],
    ) -> None:
        self._engine, self._arithmetic = engine, arithmetic
        self._options: Any = {"make_account": make_account or no_account, "from_workers": plan.from_workers}
        self._seat, self._beat = seat, beat
        self.nodes: dict[str, ShardNode[VirtualShardState]] = {}
        self.serving = [(first_server(shard), 1) for shard in range(plan.shards)]
        self.backpressure = Backpressure(engine.agenda, self.server_of, plan.shards)

    def begin(self, coordinator: Coordinator, entitled_until: float | None) -> None:
        """Make the copies that a run begins with; servers have a lease until then, where there are leases."""
        for one in coordinator.state.shards:
            commit_log = coordinator.state.commit_log_of(one.shard)
            at, version, replicas = commit_log.position, commit_log.version, tuple(one.in_sync)
            server = Server(one.shard, 1, 0, at, version, one.server, replicas=replicas, **self._options)
            if entitled_until is not None:
                server.entitled_until = entitled_until
            self._make(server)
            for name in replicas:
                self._make(Replica(one.shard, name, position=at, version=version))

    def make_replica(self, shard: int, term: int) -> str | None:
        """Make a replica that obeys the coordinator of `term`; return its name, or ``None`` if no process is left."""
        name = f"replica-{shard}-{len(self.nodes)}"
        if not self._seat(shard, name):
            return None
        self._make(Replica(shard, name, epoch=0))
        self._engine.network.introduce(name, term)
        return name

    def server_of(self, shard: int) -> Server:
        """Return the server of a shard; of one that is being replaced, the last."""
        server = self.nodes[self.serving[shard][0]].server
        if server is None:
            raise RuntimeError(f"the copy of shard {shard} that serves has not become a server")
        return server

    def serve(self, shard: int, epoch: int, copy: str) -> bool:
        """Learn who serves a shard; return whether that is news."""
        if epoch <= self.serving[shard][1]:
            return False
        self.serving[shard] = copy, epoch
        return True

    def _make(self, part: Server | Replica) -> None:
        control, name, engine = ShardCopy(part, **self._options), part.name, self._engine
        node = self.nodes[name] = ShardNode(
            control,
            partial(engine.processes.clock, name),
            partial(engine.network.send, Role.copy(name)),
            partial(VirtualShardState, control, engine, self._arithmetic, self.backpressure),
            partial(engine.processes.note, name),
        )
        engine.network.listen(name, node.feed, node.state.expect)
        self._beat(name, node.feed)

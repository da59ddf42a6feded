"""Who lives in the processes of an in-memory run, as those see it who end processes."""

from __future__ import annotations

from typing import Protocol

from psplatform.memory.engine import Agenda, Processes
from psplatform.memory.roles.leading import VirtualCoordinator, VirtualStandby
from psplatform.memory.roles.shard_state import VirtualShardState
from psplatform.memory.roles.standbys import Standbys
from psplatform.memory.roles.workers import Workers
from psplatform.nodes.shard import ShardNode


class Inhabitants(Protocol):
    """The roles of a run and their processes.

    Attributes
    ----------
    workers
        The gradient workers.
    copies
        By name.
    leads
        The coordinators so far; the last is in charge.
    standbys
        Those that may take over.
    """

    agenda: Agenda
    processes: Processes
    workers: Workers
    copies: dict[str, ShardNode[VirtualShardState]]
    leads: list[VirtualCoordinator]
    standbys: Standbys

    @property
    def standby(self) -> VirtualStandby | None:
        """The first standby that may take over, if there is one."""

"""Carriers: how a server's transfers get to its replicas.  Each place where replicas can be has one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable

from torch import Tensor

from psplatform.core.protocol.effects import Transmit
from psplatform.core.shards.server import Server
from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.calls import Connect, Peer
from psplatform.runtime.dataplane.replicas.cold_storage import StoreCarrier
from psplatform.runtime.dataplane.replicas.transfers import ProcessCarrier
from psplatform.runtime.dataplane.segments import Place, SegmentName
from psplatform.runtime.dataplane.transports import TRANSPORTS
from psplatform.runtime.program import Program
from psplatform.tensors.shard import Shard


class Carrier(Protocol):
    """A server's side of replication: one transfer to each replica at a time."""

    def know(self, replica: str, peer: Peer) -> None:
        """Send transfers to a replica to that peer from now on."""

    def prepare(self, replica: str) -> None:
        """Make beforehand what transfers to a replica take."""

    def capture(self, effect: Transmit) -> int:
        """Capture what a transfer carries, as it is now; return its size in bytes.  For the thread that computes."""

    def send(
        self, connect: Connect, effect: Transmit, slabs: Mapping[str, SegmentName], feed: Callable[[Any], None]
    ) -> None:
        """Send what was captured until it is acknowledged, which `feed` is told, or another is sent to this replica.

        Of gradients nothing was captured: they are named, and those that lie in `slabs`, by member, can be read there.
        """

    def forget(self, replica: str) -> None:
        """Send a replica that was excluded nothing more, and give up what that took."""

    def close(self) -> None:
        """Send nothing more."""


@runtime_checkable
class OffersRoom(Protocol):
    """A carrier that saves copying updates."""

    def room(self) -> Mapping[str, Tensor] | None:
        """Return vectors to merge the next update into, if it is likely to be sent.  For the thread that computes."""


@runtime_checkable
class ReadInPlace(Protocol):
    """A carrier whose replicas can read parameters where their server shows them, which saves copying them."""

    def read_in_place(self, place_of: Callable[[Mapping[str, Tensor]], Place | None]) -> None:
        """Let replicas read there; `place_of` returns the place of one of the server's two copies, of others ``None``.

        The carrier has those copied that were not read when a step is about to write over them
        (`Shard.before_overwriting`).
        """


@runtime_checkable
class KeepsTheBeginning(Protocol):
    """A carrier to replicas that are no processes, and would not know what the run begins with."""

    def keep(self, part: Server) -> None:
        """Keep the state that a server begins with; when this returns, a copy can be made of it."""


MakeCarrier = Callable[[Program, str, Shard, Background, Callable[[str], None]], Carrier]


@dataclass(frozen=True, slots=True)
class ReplicaPlace:
    """A place where replicas can be, and the way to it.

    Attributes
    ----------
    make
        Makes the carrier of a copy of that name; its last argument takes words about what keeps transfers back.
    replicas_archive
        Whether replicas write their shard's part of checkpoints, so that their server need not.
    """

    make: MakeCarrier
    replicas_archive: bool


def _to_processes(
    program: Program, name: str, shard: Shard, background: Background, _on_trouble: Callable[[str], None]
) -> Carrier:
    protection = program.plan.protection
    each = protection is not None and protection.sends_updates
    return ProcessCarrier(program.run, name, shard, background, TRANSPORTS[program.transport], each=each)


REPLICA_PLACES: Final[dict[str, ReplicaPlace]] = {
    "replica": ReplicaPlace(_to_processes, replicas_archive=True),
    "store": ReplicaPlace(StoreCarrier, replicas_archive=False),
}
"""By the word with which a job says where replicas are (`replication.target`)."""

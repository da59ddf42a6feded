"""What one copy of a shard begins as: light, because Dask reads it on the event loops of scheduler and worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from psplatform.core.shards.links import MakeAccount
from psplatform.core.shards.replica import Replica
from psplatform.core.shards.server import Server
from psplatform.core.supervision.leases import entitlement

if TYPE_CHECKING:
    from psplatform.runtime.program import Program


@dataclass(frozen=True, slots=True)
class InitialRole:
    """What a copy begins as.

    Attributes
    ----------
    serving
        Whether it is the server of its shard at once.
    replicas
        Names of the replicas that the server has from the beginning.
    fresh
        Whether it begins with the run; else a server must bring it in sync.
    cold
        Whether it begins with what the store keeps of its shard, and not `fresh`.
    """

    serving: bool
    replicas: tuple[str, ...] = ()
    fresh: bool = True
    cold: bool = False

    def part(
        self,
        program: Program,
        shard: int,
        name: str,
        make_account: MakeAccount,
        now: float,
        *,
        archives_itself: bool,
    ) -> Server | Replica:
        """Return the part that the copy `name` of a shard plays from the moment `now` on.

        Parameters
        ----------
        archives_itself
            Whether a server writes its part of checkpoints although it has replicas.
        """
        position, version = program.resume_at(shard) if self.fresh else (0, 0)
        if not self.serving:
            epoch = 1 if self.fresh else 0
            return Replica(shard, name, epoch, position=position, version=version)
        server = Server(
            shard=shard,
            position=position,
            version=version,
            name=name,
            make_account=make_account,
            replicas=self.replicas,
            archives_itself=archives_itself,
            from_workers=program.plan.from_workers,
        )
        if program.plan.protection is not None:
            server.entitled_until = entitlement(now, program.grants().first_s)
        return server

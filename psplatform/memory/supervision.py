"""How an in-memory run notices that processes are lost, and what stands by for that."""

from __future__ import annotations

from dataclasses import dataclass

from psplatform.core.grants import Grants
from psplatform.core.plan import Plan


@dataclass(frozen=True, slots=True)
class Supervision:
    """How losses are noticed, and what stands by.

    Attributes
    ----------
    standby
        Whether a standby takes over from a lost coordinator: there are as many as replicas of a shard.
    spares
        Copies that can be made in place of lost ones.
    notice_s
        Seconds until the end of a process is noticed.
    beat_s
        Seconds between the beats of who holds a lease; 0 for no leases: then only the end of a process is noticed.
    shortest_lease_s, longest_lease_s
        Limits of a lease.
    worker_lease_s
        Silence after which a stopped gradient worker counts as lost.
    """

    standby: bool = False
    spares: int = 0
    notice_s: float = 0.0
    beat_s: float = 0.0
    shortest_lease_s: float = 1.0
    longest_lease_s: float = 5.0
    worker_lease_s: float = 10.0

    def standbys_of(self, plan: Plan) -> int:
        """Return how many standbys a run of that plan has."""
        replicas = plan.protection.replicas if plan.protection is not None else 1
        return replicas if self.standby else 0

    def grants(self) -> Grants | None:
        """Return an empty book of leases, or ``None`` where there are none."""
        return Grants(self.shortest_lease_s, self.longest_lease_s) if self.beat_s else None

"""How far replicas really are from what is visible, computed from the tensors of both (S2, S5)."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from psplatform.core.coordination import Coordinator
from psplatform.core.coordination.shards.state import ShardState
from psplatform.core.shards.server import Server
from psplatform.memory import MemoryRun
from psplatform.simulation.faults.checks.histories import History, violated
from psplatform.simulation.faults.checks.reference_model import ReferenceModel
from psplatform.simulation.faults.schedules.trial import Copying

_NEAR: Final = 1e-9
"""Two norms that differ by less are compared exactly: that of a vector is rounded by far less than this."""


def is_longer(one: NDArray[np.float64], other: NDArray[np.float64], than: float) -> bool:
    """Return whether the Euclidean distance of two vectors, ``float64[p]``, is above `than`: not even by rounding."""
    distance = float(np.linalg.norm(one - other))
    if abs(distance - than) > _NEAR * than:
        return distance > than
    pairs = zip(one.tolist(), other.tolist(), strict=True)
    return sum(((Fraction(a) - Fraction(b)) ** 2 for a, b in pairs), Fraction()) > Fraction(than) ** 2


class Distances:
    """Checks the bound for every replica that may be promoted, and the estimates of what it lacks.

    Parameters
    ----------
    copying
        The bound of the whole model.
    """

    def __init__(self, run: MemoryRun, reference: ReferenceModel, copying: Copying) -> None:
        self._run = run
        self._reference = reference
        norm = copying.unit == "norm"
        self._pause = copying.pause
        self._backed: set[tuple[int, int]] = set()
        self._most_distance = copying.bound / math.sqrt(run.plan.shards) if norm else math.inf
        self._most_updates = math.inf if norm else copying.bound

    def check(self, shards: set[int]) -> None:
        """Check the shards of which something has changed."""
        coordinators = [self._run.coordinator]
        alive = [one for one in self._run.standbys.successors if not self._run.processes.is_dead(one.name)]
        coordinators += [one.standby.coordinator for one in alive]
        for shard in sorted(shards):
            for coordinator in coordinators:
                self._check_replicas(coordinator, coordinator.state.shards[shard])
            self._check_servers(shard)

    def _check_replicas(self, coordinator: Coordinator, one: ShardState) -> None:
        part = self._run.copies[one.server].control.part
        if one.promoting or not isinstance(part, Server) or part.epoch != one.epoch:
            return
        server = self._reference.histories[one.server]
        for name in one.in_sync:
            replica = self._reference.histories[name]
            distance = float(np.linalg.norm(server.front - replica.newest))
            lacking = server.applied_visible - replica.applied
            # One that is ahead of what is visible lacks nothing of it.
            if lacking > 0 and self._exceeds(distance, lacking):
                term = coordinator.state.term
                raise violated(
                    "S2",
                    f"{name}, which term {term} may promote, is {distance:g} and {lacking} updates from what "
                    f"{one.server} shows; the bound is {self._words}",
                )

    def _check_servers(self, shard: int) -> None:
        for name, history in self._reference.histories.items():
            part = self._run.copies[name].control.part
            if history.shard != shard or not isinstance(part, Server):
                continue
            self._check_successor(name, history, part.epoch)
            self._check_alone(name, history, part)
            self._check_estimates(name, history, part)

    def _check_successor(self, name: str, history: History, epoch: int) -> None:
        if epoch > 1 and (history.shard, epoch) not in self._reference.bases:
            return  # it was promoted and has shown nothing yet
        # Of those promoted since, the first that served: one lost before that has shown nothing.
        served = [one for shard, one in self._reference.bases if shard == history.shard and one > epoch]
        if not served:
            return
        base = self._reference.bases[history.shard, min(served)]
        distance = float(np.linalg.norm(history.front - base.parameters))
        lost = history.applied_visible - base.applied
        if lost > 0 and self._exceeds(distance, lost):
            raise violated(
                "S5",
                f"what {name} showed is {distance:g} and {lost} updates from the state of epoch {min(served)}; "
                f"the bound is {self._words}",
            )

    def _check_estimates(self, name: str, history: History, part: Server) -> None:
        for replica, held in self._reference.histories.items():
            link = part.links.get(replica)
            computing = part.newest != history.position  # the account is told when that is done
            if link is None or not link.in_sync or computing or held.epoch > history.epoch:
                continue
            if is_longer(history.newest, held.newest, link.account.distance):
                distance = float(np.linalg.norm(history.newest - held.newest))
                raise violated("S2", f"{name} takes {replica} to be {link.account.distance!r} away, it is {distance!r}")
            if link.account.updates < history.applied - held.applied:
                raise violated("S2", f"{name} takes {replica} to lack {link.account.updates} updates, it lacks more")

    def _check_alone(self, name: str, history: History, part: Server) -> None:
        """Hold a promoted server that must wait for a replica against the bound, from what it began with."""
        if part.links.in_sync:
            self._backed.add((history.shard, part.epoch))
        base = self._reference.bases.get((history.shard, part.epoch))
        if not self._pause or base is None or (history.shard, part.epoch) in self._backed:
            return
        distance = float(np.linalg.norm(history.front - base.parameters))
        if self._exceeds(distance, history.applied_visible - base.applied):
            raise violated("S2", f"{name} goes on for {distance:g} without any replica; the bound is {self._words}")

    def _exceeds(self, distance: float, updates: int) -> bool:
        return distance > self._most_distance or updates > self._most_updates

    @property
    def _words(self) -> str:
        return f"{self._most_distance:g}" if self._most_distance < math.inf else f"{self._most_updates:g} updates"

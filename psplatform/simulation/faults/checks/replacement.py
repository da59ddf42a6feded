"""Lost gradient workers are replaced as long as there is a Dask worker for them (S13)."""

from __future__ import annotations

from typing import Final

from psplatform.core.coordination.ending import Phase
from psplatform.memory import MemoryRun
from psplatform.memory.machines import Machines
from psplatform.simulation.faults.checks.reference_model import violated

_LIMIT_S: Final = 8.0
"""More than it takes to notice a loss, to ask a process that does not answer, and to ask the next."""


class Replacement:
    """Checks, where roles are placed, that a missing gradient worker is started where there is a process for it.

    That is one that runs, does not end in good order, and has no gradient worker: at once if it has no copy of a shard
    either, else when there has been no other for a while.
    """

    def __init__(self, run: MemoryRun, machines: Machines) -> None:
        self._run, self._machines = run, machines
        self._since: dict[tuple[str, bool], float] = {}

    def check(self, quiet_at: float) -> None:
        """Raise if one has been free for long, and a worker missing, since the last fault was over at `quiet_at`."""
        now = self._run.agenda.now
        free = self._free() if now > quiet_at and self._is_missing_some else []
        self._since = {one: self._since.get(one, now) for one in free}
        for (address, shared), since in self._since.items():
            if now - since > _LIMIT_S + (self._run.supervision.share_after_s if shared else 0.0):
                there, wanted = len(self._present), self._run.plan.workers
                has = "has no gradient worker" if shared else "is free"
                raise violated("S13", f"{there} of {wanted} workers are there, and {address} {has} since {since:.2f}")

    @property
    def _is_missing_some(self) -> bool:
        run, lead = self._run, self._run.leads[-1]
        if run.processes.is_dead(lead.name) or lead.lead.replaced:
            return False
        runs = lead.lead.coordinator.ending.phase is Phase.RUNNING
        return runs and len(self._present) < run.plan.workers

    @property
    def _present(self) -> set[str]:
        """The workers that live and are the coordinator's."""
        lead = self._run.leads[-1]
        members = {one.name for one in lead.lead.coordinator.state.roster.members()}
        return set(self._run.worker_names) & (members | set(lead.workers.names))

    def _free(self) -> list[tuple[str, bool]]:
        """Return the processes without gradient worker, and whether they have a copy of a shard."""
        run, of = self._run, self._run.processes.of
        copies = {of(copy) for one in run.coordinator.state.shards for copy in one.copies}
        taken = {of(name) for name in self._present}
        return [
            (address, address in copies)
            for address in self._machines.addresses
            if address not in taken and not run.processes.is_stopped(address) and not run.retirements.began(address)
        ]

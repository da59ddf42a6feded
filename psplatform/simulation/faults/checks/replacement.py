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
    """Checks, where roles are placed, that a gradient worker which is missing is started in a process that is free.

    Free is a process that runs, does not end in good order, and has neither a copy of a shard nor a gradient worker.
    """

    def __init__(self, run: MemoryRun, machines: Machines) -> None:
        self._run, self._machines = run, machines
        self._since: dict[str, float] = {}

    def check(self, quiet_at: float) -> None:
        """Raise if one has been free for long, and a worker missing, since the last fault was over at `quiet_at`."""
        now = self._run.agenda.now
        free = self._free() if now > quiet_at and self._is_missing_some else []
        self._since = {address: self._since.get(address, now) for address in free}
        for address, since in self._since.items():
            if now - since > _LIMIT_S:
                there, wanted = len(self._present), self._run.plan.workers
                raise violated("S13", f"{there} of {wanted} workers are there, and {address} is free since {since:.2f}")

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

    def _free(self) -> list[str]:
        run, of = self._run, self._run.processes.of
        taken = {of(copy) for one in run.coordinator.state.shards for copy in one.copies}
        taken |= {of(name) for name in self._present}
        return [
            address
            for address in self._machines.addresses
            if address not in taken and not run.processes.is_stopped(address) and not run.retirements.began(address)
        ]

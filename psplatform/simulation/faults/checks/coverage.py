"""How often faults met which phase of the protocol: what a search has not met, it has not tried."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from psplatform.core.shards.replica import Replica
from psplatform.core.shards.server import Server
from psplatform.memory import MemoryRun
from psplatform.simulation.faults.schedules.schedule import Fault


@dataclass
class Coverage:
    """Counts faults by their kind and by the phases they met; a fault may meet several at once."""

    met: Counter[str] = field(default_factory=Counter)

    def note(self, run: MemoryRun, fault: Fault) -> None:
        """Count a fault that happens now."""
        role = fault.who.partition(" ")[0] or "storage"
        self.met[f"{fault.kind} {role}"] += 1
        for phase in phases_of(run):
            self.met[f"{fault.kind} | {phase}"] += 1


def phases_of(run: MemoryRun) -> set[str]:
    """Return in words what is under way in a run."""
    coordinator = run.coordinator
    phases = {f"run {coordinator.ending.phase.value}"}
    if coordinator.takeover.awaited_shards:
        phases.add("takeover under way")
    if coordinator.checkpoints.under_way:
        phases.add("checkpoint under way")
    transfers = {
        "offers waiting": len(coordinator.offers.waiting),
        "transfers granted": len(coordinator.offers.granted),
    }
    phases |= {phase for phase, number in transfers.items() if number}
    if coordinator.transfers.aggregator is not None:
        phases.add("sums under way")
    if run.standby is None and len(run.leads) > 1:
        phases.add("no standby after a takeover")
    for one in coordinator.state.shards:
        if one.promoting:
            phases.add("promoting")
        if one.retiring:
            phases.add("handing over")
        if one.joining:
            phases.add("replica joining")
        if not one.in_sync:
            phases.add("shard unprotected")
        phases |= _phases_of_copies(run, one.copies)
    return phases


def _phases_of_copies(run: MemoryRun, names: list[str]) -> set[str]:
    phases = set()
    for name in names:
        part = run.copies[name].control.part
        if isinstance(part, Replica):
            if part.loading:
                phases.add("replica loading")
        elif isinstance(part, Server):
            phases |= part.under_way
    return phases

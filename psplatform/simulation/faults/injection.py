"""Doing to a run what its schedule says, when it says so."""

from __future__ import annotations

from collections.abc import Callable

from psplatform.memory import MemoryRun
from psplatform.memory.processes.machines import Machines
from psplatform.simulation.faults.schedules.schedule import Fault, Selector
from psplatform.simulation.faults.schedules.sums import AGGREGATOR
from psplatform.simulation.faults.storage import Storage
from psplatform.simulation.faults.world import BadLink, Partition, TrialWorld

_SLICE_S = 0.05
"""Seconds in which a slow process runs and stands still once."""


class Injection:
    """Carries out a schedule.

    Parameters
    ----------
    on_fault
        Told of each fault and of the process it happens to, just before it does.

    Attributes
    ----------
    done
        Faults carried out; those whose role nobody played are not among them.
    quiet_at
        Time at which everything done so far is over.
    """

    def __init__(
        self,
        run: MemoryRun,
        world: TrialWorld,
        storage: Storage,
        faults: tuple[Fault, ...],
        on_fault: Callable[[Fault, str], None],
        machines: Machines | None = None,
    ) -> None:
        self._machines = machines
        self.done = 0
        self.quiet_at = 0.0
        self._run = run
        self._world = world
        self._storage = storage
        self._on_fault = on_fault
        self._waiting: list[Fault] = []
        self._by_event = sorted((one for one in faults if one.event is not None), key=lambda one: one.event or 0)
        self._by_time = len(faults) - len(self._by_event)
        for one in faults:
            if one.at is not None:
                run.agenda.enter_at(one.at, self._do_timed, one)

    @property
    def left(self) -> int:
        """Faults that are still to come."""
        return len(self._by_event) + self._by_time

    def before_event(self, number: int) -> None:
        """Carry out what is due before event `number` of the run."""
        while self._by_event and (self._by_event[0].event or 0) <= number:
            self._do(self._by_event.pop(0))
        # Sums take moments: a fault of who makes them waits for one.
        if self._waiting and self._run.coordinator.transfers.aggregator is not None:
            self._do(self._waiting.pop(0))

    def _do_timed(self, fault: Fault) -> None:
        self._by_time -= 1
        self._do(fault)

    def _do(self, fault: Fault) -> None:
        process = self._process(fault.who) if fault.who else ""
        if process is None:
            if fault.who == AGGREGATOR:
                self._waiting.append(fault)
            return
        self.done += 1
        self.quiet_at = max(self.quiet_at, self._run.agenda.now + fault.seconds)
        self._on_fault(fault, process)
        _MEANS[fault.kind](self, fault, process)

    def _process(self, who: str) -> str | None:
        name = self._name(Selector.parse(who))
        return None if name is None or self._run.processes.is_dead(name) else self._run.processes.of(name)

    def _name(self, role: Selector) -> str | None:
        run = self._run
        if role.role == "coordinator":
            return run.leads[-1].name
        if role.role == "standby":
            return run.standby.name if run.standby is not None else None
        if role.role == "evaluator":
            name = run.leads[-1].workers.evaluator
            return name if run.addresses and name in run.evaluators else None
        if role.role in ("worker", AGGREGATOR):
            return self._worker(role)
        shards = run.coordinator.state.shards
        if role.role == "client" or role.number >= len(shards):
            return None
        one = shards[role.number]
        return one.server if role.role == "server" else next(iter([*one.in_sync, *one.joining]), None)

    def _worker(self, role: Selector) -> str | None:
        if role.role == AGGREGATOR:
            return self._run.coordinator.transfers.aggregator
        names = list(self._run.workers.nodes)
        return names[role.number % len(names)] if names else None

    # --- what each kind means here ---

    def _kill(self, fault: Fault, process: str) -> None:
        self._run.losses.kill(process)

    def _retire(self, fault: Fault, process: str) -> None:
        self._run.retirements.begin(process, fault.seconds)

    def _pause(self, fault: Fault, process: str) -> None:
        self._run.losses.pause(process, fault.seconds)

    def _slow(self, fault: Fault, process: str) -> None:
        self._go_slowly(process, 1.0 - 1.0 / max(1.0, fault.factor), self._run.agenda.now + fault.seconds)

    def _go_slowly(self, process: str, standing: float, until: float) -> None:
        if self._run.agenda.now < until:
            self._run.processes.stop(process, _SLICE_S * standing)
            self._run.agenda.enter(_SLICE_S, self._go_slowly, process, standing, until)

    def _split(self, fault: Fault, process: str) -> None:
        others = {self._process(one) for one in fault.others} - {None, process}
        until = self._run.agenda.now + fault.seconds
        if others or not fault.others:
            sides = frozenset({process}), frozenset(one for one in others if one is not None)
            self._world.split(Partition(self._run.agenda.now, until, *sides, fault.way))

    def _spoil_link(self, fault: Fault, process: str) -> None:
        until = self._run.agenda.now + fault.seconds
        self._world.spoil(BadLink(until, process, fault.kind, fault.factor))

    def _hold_claims(self, fault: Fault, process: str) -> None:
        now = self._run.agenda.now
        self._world.split_from_grants(process, now, now + fault.seconds, fault.way)

    def _beside(self, process: str) -> list[str]:
        """Return the processes on its host; where there are no hosts, itself."""
        host = self._machines.host_of(process) if self._machines is not None else ""
        return self._machines.on_host(host) if self._machines is not None and host else [process]

    def _kill_host(self, fault: Fault, process: str) -> None:
        for one in self._beside(process):
            self._run.losses.kill(one)

    def _cut_off(self, fault: Fault, process: str) -> None:
        side, now = self._beside(process), self._run.agenda.now
        self._world.split(Partition(now, now + fault.seconds, frozenset(side), frozenset(), "both"))
        for one in side:
            self._world.split_from_grants(one, now, now + fault.seconds, "both")

    def _spoil_storage(self, fault: Fault, process: str) -> None:
        self._storage.arm(fault.what, fault.how, fault.write)


_MEANS: dict[str, Callable[[Injection, Fault, str], None]] = {
    "kill": Injection._kill,
    "retire": Injection._retire,
    "pause": Injection._pause,
    "slow": Injection._slow,
    "partition": Injection._split,
    "delay": Injection._spoil_link,
    "reorder": Injection._spoil_link,
    "duplicate": Injection._spoil_link,
    "claim": Injection._hold_claims,
    "host": Injection._kill_host,
    "cut": Injection._cut_off,
    "storage": Injection._spoil_storage,
}

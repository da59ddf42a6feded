"""Which role of an in-memory run lives in which process, and which processes there are.

Either every role has a process of its own, and so many copies can be made anew (`Unplaced`); or there are Dask workers
on hosts, and roles go where they go in a run on a cluster (`Machines`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from psplatform.core.coordination import Coordinator
from psplatform.core.plan import Plan
from psplatform.core.protocol.names import first_replica, first_server
from psplatform.core.supervision.placement import Placement, Process, place, process_for_copy, process_for_standby
from psplatform.core.supervision.unavailable import UnavailableProcesses
from psplatform.memory.engine import Processes
from psplatform.memory.processes.joined_workers import JoinedWorkers
from psplatform.memory.processes.placing import OnPlacing
from psplatform.memory.processes.worker_pool import SupervisedRun, VirtualWorkerPool
from psplatform.memory.roles.leading import VirtualCoordinator, VirtualWorkers
from psplatform.memory.roles.standbys import Standbys

OnPlaced = Callable[[str, Process, list[Process], list[Process]], None]
"""Takes a role that was given a process after the start, that process, those from which it is to be apart, and all that
there are."""


class PlacedRun(Protocol):
    """What is asked of a run whose roles are given processes."""

    plan: Plan
    processes: Processes
    standbys: Standbys

    @property
    def coordinator(self) -> Coordinator:
        """The coordinator that is in charge."""

    @property
    def worker_names(self) -> list[str]:
        """The gradient workers that have not left."""


class Seating(Protocol):
    """Gives roles processes."""

    def begin(self, run: PlacedRun) -> None:
        """Give the roles that a run begins with their processes."""

    def seat_copy(self, run: PlacedRun, shard: int, name: str) -> bool:
        """Give another copy of a shard a process, if there is one for it."""

    def seat_standby(self, run: PlacedRun, lead: VirtualCoordinator, name: str) -> bool:
        """Give a standby a process, if there is one for it."""

    def make_workers(self, run: SupervisedRun, lead: VirtualCoordinator) -> VirtualWorkers:
        """Make the pool of a coordinator's gradient workers."""

    @property
    def addresses(self) -> list[str]:
        """The processes in which roles are placed, where they are."""

    def reinforce(self, count: int) -> None:
        """Let there be so many further processes."""


@dataclass
class Unplaced:
    """Every role has a process of its own, but a standby, which lives beside a replica; `spares` copies can be made."""

    spares: int = 0

    def begin(self, run: PlacedRun) -> None:
        """Leave everything as it is."""

    def seat_copy(self, run: PlacedRun, shard: int, name: str) -> bool:
        """Use one of the spares."""
        if not self.spares:
            return False
        self.spares -= 1
        return True

    def seat_standby(self, run: PlacedRun, lead: VirtualCoordinator, name: str) -> bool:
        """Let it live beside the first replica that is apart from the coordinator and the other standbys."""
        replicas = [copy for one in lead.lead.coordinator.state.shards for copy in one.in_sync]
        beside = run.processes.first_apart(replicas, [lead.name, *(one.name for one in run.standbys.successors)])
        if beside is not None:
            run.processes.share(name, beside)
        return True

    def make_workers(self, run: SupervisedRun, lead: VirtualCoordinator) -> VirtualWorkers:
        """Let workers join by themselves."""
        return JoinedWorkers(run)

    @property
    def addresses(self) -> list[str]:
        """There are none: each role has its own."""
        return []

    def reinforce(self, count: int) -> None:
        """Add spares."""
        self.spares += count


@dataclass
class Machines:
    """Dask workers, spread evenly over hosts; roles go where `psplatform.core.supervision.placement` says.

    Attributes
    ----------
    on_placed
        Told of each role that is given a process after the start.
    refuses, on_placing
        Whether a gradient worker cannot be started in a process, and who is told of how they are placed; see
        `psplatform.memory.processes.placing.Cluster`.
    there
        The processes that have not ended.
    """

    hosts: int
    count: int
    on_placed: OnPlaced | None = None
    refuses: Callable[[str, str], bool] = lambda name, address: False
    on_placing: OnPlacing = field(default_factory=OnPlacing)
    there: list[Process] = field(default_factory=list)
    _made: int = 0
    _hosts: dict[str, str] = field(default_factory=dict)
    _placement: Placement | None = None
    _unavailable: UnavailableProcesses = field(default_factory=UnavailableProcesses)

    def __post_init__(self) -> None:
        """Start the processes."""
        self.reinforce(self.count)

    # --- the processes ---

    def reinforce(self, count: int) -> None:
        """Start so many further processes."""
        for number in range(count):
            self.start(f"host-{number % self.hosts}")

    def start(self, host: str) -> None:
        """Start another process on a host."""
        self._made += 1
        address = f"process-{self._made}"
        self._hosts[address] = host
        self.there.append(Process(address, host, {}))

    def end(self, address: str) -> str:
        """Remove a process that has ended; return its host, or "" where it was none of these."""
        host = self.host_of(address)
        self.there = [one for one in self.there if one.address != address]
        return host

    def host_of(self, address: str) -> str:
        """Return the host of a process that is there, or ""."""
        return next((one.host for one in self.there if one.address == address), "")

    def on_host(self, host: str) -> list[str]:
        """Return the processes that are there on a host."""
        return [one.address for one in self.there if one.host == host]

    def has_nanny(self, address: str) -> bool:
        """Whether the nanny of a process that has ended lives: it does as long as other processes of its host do."""
        return bool(self.on_host(self._hosts.get(address, "")))

    # --- the roles ---

    def begin(self, run: PlacedRun) -> None:
        """Place everything that a run begins with."""
        protection, share = run.plan.protection, run.processes.share
        replicas = protection.replicas if protection is not None else 0
        placed = place(self.there, workers=run.plan.workers, shards=run.plan.shards, replicas=replicas)
        share("coordinator-1", placed.coordinator)
        for shard, address in enumerate(placed.servers):
            share(first_server(shard), address)
        for shard, group in enumerate(placed.replicas):
            for number, address in enumerate(group):
                share(first_replica(shard, number), address)
        self._placement = placed

    def seat_copy(self, run: PlacedRun, shard: int, name: str) -> bool:
        """Place another copy of a shard."""
        copies = [(one.shard, run.processes.of(copy)) for one in run.coordinator.state.shards for copy in one.copies]
        address = process_for_copy(self.there, shard, copies, self._busy(run), but=self._unavailable.addresses)
        return self._seat(run, name, address, [place for held, place in copies if held == shard])

    def seat_standby(self, run: PlacedRun, lead: VirtualCoordinator, name: str) -> bool:
        """Place a standby."""
        of, shards = run.processes.of, lead.lead.coordinator.state.shards
        address = process_for_standby(
            self.there,
            lead=of(lead.name),
            standbys=[of(one.name) for one in run.standbys.successors],
            servers={of(one.server) for one in shards},
            replicas={of(copy) for one in shards for copy in one.in_sync},
            busy=self._busy(run),
            but=self._unavailable.addresses,
        )
        others = [of(one.name) for one in run.standbys.successors]
        return self._seat(run, name, address, [of(lead.name), *others])

    def make_workers(self, run: SupervisedRun, lead: VirtualCoordinator) -> VirtualWorkers:
        """Have gradient workers started, and replaced, where there are processes for them."""
        pool = VirtualWorkerPool(run, lead, self)
        self._unavailable = pool.unavailable
        if self._placement is not None and not run.leads:
            run.engine.agenda.enter(0.0, pool.begin, self._placement)
        return pool

    @property
    def addresses(self) -> list[str]:
        """The processes that have not ended."""
        return [one.address for one in self.there]

    def _busy(self, run: PlacedRun) -> set[str]:
        return {run.processes.of(one) for one in run.worker_names}

    def _seat(self, run: PlacedRun, name: str, address: str | None, apart: list[str]) -> bool:
        known = {one.address: one for one in self.there}
        if address is None or address not in known:
            return False
        run.processes.share(name, address)
        if self.on_placed is not None:
            usable = [one for one in self.there if one.address not in self._unavailable.addresses]
            self.on_placed(name, known[address], [known[one] for one in apart if one in known], usable)
        return True

"""What every process needs to know of a job, and what it makes of it.

The program reaches the coordinator's process once and is fetched from there by everybody else, worker to worker: the
scheduler never sees the user's objects.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import cloudpickle
import torch

from psplatform.core.addresses import host_of
from psplatform.core.coordination.shards.checkpoints import place_after
from psplatform.core.plan import Plan
from psplatform.core.policy import Policy
from psplatform.core.protocol.names import first_server
from psplatform.core.supervision.leases import Grants
from psplatform.core.traits import Scope
from psplatform.core.transfers import TransferPlanner
from psplatform.errors import ConfigurationError
from psplatform.jobs.checkpoints import Checkpoints
from psplatform.jobs.compression import Compression
from psplatform.jobs.network import Fabric
from psplatform.jobs.optimizers import Optimizer
from psplatform.jobs.replication import Replication
from psplatform.jobs.stragglers import SlowServers, Stragglers
from psplatform.network.learning import learned_rates
from psplatform.network.planner import FabricPlanner
from psplatform.replication.checkpoints.retention import load_checkpoint
from psplatform.runtime.references import References, StandIn, pickled
from psplatform.runtime.timeouts import TIMEOUTS
from psplatform.tasks.foreign import user_code
from psplatform.tasks.layouts import layout_of
from psplatform.tasks.opening import open_workspace
from psplatform.tasks.seam import Workspace
from psplatform.tensors.layout import Layout
from psplatform.tensors.optimizers import make_rule
from psplatform.tensors.shard import Shard

SWITCH_INTERVAL_S: Final = 0.0003
"""After which a thread of a process that computes gives Python's interpreter to another.  Torch gives it up at every
operation, some thousand times a second: with the usual 5 ms, work on the event loop would stop the arithmetic."""


_FOREIGN: Final = ("policy", "optimizer", "plan")
"""Fields of a program that may be objects of classes of the user's, or hold one: a plan holds the schedule."""


@dataclass(frozen=True)
class Resume:
    """A checkpoint that a run goes on from.

    Attributes
    ----------
    number
        The checkpoint's, in the run's store.
    term
        The first coordinator's of the run that goes on: above all that have written to the store.
    state
        The coordinator's part.
    succeeds
        The term under which the run began that goes on.
    claims
        How many programs have claimed to go on with it before, and have not.
    """

    number: int
    term: int
    state: dict[str, Any]
    succeeds: int
    claims: int = 0


@dataclass(frozen=True)
class Program:
    """A job as the processes run it.

    Attributes
    ----------
    task
        The user's task, pickled by cloudpickle, without the numbers in a module that was handed in.
    resume
        What the run goes on from, or ``None`` where it begins.
    references
        What the user's objects refer to by name: a process that cannot import it cannot take part.
    fabric
        How transfers of gradients are planned, or ``None`` where they are sent as soon as computed.
    gradient_bytes
        Of a gradient's part for each shard.
    description
        What the event log's first record says of the run.
    """

    run: str
    task: bytes
    plan: Plan
    policy: Policy
    optimizer: Optimizer
    seed: int
    block_elements: int
    micro_batches: int
    store: str
    device: str
    transport: str
    torch_threads: int | None
    stragglers: Stragglers | None
    slow_servers: SlowServers | None
    worker_lease_s: float
    server_lease_s: float
    resources: dict[str, dict[str, float]]
    replication: Replication
    checkpoints: Checkpoints
    compression: Compression
    fabric: Fabric | None
    gradient_bytes: tuple[int, ...]
    resume: Resume | None
    references: References
    description: dict[str, Any]

    def __getstate__(self) -> dict[str, Any]:
        # They may be defined in the user's program; cloudpickle sends along what other processes cannot import.
        foreign = {name: cloudpickle.dumps(getattr(self, name)) for name in _FOREIGN}
        return {**self.__dict__, **foreign}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, **{name: cloudpickle.loads(state[name]) for name in _FOREIGN})

    @property
    def slow_s(self) -> float:
        """The longest time by which servers' answers are delayed on purpose."""
        return self.slow_servers.seconds if self.slow_servers is not None else 0.0

    def answer_delay_s(self, shard: int, request: int) -> float:
        """Return the seconds by which the server of a shard is to answer that request late, on purpose."""
        slow = self.slow_servers
        return 0.0 if slow is None else slow.delay(self.seed, shard, request)

    @property
    def patience_s(self) -> float:
        """How long a role tries to reach its coordinator: until another would have taken over, and longer.

        A role that gives it up before ends, and would be missing then.
        """
        return self.worker_lease_s + (self.server_lease_s if self.plan.protection is not None else 0.0)

    def grants(self) -> Grants:
        """Return an empty book of leases for servers and coordinators."""
        return Grants(min(TIMEOUTS.shortest_lease_s, self.server_lease_s), self.server_lease_s)

    def make_planner(self, processes: Mapping[str, str]) -> TransferPlanner | None:
        """Return what plans transfers to the servers that the run begins with, ``None`` where nothing does.

        Parameters
        ----------
        processes
            What the process of each copy is called, by the copy's name.
        """
        if self.fabric is None:
            return None
        servers = [host_of(processes[first_server(shard)]) for shard in range(self.plan.shards)]
        parts = list(zip(servers, map(float, self.gradient_bytes), strict=True))
        known = learned_rates(self.fabric.changes_s)
        return FabricPlanner(parts, (), known, self.fabric.tick_s, others=self.fabric.aggregators)

    @property
    def cold(self) -> bool:
        """Whether replicas are kept in the store."""
        return self.plan.protection is not None and self.plan.protection.cold

    @property
    def replication_target(self) -> str:
        """Where replicas are, by the word that a job says so with."""
        return getattr(self.replication, "target", "replica")

    @property
    def term(self) -> int:
        """The first coordinator's term."""
        return self.resume.term if self.resume is not None else 1

    def resume_at(self, shard: int) -> tuple[int, int]:
        """Return position and version that a shard begins at."""
        commit_logs = self.plan.shards if self.policy.traits.scope is Scope.BLOCK else 1
        return place_after(self.resume.state, shard, commit_logs) if self.resume is not None else (0, 0)

    def restore(self, shard: Shard) -> None:
        """Bring a shard into the state that the run goes on from, where it does.

        Raises
        ------
        ConfigurationError
            If the checkpoint does not fit the job, or is damaged.
        """
        if self.resume is None:
            return
        checkpoint = load_checkpoint(self.store, self.resume.number)
        state = checkpoint.shard_state(shard.layout, shard.index, shard.slot_names)
        commits = max((one.plain["commits"] for one in checkpoint.shards), default=0)
        if len(checkpoint.shards) == self.plan.shards:
            commits = checkpoint.shards[shard.index].plain["commits"]
        tensors = {name: torch.from_numpy(array) for name, array in state.items()}
        shard.restore(tensors, version=self.resume_at(shard.index)[1], commits=commits)

    def open(self, device: torch.device) -> tuple[Workspace, Layout]:
        """Build the task in this process; return its workspace and the layout of its tensors.

        Raises
        ------
        ConfigurationError
            If the task cannot be trained.
        UserCodeError
            If the user's code raises, or cannot be imported here.
        """
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        settings = {"seed": self.seed, "shards": self.plan.shards, "block_elements": self.block_elements}
        return open_task(self.task, self.optimizer, settings, device)


def open_task(
    task: bytes, optimizer: Optimizer, settings: Mapping[str, Any], device: torch.device
) -> tuple[Workspace, Layout]:
    """Build a pickled task here as `Program.open` does; `settings` has `seed`, `shards` and `block_elements`."""
    with user_code("opening the task"):
        workspace = open_workspace(cloudpickle.loads(task), settings["seed"], device)
    return workspace, layout_of(workspace, optimizer, settings["shards"], settings["block_elements"])


def slot_names(layout: Layout, optimizer: Optimizer) -> tuple[str, ...]:
    """Return the names of the state vectors that an optimiser keeps of a layout's parameters."""
    rule = make_rule(optimizer)
    vectors = [torch.empty(0) for region in layout.regions if region.kind == "parameter"]
    return tuple(sorted({name for vector in vectors for name in rule.slots(vector)}))


def choose_device(wanted: str) -> torch.device:
    """Return the device of that name; for ``auto`` the GPU where there is one, else the CPU.

    Raises
    ------
    ConfigurationError
        If this process has no such device.
    """
    if wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(wanted)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigurationError(f"device {wanted!r} is not to be had ({reason}); try auto", field="device") from error
    return device


def pickle_task(task: object, parts: dict[str, object]) -> bytes:
    """Return `task` pickled.

    Raises
    ------
    ConfigurationError
        Naming the one of its `parts` that cannot be pickled.
    """
    return pickle_parts(task, parts)[0]


def pickle_parts(
    task: object, parts: dict[str, object], stand_ins: Mapping[int, StandIn] | None = None
) -> tuple[bytes, dict[str, tuple[str, ...]]]:
    """Return `task` pickled, and what each of its `parts`, or else the task, refers to by name.

    Parameters
    ----------
    stand_ins
        What is pickled in place of objects in it.

    Raises
    ------
    ConfigurationError
        Naming the one of its `parts` that cannot be pickled.
    """
    references = {name: references_of(part, name) for name, part in parts.items()}
    whole, named = _pickle(task, "task", stand_ins)
    return whole, references or {"task": named}


def references_of(value: object, name: str) -> tuple[str, ...]:
    """Return what `value`, the job's field of that name, refers to by name.

    Raises
    ------
    ConfigurationError
        If it cannot be pickled.
    """
    return _pickle(value, name)[1]


def _pickle(value: object, name: str, stand_ins: Mapping[int, StandIn] | None = None) -> tuple[bytes, tuple[str, ...]]:
    try:
        return pickled(value, stand_ins)
    except Exception as error:
        what = getattr(value, "__qualname__", type(value).__qualname__)
        raise ConfigurationError(
            f"{name} ({what}) cannot be pickled to be sent to workers: {error}; "
            "make it from plain data, or create what cannot travel inside the callable",
            field=name,
        ) from error

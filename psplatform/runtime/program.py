"""What every process needs to know of a job, and what it makes of it.

The program reaches the coordinator's process once and is fetched from there by everybody else, worker to worker: the
scheduler never sees the user's objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cloudpickle
import torch

from psplatform.core.plan import Plan
from psplatform.core.policy import Policy
from psplatform.errors import ConfigurationError
from psplatform.jobs.optimizers import Optimizer
from psplatform.jobs.stragglers import SlowServers, Stragglers
from psplatform.tasks.foreign import user_code
from psplatform.tasks.layouts import layout_of
from psplatform.tasks.seam import Workspace, open_workspace
from psplatform.tensors.layout import Layout


@dataclass(frozen=True)
class Program:
    """A job as the processes run it.

    Attributes
    ----------
    task
        The user's task, pickled by cloudpickle.
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
    description: dict[str, Any]

    def __getstate__(self) -> dict[str, Any]:
        # A policy may be defined in the user's program; cloudpickle sends along what workers cannot import.
        return {**self.__dict__, "policy": cloudpickle.dumps(self.policy)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, policy=cloudpickle.loads(state["policy"]))

    @property
    def slow_s(self) -> float:
        """The longest time by which servers' answers are delayed on purpose."""
        return self.slow_servers.seconds if self.slow_servers is not None else 0.0

    def open(self, device: torch.device) -> tuple[Workspace, Layout]:
        """Build the task in this process; return its workspace and the layout of its tensors.

        Raises
        ------
        ConfigurationError
            If the task cannot be trained.
        UserCodeError
            If the user's code raises, or cannot be imported here.
        """
        settings = {"seed": self.seed, "shards": self.plan.shards, "block_elements": self.block_elements}
        return open_task(self.task, self.optimizer, settings, device)


def open_task(
    task: bytes, optimizer: Optimizer, settings: Mapping[str, Any], device: torch.device
) -> tuple[Workspace, Layout]:
    """Build a pickled task here as `Program.open` does; `settings` has `seed`, `shards` and `block_elements`."""
    with user_code("opening the task"):
        workspace = open_workspace(cloudpickle.loads(task), settings["seed"], device)
    return workspace, layout_of(workspace, optimizer, settings["shards"], settings["block_elements"])


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
    for name, part in parts.items():
        _pickle(part, name)
    return _pickle(task, "task")


def _pickle(value: object, name: str) -> bytes:
    try:
        pickled: bytes = cloudpickle.dumps(value)
    except Exception as error:
        what = getattr(value, "__qualname__", type(value).__qualname__)
        raise ConfigurationError(
            f"{name} ({what}) cannot be pickled to be sent to workers: {error}; "
            "make it from plain data, or create what cannot travel inside the callable",
            field=name,
        ) from error
    return pickled

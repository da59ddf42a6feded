"""A fault-tolerant parameter-server training platform on Dask.

The names below are what programs use; each is fetched from its package when it is first asked for, so that importing
psplatform loads neither Dask nor torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from psplatform.client.launch import train
    from psplatform.client.run import Run
    from psplatform.client.runs.attaching import attach
    from psplatform.client.runs.recovery import recover
    from psplatform.client.what_if import simulate
    from psplatform.core.plan import Stop
    from psplatform.jobs.checkpoints import Checkpoints
    from psplatform.jobs.job import Job
    from psplatform.jobs.metrics import Metric
    from psplatform.jobs.network import Fabric, Network
    from psplatform.jobs.optimizers import SGD, AdaGrad, Adam, AdamW, Additive, Group, RMSProp
    from psplatform.jobs.replication import Bounded, Chain, NoReplication
    from psplatform.jobs.schedules import Constant, Cosine, StepDecay
    from psplatform.jobs.stragglers import SlowServers, Stragglers
    from psplatform.policies.registry import make_policy
    from psplatform.simulation.conditions import Conditions
    from psplatform.tasks.seam import Evaluation, Task, Update
    from psplatform.tensors.contract import check_optimizer
    from psplatform.tensors.own_optimizers import CustomOptimizer

_HOMES = {
    "AdaGrad": "psplatform.jobs.optimizers",
    "Adam": "psplatform.jobs.optimizers",
    "AdamW": "psplatform.jobs.optimizers",
    "Additive": "psplatform.jobs.optimizers",
    "Bounded": "psplatform.jobs.replication",
    "Chain": "psplatform.jobs.replication",
    "Checkpoints": "psplatform.jobs.checkpoints",
    "Conditions": "psplatform.simulation.conditions",
    "Constant": "psplatform.jobs.schedules",
    "Cosine": "psplatform.jobs.schedules",
    "CustomOptimizer": "psplatform.tensors.own_optimizers",
    "Evaluation": "psplatform.tasks.seam",
    "Fabric": "psplatform.jobs.network",
    "Group": "psplatform.jobs.optimizers",
    "Job": "psplatform.jobs.job",
    "Metric": "psplatform.jobs.metrics",
    "Network": "psplatform.jobs.network",
    "NoReplication": "psplatform.jobs.replication",
    "RMSProp": "psplatform.jobs.optimizers",
    "Run": "psplatform.client.run",
    "SGD": "psplatform.jobs.optimizers",
    "SlowServers": "psplatform.jobs.stragglers",
    "StepDecay": "psplatform.jobs.schedules",
    "Stop": "psplatform.core.plan",
    "Stragglers": "psplatform.jobs.stragglers",
    "Task": "psplatform.tasks.seam",
    "Update": "psplatform.tasks.seam",
    "attach": "psplatform.client.runs.attaching",
    "check_optimizer": "psplatform.tensors.contract",
    "make_policy": "psplatform.policies.registry",
    "recover": "psplatform.client.runs.recovery",
    "simulate": "psplatform.client.what_if",
    "train": "psplatform.client.launch",
}

__all__ = [
    "SGD",
    "AdaGrad",
    "Adam",
    "AdamW",
    "Additive",
    "Bounded",
    "Chain",
    "Checkpoints",
    "Conditions",
    "Constant",
    "Cosine",
    "CustomOptimizer",
    "Evaluation",
    "Fabric",
    "Group",
    "Job",
    "Metric",
    "Network",
    "NoReplication",
    "RMSProp",
    "Run",
    "SlowServers",
    "StepDecay",
    "Stop",
    "Stragglers",
    "Task",
    "Update",
    "__version__",
    "attach",
    "check_optimizer",
    "make_policy",
    "recover",
    "simulate",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'psplatform' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__

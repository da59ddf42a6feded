"""The layout of an opened task's tensors, made alike in every process that opens it."""

from __future__ import annotations

from dataclasses import replace

from psplatform.errors import ConfigurationError
from psplatform.jobs.optimizers import Optimizer, assign_groups
from psplatform.tasks.seam import Workspace
from psplatform.tensors.layout import Layout


def layout_of(workspace: Workspace, optimizer: Optimizer, shards: int, block_elements: int) -> Layout:
    """Return the layout of a workspace's tensors, its parameters in the optimiser's groups."""
    names = [spec.name for spec in workspace.specs if spec.kind == "parameter"]
    groups = dict(zip(names, assign_groups(optimizer, names), strict=True))
    specs = [replace(spec, group=groups.get(spec.name, 0)) for spec in workspace.specs]
    return Layout.of(specs, shards=shards, block_elements=block_elements)


def require_trainable(layout: Layout, samples: int, batch_size: int) -> None:
    """Raise `ConfigurationError` where there is nothing to train, a shard without parameters, or no full batch."""
    if layout.parameters == 0:
        raise ConfigurationError(
            "the model has no trainable parameters; set requires_grad on those to train", field="model"
        )
    most = layout.most_shards
    if layout.shards > most:
        holds, needs, remedy = f"{layout.parameters} parameters", "one", "give fewer shards"
        if most < layout.parameters:
            holds, needs, remedy = f"{holds} in {most} blocks", "a block", f"{remedy}, or a smaller block_elements"
        text = (
            f"shards must be at most {most}, not {layout.shards}: the model has {holds}, and each shard needs {needs}"
        )
        raise ConfigurationError(f"{text} of its own; {remedy}", field="shards")
    if batch_size > samples:
        raise ConfigurationError(
            f"batch_size must be at most the number of samples: {batch_size} > {samples}", field="batch_size"
        )

"""The layout of an opened task's tensors, made alike in every process that opens it."""

from __future__ import annotations

from dataclasses import replace

from psplatform.jobs.optimizers import Optimizer, assign_groups
from psplatform.tasks.seam import Workspace
from psplatform.tensors.layout import Layout


def layout_of(workspace: Workspace, optimizer: Optimizer, shards: int, block_elements: int) -> Layout:
    """Return the layout of a workspace's tensors, its parameters in the optimiser's groups."""
    names = [spec.name for spec in workspace.specs if spec.kind == "parameter"]
    groups = dict(zip(names, assign_groups(optimizer, names), strict=True))
    specs = [replace(spec, group=groups.get(spec.name, 0)) for spec in workspace.specs]
    return Layout.of(specs, shards=shards, block_elements=block_elements)

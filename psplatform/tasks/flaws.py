"""What is not finite in a gradient, and which samples are to blame."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from psplatform.core.protocol.member_messages import MOST_NAMED
from psplatform.core.protocol.messages import Flaw
from psplatform.tasks.data.structures import leaves_of, parts_of
from psplatform.tasks.objectives import Objective
from psplatform.tasks.seam import BatchRef, Workspace

Fetch = Callable[[NDArray[np.int64]], Any]

_PAIR: Final = ("the input", "the target")
"""What the parts of a batch of two are called."""

_MOST_EXAMINED: Final = 64
"""Samples of a batch that are looked at one by one: each may take a backward pass."""


def find_flaw(workspace: Workspace, batch: BatchRef, loss: float, squared_norm: float) -> Flaw | None:
    """Return what is not finite in the batch's gradient, which the workspace has just computed; None if all is."""
    if math.isfinite(loss) and math.isfinite(squared_norm):
        return None
    try:
        found = workspace.examine(batch)
    except Exception:  # noqa: BLE001  the user's code is run another way than usual: what it cannot tell is not known
        found = None
    if found is not None and (found.alone or math.isfinite(loss)):
        return found
    # Where the loss is not finite, no gradient is.
    return of_batch(batch, ["a gradient" if math.isfinite(loss) else "the loss"])


def of_batch(batch: BatchRef, tensors: Sequence[str]) -> Flaw | None:
    """Return the flaw of a whole batch, where it is not known which of its samples show it."""
    if not tensors:
        return None
    return _flaw(tensors[0], batch.indices.tolist(), alone=False)


def flawed_names(what: str, tensors: Mapping[str, Tensor | None]) -> list[str]:
    """Return in words which of the named tensors are not finite."""
    return [f"{what} of {name}" for name, one in tensors.items() if one is not None and not _is_finite(one)]


def flaw_of(module: nn.Module, objective: Objective, fetch: Fetch, batch: BatchRef) -> Flaw | None:
    """Return what is not finite when the loss of a batch is differentiated; None if all of it is finite.

    Samples that are themselves not finite are to blame; else those whose own loss, or its gradient, is not finite;
    else it is not known which, and the whole batch is named.

    Parameters
    ----------
    fetch
        Returns the batch of the samples with these indices.
    """
    indices, values = batch.indices.tolist(), fetch(batch.indices)
    for name, part in _named_parts(values):
        tensors = [one for one in leaves_of(part) if isinstance(one, Tensor) and one.shape[:1] == (len(indices),)]
        rows = [row for row in range(len(indices)) if not all(_is_finite(one[row]) for one in tensors)]
        if rows:
            return _flaw(name, [indices[row] for row in rows], of_data=True)
    named = {name: one for name, one in module.named_parameters() if one.requires_grad}
    whole = flawed_names("the gradient", {name: one.grad for name, one in named.items()})
    if len(indices) > _MOST_EXAMINED:
        return of_batch(batch, whole)

    def alone(row: int) -> Any:
        return fetch(batch.indices[row : row + 1])

    try:
        with torch.no_grad():
            losses = objective.each(module, values, len(indices), alone)
        rows = [row for row, one in enumerate(losses) if not _is_finite(one)]
        found = {"the loss": rows} if rows else _gradients(module, objective, alone, len(indices), named)
    except Exception:  # noqa: BLE001  the user's code may not take single samples: batch norm does not
        found = {}
    for what, rows in found.items():
        return _flaw(what, [indices[row] for row in rows])
    return of_batch(batch, whole)


def _named_parts(values: Any) -> list[tuple[str, Any]]:
    """Return the parts of a batch with what they are called."""
    if isinstance(values, Mapping):
        return [(f"{key!r} of the input", part) for key, part in values.items()]
    parts = parts_of(values)
    if parts is None or len(parts) != len(_PAIR):
        return [("the input", values)]
    return list(zip(_PAIR, parts, strict=True))


def _gradients(
    module: nn.Module, objective: Objective, alone: Callable[[int], Any], samples: int, named: Mapping[str, Tensor]
) -> dict[str, list[int]]:
    """Return the rows whose own gradient is not finite, by the first parameter whose it is."""
    found: dict[str, list[int]] = {}
    for row in range(samples):
        # Alone: in the batch's graph, the derivative of one row, infinite, times the zero of another is not finite.
        own = objective.loss(module, alone(row))
        gradients = torch.autograd.grad(own, list(named.values()), allow_unused=True)
        for what in flawed_names("the gradient", dict(zip(named, gradients, strict=True)))[:1]:
            found.setdefault(what, []).append(row)
    return found


def _is_finite(tensor: Tensor) -> bool:
    return bool(torch.isfinite(tensor).all())


def _flaw(tensor: str, samples: Sequence[int], *, alone: bool = True, of_data: bool = False) -> Flaw:
    return Flaw(tensor, tuple(sorted(samples)[:MOST_NAMED]), len(samples), alone, of_data)

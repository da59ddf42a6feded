"""What is not finite in a gradient, and which samples are to blame."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn

from psplatform.core.member_messages import MOST_NAMED
from psplatform.core.messages import Flaw
from psplatform.tasks.seam import BatchRef, Workspace

Loss = Callable[[Any, Any], Tensor]

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


def flaw_of(module: nn.Module, loss: Loss, inputs: Any, targets: Any, batch: BatchRef) -> Flaw | None:
    """Return what is not finite when `loss` of the module's output is differentiated; None if all of it is finite.

    Samples that are themselves not finite are to blame; else those whose own loss, or its gradient, is not finite;
    else nobody knows, and the whole batch is named.
    """
    indices = batch.indices.tolist()
    for name, values in (("the input", inputs), ("the target", targets)):
        rows = [row for row in range(len(indices)) if not all(_is_finite(one[row]) for one in _tensors(values))]
        if rows:
            return _flaw(name, [indices[row] for row in rows], of_data=True)
    named = {name: one for name, one in module.named_parameters() if one.requires_grad}
    whole = flawed_names("the gradient", {name: one.grad for name, one in named.items()})
    if len(indices) > _MOST_EXAMINED:
        return of_batch(batch, whole)
    try:
        found = _losses(module, loss, inputs, targets) or _gradients(module, loss, inputs, targets, named)
    except Exception:  # noqa: BLE001  the user's code may not take single samples: batch norm does not
        found = {}
    for what, rows in found.items():
        return _flaw(what, [indices[row] for row in rows])
    return of_batch(batch, whole)


def _losses(module: nn.Module, loss: Loss, inputs: Any, targets: Any) -> dict[str, list[int]]:
    """Return the rows whose own loss is not finite, by the word for it."""
    with torch.no_grad():
        outputs = module(inputs)
        rows = [row for row in range(len(targets)) if not _is_finite(loss(_row(outputs, row), _row(targets, row)))]
    return {"the loss": rows} if rows else {}


def _gradients(
    module: nn.Module, loss: Loss, inputs: Any, targets: Any, named: Mapping[str, Tensor]
) -> dict[str, list[int]]:
    """Return the rows whose own gradient is not finite, by the first parameter whose it is."""
    found: dict[str, list[int]] = {}
    for row in range(len(targets)):
        # Alone: in the batch's graph, the derivative of one row, infinite, times the zero of another is not finite.
        own = loss(module(_row(inputs, row)), _row(targets, row))
        gradients = torch.autograd.grad(own, list(named.values()), allow_unused=True)
        for what in flawed_names("the gradient", dict(zip(named, gradients, strict=True)))[:1]:
            found.setdefault(what, []).append(row)
    return found


def _row(values: Any, row: int) -> Any:
    return values[row : row + 1]


def _tensors(values: Any) -> Iterator[Tensor]:
    """Yield the tensors in a batch of any structure; each has the samples as its first dimension."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, Mapping):
        for one in values.values():
            yield from _tensors(one)
    elif isinstance(values, list | tuple):
        for one in values:
            yield from _tensors(one)


def _is_finite(tensor: Tensor) -> bool:
    return bool(torch.isfinite(tensor).all())


def _flaw(tensor: str, samples: Sequence[int], *, alone: bool = True, of_data: bool = False) -> Flaw:
    return Flaw(tensor, tuple(sorted(samples)[:MOST_NAMED]), len(samples), alone, of_data)

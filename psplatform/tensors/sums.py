"""Gradients summed on their way to the servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


def add_up(parts: Sequence[Mapping[str, Tensor]], out: Mapping[str, Tensor]) -> None:
    """Write the sum of the parts, added in the order given, into `out`; all are vectors by name.

    Of buffers that are no floating-point numbers (counters, masks) it is the element-wise maximum, as where a shard
    averages gradients.
    """
    for key, total in out.items():
        first, *others = (part[key] for part in parts)
        total.copy_(first)
        for other in others:
            if total.is_floating_point():
                total.add_(other)
            else:
                torch.maximum(total, other, out=total)

"""Batches as a model takes them: on its device, and floating-point numbers in its type.

Data in float32 and float64 get the type of the parameters that are trained, so that NumPy's float64 trains a model in
float32, and a model in float64 loses no digit of such data.  All other types stay, and so does everything where the
trained parameters have several types, or a function of the user's (`collate`) makes the batches.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from psplatform.tasks.data.loaders import Collate, Data
from psplatform.tasks.data.sources import as_source
from psplatform.tasks.data.structures import placed


class Reader:
    """Reads batches of `data` for `module`.

    Raises
    ------
    ConfigurationError
        If the data cannot be read by index.
    """

    def __init__(self, data: Data, collate: Collate | None, module: nn.Module, device: torch.device) -> None:
        self._source, self._device = as_source(data, collate), device
        self._dtype = None if self._source.exact else _trained_dtype(module)

    def __len__(self) -> int:
        return len(self._source)

    def fetch(self, indices: NDArray[np.int64]) -> Any:
        """Return the batch of the samples, in the order of `indices`."""
        return placed(self._source.fetch(indices), self._device, self._dtype)


def _trained_dtype(module: nn.Module) -> torch.dtype | None:
    dtypes = {parameter.dtype for parameter in module.parameters() if parameter.requires_grad}
    return dtypes.pop() if len(dtypes) == 1 else None

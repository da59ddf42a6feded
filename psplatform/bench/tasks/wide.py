"""Tasks as wide as wanted, whose gradients cost little more than reading the parameters, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from psplatform.tasks.cancellation import check
from psplatform.tasks.seam import Batch, Task, Update

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

_PULL: Final = 0.1
"""How strongly the parameters are drawn back to where they are wanted."""

_OFFSETS: Final = 1024
_STRIDE: Final = 16  # elements of a cache line, so that every offset is as fast as any other
_TILE: Final = 1 << 16  # elements that are in the cache still when their squares are added, and of the noise
_MEASURED: Final = 8  # of so many tiles, the squares of the first are added


class _Flat(Task):
    """One vector of parameters that begins with zeros."""

    samples = 1024

    def __init__(self, parameters: int) -> None:
        self.parameters = parameters
        self._gradient: Tensor | None = None

    def initial(self) -> Mapping[str, Tensor]:
        """Return zeros."""
        import torch  # noqa: PLC0415  torch is not needed to describe the job

        return {"weights": torch.zeros(self.parameters)}

    def write_to(self, updates: Mapping[str, Tensor]) -> None:
        """Keep the gradient where it is wanted."""
        self._gradient = updates["weights"]


class Wide(_Flat):
    """Quadratic losses ``|a w + p|^2 / (2 a)`` whose gradients are ``a w + p``; ``p`` is noise, another in each batch.

    It repeats every 2^16 elements, and so stays in the cache.  The loss is estimated from every eighth part.

    Parameters
    ----------
    parameters
        Number of float32 parameters.
    """

    def __init__(self, parameters: int) -> None:
        super().__init__(parameters)
        self._noise: Tensor | None = None

    def compute(self, parameters: Mapping[str, Tensor], batch: Batch, rng: np.random.Generator) -> Update:
        """Return the gradient under the noise that `rng` chooses, in one pass over the parameters."""
        import torch  # noqa: PLC0415  see above

        weights = parameters["weights"]
        if self._noise is None:
            generator = torch.Generator().manual_seed(0)
            self._noise = torch.randn(_TILE + _OFFSETS * _STRIDE, generator=generator)
        if self._gradient is None:
            self._gradient = torch.zeros_like(weights)  # made once: fresh memory costs more than the arithmetic
        start = _STRIDE * int(rng.integers(_OFFSETS))
        noise = self._noise[start : start + _TILE]
        squares, measured = 0.0, 0
        tiles = zip(self._gradient.split(_TILE), weights.split(_TILE), strict=True)
        for number, (part, w) in enumerate(tiles):
            check()
            torch.add(noise[: part.numel()], w, alpha=_PULL, out=part)
            if number % _MEASURED == 0:
                squares += float(torch.dot(part, part))
                measured += part.numel()
        return Update({"weights": self._gradient}, loss=squares * self.parameters / measured / (2 * _PULL))


class Constant(_Flat):
    """A linear loss: its gradient is ones, at any parameters, and always there.

    Parameters
    ----------
    parameters
        Number of float32 parameters.
    """

    def write_to(self, updates: Mapping[str, Tensor]) -> None:
        """Write the gradient where it is wanted."""
        super().write_to(updates)
        updates["weights"].fill_(1.0)

    def compute(self, parameters: Mapping[str, Tensor], batch: Batch, rng: np.random.Generator) -> Update:
        """Return ones."""
        if self._gradient is None:
            import torch  # noqa: PLC0415  see above

            self._gradient = torch.ones(self.parameters)
        return Update({"weights": self._gradient}, loss=float(parameters["weights"][0]))

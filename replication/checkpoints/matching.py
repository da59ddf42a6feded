"""Whether a job's model and optimiser are those of a checkpoint, and if not, what differs first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from psplatform.errors import ConfigurationError
from psplatform.replication.checkpoints.arrays import Contents
from psplatform.tensors.layout import Layout

_REMEDY: Final = "recover with the {} that the checkpoint was made with, or start a new run in another store"


@dataclass(frozen=True, slots=True)
class _Tensor:
    kind: str
    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


def require_match(checkpoint: Contents, job: Contents) -> None:
    """Refuse a job that cannot go on from a checkpoint; on how many shards either is does not matter.

    Raises
    ------
    ConfigurationError
        Naming the first tensor that differs with both shapes, or the optimiser's state that does.
    """
    _require_model(_tensors(checkpoint.layout), _tensors(job.layout))
    if set(checkpoint.slots) != set(job.slots):
        difference = f"{_listed(job.slots)} in the job and {_listed(checkpoint.slots)} in the checkpoint"
        message = f"the optimizer keeps {difference}; {_REMEDY.format('optimizer')}"
        raise ConfigurationError(message, field="optimizer")


def _require_model(checkpoint: dict[str, _Tensor], job: dict[str, _Tensor]) -> None:
    for name in [*job, *(name for name in checkpoint if name not in job)]:
        mine, its = job.get(name), checkpoint.get(name)
        if mine == its:
            continue
        one = mine or its
        if mine is None or its is None:
            difference = f"{one} in the {'checkpoint' if mine is None else 'job'} and missing in the "
            difference += "job" if mine is None else "checkpoint"
        elif mine.kind != its.kind:
            difference = f"a {mine.kind} in the job and a {its.kind} in the checkpoint"
        else:
            difference = f"{mine} in the job and {its} in the checkpoint"
        kind = one.kind if one else ""
        message = f"model {kind} {name!r} is {difference}; {_REMEDY.format('model')}"
        raise ConfigurationError(message, field="model")


def _tensors(layout: Layout) -> dict[str, _Tensor]:
    return {
        entry.name: _Tensor(region.kind, region.dtype, entry.shape)
        for region in layout.regions
        for entry in region.entries
    }


def _listed(slots: Sequence[str]) -> str:
    return " and ".join(sorted(slots)) or "no state"

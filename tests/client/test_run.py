"""The model of a run that is over, as the module it was trained as."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from psplatform.client.run import Run
from psplatform.errors import StoreError
from psplatform.replication.stores.models import save_model
from psplatform.replication.stores.store import create_run
from psplatform.tensors.flat import tensors_of

NAME = "left/right.weight"


def network() -> nn.Module:
    """Two layers of which one, frozen, is not saved, under names that no path can hold."""
    module = nn.ModuleDict({"left/right": nn.Linear(2, 3), "frozen": nn.Linear(1, 1)})
    module["frozen"].requires_grad_(False)
    return module


@pytest.fixture
def run(tmp_path: Path) -> Callable[[set[str]], Run]:
    """Make a run that has saved a model of ones, without some of its tensors."""

    def make(without: set[str]) -> Run:
        store = str(tmp_path / "run.zarr")
        create_run(store, {"run": "model-bsp-1a2b3c"})
        arrays = {name: torch.ones_like(tensor).numpy() for name, tensor in tensors_of(network()).items()}
        save_model(store, {name: array for name, array in arrays.items() if name not in without}, version=9)
        return Run("model-bsp-1a2b3c", store, module=network)

    return make


def test_a_model_has_what_was_saved_whatever_its_tensors_are_called(run: Callable[[set[str]], Run]) -> None:
    module = run(set()).model()
    assert module.state_dict()[NAME].tolist() == torch.ones(3, 2).tolist()


def test_a_model_that_lacks_a_tensor_is_refused(run: Callable[[set[str]], Run]) -> None:
    """Else nobody would notice that a part of it was never trained."""
    with pytest.raises(StoreError, match=r"run\.zarr lacks 'left/right\.weight'; build the module that was trained"):
        run({NAME}).model()

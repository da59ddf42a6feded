"""What comes out of a run: bit for bit the arithmetic that was asked for, wherever it was computed."""

from __future__ import annotations

import resource
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import dask.array
import numpy as np
import pytest
import torch
import zarr
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import psplatform as ps
from psplatform.tasks.data.sampling import gradient_seed, replacement

Start = Callable[..., ps.Run]
Log = Callable[..., list[dict[str, Any]]]
Fields = dict[str, Any]
LIMIT_S = 180.0


@pytest.fixture(autouse=True)
def _sent_whole(by_value: Callable[[str], None]) -> None:
    by_value(__name__)


def bits(run: ps.Run) -> dict[str, bytes]:
    """Return the saved parameters as bytes: equal only where every bit is."""
    return {name: array.tobytes() for name, array in run.parameters()[0].items()}


def serial(fields: Fields, commits: list[list[tuple[int, int]]]) -> nn.Module:
    """Train in one loop with torch's own optimiser: each step on the mean of the gradients of (slot, sequence)."""
    torch.manual_seed(fields["seed"])
    module = fields["model"]()
    inputs, targets = fields["data"]()
    parameters = list(module.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True, foreach=False)
    for commit in commits:
        gradients = []
        for slot, sequence in commit:
            batch = replacement(fields["seed"], slot, sequence, len(inputs), fields["batch_size"])
            torch.manual_seed(gradient_seed(fields["seed"], slot, sequence))
            loss = fields["loss"](module(inputs[batch]), targets[batch])
            gradients.append(torch.autograd.grad(loss, parameters))
        for parameter, *parts in zip(parameters, *gradients, strict=True):
            total = parts[0].clone()
            for part in parts[1:]:
                total += part
            parameter.grad = total / len(parts)
        optimizer.step()
    return module


def test_bsp_equals_the_serial_loop_bit_for_bit(start: Start, log: Log, small: Fields) -> None:
    """Two workers and two shards with dropout, momentum and weight decay: the same bits as one process with torch."""
    optimizer = ps.SGD(lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True)
    run = start(**{**small, "optimizer": optimizer, "stop": ps.Stop(updates=30)})
    run.wait(LIMIT_S)
    commits = [list(zip(one["slots"], one["sequences"], strict=True)) for one in log(run, "commit")]
    assert commits == [[(0, number), (1, number)] for number in range(1, 31)]
    expected = serial(small, commits).state_dict()
    assert bits(run) == {name: tensor.numpy().tobytes() for name, tensor in expected.items()}


def test_the_way_gradients_travel_changes_no_bit(start: Start, small: Fields) -> None:
    """Shared memory and Dask's comms, one shard and three, all processes shared or none: the same parameters."""
    ways = [{}, {"transport": "comms"}, {"transport": "comms", "shards": 3, "workers": 2}, {"shards": 1}]
    runs = [start(**{**small, **way}) for way in ways]
    for run in runs:
        run.wait(LIMIT_S)
    results = [bits(run) for run in runs]
    assert results[1:] == results[:-1]


def test_another_seed_gives_another_result(start: Start, small: Fields) -> None:
    runs = [start(**{**small, "seed": seed}) for seed in (11, 12)]
    for run in runs:
        run.wait(LIMIT_S)
    assert bits(runs[0]) != bits(runs[1])


def test_runs_beside_each_other_do_not_meet(start: Start, small: Fields) -> None:
    """Three at once on five processes: each comes out as it does alone."""
    alone = start(**small)
    alone.wait(LIMIT_S)
    beside = [start(**small), start(**{**small, "seed": 12, "policy": "asp"}), start(**small)]
    assert len({run.run for run in beside}) == 3
    for run in beside:
        run.wait(LIMIT_S)
    assert bits(beside[0]) == bits(beside[2]) == bits(alone)


class Tally(ps.Task):
    """Counts how often each sample was used."""

    samples = 60

    def initial(self) -> Mapping[str, Tensor]:
        return {"used": torch.zeros(self.samples)}

    def compute(self, parameters: Mapping[str, Tensor], batch: Any, rng: np.random.Generator) -> ps.Update:
        used = torch.zeros(self.samples)
        used[torch.from_numpy(batch.copy())] = 1.0
        return ps.Update({"used": used}, loss=1.0)


@pytest.mark.parametrize("transport", ["auto", "comms"])
@pytest.mark.parametrize(("policy", "workers"), [("bsp", 2), ("ssp", 2), ("asp", 1)])
def test_an_epoch_uses_every_sample_once(start: Start, policy: str, workers: int, transport: str) -> None:
    """Three epochs of eight batches of seven or eight: what was applied counts every sample three times.

    What is under way when the last sample of the third epoch is applied may replace one of it by one of the fourth.
    """
    run = start(
        task=Tally(),
        optimizer=ps.Additive(),
        policy=policy,
        workers=workers,
        shards=2,
        batch_size=8,
        transport=transport,
        stop=ps.Stop(epochs=3),
        torch_threads=1,
    )
    run.wait(LIMIT_S)
    used = run.parameters()[0]["used"]
    if policy != "ssp":
        assert used.tolist() == [3.0] * Tally.samples
    assert used.min() >= 2
    assert used.max() <= 4


def _count_pages(place: Path, module: nn.Module, batch: Any) -> Tensor:
    """Return the loss of a batch; note how many pages tensors of 1 MiB were given by the kernel."""
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    for _ in range(20):
        torch.empty(1 << 18).fill_(1.0)
    with place.open("a") as noted:
        noted.write(f"{(resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before) // 20}\n")
    inputs, targets = batch
    return nn.functional.cross_entropy(module(inputs), targets)


def test_memory_that_a_gradient_has_freed_is_there_for_the_next(start: Start, small: Fields, tmp_path: Path) -> None:
    """Dask lets processes return it, page by page: taking it again costs as much as the arithmetic."""
    place = tmp_path / "pages"
    fields = small | {"loss": None, "step": partial(_count_pages, place), "workers": 1, "shards": 1, "test": None}
    start(**fields).wait(LIMIT_S)
    assert min(map(int, place.read_text().split())) <= (1 << 20) // resource.getpagesize() // 10


def _on_disk(folder: Path, small: Fields) -> Any:
    inputs, targets = small["data"]()
    kept = zarr.create_array(str(folder / "x.zarr"), data=inputs.numpy(), chunks=(50, 2))
    return kept, zarr.create_array(str(folder / "y.zarr"), data=targets.numpy(), chunks=(240,))


def _in_chunks(_folder: Path, small: Fields) -> Any:
    inputs, targets = small["data"]()
    return dask.array.from_array(inputs.numpy(), chunks=(50, 2)), dask.array.from_array(targets.numpy(), chunks=240)


def _as_dataset(_folder: Path, small: Fields) -> Any:
    return TensorDataset(*small["data"]())


def _as_arrays(_folder: Path, small: Fields) -> Any:
    return tuple(part.numpy() for part in small["data"]())


@pytest.mark.parametrize("kind", [_on_disk, _in_chunks, _as_dataset, _as_arrays])
def test_the_kind_of_data_changes_no_bit(start: Start, tmp_path: Path, small: Fields, kind: Any) -> None:
    """Zarr arrays, dask arrays, a torch data set and NumPy arrays hold the same samples as the callable."""
    fields = {**small, "stop": ps.Stop(updates=5), "test": None}
    runs = [start(**fields), start(**{**fields, "data": kind(tmp_path, small)})]
    for run in runs:
        run.wait(LIMIT_S)
    assert bits(runs[0]) == bits(runs[1])

"""Batches that are dicts, a step of one's own and a model in float64: the same bits as plain torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from distributed import Client
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import psplatform as ps
from psplatform.client.runs.recovery import recover
from psplatform.errors import ConfigurationError
from psplatform.tasks.data.sampling import gradient_seed, replacement

Start = Callable[..., ps.Run]
Fields = dict[str, Any]
LIMIT_S = 180.0
EVERY = 10


@pytest.fixture(autouse=True)
def _sent_whole(by_value: Callable[[str], None]) -> None:
    by_value(__name__)


class Texts(Dataset[dict[str, Any]]):
    """Ragged rows of numbers in float64 and what they add up to."""

    def __len__(self) -> int:
        return 90

    def __getitem__(self, index: int) -> dict[str, Any]:
        row = torch.arange(1.0, 2 + index % 5, dtype=torch.float64) / 3
        return {"row": row, "total": float(row.sum())}


def padded(samples: list[dict[str, Any]]) -> dict[str, Tensor]:
    rows = nn.utils.rnn.pad_sequence([sample["row"] for sample in samples], batch_first=True)
    wide = nn.functional.pad(rows, (0, 5 - rows.shape[1]))
    return {"rows": wide, "totals": torch.tensor([one["total"] for one in samples], dtype=torch.float64)}


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, 1)).double()


def step(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return nn.functional.mse_loss(model(batch["rows"]).squeeze(1), batch["totals"])


def plain(seed: int, updates: int, batch_size: int) -> dict[str, Tensor]:
    """Train in one loop: each update on the mean of two workers' gradients."""
    torch.manual_seed(seed)
    model, texts = network(), Texts()
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=False)
    for number in range(1, updates + 1):
        gradients = []
        for slot in (0, 1):
            indices = replacement(seed, slot, number, len(texts), batch_size).tolist()
            torch.manual_seed(gradient_seed(seed, slot, number))
            loss = step(model, padded([texts[index] for index in indices]))
            gradients.append(torch.autograd.grad(loss, parameters))
        for parameter, one, other in zip(parameters, *gradients, strict=True):
            parameter.grad = (one + other) / 2
        optimizer.step()
    return dict(model.state_dict())


def test_dict_batches_of_a_loader_train_a_double_precision_model_which_goes_on_from_its_store(
    start: Start, client: Client, small: Fields
) -> None:
    """The loader gives the batch size and the collate; parameters, momentum and losses keep every digit."""
    code = {"model": network, "step": step, "data": DataLoader(Texts(), batch_size=12, collate_fn=padded)}
    fields = {name: value for name, value in small.items() if name not in ("loss", "test", "batch_size")}
    every = ps.Checkpoints(every_updates=EVERY)
    run = start(**{**fields, **code, "optimizer": ps.SGD(lr=0.1, momentum=0.9), "checkpoints": every})
    assert run.wait(LIMIT_S)["batch_size"] == 12
    _assert_bits(run, plain(11, 20, 12))
    with pytest.raises(ConfigurationError, match="give model, step, data again"):
        recover(run.store, client, stop=ps.Stop(updates=30))
    again = recover(run.store, client, stop=ps.Stop(updates=30), **code)
    assert again.wait(LIMIT_S)["updates"] == 30
    _assert_bits(again, plain(11, 30, 12))


def _assert_bits(run: ps.Run, expected: dict[str, Tensor]) -> None:
    found, _ = run.parameters()
    assert {name: array.dtype.name for name, array in found.items()} == dict.fromkeys(expected, "float64")
    assert {name: array.tobytes() for name, array in found.items()} == {
        name: tensor.numpy().tobytes() for name, tensor in expected.items()
    }
    trained = run.model()
    assert all(torch.equal(value, expected[name]) for name, value in trained.state_dict().items())


def test_a_step_measures_held_out_data(start: Start, small: Fields) -> None:
    """There is a loss that a target can be set on, and no accuracy."""
    code = {"loss": None, "model": network, "step": step, "data": Texts(), "test": Texts(), "collate": padded}
    run = start(**{**small, **code, "evaluate_every": 10, "stop": ps.Stop(target_loss=100.0, updates=50)})
    summary = run.wait(LIMIT_S)
    assert summary["outcome"] == "reached target"
    assert summary["evaluation_loss"] < 100
    assert summary["accuracy"] is None

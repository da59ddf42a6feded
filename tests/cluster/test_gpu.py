"""Training on a GPU, where there is one: what it learns, how the host takes part, and what happens when it is full."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import psplatform as ps
from psplatform.client.runs.verification import verify
from psplatform.errors import UserCodeError
from psplatform.runtime.dataplane.pulls import devices

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")


class Hungry(nn.Module):
    """A model that wants more memory than any GPU has, from its fifth batch in a process on."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.batches = 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.batches += 1
        if self.batches > 4:
            torch.empty(1 << 45, device=inputs.device)
        out: Tensor = self.layer(inputs)
        return out


def normalising() -> nn.Module:
    """A model with buffers, in parts of which many make a bucket."""
    return nn.Sequential(
        nn.Linear(2, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, 4096), nn.ReLU(), nn.Linear(4096, 2)
    )


@pytest.mark.parametrize("transport", ["auto", "comms"])
@pytest.mark.parametrize("policy", ["bsp", "asp"])
def test_it_learns_what_it_learns_on_the_cpu(
    finish: Callable[..., ps.Run], small: dict[str, Any], policy: str, transport: str
) -> None:
    """Bit for bit it is not the same: a GPU sums in another order."""
    fields = {"model": normalising, "optimizer": ps.SGD(lr=0.02, momentum=0.5), "workers": 1, "policy": policy}
    found = []
    for device in ("cpu", "cuda"):
        run = finish(**small | fields | {"device": device, "micro_batches": 2, "transport": transport})
        found.append(run.parameters()[0])
    for name, expected in found[0].items():
        assert np.allclose(found[1][name], expected, rtol=1e-3, atol=1e-4), name


def test_the_host_s_memory_is_pinned(
    start_here: Any, small: dict[str, Any], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned: list[int] = []
    pin = devices.Pins.pin

    def note(self: devices.Pins, *vectors: Any) -> None:
        pin(self, *vectors)
        pinned.extend(int(vector.is_pinned()) for some in vectors for vector in some.values() if vector.numel())

    monkeypatch.setattr(devices.Pins, "pin", note)
    with caplog.at_level(logging.WARNING, devices.LOGGER.name), start_here(3) as client:
        run = ps.train(ps.Job(**small | {"device": "cuda", "store": "memory://pinned"}), client)
        run.wait(180.0)
        run.close()
    assert pinned
    assert all(pinned)
    assert not [one for one in caplog.records if one.name == devices.LOGGER.name]


def test_one_that_is_full_is_named_and_the_store_stays_whole(
    start: Callable[..., ps.Run], small: dict[str, Any]
) -> None:
    run = start(**small | {"model": Hungry, "device": "cuda", "test": None})
    with pytest.raises(UserCodeError, match=r"out of memory.*; choose a smaller batch_size, or more micro_batches"):
        run.wait(180.0)
    assert verify(run.store).sound

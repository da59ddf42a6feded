"""What a run costs those who are not part of it, and slowness that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import distributed.comm.tcp
import numpy as np
import psutil
import pytest
import torch
from distributed import Client
from torch import Tensor

import psplatform as ps
from psplatform.jobs.stragglers import SlowServers, Stragglers

Finish = Callable[..., ps.Run]
Log = Callable[..., list[dict[str, Any]]]
Fields = dict[str, Any]

PARAMETERS = 25_000_000
GRADIENT_BYTES = 4 * PARAMETERS


@pytest.fixture(autouse=True)
def _sent_whole(by_value: Callable[[str], None]) -> None:
    by_value(__name__)


class Large(ps.Task):
    """Twenty-five million parameters whose gradient costs nothing to compute."""

    samples = 64

    def __init__(self) -> None:
        self._gradient: Tensor | None = None

    def initial(self) -> Mapping[str, Tensor]:
        return {"w": torch.zeros(PARAMETERS)}

    def compute(self, parameters: Mapping[str, Tensor], batch: Any, rng: np.random.Generator) -> ps.Update:
        if self._gradient is None:
            self._gradient = torch.ones(PARAMETERS)
        return ps.Update({"w": self._gradient}, loss=float(parameters["w"][0]))


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count what this process, the scheduler's own, receives: bytes by message."""
    sizes: list[int] = []
    read = distributed.comm.tcp.from_frames

    async def count(frames: Any, *arguments: Any, **options: Any) -> Any:
        sizes.append(sum(len(memoryview(one)) for one in frames))
        return await read(frames, *arguments, **options)

    monkeypatch.setattr(distributed.comm.tcp, "from_frames", count)
    return sizes


def test_the_scheduler_sees_no_gradient(finish: Finish, client: Client, received: list[int], small: Fields) -> None:
    """Twenty synchronous iterations of two workers, 100 MB each: its memory grows by less than a tenth of one."""

    def memory() -> int:
        return int(psutil.Process().memory_info().rss)

    finish(**small)  # the first run of a process loads what later ones share
    received.clear()
    before = client.run_on_scheduler(memory)
    run = finish(
        task=Large(),
        optimizer=ps.SGD(lr=0.5),
        workers=2,
        shards=2,
        batch_size=4,
        stop=ps.Stop(updates=20),
        evaluate_every=None,
        torch_threads=1,
    )
    assert client.run_on_scheduler(memory) - before < GRADIENT_BYTES / 10
    assert 0 < sum(received) < GRADIENT_BYTES / 10
    assert run.metrics()["loss"] == -9.5  # nineteen steps of half a unit: every gradient has arrived


def test_every_process_may_have_several_roles(finish: Finish, log: Log, small: Fields) -> None:
    """Five workers and five servers in five processes, the coordinator and the evaluator among them."""
    run = finish(**{**small, "workers": 5, "shards": 5, "evaluate_every": 10})
    assert run.metrics()["updates"] == 20
    assert len({one["process"] for one in log(run, "joined")}) == 5
    assert {tuple(one["slots"]) for one in log(run, "commit")} == {(0, 1, 2, 3, 4)}


def test_stragglers_are_as_slow_as_asked_for(finish: Finish, log: Log, small: Fields) -> None:
    """Each iteration lasts at least what the seed says, and the compute time in the log is that."""
    stragglers = Stragglers.parse("uniform:low=0.01,high=0.03;slow:chance=0.3,factor=3;factors:1,2")
    run = finish(**{**small, "policy": "asp", "stragglers": stragglers})
    gradients = log(run, "gradient")
    assert len(gradients) >= 20
    for one in gradients:
        key = small["seed"], one["slot"], one["sequence"] - 1
        target = stragglers.iteration_seconds(*key)
        assert target is not None
        assert one["compute_s"] >= target * stragglers.slow_down(*key)


@pytest.mark.parametrize("transport", ["auto", "comms"])
def test_slow_servers_hold_up_every_pull(finish: Finish, log: Log, small: Fields, transport: str) -> None:
    """The log's pull times show it; computing is as fast as before."""
    slow = SlowServers(shards=(1,), seconds=0.1, chance=1.0)
    run = finish(**{**small, "slow_servers": slow, "transport": transport, "stop": ps.Stop(updates=5)})
    pulls = [one["pull_s"] for one in log(run, "gradient")]
    assert len(pulls) >= 10
    assert min(pulls) >= 0.1

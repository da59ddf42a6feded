"""Processes that die in the user's code: which one, of what, doing what; and the next run on the same cluster."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from distributed import Client, LocalCluster
from torch import Tensor, nn

import psplatform as ps
from psplatform.errors import ProcessDied

LIMIT_S = 180.0
HOW: dict[str, tuple[str, str, int]] = {
    "exit": ("ended with exit code 3", "look for what calls os._exit", 3),
    "crash": (r"was killed by SIGSEGV \(segmentation fault\)", "python -X faulthandler", -signal.SIGSEGV),
    "kill": (r"was killed by SIGKILL \(most likely by the kernel, because memory ran out\)", "give it more memory", -9),
    "memory": ("was ended by its nanny for using more than 95 % of its memory limit", "larger --memory-limit", -15),
}


def die(how: str) -> Any:
    if how == "exit":
        os._exit(3)
    if how == "crash":
        ctypes.string_at(0)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    filled = []
    while how == "memory":  # until the nanny ends this
        filled.append(b"x" * (30 << 20))
        time.sleep(0.1)


def dying_model(how: str) -> nn.Module:
    die(how)
    return nn.Linear(2, 2)


def dying_data(how: str) -> tuple[Tensor, Tensor]:
    die(how)
    return torch.zeros(8, 2), torch.zeros(8, dtype=torch.int64)


def dying_loss(how: str, output: Tensor, target: Tensor) -> Tensor:
    die(how)
    return nn.functional.cross_entropy(output, target)


def dying_step(how: str, model: nn.Module, batch: Any) -> Tensor:
    die(how)
    return dying_loss("", model(batch[0]), batch[1])


def dying_collate(how: str, samples: list[Any]) -> Any:
    die(how)
    return samples


PLACES: dict[str, Callable[..., Any]] = {
    "model": dying_model,
    "data": dying_data,
    "loss": dying_loss,
    "step": dying_step,
    "collate": dying_collate,
}


@pytest.fixture(autouse=True)
def _travels(by_value: Callable[[str], None]) -> None:
    by_value(__name__)


def dying(small: dict[str, Any], how: str, place: str) -> dict[str, Any]:
    """Change a job so that its user's code ends the process there."""
    fields = {**small, place: partial(PLACES[place], how)}
    if place == "step":
        del fields["loss"]
    return fields


@pytest.mark.parametrize(
    ("how", "place"),
    [("exit", "model"), ("crash", "data"), ("kill", "loss"), ("crash", "step"), ("exit", "collate")],
)
def test_a_process_that_dies_at_a_first_gradient_is_named_with_what_it_died_of(
    start: Callable[..., ps.Run], client: Client, small: dict[str, Any], tmp_path: Path, how: str, place: str
) -> None:
    """Nothing is left behind, and the cluster trains what comes next, though it lacks a process for a moment."""
    before = client.run(os.getpid)
    said, remedy, code = HOW[how]
    with pytest.raises(ProcessDied, match=rf"^tcp://\S+ \(process \d+\) {said} while a first gradient was") as caught:
        start(**dying(small, how, place))
    assert remedy in str(caught.value)
    assert before[caught.value.peer] == caught.value.pid
    assert caught.value.code == code
    assert not list(tmp_path.iterdir()), "no store"
    following = start(**{**small, "workers": 5, "shards": 1, "store": str(tmp_path / "next.zarr")})
    assert following.wait(LIMIT_S)["outcome"] == "updates"


@pytest.fixture
def narrow() -> Iterator[Client]:
    """Start a cluster whose nanny ends a process that takes more than 900 MB."""
    settings: dict[str, Any] = {
        "host": "127.0.0.1",
        "dashboard_address": "127.0.0.1:0",
        "scheduler_kwargs": {"dashboard": False},
    }
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, memory_limit="900MB", **settings) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def test_a_process_that_exceeds_its_memory_limit_is_told_from_one_that_crashed(
    narrow: Client, small: dict[str, Any], tmp_path: Path
) -> None:
    said, remedy, code = HOW["memory"]
    fields = {**dying(small, "memory", "loss"), "workers": 1, "shards": 1, "store": str(tmp_path / "run.zarr")}
    with pytest.raises(ProcessDied, match=said) as caught:
        ps.train(ps.Job(**fields), narrow)
    assert remedy in str(caught.value)
    assert (caught.value.code, caught.value.kind) == (code, "memory limit")
    assert not list(tmp_path.iterdir())


PROGRAM = """
import ctypes, os, signal, sys
import torch
from torch import nn
import psplatform as ps

def loss(output, target):
    {how}

if __name__ == "__main__":
    data = torch.zeros(8, 2), torch.zeros(8, dtype=torch.int64)
    job = ps.Job(model=lambda: nn.Linear(2, 2), loss=loss, data=data, batch_size=4, stop=ps.Stop(updates=3))
    ps.train(job)
"""


@pytest.mark.parametrize(
    ("how", "code"),
    [("os._exit(3)", 3), ("ctypes.string_at(0)", -signal.SIGSEGV), ("os.kill(os.getpid(), signal.SIGKILL)", -9)],
)
def test_a_program_without_a_cluster_that_its_own_code_ends_says_so(tmp_path: Path, how: str, code: int) -> None:
    """It tries a first gradient by itself."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM.format(how=how))
    command = [sys.executable, script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == code
    said = done.stderr.splitlines()[-1] if code != -signal.SIGSEGV else done.stderr
    assert (
        "psplatform: this program ended while a first gradient was tried in it: the model, loss, step or data" in said
    )
    if code == -signal.SIGSEGV:
        assert "in loss" in done.stderr, "Python's own report shows the line"
    assert [one.name for one in tmp_path.iterdir()] == ["program.py"], "no store"

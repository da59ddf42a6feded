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
from psplatform.errors import ClusterError, ProcessDied

LIMIT_S = 180.0
HOW: dict[str, tuple[str, str, int | None]] = {
    "exit": ("ended with exit code 3", "look for what calls os._exit", 3),
    "crash": (r"was killed by SIGSEGV \(segmentation fault\)", "python -X faulthandler", -signal.SIGSEGV),
    "kill": (r"was killed by SIGKILL \(most likely by the kernel, because memory ran out\)", "give it more memory", -9),
    "silently": (
        r"ended without a word \(exit code 0, or a log level above INFO hides how\)",
        "look for what calls os._exit",
        None,
    ),
    "memory": ("was ended by its nanny for using more than 95 % of its memory limit", "larger --memory-limit", -15),
}


def die(how: str) -> Any:
    if how == "silently":
        os._exit(0)
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
    [("exit", "model"), ("crash", "data"), ("kill", "loss"), ("crash", "step"), ("silently", "collate")],
)
def test_a_process_that_dies_at_a_first_gradient_is_named_with_what_it_died_of(
    start: Callable[..., ps.Run], client: Client, small: dict[str, Any], tmp_path: Path, how: str, place: str
) -> None:
    """Nothing is left behind, and the cluster trains what comes next, though it lacks a process for a moment."""
    before = client.run(os.getpid)
    said, remedy, code = HOW[how]
    with pytest.raises(ProcessDied, match=rf"^t\w+://\S+ \(process \d+\) {said} while a first gradient was") as caught:
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


# --- while a run trains ---


class Armed:
    """Whether the user's code ends its process from now on: a file, as every process sees it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __bool__(self) -> bool:
        return self.path.exists()


def counted(samples: int) -> tuple[Tensor, Tensor]:
    values = torch.arange(float(samples)) / samples
    return torch.stack([values, 1 - values], 1), (values > 0.5).long()


def deadly_sample(armed: Armed, model: nn.Module, batch: Any) -> Tensor:
    if armed and (batch[0][:, 0] == 0).any():
        die("crash")
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def deadly_evaluation(armed: Armed, model: nn.Module, batch: Any) -> Tensor:
    if armed and not torch.is_grad_enabled():
        die("exit")
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def deadly_gradient(armed: Armed, model: nn.Module, batch: Any) -> Tensor:
    if armed:
        die("kill")
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


@pytest.fixture
def armed(tmp_path: Path) -> Armed:
    return Armed(tmp_path / "armed")


@pytest.fixture
def endless(small: dict[str, Any], tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Describe a run without end that computes with `step`."""

    def describe(step: Callable[..., Any], **fields: Any) -> dict[str, Any]:
        known = {**small, "data": partial(counted, 64), "test": None, "shards": 1, "sampling": "epoch"}
        known |= {"stop": ps.Stop(updates=10**9), "policy": "asp", "stragglers": "constant:seconds=0.01"}
        known |= {"replication": ps.NoReplication(), "step": step, "store": str(tmp_path / "run.zarr")}
        del known["loss"]
        return {**known, **fields}

    return describe


@pytest.fixture
def embedded(endless: Callable[..., dict[str, Any]]) -> Iterator[Callable[..., ps.Run]]:
    """Start a run without end on a cluster of its own, whose processes are started again however often they die."""
    runs: list[ps.Run] = []

    def begin(step: Callable[..., Any], **fields: Any) -> ps.Run:
        runs.append(ps.train(ps.Job(**endless(step, **fields))))
        return runs[-1]

    yield begin
    for run in runs:
        run.stop("the test is over")
        run.close()


def test_a_batch_that_ends_every_process_ends_the_run_and_saves_its_model(
    embedded: Callable[..., ps.Run],
    armed: Armed,
    until: Callable[..., None],
    log: Callable[..., Any],
    segments: Callable[[str], list[Path]],
) -> None:
    run = embedded(partial(deadly_sample, armed))
    until(lambda: run.metrics()["updates"] > 0, "it trains")
    armed.path.touch()
    said = r"^3 processes have died one after the other while they computed the same batch: t\w+://\S+ \(process \d+\)"
    died = r" was killed by SIGSEGV .* while it computed gradients as worker-"
    with pytest.raises(ProcessDied, match=said + died) as caught:
        run.wait(LIMIT_S)
    assert caught.value.code == -signal.SIGSEGV
    deaths = [
        one for one in log(run, "note") if "was killed by SIGSEGV (segmentation fault); it was worker" in one["text"]
    ]
    assert len(deaths) >= 3, "each death is in the log"
    assert run.parameters()[1] > 0, "what was reached is saved"
    assert not segments(run.run)


def test_gradients_that_end_every_process_end_the_run_whatever_their_batch(
    embedded: Callable[..., ps.Run], armed: Armed, until: Callable[..., None]
) -> None:
    run = embedded(partial(deadly_gradient, armed), sampling="replacement")
    until(lambda: run.metrics()["updates"] > 0, "it trains")
    armed.path.touch()
    said = r"^\d processes have died one after the other at a gradient of worker \d, none came back: tls:.* SIGKILL"
    with pytest.raises(ProcessDied, match=said):
        run.wait(LIMIT_S)


def test_evaluations_that_end_every_process_end_the_run_and_spare_its_servers(
    start: Callable[..., ps.Run], endless: Callable[..., dict[str, Any]], armed: Armed, until: Callable[..., None]
) -> None:
    run = start(**endless(partial(deadly_evaluation, armed), test=partial(counted, 16), evaluate_every=20))
    until(lambda: run.metrics()["updates"] > 0, "it trains")
    armed.path.touch()
    with pytest.raises(ProcessDied, match="3 processes have died one after the other while they evaluated the model"):
        run.wait(LIMIT_S)
    assert run.parameters()[1] > 0


def test_one_process_that_dies_is_a_lost_worker_of_which_the_log_says_why(
    embedded: Callable[..., ps.Run], armed: Armed, until: Callable[..., None], log: Callable[..., Any]
) -> None:
    run = embedded(partial(deadly_gradient, armed))
    until(lambda: run.metrics()["updates"] > 0, "it trains")
    os.kill(run.process_of("worker-1"), signal.SIGSEGV)
    said = "was killed by SIGSEGV (segmentation fault); it was worker-1"
    until(lambda: any(said in one["text"] for one in log(run, "note")), "the log says of what it died")
    at = run.metrics()["updates"]
    until(lambda: run.metrics()["updates"] > at + 10, "the run goes on")


def test_a_coordinator_that_dies_is_gone_with_what_it_died_of(
    embedded: Callable[..., ps.Run], armed: Armed, until: Callable[..., None]
) -> None:
    run = embedded(partial(deadly_gradient, armed))
    until(lambda: run.metrics()["updates"] > 0, "it trains")
    pid = run.process_of("coordinator")
    os.kill(pid, signal.SIGSEGV)
    said = rf"^(tcp|tls)://\S+ \(process {pid}\) was killed by SIGSEGV \(.*\): the coordinator of run .* is gone"
    with pytest.raises(ClusterError, match=said):
        run.wait(LIMIT_S)

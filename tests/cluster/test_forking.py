"""Processes of an embedded cluster are forked from one that has imported what they need, and are none the worse."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from distributed import Client

from psplatform.client.clusters.embedded import end_cluster, start_cluster
from psplatform.client.clusters.forking import BEFORE_START

LIMIT_S = 180.0

PROGRAM = """
import os, pathlib, sys
place = pathlib.Path(sys.argv[1])
(place / f"imported-{os.getpid()}").touch()

def parent():
    return os.getppid()

if __name__ == "__main__":
    from psplatform.client.clusters.embedded import end_cluster, start_cluster

    cluster, client = start_cluster(2)
    print(os.getpid(), *client.run(parent).values(), *client.run(os.getpid).values())
    end_cluster(client, cluster)
"""


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    cluster, client = start_cluster(3)
    yield client
    end_cluster(client, cluster)


def _ask(client: Client, question: Callable[[], Any]) -> list[Any]:
    return list(client.run(question).values())


def test_all_have_the_same_parent_which_is_not_this_program(client: Client) -> None:
    (parent,) = set(_ask(client, os.getppid))
    assert parent != os.getpid()


def test_they_find_what_must_be_there_before_torch_is_imported(client: Client) -> None:
    said = _ask(client, lambda: {name: os.environ.get(name) for name in BEFORE_START})
    assert said == [{name: os.environ.get(name, value) for name, value in BEFORE_START.items()}] * 3
    expected = int(os.environ.get("OMP_NUM_THREADS", "1"))
    assert _ask(client, torch.get_num_threads) == [expected] * 3


def test_this_program_keeps_its_environment() -> None:
    before = dict(os.environ)
    cluster, client = start_cluster(1)
    end_cluster(client, cluster)
    # Dask itself leaves what its worker processes are to find.
    assert {name: os.environ.get(name) for name in before} == before
    assert "THP_MEM_ALLOC_ENABLE" in before or "THP_MEM_ALLOC_ENABLE" not in os.environ


def test_no_two_draw_the_same_numbers(client: Client) -> None:
    drawn = _ask(client, lambda: float(np.random.random()))  # noqa: NPY002  as code of users does
    assert len(set(drawn)) == 3


def test_one_that_was_killed_is_forked_again(client: Client, until: Callable[..., None]) -> None:
    (parent,) = set(_ask(client, os.getppid))
    before, there = _ask(client, os.getpid), lambda: set(client.scheduler_info(n_workers=-1)["workers"])
    addresses = there()
    os.kill(min(before), signal.SIGKILL)
    until(lambda: len(there()) == 3 and there() != addresses, "another is there", limit_s=LIMIT_S)
    assert min(before) not in _ask(client, os.getpid)
    assert _ask(client, os.getppid) == [parent] * 3


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system does not tell what a process ignores")
def test_ctrl_c_is_for_the_program_alone(client: Client) -> None:
    """Also in a process that was started in place of another, when this program listens again."""

    def ignored() -> bool:
        lines = Path("/proc/self/status").read_text().splitlines()
        mask = int(next(line for line in lines if line.startswith("SigIgn:")).split()[1], 16)
        return bool(mask >> (signal.SIGINT - 1) & 1)

    assert _ask(client, ignored) == [True] * 3


def test_the_program_itself_is_imported_in_its_processes_and_not_before_they_are_forked(tmp_path: Path) -> None:
    """What a program initialises while it is imported, CUDA for one, may not survive a fork."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path)], capture_output=True, text=True, check=True, timeout=LIMIT_S
    )
    pid, server, same, *workers = map(int, done.stdout.split())
    assert server == same
    imported = {int(one.name.removeprefix("imported-")) for one in tmp_path.glob("imported-*")}
    assert imported == {pid, *workers}


UNGUARDED = """
import torch
from torch import nn
import psplatform as ps
from psplatform.errors import ConfigurationError

def loss(output, target):
    return nn.functional.cross_entropy(output, target)

data = torch.zeros(8, 2), torch.zeros(8, dtype=torch.int64)
job = ps.Job(model=lambda: nn.Linear(2, 2), loss=loss, data=data, batch_size=4, stop=ps.Stop(updates=3))
try:
    ps.train(job)
except ConfigurationError as error:
    print(error)
"""
GUARD = 'put what starts the run below `if __name__ == "__main__":`'


@pytest.mark.parametrize("spawned", [False, True], ids=["forked", "spawned"])
def test_a_program_whose_import_starts_a_run_is_told_in_one_sentence(tmp_path: Path, spawned: bool) -> None:
    """No process of the cluster can say it with a traceback: there would be one for each."""
    program = tmp_path / "program.py"
    program.write_text(UNGUARDED)
    other = {"DASK_DISTRIBUTED__NANNY__PRE_SPAWN_ENVIRON__OMP_NUM_THREADS": "2"} if spawned else {}
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        env={**os.environ, **other},
        capture_output=True,
        text=True,
        check=True,
        timeout=LIMIT_S,
    )
    (said,) = done.stdout.splitlines()
    assert GUARD in said
    assert set(done.stderr.splitlines()) == ({said} if spawned else set())
    assert [one.name for one in tmp_path.iterdir()] == ["program.py"], "no store"


def test_a_program_on_standard_input_is_told_to_save_itself_before_anything_is_started(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-"],
        input=UNGUARDED,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=LIMIT_S,
    )
    (said,) = done.stdout.splitlines()
    assert "there is no file" in said
    assert "save the program in a file" in said
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []
